// Softmax attention on tensor cores, for products in bf16 and fp16.
#pragma once

#include "exec/cuda/attention_operands.h"

namespace orrery::exec::kernels {

// Whether what follows can on the current device: heads of at most 128 columns, of which a block's rows fit
// its memory (not of more than 64 on devices of 8.6 and 8.9, whose blocks have 99 KiB).
bool tensor_cores_attend(DType type, int head_dim);

// Queries, keys and values (and with `backward` the output's gradient) in the type that is multiplied.
std::size_t tensor_attention_scratch_bytes(const AttentionSize& size, bool backward);

// As attention.cu's; `batch` and what is to be done are not nothing. joins: out and statistics hold the
// softmax over other keys, and over those and these afterwards.
void tensor_attention_forward(DType type, const AttentionOperands& o, int batch, bool joins, float* out,
                              float* statistics, void* scratch, cudaStream_t stream);
// delta: sums over columns of dout * out, a batch, head and query each.
void tensor_attention_backward(DType type, const AttentionOperands& o, int batch, const float* dout,
                               const float* statistics, const float* delta,
                               const AttentionGradients& gradients, void* scratch, cudaStream_t stream);

}  // namespace orrery::exec::kernels
