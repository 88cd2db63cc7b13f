#include "exec/cpu/images.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/vectors/clones.h"

namespace orrery::exec::cpu {
namespace {

// Sums over one channel of one sample, in double: by pixels in float they are up to ten times as far off.
ORRERY_CLONES double sum(const float* x, std::int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(x[i]);
  return total;
}

ORRERY_CLONES double squares_about(const float* x, float middle, std::int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto away = static_cast<double>(x[i] - middle);
    total += away * away;
  }
  return total;
}

ORRERY_CLONES double products_about(const float* dy, const float* x, float middle, std::int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < count; ++i)
    total += static_cast<double>(dy[i]) * static_cast<double>(x[i] - middle);
  return total;
}

// y = a x + b
ORRERY_CLONES void scale_and_shift(const float* x, float* y, float a, float b, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = a * x[i] + b;
}

// dx = a dy + b (x - middle) + c
ORRERY_CLONES void combine(const float* dy, const float* x, float* dx, float a, float b, float middle,
                           float c, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dx[i] = a * dy[i] + b * (x[i] - middle) + c;
}

struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// What window `at` has of an image of `size` pixels, along dimension d; dilation leaves gaps.
Span window(const ImageOperator& image, std::size_t d, std::int64_t at, std::int64_t size) {
  const std::int64_t first = at * image.stride[d] - image.padding[d];
  const std::int64_t step = image.dilation[d];
  const std::int64_t begin = first >= 0 ? first : first + (-first + step - 1) / step * step;
  return {begin, std::min(size, first + (image.kernel[d] - 1) * step + 1)};
}

// For each output pixel of each channel of each sample: its number, and rows and columns of its window.
template <typename Visit>
void for_each_window(const WindowSize& size, Visit visit) {
  const ImageOperator& image = size.image;
  std::int64_t out = 0;
  for (std::int64_t plane = 0; plane < size.batch * image.output.channels; ++plane)
    for (std::int64_t r = 0; r < image.output.height; ++r) {
      const Span rows = window(image, 0, r, image.input.height);
      for (std::int64_t c = 0; c < image.output.width; ++c, ++out)
        visit(plane * image.input.height * image.input.width, out, rows,
              window(image, 1, c, image.input.width));
    }
}

std::int64_t count(const Span& span, int step) {
  return (span.end - span.begin + step - 1) / step;
}

}  // namespace

void pool_forward(const WindowSize& size, const float* x, float* y, std::int32_t* places) {
  const ImageOperator& image = size.image;
  const std::int64_t width = image.input.width;
  for_each_window(size, [&](std::int64_t plane, std::int64_t out, const Span& rows, const Span& columns) {
    float total = 0;
    float most = -std::numeric_limits<float>::infinity();
    std::int64_t place = rows.begin * width + columns.begin;
    for (std::int64_t r = rows.begin; r < rows.end; r += image.dilation[0])
      for (std::int64_t c = columns.begin; c < columns.end; c += image.dilation[1]) {
        const float value = x[plane + r * width + c];
        total += value;
        if (value > most) {
          most = value;
          place = r * width + c;
        }
      }
    if (image.average) {
      y[out] = total / static_cast<float>(count(rows, image.dilation[0]) * count(columns, image.dilation[1]));
    } else {
      y[out] = x[plane + place];
      places[out] = static_cast<std::int32_t>(place);
    }
  });
}

void pool_backward(const WindowSize& size, const float* dy, const std::int32_t* places, float* dx) {
  const ImageOperator& image = size.image;
  const std::int64_t width = image.input.width;
  std::fill_n(dx, size.batch * image.input.elements(), 0.0F);
  for_each_window(size, [&](std::int64_t plane, std::int64_t out, const Span& rows, const Span& columns) {
    if (!image.average) {
      dx[plane + places[out]] += dy[out];
      return;
    }
    const float share =
        dy[out] / static_cast<float>(count(rows, image.dilation[0]) * count(columns, image.dilation[1]));
    for (std::int64_t r = rows.begin; r < rows.end; r += image.dilation[0])
      for (std::int64_t c = columns.begin; c < columns.end; c += image.dilation[1])
        dx[plane + r * width + c] += share;
  });
}

void batch_norm_forward(const float* x, const float* weight, const float* bias, float* y, float* mean,
                        float* inverse, float* variance, std::int64_t rows, std::int64_t channels,
                        std::int64_t pixels, float epsilon) {
  const double count = static_cast<double>(rows) * static_cast<double>(pixels);
  for (std::int64_t c = 0; c < channels && rows > 0; ++c) {
    const auto plane = [&](std::int64_t row) { return (row * channels + c) * pixels; };
    double total = 0;
    for (std::int64_t r = 0; r < rows; ++r) total += sum(x + plane(r), pixels);
    const auto middle = static_cast<float>(total / count);
    double squares = 0;
    for (std::int64_t r = 0; r < rows; ++r) squares += squares_about(x + plane(r), middle, pixels);
    mean[c] = middle;
    variance[c] = static_cast<float>(squares / count);
    inverse[c] = static_cast<float>(1.0 / std::sqrt(squares / count + static_cast<double>(epsilon)));
    const float a = weight[c] * inverse[c];
    for (std::int64_t r = 0; r < rows; ++r)
      scale_and_shift(x + plane(r), y + plane(r), a, bias[c] - a * middle, pixels);
  }
}

void running_statistics(const float* mean, const float* variance, float* running_mean,
                        float* running_variance, std::int64_t channels, std::int64_t samples,
                        float momentum) {
  const float unbiased = samples > 1 ? static_cast<float>(samples) / static_cast<float>(samples - 1) : 1.0F;
  for (std::int64_t c = 0; c < channels; ++c) {
    running_mean[c] += momentum * (mean[c] - running_mean[c]);
    running_variance[c] += momentum * (unbiased * variance[c] - running_variance[c]);
  }
}

// With xh = (x - mean) * inverse: dx = weight * inverse * (dy - mean(dy) - xh * mean(dy * xh)).
void batch_norm_backward(const float* dy, const float* x, const float* weight, const float* mean,
                         const float* inverse, float* dx, float* dweight, float* dbias, std::int64_t rows,
                         std::int64_t channels, std::int64_t pixels) {
  const double count = static_cast<double>(rows) * static_cast<double>(pixels);
  for (std::int64_t c = 0; c < channels && rows > 0; ++c) {
    const auto plane = [&](std::int64_t row) { return (row * channels + c) * pixels; };
    double total = 0;
    double products = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      total += sum(dy + plane(r), pixels);
      products += products_about(dy + plane(r), x + plane(r), mean[c], pixels);
    }
    const double by_inverse = products * static_cast<double>(inverse[c]);
    dweight[c] += static_cast<float>(by_inverse);
    dbias[c] += static_cast<float>(total);
    const float a = weight[c] * inverse[c];
    const auto slope = static_cast<float>(-by_inverse / count) * inverse[c];
    const auto shift = static_cast<float>(-total / count);
    for (std::int64_t r = 0; r < rows; ++r)
      combine(dy + plane(r), x + plane(r), dx + plane(r), a, a * slope, mean[c], a * shift, pixels);
  }
}

}  // namespace orrery::exec::cpu
