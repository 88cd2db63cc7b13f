#include "exec/cpu/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/vectors/clones.h"

namespace orrery::exec::cpu {
namespace {

// e^x to 2 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, and the polynomial of Cephes' expf (S. Moshier, netlib) in
// r.
ORRERY_INLINE float exponential(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  // Adding 1.5 * 2^23 rounds to an integer.
  const float n = (x * 1.44269504F + 12582912.0F) - 12582912.0F;
  float r = x - n * 0.693359375F;
  r = r - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

ORRERY_INLINE float sigmoid(float x) {
  return 1.0F / (1.0F + exponential(-x));
}

// To 2 ulp: Cephes' tanhf (S. Moshier, netlib) near 0, where 1 - 2 / (e^2x + 1) has no digits left.
ORRERY_INLINE float hyperbolic_tangent(float x) {
  const float far = 1.0F - 2.0F / (exponential(2.0F * x) + 1.0F);
  const float z = x * x;
  float p = -5.70498872745e-3F;
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const float near = p * z * x + x;
  return z < 0.390625F ? near : far;
}

// GELU's tanh form is x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kGelu = 2.0F * 0.7978845608F;
constexpr float kGeluCubic = 0.044715F;

struct ValueAndSlope {
  float value;
  float slope;
};

// The normal distribution's share below x, to 1e-7: Abramowitz and Stegun, 7.1.26.
ORRERY_INLINE float normal_below(float x, float density) {
  const float t = 1.0F / (1.0F + 0.3275911F * 0.7071067812F * (x < 0 ? -x : x));
  const float tail =
      0.5F * density * t *
      (0.254829592F + t * (-0.284496736F + t * (1.421413741F + t * (-1.453152027F + t * 1.061405429F))));
  return x < 0 ? tail : 1.0F - tail;
}
constexpr float kNormal = 0.3989422804F;  // 1 / sqrt(2 pi)

template <Activation kind>
ORRERY_INLINE float value_of(float x) {
  if constexpr (kind == Activation::gelu_erf) return x * normal_below(x, exponential(-0.5F * x * x));
  if constexpr (kind == Activation::gelu) return x * sigmoid(kGelu * (x + kGeluCubic * x * x * x));
  if constexpr (kind == Activation::silu) return x * sigmoid(x);
  return x > 0 ? x : 0;
}

template <Activation kind>
ORRERY_INLINE ValueAndSlope value_and_slope(float x) {
  if constexpr (kind == Activation::gelu_erf) {
    const float density = exponential(-0.5F * x * x);
    const float below = normal_below(x, density);
    return {x * below, below + x * kNormal * density};
  }
  if constexpr (kind == Activation::gelu) {
    const float s = sigmoid(kGelu * (x + kGeluCubic * x * x * x));
    return {x * s, s + x * s * (1 - s) * kGelu * (1 + 3 * kGeluCubic * x * x)};
  }
  if constexpr (kind == Activation::silu) {
    const float s = sigmoid(x);
    return {x * s, s + x * s * (1 - s)};
  }
  return {x > 0 ? x : 0, x > 0 ? 1.0F : 0.0F};
}

template <Activation kind>
ORRERY_INLINE void activation_loop(const float* x, const float* up, float* y, std::int64_t columns) {
  if (up != nullptr)
    for (std::int64_t i = 0; i < columns; ++i) y[i] = value_of<kind>(x[i]) * up[i];
  else
    for (std::int64_t i = 0; i < columns; ++i) y[i] = value_of<kind>(x[i]);
}

template <Activation kind>
ORRERY_INLINE void activation_gradient_loop(const float* x, const float* up, const float* dy, float* dx,
                                            float* dup, std::int64_t columns) {
  if (up != nullptr) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const ValueAndSlope f = value_and_slope<kind>(x[i]);
      const float g = dy[i];
      dx[i] = g * up[i] * f.slope;
      dup[i] = g * f.value;
    }
  } else {
    for (std::int64_t i = 0; i < columns; ++i) dx[i] = dy[i] * value_and_slope<kind>(x[i]).slope;
  }
}

}  // namespace

ORRERY_CLONES void fill(float* data, std::size_t count, float value) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value;
}

ORRERY_CLONES void add(float* into, const float* from, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

ORRERY_CLONES void maximum(float* into, const float* from, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) into[i] = from[i] > into[i] ? from[i] : into[i];
}

ORRERY_CLONES void scale(float* data, std::size_t count, float factor) {
  for (std::size_t i = 0; i < count; ++i) data[i] *= factor;
}

ORRERY_CLONES double sum_of_squares(const float* data, std::size_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
  return sum;
}

