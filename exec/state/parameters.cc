#include "exec/state/parameters.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/random.h"
#include "program/placement.h"

namespace orrery::exec {
namespace {

// GPT-2's initialisation (Radford et al. 2019, section 2.3, and its released code): normal with deviation
// 0.02, divided by sqrt(2 layers) for the products that write into the residual stream; norms 1, biases 0.
// BERT's is the same without that division (arXiv 1810.04805's code: initializer_range 0.02).
constexpr double kDeviation = 0.02;
constexpr float kMomentum = 0.9F;
// PyTorch's default for AdamW.
constexpr float kWeightDecay = 0.01F;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// One element of a tensor, by its place in the whole of it; nothing where it begins at zero.
using Draw = std::function<double(std::uint64_t)>;

// As torchvision's networks begin. Convolutions: normal with deviation sqrt(2 / fan), the fan by their
// outputs (He et al., arXiv 1502.01852). Fully connected layers: torch.nn.Linear's own, uniform within 1 /
// sqrt(inputs), the bias, too. Batch norms: 1 and 0.
Draw draw_for_images(const Operator& op, const ParameterTensor& tensor, int parameter,
                     const CounterRandom& random) {
  const bool vector = tensor.shape.size() == 1;
  if (op.kind == OperatorKind::linear) {
    const double bound = 1 / std::sqrt(static_cast<double>(op.image->input.elements()));
    return [=](std::uint64_t i) { return bound * (2 * random.uniform(i) - 1); };
  }
  if (op.kind == OperatorKind::batch_norm && parameter == 0) return [](std::uint64_t) { return 1.0; };
  if (vector) return nullptr;
  const double fan = static_cast<double>(tensor.elements()) /
                     static_cast<double>(std::max<std::int64_t>(1, tensor.shape[1]));
  return [random, deviation = std::sqrt(2 / fan)](std::uint64_t i) { return deviation * random.normal(i); };
}

Draw draw_for_tokens(const Workload& workload, const Operator& op, const HeldTensor& held,
                     const CounterRandom& random) {
  if (held.tensor->shape.size() == 1) {
    if (ends_with(held.name(), "bias")) return nullptr;
    return [](std::uint64_t) { return 1.0; };
  }
  double deviation = kDeviation;
  const bool post_norm = workload.transformer && workload.transformer->post_norm;
  if (op.split == TensorSplit::row && workload.layers > 0 && !post_norm)
    deviation /= std::sqrt(2.0 * workload.layers);
  return [=](std::uint64_t i) { return deviation * random.normal(i); };
}

}  // namespace

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

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
    std::pair<std::int64_t, std::int64_t> shard = {0, bucket.elements};
    if (plan.choices.zero >= 1 && bucket.group >= 0) {
      const std::vector<std::int32_t>& ranks = program.groups[static_cast<std::size_t>(bucket.group)].ranks;
      const auto place = std::find(ranks.begin(), ranks.end(), program.rank) - ranks.begin();
      const auto n = static_cast<std::int64_t>(ranks.size());
      shard = {place * (bucket.elements / n), bucket.elements / n};
    }
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
    gradients_.push_back(allocate(scatters_gradients_[b] != 0 ? shard.second : bucket.elements));
    first_.push_back(states >= 1 ? allocate(shard.second) : nullptr);
    second_.push_back(states >= 2 ? allocate(shard.second) : nullptr);
  }
  for (int b = 0; b < buckets(); ++b) answers_.push_back(answers(plan, b) ? 1 : 0);
  for (const HeldTensor& tensor : held_) initialise(plan, tensor);
  type_ = plan.parameter_type();
  if (bytes_of(type_) == 2 || plan.choices.asynchronous()) make_master();
}

// Mixed precision: the optimizer works on fp32 copies of this rank's own elements (Micikevicius et al., arXiv
// 1710.03740, section 3.1); what the layers read has the narrow type's values.
void Parameters::make_master() {
  for (int b = 0; b < buckets(); ++b) {
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

void Parameters::initialise(const Plan& plan, const HeldTensor& held) {
  const Operator& op = plan.job->workload.operators[static_cast<std::size_t>(held.op)];
  const CounterRandom random(plan.job->training.seed, hash_of(held.name()));
  const Draw draw = op.image ? draw_for_images(op, *held.tensor, held.parameter, random)
                             : draw_for_tokens(plan.job->workload, op, held, random);
  if (!draw) return;
  std::vector<float> values(static_cast<std::size_t>(held.elements));
  for (const Run& run : runs_of(*held.tensor, place_))
    for (std::int64_t i = 0; i < run.count; ++i)
      values[static_cast<std::size_t>(run.local + i)] =
          static_cast<float>(draw(static_cast<std::uint64_t>(run.global + i)));
  if (!gathers_weights(held.bucket)) {
    device_->copy_to_device(weights(held.bucket) + held.offset, values.data(), values.size() * sizeof(float));
    return;
  }
  const Part part = owned_part(held);
  device_->copy_to_device(own_weights(held.bucket) + (part.begin - shard_begin(held.bucket)),
                          values.data() + (part.begin - held.offset),
                          static_cast<std::size_t>(part.end - part.begin) * sizeof(float));
}

Parameters::Part Parameters::owned_part(const HeldTensor& tensor) const {
  const std::int64_t shard = shard_begin(tensor.bucket);
  Part part;
  part.begin = std::max(tensor.offset, shard);
  part.end =
      std::max(part.begin, std::min(tensor.offset + tensor.elements, shard + shard_elements(tensor.bucket)));
  return part;
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
  if (plan.choices.zero == 0) return first_of(program_->groups[static_cast<std::size_t>(group)]);
  if (program_->groups[static_cast<std::size_t>(group)].kind != GroupKind::shard) return true;
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
      device_->momentum(weight, gradient, first_[at], count, rate, kMomentum);
      break;
    case Optimizer::adam:
    case Optimizer::adamw: {
      AdamConstants constants;
      constants.rate = rate;
      constants.decoupled = optimizer_ == Optimizer::adamw;
      constants.weight_decay = constants.decoupled ? kWeightDecay : 0;
      device_->adam(weight, gradient, first_[at], second_[at], count, constants, step);
      break;
    }
  }
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
