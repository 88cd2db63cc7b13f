// CudaDevice's operations of networks on images. A convolution is a product of its weights with the columns
// of the images (images_to_columns), for as many samples at once as the columns' memory allows; groups are
// the matrices of a batch of products.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "exec/cuda/by_type.h"
#include "exec/cuda/cuda_device.h"
#include "exec/cuda/scratch.h"

namespace orrery::exec {
namespace {

int narrow_int(std::int64_t value) {
  ORRERY_CHECK(value <= std::numeric_limits<int>::max(), "an image or its windows are too large for the GPU");
  return static_cast<int>(value);
}

kernels::Windows windows_of(const WindowSize& size) {
  const ImageOperator& image = size.image;
  kernels::Windows w{};
  w.samples = narrow_int(size.batch);
  w.channels = narrow_int(image.input.channels);
  w.height = narrow_int(image.input.height);
  w.width = narrow_int(image.input.width);
  w.out_height = narrow_int(image.output.height);
  w.out_width = narrow_int(image.output.width);
  std::copy(image.kernel.begin(), image.kernel.end(), w.kernel);
  std::copy(image.stride.begin(), image.stride.end(), w.stride);
  std::copy(image.padding.begin(), image.padding.end(), w.padding);
  std::copy(image.dilation.begin(), image.dilation.end(), w.dilation);
  w.average = image.average;
  return w;
}

// Of an element of a product's factor.
int factor_bytes(DType type) {
  return bytes_of(type) == 2 ? 2 : 4;
}

// A convolution's matrices, of as many samples as are worked on at once: of each group `outputs` x `inputs`
// weights, `inputs` x columns, and `outputs` x columns of results.
struct Matrices {
  int groups;
  std::int64_t outputs, inputs, pixels;
  int samples;          // at once
  std::int64_t stride;  // of columns and results
  std::int64_t columns_elements() const { return groups * inputs * stride; }
  std::int64_t results_elements() const { return groups * outputs * stride; }

