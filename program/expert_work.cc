#include <algorithm>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <map>
#include <tuple>

#include "base/statistics.h"
#include "program/operator_shard.h"
#include "program/operator_work.h"

namespace orrery::internal {
namespace {

// Experts' arithmetic between and after their products, run operator by operator. Counted from
// Megatron-Core's weighted_swiglu and weighted_swiglu_back (fusions/fused_bias_swiglu.py), routing weights in
// fp32, by element of the activation: 4 kernels that move 22 bytes forward, 20 that move 130 back; those that
// read or write the halves of the gated tensor (10 and 38 bytes) are strided and run at half the rate. That
// is 16 ps an element of gate and up at 6 TB/s; Megatron-Bridge 26.06, which fuses them, took 17 to 30 ps
// less than 26.04 on four models. With biases (GPT-OSS) TEGroupedMLP::_apply_bias adds bias x weight in fp32
// by expert: 28 bytes an element of the output forward, 40 back.
constexpr double kEagerForward = 22 + 10, kEagerBackward = 130 + 38;
constexpr double kEagerBiasForward = 28, kEagerBiasBackward = 40;
// GELU gates instead (GPT-OSS; weighted_bias_quick_geglu_impl, fusions/fused_bias_geglu.py): the halves are
// clamped and joined again first (16 bytes forward, 8 of them strided, and 20 back, 12 strided), and
// weighted_quick_geglu's 8 kernels move 36 bytes (14 strided), its backward's 158 (52).
constexpr double kEagerGeluForward = 16 + 8 + 36 + 14, kEagerGeluBackward = 20 + 12 + 158 + 52;
// Squared ReLU instead (fusions/fused_weighted_squared_relu.py): relu, power, product with the weight, cast;
// back the same again, the gradient of the activation and that of the weight.
constexpr double kEagerPlainForward = 20, kEagerPlainBackward = 58;

// Of the integral over the largest of gamma variables: deviations beyond the mean, slices; shapes below and
// above which one rank has all, or variables are nearly normal.
constexpr double kTail = 12, kLeastShape = 1e-3, kMostShape = 1e4;
constexpr int kSlices = 200;

void add_biases(const Operator& op, bool forward, double elements, const Shard& shard, OperatorWork* work) {
  if (op.kind != OperatorKind::expert_linear || op.split != TensorSplit::row || op.parameters.size() < 2)
    return;
  work->vector_bytes += elements * (forward ? kEagerBiasForward : kEagerBiasBackward);
  work->kernels += (forward ? 2 : 4) * local_experts(op.experts, shard);
}

// Before each expert's product in 8 or 4 bits the scales of both its operands are rearranged, by a kernel
// each (TransformerEngine#1525: swizzle_inputs of every product of a grouped one).
void add_swizzles(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work) {
  if (op.kind != OperatorKind::expert_linear || !is_narrow(shard.precision)) return;
  const double products = kind == ComputeKind::backward ? 2 : 1;
  work->kernels += 2 * products * static_cast<double>(op.matmuls.size()) * local_experts(op.experts, shard);
}

// Each expert's rows are copied to where they are a multiple of the scales' block (16 in 8 bits, 32 in
// MXFP8: padded_rows), and what comes of them back (TEGroupedMLP: quantization_padding,
// quantization_unpadding): read and written in 16 bits, in both directions.
void add_padding(const Operator& op, double outputs, const Shard& shard, OperatorWork* work) {
  if (op.kind != OperatorKind::expert_linear || !is_narrow(shard.precision) || op.matmuls.empty()) return;
  const double inputs =
      local_rows(op, shard) * std::max(1, op.active_experts) * static_cast<double>(op.matmuls.front().k);
  work->vector_bytes += 4 * (op.split == TensorSplit::row ? outputs : inputs);
  work->kernels += 1;
}

double integrated_share(int experts, int ranks, int chosen, double spread) {
  const double local = std::max(1.0, static_cast<double>(experts) / ranks);
  // A token's experts are different ones: a rank that has fewer than it chooses cannot have all of them.
  const double most = ranks * std::min<double>(chosen, local) / chosen;
  // Of a symmetric Dirichlet distribution over all experts, from its spread; a rank's share adds its
  // experts'.
  const double variance = spread * spread * (static_cast<double>(experts) / chosen - 1);
  if (variance <= 0) return 1;
  const double of_expert = ((experts - 1) / variance - 1) / experts;
  const double shape = of_expert * local;
  if (shape < kLeastShape) return most;
  if (shape > kMostShape) return std::min(most, 1 + expected_largest(ranks) / std::sqrt(shape));
  // Shares are gamma variables by their sum, and independent of it: the largest's mean is that of the largest
  // gamma variable by the sum's, the integral of P(the largest > x).
  const double end = shape + kTail * (std::sqrt(shape) + 1);
  double sum = 0;
  for (int i = 0; i < kSlices; ++i) {
    // Squares, for near 0 the distribution of a small shape is steep.
    const double root = (i + 0.5) / kSlices;
    const double slice = end * 2 * root / kSlices;
    sum += slice * (1 - std::pow(boost::math::gamma_p(shape, end * root * root), ranks));
  }
  return std::min(most, sum / shape);
}

}  // namespace

double fullest_share(int experts, int ranks, int chosen, double spread) {
  if (ranks <= 1 || experts <= 1 || spread <= 0) return 1;
  // Asked for each operator of each plan, of the few degrees that a job's plans have.
  constexpr std::size_t kMostKept = 1000;
  thread_local std::map<std::tuple<int, int, int, double>, double> kept;
  const auto key = std::tuple(experts, ranks, chosen, spread);
  if (const auto known = kept.find(key); known != kept.end()) return known->second;
  if (kept.size() >= kMostKept) kept.clear();
  return kept[key] = integrated_share(experts, ranks, chosen, spread);
}

double fullest_rank(const Operator& op, const Shard& shard, const RuntimeProfile& runtime) {
  if (shard.ep <= 1 || !of_experts(op) || shard.capacity_factor > 0 || runtime.experts_in_turn) return 1;
  const int chosen = std::max(1, op.active_experts);
  const double rows = local_rows(op, shard) * chosen;
  const double ranks = shard.ep;
  if (rows < 1) return 1;
  const double by_chance = expected_largest(ranks) * std::sqrt((1 - 1 / ranks) / rows);
  // Tokens leave and come back to where they belong: every rank has as many of them.
  const bool inside = op.kind == OperatorKind::expert_linear || op.kind == OperatorKind::activation;
  if (runtime.expert_spread <= 0 || !inside) return 1 + by_chance;
  const double by_router = fullest_share(op.experts, shard.ep, chosen, runtime.expert_spread) - 1;
  return 1 + std::hypot(by_chance, by_router);  // variances add up
}

double padded_rows(double rows) {
  constexpr double kBlock = 32;
  // Of experts that few rows reach, each row is one block of some expert.
  return rows < 1 ? kBlock * rows : kBlock * std::ceil(rows / kBlock);
}

ExpertKernels expert_kernels(const Shard& shard, const RuntimeProfile& runtime) {
  const bool layer = runtime.fused_experts && shard.gated_experts && shard.precision == DType::fp8;
  if (layer) return shard.gelu_experts ? ExpertKernels::grouped : ExpertKernels::fused;
  return runtime.eager_experts ? ExpertKernels::eager : ExpertKernels::plain;
}

void add_expert_arithmetic(const Operator& op, ComputeKind kind, const Shard& shard,
                           const RuntimeProfile& runtime, OperatorWork* work) {
  const ExpertKernels own = expert_kernels(shard, runtime);
  if (own == ExpertKernels::eager) add_swizzles(op, kind, shard, work);
  if (kind == ComputeKind::backward_weight || own == ExpertKernels::plain || own == ExpertKernels::fused)
    return;
  const bool forward = does_forward(kind);
  const double elements = local_outputs(op, shard);
  add_biases(op, forward, elements, shard, work);
  if (own == ExpertKernels::grouped) return;
  add_padding(op, elements, shard, work);
  if (op.kind == OperatorKind::router) {
    // Small operators of the router's masks, its auxiliary loss and the dispatcher's counts (moe_utils.py,
    // token_dispatcher.py): launches alone.
    work->kernels += forward ? 45 : 15;
  } else if (op.kind == OperatorKind::activation) {
    if (shard.gelu_experts) {
      work->vector_bytes += elements * (forward ? kEagerGeluForward : kEagerGeluBackward);
      work->kernels += forward ? 11 : 26;
    } else if (shard.gated_experts) {
      work->vector_bytes += elements * (forward ? kEagerForward : kEagerBackward);
      work->kernels += forward ? 4 : 20;
    } else {
      work->vector_bytes += elements * (forward ? kEagerPlainForward : kEagerPlainBackward);
      work->kernels += forward ? 4 : 11;
    }
  }
}

}  // namespace orrery::internal
