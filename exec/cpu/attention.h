// Attention on the CPU: blocks of queries against all the keys they see, by matrix products.
#pragma once

#include "exec/device.h"

namespace orrery::exec::cpu {

void attention_forward(const AttentionSize& size, const float* qkv, float* out, float* statistics);
void attention_backward(const AttentionSize& size, const float* qkv, const float* out, const float* dout,
                        const float* statistics, float* dqkv);

}  // namespace orrery::exec::cpu
