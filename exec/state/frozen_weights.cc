#include "exec/state/frozen_weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "exec/state/initial_values.h"
#include "exec/state/parameters.h"
#include "program/buckets.h"
#include "program/placement.h"

namespace orrery::exec {
namespace {

const Operator& op_of(const Plan& plan, int op) {
  return plan.job->workload.operators[static_cast<std::size_t>(op)];
}

BaseType base_of(const Operator& op, const ParameterTensor& tensor) {
  return tensor.shape.size() == 2 ? op.base : BaseType::none;
}

std::size_t row_of(const std::vector<std::int64_t>& shape) {
  return static_cast<std::size_t>(shape.back());
}

}  // namespace

bool is_out_by_in(const Operator& op, const ParameterTensor& weight) {
  const int output_dim = op.split == TensorSplit::row ? 1 - weight.split_dim : weight.split_dim;
  return op.kind == OperatorKind::head || output_dim <= 0;  // -1: not split
}

std::vector<float> output_lengths(const Operator& op, const ParameterTensor& weight,
                                  std::span<const float> whole) {
  const bool out_by_in = is_out_by_in(op, weight);
  const auto rows = static_cast<std::size_t>(weight.shape[0]);
  const auto columns = static_cast<std::size_t>(weight.shape[1]);
  std::vector<double> squares(out_by_in ? rows : columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      const auto value = static_cast<double>(whole[i * columns + j]);
      squares[out_by_in ? i : j] += value * value;
    }
  std::vector<float> lengths;
  for (const double square : squares) lengths.push_back(static_cast<float>(std::sqrt(square)));
  return lengths;
}

FrozenWeights::FrozenWeights(const Plan& plan, const Program& program, Parameters& parameters, Device& device)
    : plan_(plan),
      program_(program),
      parameters_(parameters),
      device_(device),
      place_(parameters.place()),
      type_(plan.parameter_type()) {
  if (!plan.job->workload.transformer || !plan.job->workload.transformer->fine_tuning.any()) return;
  const Group replicas = group_of(GroupKind::data, plan, program.rank);
  if (plan.job->workload.transformer->fine_tuning.dora && !device.host_memory())
    throw UserError("`dora`: GPUs of the executor do not scale outputs to magnitudes",
                    "adapters without it, or processors");
  answers_ = replicas.ranks.empty() || replicas.ranks.front() == program.rank;
  hold_gathered();
  hold_whole();
  for (const HeldTensor& tensor : held_) {
    if (quantised(tensor) && !device.host_memory())
      throw UserError("`quantize_base`: GPUs of the executor do not turn weights back",
                      "none, or processors");
    set_from_whole(tensor, initial_whole(plan, tensor));
  }
}

FrozenWeights::~FrozenWeights() {
  device_.release(whole_);
}

void FrozenWeights::hold(int op, int index, int bucket, std::int64_t offset) {
  HeldTensor tensor;
  tensor.tensor = &op_of(plan_, op).frozen[static_cast<std::size_t>(index)];
  tensor.op = op;
  tensor.parameter = index;
  tensor.bucket = bucket;
  tensor.offset = offset;
  tensor.shape = local_shape(*tensor.tensor, place_);
  tensor.elements = local_elements(*tensor.tensor, place_);
  tensor.frozen = true;
  by_operator_[{op, index}] = held_.size();
  held_.push_back(std::move(tensor));
}

// Laid out as the lowering lays them out.
void FrozenWeights::hold_gathered() {
  const HeldModel model = held_parameters(plan_);
  const BucketLayout layout = bucket_layout(plan_, program_.at.pp, tied_tensors(plan_.job->workload), model);
  ORRERY_CHECK(layout.buckets.size() == program_.buckets.size(), "another layout than the Program's");
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    if (!layout.buckets[b].frozen) continue;
    const bool sharded = parameters_.gathers_weights(static_cast<int>(b));
    std::int64_t offset = 0;
    for (const HeldParameter& parameter : parameters_of(layout, layout.buckets[b], model)) {
      if (sharded) hold(parameter.at.op, parameter.at.parameter, static_cast<int>(b), offset);
      offset += parameter.elements;
    }
  }
}

void FrozenWeights::hold_whole() {
  const std::vector<Operator>& operators = plan_.job->workload.operators;
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < held_.size(); ++i) by_name.emplace(held_[i].name(), i);
  std::int64_t elements = 0;
  for (int chunk = 0; chunk < plan_.choices.interleave; ++chunk) {
    const LayerRange range = operators_of(plan_, program_.at.pp, chunk);
    for (int op = range.begin; op < range.end; ++op)
      for (std::size_t i = 0; i < operators[static_cast<std::size_t>(op)].frozen.size(); ++i) {
        const auto index = static_cast<int>(i);
        if (by_operator_.contains({op, index})) continue;
        const ParameterTensor& tensor = operators[static_cast<std::size_t>(op)].frozen[i];
        const std::string& name = tensor.tied_to.empty() ? tensor.name : tensor.tied_to;
        if (const auto found = by_name.find(name); found != by_name.end()) {
          by_operator_[{op, index}] = found->second;
          continue;
        }
        by_name[name] = held_.size();
        hold(op, index, -1, elements);
        if (!quantised(held_.back())) elements += held_.back().elements;
      }
  }
  whole_ = static_cast<float*>(device_.allocate(static_cast<std::size_t>(elements) * sizeof(float)));
}

