#include "exec/state/initial_values.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/vectors/draws.h"
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

// How a tensor's elements are drawn, each by its place in the whole tensor.
struct Draw {
  enum class Kind : std::uint8_t { zero, one, uniform, normal } kind = Kind::zero;
  double scale = 0;  // the bound, or the deviation

  void fill(const CounterRandom& random, std::uint64_t first, std::span<float> out) const {
    switch (kind) {
      case Kind::zero:
        return std::fill(out.begin(), out.end(), 0.0F);
      case Kind::one:
        return std::fill(out.begin(), out.end(), 1.0F);
      case Kind::uniform:
        return draw_symmetric(random, first, scale, out);
      case Kind::normal:
        return draw_normal(random, first, scale, out);
    }
  }
};

constexpr Draw kZero;
constexpr Draw kOne{Draw::Kind::one};

Draw uniform_within(double bound) {
  return {Draw::Kind::uniform, bound};
}

Draw normal_of(double deviation) {
  return {Draw::Kind::normal, deviation};
}

// As torchvision's networks begin. Convolutions: normal with deviation sqrt(2 / fan), the fan by their
// outputs (He et al., arXiv 1502.01852). Fully connected layers: torch.nn.Linear's own, uniform within 1 /
// sqrt(inputs), the bias, too. Batch norms: 1 and 0.
Draw draw_for_images(const Operator& op, const ParameterTensor& tensor, int parameter) {
  const bool vector = tensor.shape.size() == 1;
  if (op.kind == OperatorKind::linear)
    return uniform_within(1 / std::sqrt(static_cast<double>(op.image->input.elements())));
  if (op.kind == OperatorKind::batch_norm && parameter == 0) return kOne;
  if (vector) return kZero;
  const double fan = static_cast<double>(tensor.elements()) /
                     static_cast<double>(std::max<std::int64_t>(1, tensor.shape[1]));
  return normal_of(std::sqrt(2 / fan));
}

// As Hugging Face's ViT begins: normal(0, 0.02), biases 0, norms 1. (Its normal is cut off at two units, a
// hundred deviations.)
Draw draw_for_patches(const Operator& op, const ParameterTensor& tensor) {
  if (tensor.shape.size() > 1) return normal_of(kDeviation);
  return op.kind == OperatorKind::norm && !ends_with(tensor.name, "bias") ? kOne : kZero;
}

Draw draw_for_tokens(const Workload& workload, const Operator& op, const HeldTensor& held) {
  // PEFT's adapters (tuners/lora/layer.py): A by torch.nn.Linear's own draw, B zero.
  if (!held.frozen && !op.adapters.empty()) {
    if (held.tensor->shape.size() != 2 || ends_with(held.name(), "lora_B.weight")) return kZero;
    return uniform_within(1 / std::sqrt(static_cast<double>(held.tensor->shape[1])));
  }
  if (held.tensor->shape.size() == 1) {
    if (ends_with(held.name(), "bias")) return kZero;
    return workload.transformer && workload.transformer->norms_offset ? kZero : kOne;
  }
  double deviation = kDeviation;
  const bool post_norm = workload.transformer && workload.transformer->post_norm;
  if (op.split == TensorSplit::row && workload.layers > 0 && !post_norm)
    deviation /= std::sqrt(2.0 * workload.layers);
  return normal_of(deviation);
}

Draw draw_of(const Plan& plan, const HeldTensor& held) {
  const Operator& op = plan.job->workload.operators[static_cast<std::size_t>(held.op)];
  if (op.image && reads_sequences(plan.job->workload)) return draw_for_patches(op, *held.tensor);
  return op.image ? draw_for_images(op, *held.tensor, held.parameter)
                  : draw_for_tokens(plan.job->workload, op, held);
}

CounterRandom random_of(const Plan& plan, const HeldTensor& held) {
  return {plan.job->training.seed, fnv_of(held.name())};
}

// What one thread draws at once: alone, it stays in a core's cache until it is where it belongs.
constexpr std::int64_t kPieceAlone = 1 << 16;
constexpr std::int64_t kPieceOfMany = 1 << 20;

// What is held from `begin` on: the runs' elements, zeros between them.
void draw_part(const Draw& draw, const CounterRandom& random, const std::vector<Run>& runs,
               std::int64_t begin, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);  // padding
  for (const Run& run : runs_within(runs, begin, begin + static_cast<std::int64_t>(out.size())))
    draw.fill(random, static_cast<std::uint64_t>(run.global),
              out.subspan(static_cast<std::size_t>(run.local - begin), static_cast<std::size_t>(run.count)));
}

}  // namespace

void draw_initial(const Plan& plan, const HeldTensor& held, const ShardPlace& place, std::int64_t begin,
                  std::int64_t end, int threads, const TakePiece& take) {
  const Draw draw = draw_of(plan, held);
  if (draw.kind == Draw::Kind::zero || begin == end) return;
  const CounterRandom random = random_of(plan, held);
  const std::vector<Run> runs = runs_of(*held.tensor, place);
  const std::int64_t piece = threads > 1 ? kPieceOfMany : kPieceAlone;
  std::vector<float> values(static_cast<std::size_t>(std::min(piece * threads, end - begin)));
  for (std::int64_t at = begin; at < end; at += piece * threads) {
    const std::int64_t count = std::min(piece * threads, end - at);
    const std::span<float> now(values.data(), static_cast<std::size_t>(count));
    for_each_in_parallel(static_cast<int>((count + piece - 1) / piece), threads, [&](int i) {
      const std::int64_t first = i * piece;
      draw_part(draw, random, runs, at + first,
                now.subspan(static_cast<std::size_t>(first),
                            static_cast<std::size_t>(std::min(piece, count - first))));
    });
    take(at, now);
  }
}

std::vector<float> initial_whole(const Plan& plan, const HeldTensor& held) {
  std::vector<float> values(static_cast<std::size_t>(held.tensor->elements()));
  draw_of(plan, held).fill(random_of(plan, held), 0, values);
  return values;
}

}  // namespace orrery::exec
