// What state-space cores cost, as the kernels that train them move their tensors.
//
// Bytes are those of a token. Channels of the inner width d, of the maps of all groups g = groups x state, of
// the convolution c = d + 2 g, in 16 bits.
#include "program/operator_shard.h"
#include "program/operator_work.h"

namespace orrery {
namespace {

struct ScanCost {
  double forward_bytes = 0, backward_bytes = 0;
  double forward_kernels = 0, backward_kernels = 0;
  double again = 0;                                    // FLOPs of products that the backward pass repeats
  double scalar_flops = 0, backward_scalar_flops = 0;  // instead of products
};

// Mamba-2's chunked scan (mamba_ssm, ssd_combined.py: MambaSplitConv1dScanCombinedFn, with the gated norm
// behind): states s = d x state / chunk and scores of the chunk's square b = groups x chunk in 32 bits.
// Forward: convolution 2 c, chunk states d + g (s written), their passing (s read, written in 16 bits),
// scores 2 g (b written), scan 2 d + g (s, b read), norm 3 d. Backward: convolution, states and scores again,
// norm 6 d, gradients of states, inputs, B, C, scores and step sizes, convolution 3 c.
ScanCost mamba2(const StateSpaceShape& shape, double element, double ranks) {
  const double d = static_cast<double>(shape.inner()) / ranks;
  const double g = static_cast<double>(shape.groups) * shape.state / ranks;
  const double c = d + 2 * g;
  const double s = d * shape.state / shape.chunk;
  const double b = static_cast<double>(shape.groups) * shape.chunk / ranks;
  ScanCost cost;
  cost.forward_bytes = element * (2 * c + 6 * d + 4 * g) + 12 * s + 8 * b;
  cost.backward_bytes = element * (5 * c + 18 * d + 13 * g) + 32 * s + 28 * b;
  cost.forward_kernels = 9;
  cost.backward_kernels = 16;
  cost.again = 2.0 * shape.groups * shape.chunk * shape.state + 2.0 * d * ranks * shape.state;
  return cost;
}

// The gated delta rule (flash-linear-attention, ops/gated_delta_rule/chunk.py, chunks of 64, as transformers'
// Qwen3-Next calls it, which repeats queries and keys for the heads of values: k = heads x state). A triangle
// b = heads x chunk, states s = d x state / chunk. Forward: convolution 2 c, norms of queries and keys 4 k,
// scores of keys k (b written in 32 bits), their inverse (b read, written in 16), w and u 2 k + 2 d (b read),
// states 2 k + 2 d (s written in 16 bits), outputs 2 k + 2 d (s read), gated norm 3 d. Backward: w, u and
// states again, gradients of values 2 k + 2 d, of states 3 k + 3 d (s written), of queries, keys and w 6 k +
// 3 d (both s read), of w and u back 3 k + 3 d (b read), their sum 3 k, norms 6 k + 6 d, convolution 3 c.
ScanCost gated_delta(const StateSpaceShape& shape, double element, double ranks) {
  const double d = static_cast<double>(shape.inner()) / ranks;
  const double c = static_cast<double>(shape.convolved()) / ranks;
  const double k = static_cast<double>(shape.heads) * shape.state / ranks;
  const double s = d * shape.state / shape.chunk;
  const double b = static_cast<double>(shape.heads) * shape.chunk / ranks;
  ScanCost cost;
  cost.forward_bytes = element * (2 * c + 11 * k + 9 * d + 2 * s + 2 * b) + 8 * b;
  cost.backward_bytes = element * (3 * c + 27 * k + 21 * d + 4 * s + 2 * b);
  cost.forward_kernels = 10;
  cost.backward_kernels = 12;
  // w and u, what the states knew, the states.
  cost.again = static_cast<double>(shape.heads) * shape.chunk * (shape.state + shape.head_dim) +
               4.0 * static_cast<double>(shape.inner()) * shape.state;
  return cost;
}

// Lightning attention (github.com/OpenNLPLab/lightning-attention, lightning_attn2): states stay in registers.
// Forward: activation of queries, keys and values 6 d, kernel 4 d, norm 2 d, gate 3 d. Backward: gate 5 d,
// norm 3 d, a kernel inside blocks 7 d and one between them, which adds to its gradients, 10 d, activation 9
// d.
ScanCost lightning(const StateSpaceShape& shape, double element, double ranks) {
  const double d = static_cast<double>(shape.inner()) / ranks;
  ScanCost cost;
  cost.forward_bytes = element * 15 * d;
  cost.backward_bytes = element * 34 * d;
  cost.forward_kernels = 4;
  cost.backward_kernels = 5;
  cost.again = 2.0 * static_cast<double>(shape.inner()) * shape.state;  // the states, in the second kernel
  return cost;
}

// Mamba-1's fused scan (mamba_ssm, selective_scan_interface.py: MambaInnerFn). Forward: convolution 2 d, scan
// of input, step size and gate, with the output before and behind the gate 5 d, B and C. Backward:
// convolution again 2 d, scan 9 d, B, C and their gradients in 32 bits, convolution 3 d. No products: for
// each channel and state an exponential (of which an Ampere multiprocessor does one where it does four
// multiply-adds), the step's two products, two passes of the scan of two operations each, a multiply-add into
// the output; going back all but the last again, the scan the other way and five more for the gradients; each
// at two FLOPs.
ScanCost mamba1(const StateSpaceShape& shape, double element, double ranks) {
  const double d = static_cast<double>(shape.inner()) / ranks;
  ScanCost cost;
  cost.forward_bytes = element * (7 * d + 2.0 * shape.state);
  cost.backward_bytes = element * (14 * d + 2.0 * shape.state) + 4 * 2.0 * shape.state;
  cost.forward_kernels = 2;
  cost.backward_kernels = 3;
  cost.scalar_flops = 2 * (4 + 2 + 4 + 1) * d * shape.state;
  cost.backward_scalar_flops = 2 * (10 + 4 + 5) * d * shape.state;
  return cost;
}

ScanCost cost_of(const StateSpaceShape& shape, double element, double ranks) {
  switch (shape.kind) {
    case StateSpaceKind::mamba2:
      break;
    case StateSpaceKind::mamba1:
      return mamba1(shape, element, ranks);
    case StateSpaceKind::gated_delta:
      return gated_delta(shape, element, ranks);
    case StateSpaceKind::lightning:
      return lightning(shape, element, ranks);
  }
  return mamba2(shape, element, ranks);
}

}  // namespace

void internal::add_scan(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work) {
  if (!op.state_space || kind == ComputeKind::backward_weight) return;
  const StateSpaceShape& shape = *op.state_space;
  const bool forward = does_forward(kind);
  const ScanCost cost = cost_of(shape, bytes_of(storage_type(shard.precision)), shard.tp);
  work->vector_bytes += shard.rows * (forward ? cost.forward_bytes : cost.backward_bytes);
  // Back: twice the forward's products, and what of the forward's is computed again.
  const double flops = shape.forward_flops_per_token();
  work->scalar_flops = shard.rows * (forward ? cost.scalar_flops : cost.backward_scalar_flops);
  if (work->scalar_flops == 0)
    work->attention_flops = shard.rows / shard.tp * (forward ? flops : 2 * flops + cost.again);
  work->attention_head_dim = shape.head_dim;
  work->flops += shard.rows / shard.tp * (forward ? flops : 2 * flops);
  work->kernels += forward ? cost.forward_kernels : cost.backward_kernels;
}

}  // namespace orrery
