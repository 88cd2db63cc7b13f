// Kernels of networks on images: convolutions as products of columns, pools, batch normalisation.
//
// Every element of a result has one thread (or block) that sums in a fixed order: no atomics, the same result
// each time.
#include <cfloat>

#include "exec/cuda/block_reduce.h"
#include "exec/cuda/each.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/two_bytes.h"

namespace orrery::exec::kernels {
namespace {

__device__ std::int64_t plane_of(const Windows& w, int sample, int channel) {
  return (static_cast<std::int64_t>(sample) * w.channels + channel) * w.height * w.width;
}

// The window along dimension d whose kernel element `at` stands on `place`, or -1.
__device__ int window_on(const Windows& w, int d, int place, int at, int windows) {
  const int from_first = place + w.padding[d] - at * w.dilation[d];
  if (from_first < 0 || from_first % w.stride[d] != 0) return -1;
  const int window = from_first / w.stride[d];
  return window < windows ? window : -1;
}

// The kernel's elements that stand on the image, of the window at `at` along dimension d.
struct Span {
  int begin, end;
};

__device__ Span inside(const Windows& w, int d, int at, int size) {
  const int first = at * w.stride[d] - w.padding[d];
  const int step = w.dilation[d];
  const int begin = first >= 0 ? 0 : (-first + step - 1) / step;
  const int end = (size - first + step - 1) / step;
  return {begin, end < w.kernel[d] ? end : w.kernel[d]};
}

// Calls visit(place within the plane) for what the window of output pixel `pixel` has of the image, and
// returns how many places that are.
template <class Visit>
__device__ int for_window(const Windows& w, int pixel, Visit visit) {
  const int out_row = pixel / w.out_width;
  const int out_column = pixel % w.out_width;
  const Span rows = inside(w, 0, out_row, w.height);
  const Span columns = inside(w, 1, out_column, w.width);
  for (int y = rows.begin; y < rows.end; ++y)
    for (int x = columns.begin; x < columns.end; ++x)
      visit((out_row * w.stride[0] - w.padding[0] + y * w.dilation[0]) * w.width + out_column * w.stride[1] -
            w.padding[1] + x * w.dilation[1]);
  return (rows.end - rows.begin) * (columns.end - columns.begin);
}

// Calls visit(output pixel, kernel element) for every window that has pixel `pixel` of the image.
template <class Visit>
__device__ void for_windows_on(const Windows& w, int pixel, Visit visit) {
  const int row = pixel / w.width;
  const int column = pixel % w.width;
  for (int y = 0; y < w.kernel[0]; ++y) {
    const int out_row = window_on(w, 0, row, y, w.out_height);
    if (out_row < 0) continue;
    for (int x = 0; x < w.kernel[1]; ++x) {
      const int out_column = window_on(w, 1, column, x, w.out_width);
      if (out_column >= 0) visit(out_row * w.out_width + out_column, y * w.kernel[1] + x);
    }
  }
}

// One block a channel. `element(i)` is its i-th over samples and pixels.
struct Channel {
  int channels;
  int pixels;
  int count;  // samples x pixels
  __device__ std::int64_t element(int i) const {
    return (static_cast<std::int64_t>(i / pixels) * channels + blockIdx.x) * pixels + i % pixels;
  }
};

Channel channel_of(int samples, int channels, int pixels) {
  return {channels, pixels, samples * pixels};
}

template <class Term>
__device__ float sum_over(const Channel& channel, Term term) {
  float sum = 0;
  for (int i = threadIdx.x; i < channel.count; i += kReducingThreads) sum += term(channel.element(i));
  return reduce_block<false>(sum);
}

template <class T>
__global__ void channel_sums_kernel(const T* x, float* sums, bool accumulate, Channel channel) {
  const float sum = sum_over(channel, [&](std::int64_t at) { return wide(x[at]); });
  if (threadIdx.x == 0) sums[blockIdx.x] = accumulate ? sums[blockIdx.x] + sum : sum;
}

template <class T>
__global__ void batch_norm_forward_kernel(const T* x, const float* weight, const float* bias, T* y,
                                          float* mean, float* inverse, float* variance, Channel channel,
                                          float epsilon) {
  const auto count = static_cast<float>(channel.count);
  const float middle = sum_over(channel, [&](std::int64_t at) { return wide(x[at]); }) / count;
  const float squares =
      sum_over(channel, [&](std::int64_t at) { return (wide(x[at]) - middle) * (wide(x[at]) - middle); });
  const float scale = rsqrtf(squares / count + epsilon);
  const int c = blockIdx.x;
  for (int i = threadIdx.x; i < channel.count; i += kReducingThreads) {
    const std::int64_t at = channel.element(i);
    put(y[at], weight[c] * scale * (wide(x[at]) - middle) + bias[c]);
  }
  if (threadIdx.x != 0) return;
  mean[c] = middle;
  inverse[c] = scale;
  variance[c] = squares / count;
}

// With xh = (x - mean) * inverse: dx = weight * inverse * (dy - mean(dy) - xh * mean(dy * xh)).
template <class T>
__global__ void batch_norm_backward_kernel(const T* dy, const T* x, const float* weight, const float* mean,
                                           const float* inverse, T* dx, float* dweight, float* dbias,
                                           Channel channel) {
  const int c = blockIdx.x;
  const float middle = mean[c];
  const float scale = inverse[c];
  const float total = sum_over(channel, [&](std::int64_t at) { return wide(dy[at]); });
  const float products =
      scale * sum_over(channel, [&](std::int64_t at) { return wide(dy[at]) * (wide(x[at]) - middle); });
  const auto count = static_cast<float>(channel.count);
  for (int i = threadIdx.x; i < channel.count; i += kReducingThreads) {
    const std::int64_t at = channel.element(i);
    put(dx[at], weight[c] * scale *
                    (wide(dy[at]) - total / count - (wide(x[at]) - middle) * scale * (products / count)));
  }
  if (threadIdx.x != 0) return;
  dweight[c] += products;
  dbias[c] += total;
}

}  // namespace

template <class T>
void Images<T>::to_columns(const Windows& windows, DType type, const T* x, void* columns, std::int64_t stride,
                           cudaStream_t stream) {
  const Windows w = windows;
  const int pixels = w.out_height * w.out_width;
  const int width = w.samples * pixels;
  const int kernel = w.kernel[0] * w.kernel[1];
  each(static_cast<std::size_t>(w.channels) * kernel * width, stream, [=] __device__(std::size_t index) {
    const int i = static_cast<int>(index);
    const int row = i / width;
    const int column = i % width;
    const int pixel = column % pixels;
    const int element = row % kernel;
    const int y = pixel / w.out_width * w.stride[0] - w.padding[0] + element / w.kernel[1] * w.dilation[0];
    const int at = pixel % w.out_width * w.stride[1] - w.padding[1] + element % w.kernel[1] * w.dilation[1];
    const bool on_image = y >= 0 && y < w.height && at >= 0 && at < w.width;
    const float value = on_image ? wide(x[plane_of(w, column / pixels, row / kernel) + y * w.width + at]) : 0;
    put_factor(type, columns, row * stride + column, value);
  });
}

template <class T>
void Images<T>::from_columns(const Windows& windows, const float* columns, std::int64_t stride, T* x,
                             cudaStream_t stream) {
  const Windows w = windows;
  const int plane = w.height * w.width;
  const int pixels = w.out_height * w.out_width;
  const int kernel = w.kernel[0] * w.kernel[1];
  each(static_cast<std::size_t>(w.samples) * w.channels * plane, stream, [=] __device__(std::size_t i) {
    const int of_image = static_cast<int>(i / plane);
    const int sample = of_image / w.channels;
    const int channel = of_image % w.channels;
    float sum = 0;
    for_windows_on(w, static_cast<int>(i % plane), [&](int pixel, int element) {
      sum += columns[(channel * kernel + element) * stride + sample * pixels + pixel];
    });
    put(x[i], sum);
  });
}

template <class T>
void Images<T>::to_channels(DType type, const T* from, void* to, std::int64_t stride, int samples,
                            int channels, int pixels, cudaStream_t stream) {
  each(static_cast<std::size_t>(samples) * channels * pixels, stream, [=] __device__(std::size_t i) {
    const int plane = static_cast<int>(i / pixels);
    put_factor(type, to, plane % channels * stride + plane / channels * pixels + static_cast<int>(i % pixels),
               wide(from[i]));
  });
}

template <class T>
void Images<T>::from_channels(const float* from, std::int64_t stride, const float* bias, T* to, int samples,
                              int channels, int pixels, cudaStream_t stream) {
  each(static_cast<std::size_t>(samples) * channels * pixels, stream, [=] __device__(std::size_t i) {
    const int plane = static_cast<int>(i / pixels);
    const int channel = plane % channels;
    const float value = from[channel * stride + plane / channels * pixels + static_cast<int>(i % pixels)];
    put(to[i], bias ? value + bias[channel] : value);
  });
}

template <class T>
void Images<T>::channel_sums(const T* x, float* sums, bool accumulate, int samples, int channels, int pixels,
                             cudaStream_t stream) {
  launch(channel_sums_kernel<T>, static_cast<unsigned>(channels), kReducingThreads, 0, stream, x, sums,
         accumulate, channel_of(samples, channels, pixels));
}

template <class T>
void Images<T>::pool_forward(const Windows& windows, const T* x, T* y, std::int32_t* places,
                             cudaStream_t stream) {
  const Windows w = windows;
  const int pixels = w.out_height * w.out_width;
  each(static_cast<std::size_t>(w.samples) * w.channels * pixels, stream, [=] __device__(std::size_t i) {
    const T* plane = x + static_cast<std::int64_t>(i / pixels) * w.height * w.width;
    float total = 0;
    float most = -INFINITY;
    int place = -1;
    const int count = for_window(w, static_cast<int>(i % pixels), [&](int at) {
      const float value = wide(plane[at]);
      total += value;
      if (value > most || place < 0) {
        most = value;
        place = at;
      }
    });
    put(y[i], w.average ? total / static_cast<float>(count) : most);
    if (!w.average) places[i] = place;
  });
}

template <class T>
void Images<T>::pool_backward(const Windows& windows, const T* dy, const std::int32_t* places, T* dx,
                              cudaStream_t stream) {
  const Windows w = windows;
  const int plane = w.height * w.width;
  const int pixels = w.out_height * w.out_width;
  each(static_cast<std::size_t>(w.samples) * w.channels * plane, stream, [=] __device__(std::size_t i) {
    const std::int64_t first = static_cast<std::int64_t>(i / plane) * pixels;
    const int at = static_cast<int>(i % plane);
    float sum = 0;
    for_windows_on(w, at, [&](int pixel, int) {
      if (w.average)
        sum += wide(dy[first + pixel]) / static_cast<float>(for_window(w, pixel, [](int) {}));
      else if (places[first + pixel] == at)
        sum += wide(dy[first + pixel]);
    });
    put(dx[i], sum);
  });
}

template <class T>
void Images<T>::batch_norm_forward(const T* x, const float* weight, const float* bias, T* y, float* mean,
                                   float* inverse, float* variance, int samples, int channels, int pixels,
                                   float epsilon, cudaStream_t stream) {
  if (samples == 0) return;
  launch(batch_norm_forward_kernel<T>, static_cast<unsigned>(channels), kReducingThreads, 0, stream, x,
         weight, bias, y, mean, inverse, variance, channel_of(samples, channels, pixels), epsilon);
}

void running_statistics(const float* mean, const float* variance, float* running_mean,
                        float* running_variance, std::int64_t channels, std::int64_t samples, float momentum,
                        cudaStream_t stream) {
  const float unbiased = samples > 1 ? static_cast<float>(samples) / static_cast<float>(samples - 1) : 1.0F;
  each(static_cast<std::size_t>(channels), stream, [=] __device__(std::size_t c) {
    running_mean[c] += momentum * (mean[c] - running_mean[c]);
    running_variance[c] += momentum * (unbiased * variance[c] - running_variance[c]);
  });
}

template <class T>
void Images<T>::batch_norm_backward(const T* dy, const T* x, const float* weight, const float* mean,
                                    const float* inverse, T* dx, float* dweight, float* dbias, int samples,
                                    int channels, int pixels, cudaStream_t stream) {
  if (samples == 0) return;
  launch(batch_norm_backward_kernel<T>, static_cast<unsigned>(channels), kReducingThreads, 0, stream, dy, x,
         weight, mean, inverse, dx, dweight, dbias, channel_of(samples, channels, pixels));
}

template struct Images<float>;
template struct Images<Bf16>;
template struct Images<Fp16>;

}  // namespace orrery::exec::kernels