ORRERY_CLONES double dot(const float* a, const float* b, std::size_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

ORRERY_CLONES void add_bias(float* data, const float* bias, std::int64_t rows, std::int64_t columns,
                            std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = data + r * stride;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) row[c] += bias[c];
  }
}

ORRERY_CLONES void bias_gradient(const float* gradient, float* bias_gradient, std::int64_t rows,
                                 std::int64_t columns, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = gradient + r * stride;
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) bias_gradient[c] += row[c];
  }
}

ORRERY_CLONES void residual(const float* branch, const float* bias, const float* stream, float* out,
                            std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* a = branch + r * columns;
    const float* s = stream + r * columns;
    float* o = out + r * columns;
    if (bias != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) o[c] = a[c] + bias[c] + s[c];
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) o[c] = a[c] + s[c];
    }
  }
}

ORRERY_CLONES void layer_norm_row(const float* x, const float* weight, const float* bias, float* y,
                                  float* mean, float* inverse, std::int64_t columns, float epsilon) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < columns; ++c) sum += x[c];
  const float m = sum / static_cast<float>(columns);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < columns; ++c) squares += (x[c] - m) * (x[c] - m);
  const float inv = 1.0F / std::sqrt(squares / static_cast<float>(columns) + epsilon);
  if (bias != nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) y[c] = (x[c] - m) * inv * weight[c] + bias[c];
  } else {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) y[c] = (x[c] - m) * inv * weight[c];
  }
  *mean = m;
  *inverse = inv;
}

ORRERY_CLONES void rms_norm_row(const float* x, const float* weight, float* y, float* inverse,
                                std::int64_t columns, float epsilon) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < columns; ++c) squares += x[c] * x[c];
  const float inv = 1.0F / std::sqrt(squares / static_cast<float>(columns) + epsilon);
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) y[c] = x[c] * inv * weight[c];
  *inverse = inv;
}

// With xh = (x - mean) * inverse and g = dy * weight: dx = inverse (g - mean(g) - xh mean(g xh)).
ORRERY_CLONES void layer_norm_backward_row(const float* dy, const float* x, const float* weight, float mean,
                                           float inverse, float* dx, bool accumulate, float* dweight,
                                           float* dbias, std::int64_t columns) {
  float sum = 0;
  float product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (std::int64_t c = 0; c < columns; ++c) {
    const float xh = (x[c] - mean) * inverse;
    const float g = dy[c] * weight[c];
    sum += g;
    product += g * xh;
    dweight[c] += dy[c] * xh;
  }
  if (dbias != nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) dbias[c] += dy[c];
  }
  const float a = sum / static_cast<float>(columns);
  const float b = product / static_cast<float>(columns);
  // NOLINTNEXTLINE(bugprone-branch-clone): the check does not see the += below the pragma.
  if (accumulate) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c)
      dx[c] += inverse * (dy[c] * weight[c] - a - (x[c] - mean) * inverse * b);
  } else {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c)
      dx[c] = inverse * (dy[c] * weight[c] - a - (x[c] - mean) * inverse * b);
  }
}

ORRERY_CLONES void rms_norm_backward_row(const float* dy, const float* x, const float* weight, float inverse,
                                         float* dx, bool accumulate, float* dweight, std::int64_t columns) {
  float product = 0;
#pragma omp simd reduction(+ : product)
  for (std::int64_t c = 0; c < columns; ++c) {
    const float xh = x[c] * inverse;
    product += dy[c] * weight[c] * xh;
    dweight[c] += dy[c] * xh;
  }
  const float b = product / static_cast<float>(columns);
  // NOLINTNEXTLINE(bugprone-branch-clone): the check does not see the += below the pragma.
  if (accumulate) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) dx[c] += inverse * (dy[c] * weight[c] - x[c] * inverse * b);
  } else {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) dx[c] = inverse * (dy[c] * weight[c] - x[c] * inverse * b);
  }
}

ORRERY_CLONES void activation(Activation kind, const float* __restrict x, const float* __restrict up,
                              float* __restrict y, std::int64_t columns) {
  if (kind == Activation::gelu)
    activation_loop<Activation::gelu>(x, up, y, columns);
  else if (kind == Activation::gelu_erf)
    activation_loop<Activation::gelu_erf>(x, up, y, columns);
  else if (kind == Activation::silu)
    activation_loop<Activation::silu>(x, up, y, columns);
  else
    activation_loop<Activation::relu>(x, up, y, columns);
}

