// Attention on the CPU: blocks of queries against all the keys they see, by matrix products.
#pragma once

#include "exec/device/device.h"

namespace orrery::exec::cpu {

// Queries a block: large enough for the products, small enough that a block of scores stays in the
// second-level cache and that little above the diagonal is computed in vain.
inline constexpr int kQueryBlock = 64;

void attention_forward(const AttentionSize& size, const float* qkv, float* out, float* statistics);
void attention_backward(const AttentionSize& size, const float* qkv, const float* out, const float* dout,
                        const float* statistics, float* dqkv);

void attention_block_forward(const AttentionBlock& block, const float* qkv, const float* keys,
                             const float* values, float* out, float* statistics);
void attention_block_backward(const AttentionBlock& block, const float* qkv, const float* keys,
                              const float* values, const float* out, const float* dout,
                              const float* statistics, float* dqkv, float* dkeys, float* dvalues);

}  // namespace orrery::exec::cpu