  Factor weights(const void* data, std::int64_t weight_stride, bool transposed) const {
    return {data, transposed, outputs, inputs, weight_stride, outputs * weight_stride};
  }
  Factor columns(const void* data, int of_samples, bool transposed) const {
    return {data, transposed, inputs, of_samples * pixels, stride, inputs * stride};
  }
  Factor results(const void* data, int of_samples) const {
    return {data, false, outputs, of_samples * pixels, stride, outputs * stride};
  }
};

// columns_bytes: at once, unless a single sample has more.
Matrices matrices_of(const WindowSize& size, std::size_t columns_bytes) {
  const ImageOperator& image = size.image;
  Matrices m{};
  m.groups = narrow_int(size.groups);
  m.outputs = image.output.channels / size.groups;
  m.inputs = image.input.channels / size.groups * image.kernel[0] * image.kernel[1];
  m.pixels = image.output.height * image.output.width;
  const std::int64_t sample_bytes = m.groups * m.inputs * m.pixels * static_cast<std::int64_t>(sizeof(float));
  m.samples = narrow_int(
      std::clamp<std::int64_t>(static_cast<std::int64_t>(columns_bytes) / sample_bytes, 1, size.batch));
  m.stride = packed_stride(m.samples * m.pixels);
  narrow_int(m.columns_elements());
  narrow_int(m.results_elements());
  return m;
}

// Calls run(windows of the samples, first sample) until all samples have had their turn.
template <typename Run>
void by_samples(const WindowSize& size, int at_once, Run run) {
  kernels::Windows windows = windows_of(size);
  for (std::int64_t first = 0; first < size.batch; first += at_once) {
    windows.samples = static_cast<int>(std::min<std::int64_t>(at_once, size.batch - first));
    run(windows, first);
  }
}

}  // namespace

void CudaDevice::convolution_forward(const WindowSize& size, ConstNumbers x, const float* weight,
                                     const float* bias, Numbers y) {
  if (size.batch == 0) return;
  const DType type = product_type(x, y, y);
  const Matrices m = matrices_of(size, columns_bytes_);
  const Scratch columns(*this, m.columns_elements(), factor_bytes(type));
  const Scratch results(*this, m.results_elements(), sizeof(float));
  const Operand weights =
      operand(type, weight, {nullptr, false, m.groups * m.outputs, m.inputs, m.inputs}, true);
  by_samples(size, m.samples, [&](const kernels::Windows& w, std::int64_t first) {
    const ConstNumbers images = x + first * size.image.input.elements();
    by_type(x,
            [&](auto of) { of.images.to_columns(w, type, of(images), columns.data(), m.stride, stream_); });
    products_->multiply(
        type, m.weights(weights.factor.data, weights.factor.stride, false),
        m.columns(columns.data(), w.samples, false),
        {results.floats(), DType::fp32, m.outputs, w.samples * m.pixels, m.stride, m.outputs * m.stride}, 1,
        0, m.groups, stream_);
    const Numbers outputs = y + first * size.image.output.elements();
    by_type(y, [&](auto of) {
      of.images.from_channels(results.floats(), m.stride, bias, of(outputs), w.samples,
                              narrow_int(size.image.output.channels), narrow_int(m.pixels), stream_);
    });
  });
  release(weights.memory);
}

void CudaDevice::convolution_backward_input(const WindowSize& size, ConstNumbers dy, const float* weight,
                                            Numbers dx) {
  if (size.batch == 0) return;
  const DType type = product_type(dy, dx, dx);
  const Matrices m = matrices_of(size, columns_bytes_);
  const Scratch columns(*this, m.columns_elements(), sizeof(float));
  const Scratch results(*this, m.results_elements(), factor_bytes(type));
  const Operand weights =
      operand(type, weight, {nullptr, false, m.groups * m.outputs, m.inputs, m.inputs}, true);
  by_samples(size, m.samples, [&](const kernels::Windows& w, std::int64_t first) {
    const ConstNumbers outputs = dy + first * size.image.output.elements();
    by_type(dy, [&](auto of) {
      of.images.to_channels(type, of(outputs), results.data(), m.stride, w.samples,
                            narrow_int(size.image.output.channels), narrow_int(m.pixels), stream_);
    });
    products_->multiply(
        type, m.weights(weights.factor.data, weights.factor.stride, true),
        m.results(results.data(), w.samples),
        {columns.floats(), DType::fp32, m.inputs, w.samples * m.pixels, m.stride, m.inputs * m.stride}, 1, 0,
        m.groups, stream_);
    const Numbers images = dx + first * size.image.input.elements();
    by_type(dx, [&](auto of) { of.images.from_columns(w, columns.floats(), m.stride, of(images), stream_); });
  });
  release(weights.memory);
}

void CudaDevice::convolution_backward_weight(const WindowSize& size, ConstNumbers x, ConstNumbers dy,
                                             float* dweight, float* dbias, bool accumulate) {
  if (size.batch == 0) return;
  const DType type = product_type(x, dy, dy);
  const Matrices m = matrices_of(size, columns_bytes_);
  const int channels = narrow_int(size.image.output.channels);
  const Scratch columns(*this, m.columns_elements(), factor_bytes(type));
  const Scratch results(*this, m.results_elements(), factor_bytes(type));
  by_samples(size, m.samples, [&](const kernels::Windows& w, std::int64_t first) {
    const ConstNumbers images = x + first * size.image.input.elements();
    by_type(x,
            [&](auto of) { of.images.to_columns(w, type, of(images), columns.data(), m.stride, stream_); });
    const ConstNumbers outputs = dy + first * size.image.output.elements();
    by_type(dy, [&](auto of) {
      of.images.to_channels(type, of(outputs), results.data(), m.stride, w.samples, channels,
                            narrow_int(m.pixels), stream_);
    });
    products_->multiply(type, m.results(results.data(), w.samples),
                        m.columns(columns.data(), w.samples, true),
                        {dweight, DType::fp32, m.outputs, m.inputs, m.inputs, m.outputs * m.inputs}, 1,
                        accumulate || first > 0 ? 1.0F : 0.0F, m.groups, stream_);
  });
  if (dbias != nullptr)
    by_type(dy, [&](auto of) {
      of.images.channel_sums(of(dy), dbias, accumulate, narrow_int(size.batch), channels,
                             narrow_int(m.pixels), stream_);
    });
}

void CudaDevice::pool_forward(const WindowSize& size, ConstNumbers x, Numbers y, std::int32_t* places) {
  by_type(y, [&](auto of) { of.images.pool_forward(windows_of(size), of(x), of(y), places, stream_); });
}

void CudaDevice::pool_backward(const WindowSize& size, ConstNumbers dy, const std::int32_t* places,
                               Numbers dx) {
  by_type(dx, [&](auto of) { of.images.pool_backward(windows_of(size), of(dy), places, of(dx), stream_); });
}

void CudaDevice::batch_norm_forward(ConstNumbers x, const float* weight, const float* bias, Numbers y,
                                    float* mean, float* inverse, float* variance, std::int64_t rows,
                                    std::int64_t channels, std::int64_t pixels, float epsilon) {
  narrow_int(rows * pixels);
  by_type(y, [&](auto of) {
    of.images.batch_norm_forward(of(x), weight, bias, of(y), mean, inverse, variance, narrow_int(rows),
                                 narrow_int(channels), narrow_int(pixels), epsilon, stream_);
  });
}

void CudaDevice::running_statistics(const float* mean, const float* variance, float* running_mean,
                                    float* running_variance, std::int64_t channels, std::int64_t samples,
                                    float momentum) {
  kernels::running_statistics(mean, variance, running_mean, running_variance, channels, samples, momentum,
                              stream_);
}

void CudaDevice::batch_norm_backward(ConstNumbers dy, ConstNumbers x, const float* weight, const float* mean,
                                     const float* inverse, Numbers dx, float* dweight, float* dbias,
                                     std::int64_t rows, std::int64_t channels, std::int64_t pixels) {
  narrow_int(rows * pixels);
  by_type(dx, [&](auto of) {
    of.images.batch_norm_backward(of(dy), of(x), weight, mean, inverse, of(dx), dweight, dbias,
                                  narrow_int(rows), narrow_int(channels), narrow_int(pixels), stream_);
  });
}

}  // namespace orrery::exec