ORRERY_CLONES void activation_gradient(Activation kind, const float* __restrict x, const float* __restrict up,
                                       const float* __restrict dy, float* __restrict dx,
                                       float* __restrict dup, std::int64_t columns) {
  if (kind == Activation::gelu)
    activation_gradient_loop<Activation::gelu>(x, up, dy, dx, dup, columns);
  else if (kind == Activation::gelu_erf)
    activation_gradient_loop<Activation::gelu_erf>(x, up, dy, dx, dup, columns);
  else if (kind == Activation::silu)
    activation_gradient_loop<Activation::silu>(x, up, dy, dx, dup, columns);
  else
    activation_gradient_loop<Activation::relu>(x, up, dy, dx, dup, columns);
}

ORRERY_CLONES float row_maximum(const float* x, std::int64_t columns) {
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (std::int64_t c = 0; c < columns; ++c) most = x[c] > most ? x[c] : most;
  return most;
}

ORRERY_CLONES float exponentials_row(float* x, float maximum, std::int64_t columns) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < columns; ++c) {
    const float e = exponential(x[c] - maximum);
    x[c] = e;
    sum += e;
  }
  return sum;
}

ORRERY_CLONES float softmax_row(float* scores, std::int64_t used, std::int64_t columns) {
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (std::int64_t c = 0; c < used; ++c) most = scores[c] > most ? scores[c] : most;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < used; ++c) {
    const float e = exponential(scores[c] - most);
    scores[c] = e;
    sum += e;
  }
  const float inverse = 1.0F / sum;
  for (std::int64_t c = 0; c < used; ++c) scores[c] *= inverse;
  for (std::int64_t c = used; c < columns; ++c) scores[c] = 0;
  return most + std::log(sum);
}

ORRERY_CLONES void softmax_backward_row(float* scores, float* dscores, float statistic, float delta,
                                        float scale, std::int64_t used, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t c = 0; c < used; ++c) {
    const float p = exponential(scores[c] - statistic);
    scores[c] = p;
    dscores[c] = p * (dscores[c] - delta) * scale;
  }
  for (std::int64_t c = used; c < columns; ++c) {
    scores[c] = 0;
    dscores[c] = 0;
  }
}

ORRERY_CLONES void multiply(float* into, const float* by, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) into[i] *= by[i];
}

void transpose(const float* from, float* to, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kTile = 16;  // both sides' lines stay in the cache
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (std::int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (std::int64_t c = c0; c < std::min(columns, c0 + kTile); ++c)
          to[c * rows + r] = from[r * columns + c];
}

ORRERY_CLONES void softcap(float cap, float* x, float* slopes, std::size_t count) {
  const float inverse = 1.0F / cap;
  if (slopes == nullptr) {
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) x[i] = cap * hyperbolic_tangent(x[i] * inverse);
    return;
  }
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const float t = hyperbolic_tangent(x[i] * inverse);
    x[i] = cap * t;
    slopes[i] = 1.0F - t * t;
  }
}

ORRERY_CLONES void rotate_pairs(float* x, const float* cosine, const float* sine, std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + half] = b * cosine[i] + a * sine[i];
  }
}

ORRERY_CLONES void add_scaled(float* into, const float* from, std::size_t count, float factor) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) into[i] += factor * from[i];
}

ORRERY_CLONES void copy_scaled(float* into, const float* from, std::size_t count, float factor) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) into[i] = factor * from[i];
}

ORRERY_CLONES void sgd(float* weight, const float* gradient, std::size_t count, float rate) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) weight[i] -= rate * gradient[i];
}

ORRERY_CLONES void momentum(float* weight, const float* gradient, float* velocity, std::size_t count,
                            float rate, float momentum) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const float v = momentum * velocity[i] + gradient[i];
    velocity[i] = v;
    weight[i] -= rate * v;
  }
}

ORRERY_CLONES void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
                        const AdamConstants& constants, std::int64_t step) {
  const float beta1 = constants.beta1;
  const float beta2 = constants.beta2;
  const float epsilon = constants.epsilon;
  const double t = static_cast<double>(step);
  const float correction2 = static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta2), t)));
  const float rate1 = static_cast<float>(constants.rate / (1.0 - std::pow(static_cast<double>(beta1), t)));
  const float coupled = constants.decoupled ? 0.0F : constants.weight_decay;
  const float keep = constants.decoupled ? 1.0F - constants.rate * constants.weight_decay : 1.0F;
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] + coupled * weight[i];
    const float m = beta1 * first[i] + (1 - beta1) * g;
    const float v = beta2 * second[i] + (1 - beta2) * g * g;
    first[i] = m;
    second[i] = v;
    weight[i] = keep * weight[i] - rate1 * m / (std::sqrt(v * correction2) + epsilon);
  }
}

}  // namespace orrery::exec::cpu
