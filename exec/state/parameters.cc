#include "exec/state/parameters.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "exec/state/initial_values.h"
#include "program/placement.h"

namespace orrery::exec {
namespace {

// PyTorch's default for AdamW.
constexpr double kWeightDecay = 0.01;

}  // namespace

double default_learning_rate(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::sgd:
      return 0.1;
    case Optimizer::momentum:
      return 0.02;
    case Optimizer::adam:
    case Optimizer::adamw:
      return 3e-4;
  }
  return 0;
}

Parameters::Parameters(const Plan& plan, const Program& program, Device& device)
    : program_(&program),
      device_(&device),
      optimizer_(plan.job->training.optimizer),
      place_(shard_place(plan.choices, program.at)) {
  experts_by_rows_ = plan.choices.sequence_parallel;
  shares_samples_ = !plan.job->workload.transformer;
  rate_ = plan.job->training.learning_rate > 0 ? plan.job->training.learning_rate
                                               : default_learning_rate(optimizer_);
  const std::vector<Operator>& operators = plan.job->workload.operators;
  operators_ = &operators;
  for (int b = 0; b < static_cast<int>(program.buckets.size()); ++b) {
    const Bucket& bucket = program.buckets[static_cast<std::size_t>(b)];
    for (const BucketParameter& p : bucket.parameters) {
      HeldTensor tensor;
      tensor.tensor =
          &operators[static_cast<std::size_t>(p.op)].parameters[static_cast<std::size_t>(p.parameter)];
      tensor.op = p.op;
      tensor.parameter = p.parameter;
      tensor.bucket = b;
      tensor.offset = p.offset;
      tensor.elements = p.elements;
      tensor.shape = local_shape(*tensor.tensor, place_);
      std::int64_t elements = 1;
      for (const std::int64_t d : tensor.shape) elements *= d;
      ORRERY_CHECK(elements == p.elements,
                   "the Program's part of " + tensor.tensor->name + " has another size");
      by_operator_[{p.op, p.parameter}] = held_.size();
      held_.push_back(std::move(tensor));
    }
  }
  // Aliases: a tied tensor that no bucket holds is the one it is tied to.
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < held_.size(); ++i) by_name.emplace(held_[i].name(), i);
  for (std::size_t op = 0; op < operators.size(); ++op)
    for (std::size_t p = 0; p < operators[op].parameters.size(); ++p) {
      const std::string& tied = operators[op].parameters[p].tied_to;
      if (const auto found = by_name.find(tied); !tied.empty() && found != by_name.end())
        by_operator_.try_emplace({static_cast<int>(op), static_cast<int>(p)}, found->second);
    }
  // A bucket whose gradients are named by micro-batch keeps only shards of them (docs/program.md, ZeRO).
  scatters_gradients_.resize(program.buckets.size());
  for (const Instruction& instruction : program.instructions)
    for (const TensorRef& tensor : instruction.reads)
      if (tensor.kind == TensorKind::gradients && tensor.micro_batch >= 0)
        scatters_gradients_[static_cast<std::size_t>(tensor.index)] = 1;

  const int states = optimizer_states(optimizer_);
  for (std::size_t b = 0; b < program.buckets.size(); ++b) {
    const Bucket& bucket = program.buckets[b];
    const auto allocate = [&](std::int64_t elements) {
      auto* data = static_cast<float*>(device.allocate(static_cast<std::size_t>(elements) * sizeof(float)));
      device.fill(data, static_cast<std::size_t>(elements), 0);
      return data;
    };
    std::pair<std::int64_t, std::int64_t> part = {0, bucket.elements};  // of its place in the group
    if (bucket.group >= 0) {
      const std::vector<std::int32_t>& ranks = program.groups[static_cast<std::size_t>(bucket.group)].ranks;
      const auto place = std::find(ranks.begin(), ranks.end(), program.rank) - ranks.begin();
      const auto n = static_cast<std::int64_t>(ranks.size());
      part = {place * (bucket.elements / n), bucket.elements / n};
    }
    parts_.push_back(part);
    std::pair<std::int64_t, std::int64_t> shard = {0, bucket.elements};
    if (plan.choices.zero >= 1) shard = part;
    if (plan.choices.has_servers()) {
      shard = {0, 0};
      if (program.at.dp < plan.choices.servers) {
        const ServerSlice slice = server_slice(bucket.elements, plan.choices.servers, program.at.dp);
        shard = {slice.begin, slice.elements};
      }
    }
    gathers_weights_.push_back(plan.choices.zero == 3 && bucket.group >= 0 ? 1 : 0);
    shards_.push_back(shard);
    weights_.push_back(allocate(gathers_weights_[b] != 0 ? shard.second : bucket.elements));
    const bool trained = !bucket.frozen;
    gradients_.push_back(trained ? allocate(scatters_gradients_[b] != 0 ? shard.second : bucket.elements)
                                 : nullptr);
    first_.push_back(trained && states >= 1 ? allocate(shard.second) : nullptr);
    second_.push_back(trained && states >= 2 ? allocate(shard.second) : nullptr);
  }
  for (int b = 0; b < buckets(); ++b) answers_.push_back(answers(plan, b) ? 1 : 0);
  for (const HeldTensor& tensor : held_) initialise(plan, tensor);
  type_ = plan.parameter_type();
  frozen_.emplace(plan, program, *this, device);
  for (const HeldTensor& tensor : held_) begin_magnitudes(plan, tensor);
  if (bytes_of(type_) == 2 || plan.choices.asynchronous()) make_master();
}

