// Pools and batch normalisation on the CPU, as exec/device/device.h says.
#pragma once

#include <cstdint>

#include "exec/device/device.h"

namespace orrery::exec::cpu {

void pool_forward(const WindowSize& size, const float* x, float* y, std::int32_t* places);
void pool_backward(const WindowSize& size, const float* dy, const std::int32_t* places, float* dx);

void batch_norm_forward(const float* x, const float* weight, const float* bias, float* y, float* mean,
                        float* inverse, float* variance, std::int64_t rows, std::int64_t channels,
                        std::int64_t pixels, float epsilon);
void running_statistics(const float* mean, const float* variance, float* running_mean,
                        float* running_variance, std::int64_t channels, std::int64_t samples, float momentum);
void batch_norm_backward(const float* dy, const float* x, const float* weight, const float* mean,
                         const float* inverse, float* dx, float* dweight, float* dbias, std::int64_t rows,
                         std::int64_t channels, std::int64_t pixels);

}  // namespace orrery::exec::cpu
