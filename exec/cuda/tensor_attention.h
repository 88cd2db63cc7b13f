// Softmax attention on tensor cores, of bf16 and fp16 (T is Bf16 or Fp16).
#pragma once

#include "exec/cuda/attention_operands.h"

namespace orrery::exec::kernels {

// Whether what follows can on the current device: heads of at most 128 columns, of which a block's rows fit
// its memory (not of more than 64 on devices of 8.6 and 8.9, whose blocks have 99 KiB).
bool tensor_cores_attend(DType type, int head_dim);

// Of copies of queries, keys and values, and with `backward` of the output's gradient, where tensor cores
// cannot read them as they lie: `aligned` (whether they begin at multiples of 16 bytes) is not so, or heads
// are no multiple of eight columns.
std::size_t tensor_attention_scratch_bytes(const AttentionSize& size, bool aligned, bool backward);

// As attention.cu's; `batch` and what is to be done are not nothing. joins: out and statistics hold the
// softmax over other keys, and over those and these afterwards.
template <class T>
void tensor_attention_forward(const AttentionOperands<T>& o, int batch, bool joins, T* out, float* statistics,
                              void* scratch, cudaStream_t stream);
// delta: sums over columns of dout * out, a batch, head and query each.
template <class T>
void tensor_attention_backward(const AttentionOperands<T>& o, int batch, const T* dout,
                               const float* statistics, const float* delta,
                               const AttentionGradients<T>& gradients, void* scratch, cudaStream_t stream);

}  // namespace orrery::exec::kernels