// Mixed precision: the optimizer works on fp32 copies of this rank's own elements (Micikevicius et al., arXiv
// 1710.03740, section 3.1); what the layers read has the narrow type's values.
void Parameters::make_master() {
  for (int b = 0; b < buckets(); ++b) {
    if (program_->buckets[static_cast<std::size_t>(b)].frozen) {
      master_.push_back(nullptr);
      continue;
    }
    const auto own = static_cast<std::size_t>(shard_elements(b));
    auto* master = static_cast<float*>(device_->allocate(own * sizeof(float)));
    device_->copy(master, own_weights(b), own * sizeof(float));
    if (bytes_of(type_) == 2)
      device_->round_to(type_, weights(b),
                        static_cast<std::size_t>(gathers_weights(b) ? shard_elements(b) : elements(b)));
    master_.push_back(master);
  }
}

Parameters::~Parameters() {
  for (const auto* list : {&weights_, &gradients_, &first_, &second_, &master_})
    for (float* data : *list) device_->release(data);
}

const HeldTensor* Parameters::find(int op, int parameter) const {
  const auto found = by_operator_.find({op, parameter});
  return found == by_operator_.end() ? nullptr : &held_[found->second];
}

const HeldTensor* Parameters::own(int op, int index) const {
  const Operator& self = (*operators_)[static_cast<std::size_t>(op)];
  const auto still = static_cast<int>(self.frozen.size());
  if (index < still) return frozen_->find(op, index);
  const bool adapters_alone = !self.adapters.empty();
  if (adapters_alone || index - still >= static_cast<int>(self.parameters.size())) return nullptr;
  return find(op, index - still);
}

void Parameters::initialise(const Plan& plan, const HeldTensor& held) {
  const Part part = kept_part(held);
  const std::int64_t first = part.begin - held.offset;
  draw_initial(plan, held, place_, first, part.end - held.offset, device_->host_threads(),
               [&](std::int64_t at, std::span<const float> values) {
                 device_->copy_to_device(kept_weights(held) + (at - first), values.data(),
                                         values.size() * sizeof(float));
               });
}

void Parameters::begin_with(const HeldTensor& held, const std::vector<float>& values) {
  if (values.empty()) return;
  const Part part = kept_part(held);
  device_->copy_to_device(kept_weights(held), values.data() + (part.begin - held.offset),
                          static_cast<std::size_t>(part.end - part.begin) * sizeof(float));
}

// DoRA's begin as the lengths of what they scale (arXiv 2402.09353, section 4.1).
void Parameters::begin_magnitudes(const Plan& plan, const HeldTensor& held) {
  const Operator& op = (*operators_)[static_cast<std::size_t>(held.op)];
  if (op.adapters.empty() || held.tensor->shape.size() != 1) return;
  const LowRankAdapter& adapter = op.adapters[static_cast<std::size_t>(held.parameter) / 3];
  const HeldTensor& weight = *frozen_->find(held.op, adapter.weight);
  const std::vector<float> lengths =
      output_lengths(op, *weight.tensor, frozen_->as_stored(weight, initial_whole(plan, weight)));
  std::vector<float> values(static_cast<std::size_t>(held.elements));
  for (const Run& run : runs_of(*held.tensor, place_))
    std::copy_n(lengths.begin() + run.global, run.count, values.begin() + run.local);
  begin_with(held, values);
}

Parameters::Part Parameters::owned_part(const HeldTensor& tensor) const {
  const std::int64_t shard = shard_begin(tensor.bucket);
  Part part;
  part.begin = std::max(tensor.offset, shard);
  part.end =
      std::max(part.begin, std::min(tensor.offset + tensor.elements, shard + shard_elements(tensor.bucket)));
  return part;
}

Parameters::Part Parameters::kept_part(const HeldTensor& tensor) const {
  return gathers_weights(tensor.bucket) ? owned_part(tensor)
                                        : Part{tensor.offset, tensor.offset + tensor.elements};
}

float* Parameters::kept_weights(const HeldTensor& tensor) const {
  const std::int64_t first = gathers_weights(tensor.bucket) ? shard_begin(tensor.bucket) : 0;
  return weights(tensor.bucket) + (kept_part(tensor).begin - first);
}

