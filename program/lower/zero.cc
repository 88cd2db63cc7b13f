// Sharded states (ZeRO, arXiv 1910.02054; FSDP, arXiv 2304.11277): when parameters are gathered. Which
// gradients are scattered is data.cc's.
#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "program/lower/workbench.h"

namespace orrery::internal {

bool reduces_every_micro_batch(const Lowering& lowering, int bucket) {
  const auto b = static_cast<std::size_t>(bucket);
  const bool each = lowering.choices().zero >= 2 || has_one_process(lowering);
  return each && lowering.program.buckets[b].group >= 0 && !lowering.tied_bucket[b];
}

std::uint32_t gather_parameters(Lowering& lowering, int index, std::int64_t after) {
  const Bucket& bucket = lowering.program.buckets[static_cast<std::size_t>(index)];
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::data;
  instruction.form = Parallelism::data;
  instruction.collective = CollectiveKind::all_gather;
  instruction.group = bucket.group;
  instruction.dtype = lowering.plan().parameter_type();
  instruction.bytes = static_cast<double>(bucket.elements) * bytes_of(instruction.dtype);
  instruction.reads.push_back({TensorKind::parameters, index, -1});
  instruction.writes.push_back({TensorKind::parameters, index, -1});
  if (after >= 0) instruction.after.push_back(static_cast<std::uint32_t>(after));
  return lowering.emit(std::move(instruction));
}

void ParameterGather::plan_uses(int slot, const Pass& pass) {
  const Choices& choices = lowering_.choices();
  const bool each_use = choices.zero == 3;
  const bool once =
      choices.zero >= 1 && choices.zero <= 2 && lowering_.plan().job->runtime.overlap_param_gather;
  if (!each_use && !once) return;
  // What a layer needs is there from its first use to its last, and stays for the next if that needs it too.
  const bool forgets =
      each_use && lowering_.plan().job->runtime.live_parameters > 0 && choices.recompute == Recompute::full;
  std::size_t i = 0;
  bool recomputed = false;  // what comes is the backward pass of a layer that has just been run again
  while (i < pass.patterns.size()) {
    const int layer = lowering_.op(pass.patterns[i].instruction.op_begin).layer;
    if (recomputed) forget_used();
    recomputed = false;
    Run run{slot, -1, {}, {}};
    std::vector<int> wanted;
    for (bool again = false; i < pass.patterns.size(); ++i) {
      const Instruction& instruction = pass.patterns[i].instruction;
      if (instruction.op == Op::compute && lowering_.op(instruction.op_begin).layer != layer) break;
      if (forgets && instruction.op == Op::compute) {
        recomputed = again && instruction.compute != ComputeKind::recompute;
        if (recomputed) break;
        again = instruction.compute == ComputeKind::recompute;
      }
      for (const int bucket : pass.patterns[i].needs) {
        if (lowering_.program.buckets[static_cast<std::size_t>(bucket)].group < 0 ||
            std::find(wanted.begin(), wanted.end(), bucket) != wanted.end()) {
          continue;
        }
        wanted.push_back(bucket);
        if (std::find(resident_.begin(), resident_.end(), bucket) != resident_.end()) continue;
        if (run.pattern < 0) run.pattern = static_cast<int>(i);
        run.buckets.push_back(bucket);
      }
    }
    if (once) {
      resident_.insert(resident_.end(), run.buckets.begin(), run.buckets.end());
    } else if (!wanted.empty()) {
      resident_ = std::move(wanted);
    }
    if (!run.buckets.empty()) runs_.push_back(std::move(run));
  }
}

// Of what has just been used: stays only what is needed again before more than the runtime keeps has been
// used (the last of a layer is the first of its backward pass).
void ParameterGather::forget_used() {
  const double limit = lowering_.plan().job->runtime.live_parameters;
  double between = 0;
  std::size_t kept = resident_.size();
  for (; kept > 0 && between <= limit; --kept)
    between += 2 * static_cast<double>(
                       lowering_.program.buckets[static_cast<std::size_t>(resident_[kept - 1])].elements);
  resident_.erase(resident_.begin(), resident_.begin() + static_cast<std::ptrdiff_t>(kept));
}

// Whether the run's parameters come while the run before it computes.
bool ParameterGather::ahead(const Run& run) const {
  const RuntimeProfile& runtime = lowering_.plan().job->runtime;
  double elements = 0;
  for (const int bucket : run.buckets)
    elements += static_cast<double>(lowering_.program.buckets[static_cast<std::size_t>(bucket)].elements);
  return !runtime.gathers_on_demand && (runtime.live_parameters <= 0 || elements <= runtime.live_parameters);
}

void ParameterGather::start() {
  if (lowering_.choices().zero == 3) {
    if (!runs_.empty()) gather(runs_.front(), -1);
    return;
  }
  for (Run& run : runs_) gather(run, -1);
}

void ParameterGather::before(int slot, int pattern, std::vector<std::uint32_t>* after) {
  if (next_ == runs_.size() || runs_[next_].slot != slot || runs_[next_].pattern != pattern) return;
  Run& run = runs_[next_++];
  const std::int64_t computed =
      lowering_.has_compute() ? static_cast<std::int64_t>(lowering_.last_compute()) : -1;
  if (run.gathers.empty()) gather(run, computed);
  after->insert(after->end(), run.gathers.begin(), run.gathers.end());
  // While this run computes, the next one's parameters come: two layers' are there at once.
  if (lowering_.choices().zero == 3 && next_ < runs_.size() && ahead(runs_[next_]))
    gather(runs_[next_], computed);
}

void ParameterGather::gather(Run& run, std::int64_t after) {
  for (const int bucket : run.buckets) run.gathers.push_back(gather_parameters(lowering_, bucket, after));
}

}  // namespace orrery::internal
