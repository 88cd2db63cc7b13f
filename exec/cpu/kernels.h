// Vectorised loops of the CPU device. Each is compiled for AVX-512, AVX2 and the baseline, and the loader
// picks (GCC function multiversioning). Arguments as in exec/device/device.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/device/device.h"

namespace orrery::exec::cpu {

void fill(float* data, std::size_t count, float value);
void add(float* into, const float* from, std::size_t count);
void maximum(float* into, const float* from, std::size_t count);  // into = max(into, from)
void scale(float* data, std::size_t count, float factor);
void multiply(float* into, const float* by, std::size_t count);  // into *= by
// x = cap tanh(x / cap); slopes (may be null): its derivative.
void softcap(float cap, float* x, float* slopes, std::size_t count);
// One matrix, rows x columns.
void transpose(const float* from, float* to, std::int64_t rows, std::int64_t columns);
double sum_of_squares(const float* data, std::size_t count);
double dot(const float* a, const float* b, std::size_t count);

void add_scaled(float* into, const float* from, std::size_t count, float factor);  // into += factor * from
void copy_scaled(float* into, const float* from, std::size_t count, float factor);

void add_bias(float* data, const float* bias, std::int64_t rows, std::int64_t columns, std::int64_t stride);
void bias_gradient(const float* gradient, float* bias_gradient, std::int64_t rows, std::int64_t columns,
                   std::int64_t stride);
void residual(const float* branch, const float* bias, const float* stream, float* out, std::int64_t rows,
              std::int64_t columns);

void layer_norm_row(const float* x, const float* weight, const float* bias, float* y, float* mean,
                    float* inverse, std::int64_t columns, float epsilon);
void rms_norm_row(const float* x, const float* weight, float* y, float* inverse, std::int64_t columns,
                  float epsilon);
void layer_norm_backward_row(const float* dy, const float* x, const float* weight, float mean, float inverse,
                             float* dx, bool accumulate, float* dweight, float* dbias, std::int64_t columns);
void rms_norm_backward_row(const float* dy, const float* x, const float* weight, float inverse, float* dx,
                           bool accumulate, float* dweight, std::int64_t columns);

// y = f(x) [* up], `columns` values; up null: not gated.
void activation(Activation kind, const float* x, const float* up, float* y, std::int64_t columns);
// dx = dy f'(x) [* up], dup = dy f(x); up and dup null: not gated.
void activation_gradient(Activation kind, const float* x, const float* up, const float* dy, float* dx,
                         float* dup, std::int64_t columns);

// Softmax of `used` scores in place, zeros up to `columns`; returns the log-sum-exp.
float softmax_row(float* scores, std::int64_t used, std::int64_t columns);
// scores becomes p = exp(score - statistic), zeros beyond `used`; dscores becomes p (dscores - delta) *
// scale.
void softmax_backward_row(float* scores, float* dscores, float statistic, float delta, float scale,
                          std::int64_t used, std::int64_t columns);
float row_maximum(const float* x, std::int64_t columns);
// x = exp(x - maximum); returns the sum.
float exponentials_row(float* x, float maximum, std::int64_t columns);
void rotate_pairs(float* x, const float* cosine, const float* sine, std::int64_t half);

void sgd(float* weight, const float* gradient, std::size_t count, float rate);
void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
              float momentum);
void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
          const AdamConstants& constants, std::int64_t step);

}  // namespace orrery::exec::cpu