Parameters::Part Parameters::answers_for(const HeldTensor& tensor) const {
  const auto bucket = static_cast<std::size_t>(tensor.bucket);
  // Tensor ranks that see the same tokens hold the same experts, or the same parts of them; with sequence
  // parallelism these are in the bucket's group. So is what tensor ranks hold whole that share samples.
  const bool alike = tensor.tensor->expert
                         ? !experts_by_rows_ && program_->at.tp >= place_.etp
                         : tensor.tensor->split_dim < 0 && program_->at.tp != 0 && !shares_samples_;
  const bool copy = !answers_[bucket] || alike || !tensor.tensor->tied_to.empty();
  return copy ? Part{} : owned_part(tensor);
}

// Whether this rank is the one that counts for a bucket: of members that all have it whole the first, of
// shards and servers' slices each one's own (with hybrid sharding the first shard group's), of one process's
// devices the first.
bool Parameters::answers(const Plan& plan, int index) const {
  if (plan.choices.has_servers()) return true;
  const int group = program_->buckets[static_cast<std::size_t>(index)].group;
  if (group < 0) return true;
  const auto first_of = [this](const Group& members) { return members.ranks.front() == program_->rank; };
  const Group& members = program_->groups[static_cast<std::size_t>(group)];
  if (plan.choices.zero == 0 && !first_of(members)) return false;
  if (members.kind != GroupKind::shard) return true;
  return first_of(group_of(GroupKind::replicate, plan, program_->rank));
}

void Parameters::update(int begin, int end, std::int64_t step, float scale) {
  for (int b = begin; b < end; ++b) {
    update_bucket(b, own_gradients(b), step, scale);
    publish(b);
  }
}

void Parameters::update_bucket(int bucket, float* gradient, std::int64_t step, float scale) {
  const auto at = static_cast<std::size_t>(bucket);
  const auto count = static_cast<std::size_t>(shards_[at].second);
  float* weight = own_master(bucket);
  const auto rate = static_cast<float>(rate_);
  if (scale != 1.0F) device_->scale(gradient, count, scale);
  switch (optimizer_) {
    case Optimizer::sgd:
      device_->sgd(weight, gradient, count, rate);
      break;
    case Optimizer::momentum:
      device_->momentum(weight, gradient, first_[at], count, rate, static_cast<float>(settings_.momentum));
      break;
    case Optimizer::adam:
    case Optimizer::adamw:
      for (const Decaying& part : decaying(bucket)) {
        const auto begin = static_cast<std::size_t>(part.begin);
        device_->adam(weight + begin, gradient + begin, first_[at] + begin, second_[at] + begin,
                      static_cast<std::size_t>(part.end - part.begin), adam_constants(part.decays), step);
      }
      break;
  }
}

AdamConstants Parameters::adam_constants(bool decays) const {
  AdamConstants constants;
  constants.rate = static_cast<float>(rate_);
  constants.beta1 = static_cast<float>(settings_.beta1);
  constants.beta2 = static_cast<float>(settings_.beta2);
  constants.epsilon = static_cast<float>(settings_.epsilon);
  constants.decoupled = optimizer_ == Optimizer::adamw;
  const double decay = settings_.weight_decay.value_or(constants.decoupled ? kWeightDecay : 0);
  constants.weight_decay = decays ? static_cast<float>(decay) : 0;
  return constants;
}

// Of this rank's part of the bucket, in order; tensors that decay alike are one run.
std::vector<Parameters::Decaying> Parameters::decaying(int bucket) const {
  const std::int64_t count = shard_elements(bucket), first = shard_begin(bucket);
  if (!settings_.decay_matrices_only) return {{0, count, true}};
  std::vector<Decaying> runs;
  for (const HeldTensor& tensor : held_) {
    if (tensor.bucket != bucket) continue;
    const std::int64_t begin = std::max<std::int64_t>(tensor.offset - first, 0);
    const std::int64_t end = std::min(tensor.offset + tensor.elements - first, count);
    if (begin < end) runs.push_back({begin, end, tensor.shape.size() > 1});
  }
  std::sort(runs.begin(), runs.end(), [](const Decaying& a, const Decaying& b) { return a.begin < b.begin; });
  std::vector<Decaying> joined;
  for (const Decaying& run : runs) {
    if (!joined.empty() && joined.back().decays == run.decays && joined.back().end == run.begin)
      joined.back().end = run.end;
    else
      joined.push_back(run);
  }
  return joined;
}

void Parameters::publish(int bucket) {
  if (master_.empty()) return;
  const auto count = static_cast<std::size_t>(shard_elements(bucket));
  device_->copy(own_weights(bucket), own_master(bucket), count * sizeof(float));
  if (bytes_of(type_) == 2) device_->round_to(type_, own_weights(bucket), count);
}

void Parameters::take_weights(int bucket) {
  if (master_.empty()) return;
  device_->copy(own_master(bucket), own_weights(bucket),
                static_cast<std::size_t>(shard_elements(bucket)) * sizeof(float));
}

}  // namespace orrery::exec
