// Data parallelism without collectives among equals: synchronous parameter servers (Li et al., OSDI'14), and
// one process that drives all devices (torch.nn.DataParallel).
#include "base/error.h"
#include "program/lower/workbench.h"
#include "program/placement.h"
#include "workloads/image_operator.h"

namespace orrery::internal {
namespace {

const std::vector<std::int32_t>& members(Lowering& lowering) {
  return lowering.group_at(lowering.group(GroupKind::data)).ranks;
}

// Of four bytes: a token and its target, or a picture and its class. None where the model does not say.
double batch_words_per_row(const Workload& workload) {
  if (workload.transformer) return 2;
  const std::int64_t elements = picture_shape(workload).elements();
  return elements > 0 ? static_cast<double>(elements) + 1 : 0;
}

// One side of the messages between every worker and all servers, a slice of the bucket each; the servers are
// workers too.
Instruction with_servers(Lowering& lowering, int bucket, TensorKind kind) {
  const int workers = static_cast<int>(members(lowering).size());
  const int servers = lowering.choices().servers;
  const int here = lowering.program.at.dp;  // this form is pure data parallelism
  const bool to_server = kind == TensorKind::gradients;
  Instruction instruction = to_servers(lowering, bucket, kind);
  if (here >= servers) return instruction;
  for (int k = 1; k < workers; ++k)
    add_slice(lowering, instruction, (here + k) % workers, here, /*send=*/!to_server);
  return instruction;
}

}  // namespace

Instruction slice_exchange(const Lowering& lowering, int bucket, TensorKind kind) {
  const bool gradients = kind == TensorKind::gradients;
  Instruction instruction;
  instruction.op = Op::exchange;
  instruction.stream = Stream::data;
  instruction.form = Parallelism::server;
  instruction.dtype = gradients ? lowering.plan().gradient_type() : lowering.plan().parameter_type();
  instruction.reads.push_back({kind, bucket, -1});
  return instruction;
}

void add_slice(Lowering& lowering, Instruction& instruction, int other, int server, bool send) {
  TensorRef tensor = instruction.reads.front();
  const std::int64_t elements = lowering.program.buckets[static_cast<std::size_t>(tensor.index)].elements;
  const double bytes =
      static_cast<double>(server_slice(elements, lowering.choices().servers, server).elements) *
      bytes_of(instruction.dtype);
  const std::int32_t tag = 2 * tensor.index + (tensor.kind == TensorKind::gradients ? 0 : 1);
  tensor.block = server;
  instruction.transfers.push_back(
      {members(lowering)[static_cast<std::size_t>(other)], bytes, tag, send, tensor});
  instruction.bytes += bytes;
  if (!send && instruction.writes.empty()) instruction.writes.push_back(instruction.reads.front());
}

// Worker w begins with server w, so that not all of them push into the same port first.
Instruction to_servers(Lowering& lowering, int bucket, TensorKind kind) {
  const int servers = lowering.choices().servers;
  const int here = lowering.program.at.dp;
  Instruction instruction = slice_exchange(lowering, bucket, kind);
  for (int k = 0; k < servers; ++k) {
    const int server = (here + k) % servers;
    if (server != here) add_slice(lowering, instruction, server, server, kind == TensorKind::gradients);
  }
  return instruction;
}

bool has_servers(const Lowering& lowering) {
  return lowering.choices().has_servers() && !lowering.choices().asynchronous();
}

bool has_one_process(const Lowering& lowering) {
  return lowering.choices().sync == Sync::single_process && lowering.choices().dp > 1;
}

bool updates_buckets(const Lowering& lowering) {
  const int position = lowering.program.at.dp;  // these forms are pure data parallelism
  if (lowering.choices().has_servers()) return position < lowering.choices().servers;
  if (has_one_process(lowering)) return position == 0;
  return true;
}

std::uint32_t push_gradients(Lowering& lowering, int bucket, std::vector<std::uint32_t> after) {
  Instruction instruction = with_servers(lowering, bucket, TensorKind::gradients);
  instruction.after = std::move(after);
  return lowering.emit(std::move(instruction));
}

std::uint32_t pull_parameters(Lowering& lowering, int bucket, std::uint32_t after) {
  Instruction instruction = with_servers(lowering, bucket, TensorKind::parameters);
  instruction.after.push_back(after);
  return lowering.emit(std::move(instruction));
}

std::vector<std::uint32_t> replicate(Lowering& lowering, int micro_batch, std::int64_t loaded) {
  const int group = lowering.group(GroupKind::data);
  const auto size = static_cast<double>(lowering.group_at(group).ranks.size());
  std::vector<std::uint32_t> done;
  Instruction scatter = data_collective(
      CollectiveKind::scatter, group, {TensorKind::batch, 0, micro_batch},
      size * lowering.shard().rows * batch_words_per_row(lowering.plan().job->workload), DType::int32);
  if (loaded >= 0) scatter.after.push_back(static_cast<std::uint32_t>(loaded));
  done.push_back(lowering.emit(std::move(scatter)));
  // In the order in which the forward pass needs them.
  for (int bucket = static_cast<int>(lowering.program.buckets.size()) - 1; bucket >= 0; --bucket) {
    const std::int64_t elements = lowering.program.buckets[static_cast<std::size_t>(bucket)].elements;
    Instruction broadcast =
        data_collective(CollectiveKind::broadcast, group, {TensorKind::parameters, bucket, -1},
                        static_cast<double>(elements), lowering.plan().parameter_type());
    broadcast.micro_batch = micro_batch;  // whose forward pass waits for them
    if (lowering.has_compute()) broadcast.after.push_back(lowering.last_compute());
    done.push_back(lowering.emit(std::move(broadcast)));
  }
  return done;
}

void gather_loss(Lowering& lowering, int micro_batch) {
  const int last = lowering.op_count() - 1;
  const int group = lowering.group(GroupKind::data);
  Instruction instruction =
      data_collective(CollectiveKind::gather, group, {TensorKind::loss, last, micro_batch},
                      static_cast<double>(lowering.group_at(group).ranks.size()), DType::fp32);
  instruction.after.push_back(lowering.last_compute());
  lowering.emit(std::move(instruction));
}

}  // namespace orrery::internal
