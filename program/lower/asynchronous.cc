// Parameter servers whose workers do not wait for each other (Li et al., OSDI'14; Dean et al., NIPS'12), and
// whose fastest may be ahead of the slowest by a bounded number of steps (stale synchronous parallel: Ho et
// al., NIPS'13).
#include <utility>

#include "program/lower/workbench.h"
#include "program/placement.h"

namespace orrery::internal {
namespace {

// Whoever is handed parameters waits until the slowest worker is near enough.
void bound_lead(const Lowering& lowering, Instruction& instruction) {
  if (lowering.choices().staleness > 0) instruction.lead = lowering.choices().staleness;
}

}  // namespace

std::uint32_t push_and_pull(Lowering& lowering, int bucket, const std::vector<std::uint32_t>& after) {
  Instruction pull = to_servers(lowering, bucket, TensorKind::parameters);
  pull.stream = Stream::data_receive;
  pull.writes.assign(1, {TensorKind::parameters, bucket, -1});
  Instruction push = to_servers(lowering, bucket, TensorKind::gradients);
  push.after = after;
  if (!push.transfers.empty()) pull.after.push_back(lowering.emit(std::move(push)));
  if (updates_buckets(lowering)) {
    Instruction update = update_of(lowering, {bucket});
    for (const std::uint32_t other : after)  // the compute stream has its own order
      if (lowering.program.instructions[other].stream != Stream::compute) update.after.push_back(other);
    pull.after.push_back(lowering.emit(std::move(update)));
    bound_lead(lowering, pull);
  }
  return lowering.emit(std::move(pull));
}

// All workers push in the order in which this rank pulls.
void add_services(Lowering& lowering) {
  if (!lowering.choices().asynchronous() || !updates_buckets(lowering)) return;
  Program& program = lowering.program;
  const int here = program.at.dp;
  const Group workers = lowering.group_at(lowering.group(GroupKind::data));
  for (int worker = 0; worker < lowering.choices().dp; ++worker) {
    if (worker == here) continue;
    Service service;
    service.worker = workers.ranks[static_cast<std::size_t>(worker)];
    const auto add = [&](Instruction&& instruction) {
      if (!service.instructions.empty() && service.instructions.size() % kServicePhases != kReceivePush)
        instruction.after.push_back(static_cast<std::uint32_t>(service.instructions.size() - 1));
      service.instructions.push_back(std::move(instruction));
    };
    for (const Instruction& own : program.instructions) {
      if (own.form != Parallelism::server || own.reads.front().kind != TensorKind::parameters) continue;
      const std::int32_t bucket = own.writes.front().index;
      Instruction push = slice_exchange(lowering, bucket, TensorKind::gradients);
      push.stream = Stream::data_receive;
      add_slice(lowering, push, worker, here, /*send=*/false);
      add(std::move(push));
      add(update_of(lowering, {bucket}));
      Instruction pull = slice_exchange(lowering, bucket, TensorKind::parameters);
      add_slice(lowering, pull, worker, here, /*send=*/true);
      bound_lead(lowering, pull);
      add(std::move(pull));
    }
    program.services.push_back(std::move(service));
  }
}

}  // namespace orrery::internal
