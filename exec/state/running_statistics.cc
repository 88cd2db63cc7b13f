#include "exec/state/running_statistics.h"

#include <set>

#include "program/tensor_shard.h"

namespace orrery::exec {
namespace {

constexpr float kMomentum = 0.1F;  // torch.nn.BatchNorm2d's default

std::string norm_of(const std::string& weight) {
  const std::string end = ".weight";
  const bool plain =
      weight.size() > end.size() && weight.compare(weight.size() - end.size(), end.size(), end) == 0;
  return plain ? weight.substr(0, weight.size() - end.size()) : weight;
}

// Operators that this rank runs forward.
std::set<int> computed_by(const Program& program) {
  std::set<int> ops;
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::compute && instruction.compute == ComputeKind::forward)
      for (int op = instruction.op_begin; op < instruction.op_end; ++op) ops.insert(op);
  return ops;
}

}  // namespace

RunningStatistics::RunningStatistics(const Plan& plan, const Program& program, Device& device)
    : device_(device) {
  const std::set<int> computed = computed_by(program);
  const std::vector<Operator>& operators = plan.job->workload.operators;
  for (int op = 0; op < static_cast<int>(operators.size()); ++op) {
    const Operator& self = operators[static_cast<std::size_t>(op)];
    if (self.kind != OperatorKind::batch_norm || !self.image) continue;
    norms_.push_back(norm_of(self.parameters.front().name));
    mean_of_[op] = tensors_.size();
    const std::int64_t channels = self.image->input.channels;
    // Of the channels whose weights it has.
    const ParameterTensor& weight = self.parameters.front();
    const Run held = runs_of(weight, shard_place(plan.choices, program.at)).front();
    const bool split = held.count < channels;
    for (const bool variance : {false, true}) {
      Tensor tensor{norms_.back() + (variance ? ".running_var" : ".running_mean"),
                    channels,
                    held.global,
                    held.count,
                    nullptr,
                    false};
      if (computed.count(op) > 0) {
        const auto count = static_cast<std::size_t>(tensor.elements);
        tensor.data = static_cast<float*>(device.allocate(count * sizeof(float)));
        tensor.written = program.at.dp == 0 && (split || program.at.tp == 0);
        device.fill(tensor.data, count, variance ? 1 : 0);
      }
      tensors_.push_back(std::move(tensor));
    }
  }
}

RunningStatistics::~RunningStatistics() {
  for (const Tensor& tensor : tensors_) device_.release(tensor.data);
}

void RunningStatistics::update(int op, const float* mean, const float* variance, std::int64_t samples) {
  const std::size_t at = mean_of_.at(op);
  device_.running_statistics(mean, variance, tensors_[at].data, tensors_[at + 1].data, tensors_[at].elements,
                             samples, kMomentum);
}

std::vector<float> RunningStatistics::values(const Tensor& tensor) const {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  device_.copy_to_host(values.data(), tensor.data, values.size() * sizeof(float));
  return values;
}

void RunningStatistics::set(const Tensor& tensor, const std::vector<float>& all_channels) {
  if (tensor.data != nullptr)
    device_.copy_to_device(tensor.data, all_channels.data() + tensor.begin,
                           static_cast<std::size_t>(tensor.elements) * sizeof(float));
}

}  // namespace orrery::exec
