// What PyTorch runs kernel by kernel under torch.autocast (RuntimeProfile::autocast): fp32 weights and
// residual stream, products and attention in 16 bits, nothing fused.
//
// Bytes are those that a streaming kernel moves in the same time. Kernels whose operands have two types,
// broadcast or lie apart load element by element instead of 16 bytes at once, and reductions wait for
// themselves: both reach half of the rate (2.0 of 4.2 TB/s on an H200), so theirs count twice. Kernels and
// rates are those of traces of GPT-2 and Llama 3.2 1B (PyTorch 2.11, transformers 5.17; docs/accuracy.md,
// "Measured by us").
#include <algorithm>

#include "program/operator_shard.h"
#include "program/operator_work.h"

namespace orrery::internal {
namespace {

constexpr double kApart = 2;                         // operands of two types, broadcast, apart, or reduced
constexpr double kNarrow = 4 + 2;                    // fp32 to 16 bits
constexpr double kWiden = kApart * (2 + 4);          // and back
constexpr double kAdd = 4 + 4 + 4;                   // of two fp32 gradients into one
constexpr double kAddNarrow = kApart * (2 + 4 + 4);  // of 16 bits to the fp32 residual stream

// By element of the operator's output.
struct Kernels {
  double forward = 0, backward = 0;  // bytes
  double launched = 0, launched_back = 0;
};

// One kernel going forward; back one for the input and one for the weights, and the residual stream's
// gradient is added.
constexpr Kernels kLayerNorm = {kApart * 8, kApart*(12 + 8) + kAdd, 1, 4};
// Going forward pow, mean, two products with a broadcast factor, and two small kernels on a column. Back two
// products and two reductions for the weight and the scale, two broadcast products, what mean and pow pass
// on (five kernels), small ones on the column, both ways' gradients added, and the stream's.
constexpr Kernels kRmsNorm = {8 + kApart * 4 + 2 * kApart * 8,
                              2 * 12 + 2 * kApart * 4 + 2 * kApart * 8 + (12 + kApart * 4 + 8 + 8) + 2 * kAdd,
                              6, 16};
// NewGELUActivation (GPT-2, Phi): pow is on autocast's list of what runs in fp32, and what it meets from then
// on widens with it. Cast, pow, scaled, added, scaled, tanh, 1 added, two products, cast for the next
// product.
constexpr Kernels kPythonGelu = {
    kWiden + 8 + 8 + kAddNarrow + 8 + 8 + 8 + kAddNarrow + 4 + kNarrow,
    kWiden + 2 * 8 + kAddNarrow + 2 * kNarrow + 2 * 6 + 3 * 12 + 2 * 8 + kNarrow + 4, 10, 15};
constexpr Kernels kPlainActivation = {4, 6, 1, 1};
constexpr Kernels kGatedActivation = {4 + 6, 3 * 6, 2, 3};

// Of a query or a key: two products with fp32 cosines and sines of a view whose heads lie apart (a quarter of
// the rate), half of it negated, joined, added, cast. Back the same, and the halves are written into zeros,
// added, and laid out as the projection put them out. Twice the kernels: queries and keys are apart.
constexpr double kRotaryForward = 90, kRotaryBackward = 120;
constexpr double kRotaryKernels = 2 * 6, kRotaryKernelsBack = 2 * 13;

// Of a logit: cast to fp32, log_softmax; back zeros where one is set, its gradient (two reads and a write, at
// two thirds of the rate), cast.
constexpr double kLogitCast = kWiden, kLogSoftmax = kApart * 8, kLogSoftmaxBack = 4 + 1.5 * 12 + kNarrow;

constexpr double kSortKernels = 25;  // of the tokens, before their gradients are added to the table

Kernels kernels_of(const Operator& op, const Shard& shard) {
  switch (op.kind) {
    case OperatorKind::norm:
      return is_rms_norm(op) ? kRmsNorm : kLayerNorm;
    case OperatorKind::activation: {
      const bool gated = op.vector_elements > 2.5 * static_cast<double>(op.output_elements);
      if (gated) return kGatedActivation;
      return shard.python_gelu ? kPythonGelu : kPlainActivation;
    }
    case OperatorKind::residual: {
      const double branches = std::max(1.0, static_cast<double>(op.inputs.size()) - 1);
      return {branches * kAddNarrow, branches * kNarrow, branches, branches};
    }
    default:
      return {};
  }
}

// Matrices, each of which PyTorch multiplies by itself.
double matrices_of(const Operator& op) {
  return std::max<double>(1, static_cast<double>(std::count_if(
                                 op.parameters.begin(), op.parameters.end(),
                                 [](const ParameterTensor& tensor) { return tensor.shape.size() > 1; })));
}

// Matrices that read a norm's output, in fp32, and cast it each; 0 where it comes in 16 bits.
double wide_inputs(const Operator& op) {
  const bool wide =
      op.kind == OperatorKind::router || op.kind == OperatorKind::head || op.split != TensorSplit::row;
  return wide && op.kind != OperatorKind::expert_linear ? matrices_of(op) : 0;
}

// Of a row's queries and keys; 0 where the operator turns and norms none.
double query_key_columns(const Operator& op) {
  if (!op.attention || op.attention->qk_head_dim <= 0) return 0;
  return static_cast<double>(op.attention->heads + op.attention->kv_heads) * op.attention->qk_head_dim;
}

}  // namespace

bool autocasts(const Shard& shard, const RuntimeProfile& runtime) {
  return runtime.autocast && bytes_of(storage_type(shard.precision)) == 2;
}

double autocast_inputs(const Operator& op) {
  return std::max(1.0, wide_inputs(op));
}

void add_autocast_product(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work) {
  Operator whole = op;  // a tied matrix is cast where it is multiplied, too
  for (ParameterTensor& tensor : whole.parameters) tensor.tied_to.clear();
  const auto weights = static_cast<double>(local_parameters(whole, shard));
  const bool tied = local_parameters(op, shard) == 0 && weights > 0;
  const auto tensors = static_cast<double>(op.parameters.size());
  const double matrices = matrices_of(op);
  const double rows = local_rows(op, shard);
  double features = 0;
  for (const MatmulShape& shape : op.matmuls)
    features = std::max(features, shape.rows_per_row * static_cast<double>(shape.k));
  const double inputs = wide_inputs(op);
  const double input = rows * features;
  if (does_forward(kind)) {
    work->vector_bytes += kNarrow * (weights + inputs * input);
    work->kernels += tensors + inputs + matrices - 1;
    return;
  }
  if (kind != ComputeKind::backward_weight && op.passes_gradient && inputs > 0) {
    work->vector_bytes += input * (inputs * kWiden + (inputs - 1) * kAdd);
    work->kernels += 2 * inputs - 1 + matrices - 1;
  }
  if (kind != ComputeKind::backward_input) {
    work->vector_bytes += weights * (kWiden + kAdd * (tied ? 1 : shard.accumulating));
    work->kernels += tensors + matrices - 1 + (tied ? 1 : 0);
    // A bias: a reduction of the gradient, and zeros that it is added to.
    if (tensors > matrices) {
      work->vector_bytes += kApart * 2 * local_outputs(op, shard);
      work->kernels += 2;
    }
  }
}

void add_autocast_arithmetic(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work) {
  if (kind == ComputeKind::backward_weight) return;
  const bool forward = does_forward(kind);
  const Kernels kernels = kernels_of(op, shard);
  const double elements = local_outputs(op, shard);
  work->vector_bytes += elements * (forward ? kernels.forward : kernels.backward);
  work->kernels += forward ? kernels.launched : kernels.launched_back;
}

void add_autocast_rotary(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work) {
  const double width = query_key_columns(op);
  if (op.vector_elements <= 0 || width == 0) return;
  const bool forward = does_forward(kind);
  // `vector_elements` are queries and keys, read and written, and again for their norms.
  const double all = op.vector_elements / 2 / width;
  const double normed = op.attention->qk_norm ? 1 : 0;
  const double elements = shard.rows * width / shard.tp;
  work->vector_bytes += elements * (all - normed) * (forward ? kRotaryForward : kRotaryBackward);
  if (all > normed) work->kernels += forward ? kRotaryKernels : kRotaryKernelsBack;
  work->vector_bytes +=
      elements * normed * (forward ? kRmsNorm.forward + kWiden : kRmsNorm.backward - kAdd + kNarrow);
  work->kernels += normed * 2 * (forward ? kRmsNorm.launched + 2 : kRmsNorm.launched_back + 1);
}

void add_autocast_loss(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work) {
  const double passes = op.kind == OperatorKind::loss ? 2 : 1;
  const double logits = shard.rows * op.vector_elements / passes / shard.tp;
  if (!does_forward(kind)) {
    if (op.kind != OperatorKind::loss || kind == ComputeKind::backward_weight) return;
    work->vector_bytes += logits * kLogSoftmaxBack;
    work->kernels += 4;
    return;
  }
  work->vector_bytes += logits * (op.kind == OperatorKind::loss_max   ? kLogitCast
                                  : op.kind == OperatorKind::loss_sum ? kLogSoftmax
                                                                      : 0);
  work->kernels += 2;
}

void add_autocast_embedding(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work) {
  const double elements = local_outputs(op, shard);
  const auto tables = static_cast<double>(std::max<std::size_t>(1, op.parameters.size()));
  if (does_forward(kind)) {
    work->vector_bytes += elements * (8 + kAdd * (tables - 1));
    work->kernels += 2 * tables - 1;
  } else if (kind != ComputeKind::backward_input && !op.parameters.empty()) {
    const auto table = static_cast<double>(local_parameters(op, shard));
    work->vector_bytes += table * (4 + kAdd * shard.accumulating) + elements * kAdd;
    work->kernels += kSortKernels + tables;
  }
}

double autocast_kept(const Operator& op, const Shard& shard) {
  const double elements = local_outputs(op, shard);
  switch (op.kind) {
    case OperatorKind::norm:
      // What it read and, made of operators, what it scaled.
      return elements * 4 * (is_rms_norm(op) ? 2 : 1);
    case OperatorKind::activation: {
      const double in = op.vector_elements - static_cast<double>(op.output_elements);
      if (in > 1.5 * static_cast<double>(op.output_elements)) return elements * 2 * 3;
      // pow's input, tanh, what 1 was added to, the half of x.
      return elements * (shard.python_gelu ? 4 + 4 + 4 + 2 : 2);
    }
    case OperatorKind::attention: {
      // Norms of queries and keys: their input in fp32, and what they scaled in 16 bits.
      return op.attention->qk_norm ? shard.rows * query_key_columns(op) / shard.tp * (4 + 2) : 0;
    }
    default:
      return 0;
  }
}

}  // namespace orrery::internal
