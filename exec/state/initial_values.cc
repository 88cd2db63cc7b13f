#include "exec/state/initial_values.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/random.h"
#include "workloads/image_operator.h"

namespace orrery::exec {
namespace {

// GPT-2's initialisation (Radford et al. 2019, section 2.3, and its released code): normal with deviation
// 0.02, divided by sqrt(2 layers) for the products that write into the residual stream; norms 1, biases 0.
// BERT's is the same without that division (arXiv 1810.04805's code: initializer_range 0.02).
constexpr double kDeviation = 0.02;

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

// As Hugging Face's ViT begins: normal(0, 0.02), biases 0, norms 1. (Its normal is cut off at two units, a
// hundred deviations.)
Draw draw_for_patches(const Operator& op, const ParameterTensor& tensor, const CounterRandom& random) {
  if (tensor.shape.size() > 1) return [=](std::uint64_t i) { return kDeviation * random.normal(i); };
  if (op.kind == OperatorKind::norm && !ends_with(tensor.name, "bias"))
    return [](std::uint64_t) { return 1.0; };
  return nullptr;
}

Draw draw_for_tokens(const Workload& workload, const Operator& op, const HeldTensor& held,
                     const CounterRandom& random) {
  // PEFT's adapters (tuners/lora/layer.py): A by torch.nn.Linear's own draw, B zero.
  if (!held.frozen && !op.adapters.empty()) {
    if (held.tensor->shape.size() != 2 || ends_with(held.name(), "lora_B.weight")) return nullptr;
    const double bound = 1 / std::sqrt(static_cast<double>(held.tensor->shape[1]));
    return [=](std::uint64_t i) { return bound * (2 * random.uniform(i) - 1); };
  }
  if (held.tensor->shape.size() == 1) {
    if (ends_with(held.name(), "bias")) return nullptr;
    if (workload.transformer && workload.transformer->norms_offset) return nullptr;
    return [](std::uint64_t) { return 1.0; };
  }
  double deviation = kDeviation;
  const bool post_norm = workload.transformer && workload.transformer->post_norm;
  if (op.split == TensorSplit::row && workload.layers > 0 && !post_norm)
    deviation /= std::sqrt(2.0 * workload.layers);
  return [=](std::uint64_t i) { return deviation * random.normal(i); };
}

Draw draw_of(const Plan& plan, const HeldTensor& held) {
  const Operator& op = plan.job->workload.operators[static_cast<std::size_t>(held.op)];
  const CounterRandom random(plan.job->training.seed, hash_of(held.name()));
  if (op.image && reads_sequences(plan.job->workload)) return draw_for_patches(op, *held.tensor, random);
  return op.image ? draw_for_images(op, *held.tensor, held.parameter, random)
                  : draw_for_tokens(plan.job->workload, op, held, random);
}

}  // namespace

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

std::vector<float> initial_values(const Plan& plan, const HeldTensor& held, const ShardPlace& place) {
  const Draw draw = draw_of(plan, held);
  if (!draw) return {};
  std::vector<float> values(static_cast<std::size_t>(held.elements));
  for (const Run& run : runs_of(*held.tensor, place))
    for (std::int64_t i = 0; i < run.count; ++i)
      values[static_cast<std::size_t>(run.local + i)] =
          static_cast<float>(draw(static_cast<std::uint64_t>(run.global + i)));
  return values;
}

std::vector<float> initial_whole(const Plan& plan, const HeldTensor& held) {
  std::vector<float> values(static_cast<std::size_t>(held.tensor->elements()));
  if (const Draw draw = draw_of(plan, held))
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(draw(i));
  return values;
}

}  // namespace orrery::exec