const HeldTensor* FrozenWeights::find(int op, int index) const {
  const auto found = by_operator_.find({op, index});
  return found == by_operator_.end() ? nullptr : &held_[found->second];
}

bool FrozenWeights::quantised(const HeldTensor& tensor) const {
  return tensor.frozen && base_of(op_of(plan_, tensor.op), *tensor.tensor) != BaseType::none;
}

void FrozenWeights::dequantise(const HeldTensor& tensor, float* into) const {
  exec::dequantise(quantised_.at({tensor.op, tensor.parameter}), into);
  if (bytes_of(type_) == 2) device_.round_to(type_, into, static_cast<std::size_t>(tensor.elements));
}

std::vector<float> FrozenWeights::as_stored(const HeldTensor& tensor, std::span<const float> whole) const {
  std::vector<float> values(whole.begin(), whole.end());
  if (quantised(tensor))
    exec::dequantise(quantise(op_of(plan_, tensor.op).base, whole, row_of(tensor.tensor->shape)),
                     values.data());
  if (bytes_of(type_) == 2 && device_.host_memory()) device_.round_to(type_, values.data(), values.size());
  return values;
}

void FrozenWeights::set_from_whole(const HeldTensor& tensor, std::span<const float> whole) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  const std::vector<Run> runs = runs_of(*tensor.tensor, place_);
  for (const Run& run : runs) std::copy_n(whole.begin() + run.global, run.count, values.begin() + run.local);
  if (quantised(tensor)) {
    // A row that tensor ranks share has one scale: every part's elements mean the same as the whole's.
    const std::size_t row = row_of(tensor.shape), whole_row = row_of(tensor.tensor->shape);
    const std::vector<float> of_whole = row_magnitudes(whole, whole_row);
    std::vector<float> magnitudes(values.size() / row);
    for (const Run& run : runs)
      for (std::int64_t i = 0; i < run.count; ++i)
        magnitudes[static_cast<std::size_t>(run.local + i) / row] =
            of_whole[static_cast<std::size_t>(run.global + i) / whole_row];
    quantised_[{tensor.op, tensor.parameter}] =
        quantise(op_of(plan_, tensor.op).base, values, row, magnitudes);
    return;
  }
  if (tensor.bucket < 0) {
    device_.copy_to_device(weights(tensor), values.data(), values.size() * sizeof(float));
    if (bytes_of(type_) == 2) device_.round_to(type_, weights(tensor), values.size());
    return;
  }
  const std::int64_t shard = parameters_.shard_begin(tensor.bucket);
  const std::int64_t begin = std::max(tensor.offset, shard);
  const std::int64_t end =
      std::min(tensor.offset + tensor.elements, shard + parameters_.shard_elements(tensor.bucket));
  if (begin >= end) return;
  float* own = parameters_.own_weights(tensor.bucket) + (begin - shard);
  const auto count = static_cast<std::size_t>(end - begin);
  device_.copy_to_device(own, values.data() + (begin - tensor.offset), count * sizeof(float));
  if (bytes_of(type_) == 2) device_.round_to(type_, own, count);
}

FrozenWeights::Part FrozenWeights::answers_for(const HeldTensor& tensor) const {
  const bool alike = tensor.tensor->split_dim < 0 && program_.at.tp != 0;
  if (alike || !tensor.tensor->tied_to.empty()) return {};
  if (tensor.bucket < 0) return {0, answers_ ? tensor.elements : 0};
  const Group group =
      program_
          .groups[static_cast<std::size_t>(program_.buckets[static_cast<std::size_t>(tensor.bucket)].group)];
  // With hybrid sharding the first shard group's.
  if (group.kind == GroupKind::shard &&
      group_of(GroupKind::replicate, plan_, program_.rank).ranks.front() != program_.rank)
    return {};
  const std::int64_t shard = parameters_.shard_begin(tensor.bucket);
  const std::int64_t begin = std::max(tensor.offset, shard) - tensor.offset;
  const std::int64_t end =
      std::min(tensor.offset + tensor.elements, shard + parameters_.shard_elements(tensor.bucket)) -
      tensor.offset;
  return begin < end ? Part{begin, end} : Part{};
}

std::vector<float> FrozenWeights::values(const HeldTensor& tensor, Part part) const {
  std::vector<float> result(static_cast<std::size_t>(part.end - part.begin));
  if (quantised(tensor)) {
    result.resize(static_cast<std::size_t>(tensor.elements));
    dequantise(tensor, result.data());
    return {result.begin() + part.begin, result.begin() + part.end};
  }
  const float* from = tensor.bucket < 0 ? weights(tensor) + part.begin
                                        : parameters_.own_weights(tensor.bucket) + tensor.offset +
                                              part.begin - parameters_.shard_begin(tensor.bucket);
  device_.copy_to_host(result.data(), from, result.size() * sizeof(float));
  return result;
}

}  // namespace orrery::exec
