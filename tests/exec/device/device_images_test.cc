// Convolutions, pools and batch normalisation against plain loops in double precision.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/exec/device/device_fixture.h"

namespace orrery::exec::test {
namespace {

struct Net {
  WindowSize size;
  std::size_t inputs() const { return static_cast<std::size_t>(size.batch * size.image.input.elements()); }
  std::size_t outputs() const { return static_cast<std::size_t>(size.batch * size.image.output.elements()); }
  std::size_t weights() const {
    const ImageOperator& i = size.image;
    return static_cast<std::size_t>(i.output.channels * i.input.channels / size.groups * i.kernel[0] *
                                    i.kernel[1]);
  }
};

Net net(std::int64_t batch, ImageShape in, std::int64_t out_channels, std::array<int, 2> kernel,
        std::array<int, 2> stride, std::array<int, 2> padding, std::array<int, 2> dilation = {1, 1},
        std::int64_t groups = 1) {
  Net n;
  n.size.batch = batch;
  n.size.groups = groups;
  ImageOperator& i = n.size.image;
  i.input = in;
  i.kernel = kernel;
  i.stride = stride;
  i.padding = padding;
  i.dilation = dilation;
  const auto pixels = [&](std::size_t d, std::int64_t size) {
    return (size + 2 * padding[d] - (kernel[d] - 1) * dilation[d] - 1) / stride[d] + 1;
  };
  i.output = {out_channels, pixels(0, in.height), pixels(1, in.width)};
  return n;
}

// Strides that leave pixels over, one row, one sample, none of them powers of two.
std::vector<Net> nets() {
  return {
      net(2, {3, 7, 5}, 4, {3, 3}, {1, 1}, {1, 1}),
      net(1, {4, 8, 8}, 6, {3, 2}, {2, 3}, {1, 0}),
      net(3, {5, 6, 6}, 3, {1, 1}, {1, 1}, {0, 0}),
      net(2, {4, 9, 9}, 8, {1, 1}, {2, 2}, {0, 0}),
      net(2, {6, 9, 7}, 4, {3, 3}, {1, 1}, {2, 2}, {2, 2}),
      net(2, {6, 5, 5}, 4, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2),
      net(2, {6, 5, 5}, 6, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 6),
      net(1, {1, 1, 11}, 2, {1, 4}, {1, 2}, {0, 1}),
  };
}

// Calls visit(output, input or -1 outside, weight) for each product of a convolution.
void for_each_product(const Net& n,
                      const std::function<void(std::size_t, std::int64_t, std::size_t)>& visit) {
  const ImageOperator& i = n.size.image;
  const std::int64_t in_group = i.input.channels / n.size.groups;
  const std::int64_t out_group = i.output.channels / n.size.groups;
  std::size_t out = 0;
  for (std::int64_t b = 0; b < n.size.batch; ++b)
    for (std::int64_t o = 0; o < i.output.channels; ++o)
      for (std::int64_t r = 0; r < i.output.height; ++r)
        for (std::int64_t c = 0; c < i.output.width; ++c, ++out)
          for (std::int64_t k = 0; k < in_group; ++k)
            for (int y = 0; y < i.kernel[0]; ++y)
              for (int x = 0; x < i.kernel[1]; ++x) {
                const std::int64_t row = r * i.stride[0] - i.padding[0] + y * i.dilation[0];
                const std::int64_t column = c * i.stride[1] - i.padding[1] + x * i.dilation[1];
                const bool inside = row >= 0 && row < i.input.height && column >= 0 && column < i.input.width;
                const std::int64_t channel = o / out_group * in_group + k;
                visit(out,
                      inside
                          ? ((b * i.input.channels + channel) * i.input.height + row) * i.input.width + column
                          : -1,
                      static_cast<std::size_t>(((o * in_group + k) * i.kernel[0] + y) * i.kernel[1] + x));
              }
}

// Values that every type holds.
std::vector<float> exact(std::size_t count, std::uint64_t stream) {
  std::vector<float> values = random_values(count, stream);
  for (float& value : values) value = std::round(value * 32) / 32;
  return values;
}

void check_convolution(Device& device, const Net& n, DType type) {
  device.set_product_type(type);
  const ImageOperator& i = n.size.image;
  const auto channels = static_cast<std::size_t>(i.output.channels);
  for (const bool with_bias : {false, true}) {
    const std::size_t pixels = static_cast<std::size_t>(i.output.height * i.output.width);
    const auto channel_of = [&](std::size_t out) { return out / pixels % channels; };
    const auto x = exact(n.inputs(), 1);
    const auto w = exact(n.weights(), 2);
    const auto bias = random_values(channels, 3);
    const auto dy = exact(n.outputs(), 4);
    Doubles y(n.outputs());
    Doubles dx(n.inputs());
    Doubles dw(n.weights());
    Doubles db(channels);
    for (std::size_t o = 0; o < y.size(); ++o) {
      if (with_bias) y[o] = static_cast<double>(bias[channel_of(o)]);
      db[channel_of(o)] += static_cast<double>(dy[o]);
    }
    for_each_product(n, [&](std::size_t out, std::int64_t in, std::size_t weight) {
      if (in < 0) return;
      const auto at = static_cast<std::size_t>(in);
      y[out] += static_cast<double>(x[at]) * static_cast<double>(w[weight]);
      dx[at] += static_cast<double>(dy[out]) * static_cast<double>(w[weight]);
      dw[weight] += static_cast<double>(dy[out]) * static_cast<double>(x[at]);
    });
    Array<float> X(device, x);
    Array<float> W(device, w);
    Array<float> B(device, bias);
    Array<float> DY(device, dy);
    Array<float> Y(device, n.outputs());
    Array<float> DX(device, n.inputs(), 7.0F);
    Array<float> DW(device, n.weights(), 7.0F);
    Array<float> DB(device, channels, 7.0F);
    float* b = with_bias ? static_cast<float*>(B) : nullptr;
    float* db_out = with_bias ? static_cast<float*>(DB) : nullptr;
    device.convolution_forward(n.size, X, W, b, Y);
    CHECK(difference(Y.values(), y) < 1e-5);
    device.convolution_backward_input(n.size, DY, W, DX);
    CHECK(difference(DX.values(), dx) < 1e-5);
    device.convolution_backward_weight(n.size, X, DY, DW, db_out, /*accumulate=*/false);
    CHECK(difference(DW.values(), dw) < 1e-5);
    if (with_bias) CHECK(difference(DB.values(), db) < 1e-5);
    device.convolution_backward_weight(n.size, X, DY, DW, db_out, /*accumulate=*/true);
    for (double& value : dw) value *= 2;
    for (double& value : db) value *= 2;
    CHECK(difference(DW.values(), dw) < 1e-5);
    if (with_bias) CHECK(difference(DB.values(), db) < 1e-5);
  }
}

}  // namespace

TEST_CASE("convolutions and their gradients are the sums that they stand for") {
  for (const auto& device : image_devices())
    for (const DType type : {DType::fp32, DType::bf16, DType::fp16})
      for (const Net& n : nets()) check_convolution(*device, n, type);
}

TEST_CASE("a batch of no images is a convolution of nothing") {
  for (const auto& device : image_devices()) {
    const Net n = net(0, {3, 4, 4}, 2, {3, 3}, {1, 1}, {1, 1});
    Array<float> w(*device, random_values(n.weights(), 1));
    Array<float> dw(*device, n.weights(), 1.0F);
    device->convolution_forward(n.size, nullptr, w, nullptr, nullptr);
    device->convolution_backward_input(n.size, nullptr, w, nullptr);
    device->convolution_backward_weight(n.size, nullptr, nullptr, dw, nullptr, true);
    CHECK(dw.at(0) == 1);
  }
}

TEST_CASE("pools take the maximum or the mean of what a window has of the image") {
  for (const auto& device : image_devices()) {
    for (Net n : nets()) {
      if (n.size.groups > 1) continue;
      ImageOperator& i = n.size.image;
      i.output.channels = i.input.channels;
      const std::int64_t plane_in = i.input.height * i.input.width;
      const std::int64_t plane_out = i.output.height * i.output.width;
      for (const bool average : {false, true}) {
        i.average = average;
        auto x = random_values(n.inputs(), 1);
        if (!average) x[0] = x[1];  // of equal ones the first
        const auto dy = random_values(n.outputs(), 2);
        Doubles y(n.outputs());
        Doubles dx(n.inputs());
        for (std::size_t out = 0; out < y.size(); ++out) {
          const std::int64_t pixel = static_cast<std::int64_t>(out) % plane_out;
          const std::int64_t base = static_cast<std::int64_t>(out) / plane_out * plane_in;
          std::vector<std::size_t> inside;
          for (int a = 0; a < i.kernel[0]; ++a)
            for (int b = 0; b < i.kernel[1]; ++b) {
              const std::int64_t row =
                  pixel / i.output.width * i.stride[0] - i.padding[0] + a * i.dilation[0];
              const std::int64_t column =
                  pixel % i.output.width * i.stride[1] - i.padding[1] + b * i.dilation[1];
              if (row >= 0 && row < i.input.height && column >= 0 && column < i.input.width)
                inside.push_back(static_cast<std::size_t>(base + row * i.input.width + column));
            }
          REQUIRE(!inside.empty());
          std::size_t most = inside.front();
          double sum = 0;
          for (const std::size_t at : inside) {
            if (x[at] > x[most]) most = at;
            sum += static_cast<double>(x[at]);
          }
          y[out] = average ? sum / static_cast<double>(inside.size()) : static_cast<double>(x[most]);
          for (const std::size_t at : inside)
            if (average || at == most)
              dx[at] += static_cast<double>(dy[out]) / (average ? static_cast<double>(inside.size()) : 1);
        }
        Array<float> X(*device, x);
        Array<float> DY(*device, dy);
        Array<float> Y(*device, n.outputs());
        Array<float> DX(*device, n.inputs(), 7.0F);
        Array<std::int32_t> places(*device, n.outputs());
        device->pool_forward(n.size, X, Y, places);
        device->pool_backward(n.size, DY, places, DX);
        CHECK(difference(Y.values(), y) < 1e-6);
        CHECK(difference(DX.values(), dx) < 1e-6);
      }
    }
  }
}

TEST_CASE("batch normalisation makes every channel's mean 0 and deviation 1, then scales and shifts it") {
  for (const auto& device : image_devices()) {
    struct Case {
      std::int64_t rows, channels, pixels;
    };
    for (const Case& c : {Case{1, 1, 2}, Case{3, 2, 5}, Case{2, 5, 49}, Case{7, 3, 1}}) {
      const auto count = static_cast<std::size_t>(c.rows * c.channels * c.pixels);
      const auto channels = static_cast<std::size_t>(c.channels);
      auto x = random_values(count, 1);
      for (float& value : x) value = value * 3 + 20;  // a mean far from 0
      const auto weight = random_values(channels, 2);
      const auto bias = random_values(channels, 3);
      const auto dy = random_values(count, 4);
      const double epsilon = 1e-3;
      // Of x, weights and biases side by side, for the gradient by differences.
      const auto formula = [&](const Doubles& all) {
        Doubles y(count);
        for (std::size_t channel = 0; channel < channels; ++channel) {
          const auto each = [&](const std::function<void(std::size_t)>& visit) {
            for (std::size_t i = 0; i < count; ++i)
              if (i / static_cast<std::size_t>(c.pixels) % channels == channel) visit(i);
          };
          const double n = static_cast<double>(c.rows * c.pixels);
          double mean = 0;
          double variance = 0;
          each([&](std::size_t i) { mean += all[i] / n; });
          each([&](std::size_t i) { variance += (all[i] - mean) * (all[i] - mean) / n; });
          each([&](std::size_t i) {
            y[i] = (all[i] - mean) / std::sqrt(variance + epsilon) * all[count + channel] +
                   all[count + channels + channel];
          });
        }
        return y;
      };
      std::vector<float> all = x;
      all.insert(all.end(), weight.begin(), weight.end());
      all.insert(all.end(), bias.begin(), bias.end());
      Array<float> X(*device, x);
      Array<float> W(*device, weight);
      Array<float> B(*device, bias);
      Array<float> DY(*device, dy);
      Array<float> Y(*device, count);
      Array<float> DX(*device, count, 7.0F);
      Array<float> mean(*device, channels);
      Array<float> inverse(*device, channels);
      Array<float> variance(*device, channels);
      Array<float> DW(*device, channels, 0.5F);
      Array<float> DB(*device, channels, 0.5F);
      device->batch_norm_forward(X, W, B, Y, mean, inverse, variance, c.rows, c.channels, c.pixels,
                                 static_cast<float>(epsilon));
      CHECK(difference(Y.values(), formula(doubles(all))) < 2e-5);
      device->batch_norm_backward(DY, X, W, mean, inverse, DX, DW, DB, c.rows, c.channels, c.pixels);
      const Doubles gradient = numeric_gradient(all, dy, formula);
      std::vector<float> got = DX.values();
      for (const float value : DW.values()) got.push_back(value - 0.5F);
      for (const float value : DB.values()) got.push_back(value - 0.5F);
      CHECK(difference(got, gradient) < 2e-4);
    }
  }
}

TEST_CASE("a batch norm's sums of many pixels far from zero are exact to a float") {
  // As after a convolution with a bias: the deviation is small beside the mean.
  constexpr std::int64_t pixels = 112 * 112;
  std::vector<float> x(8 * pixels);
  double mean = 0;
  double variance = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = 3.0F + 0.01F * static_cast<float>((i * 7919) % 1000) / 1000;
  for (const float value : x) mean += static_cast<double>(value) / static_cast<double>(x.size());
  for (const float value : x)
    variance += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean) /
                static_cast<double>(x.size());
  for (const auto& device : image_devices()) {
    if (device->name() != "cpu") continue;  // GPUs add up in float, but in a tree
    Array<float> X(*device, x);
    Array<float> weight(*device, 1, 1.0F);
    Array<float> y(*device, x.size());
    Array<float> of_mean(*device, 1);
    Array<float> inverse(*device, 1);
    Array<float> of_variance(*device, 1);
    device->batch_norm_forward(X, weight, weight, y, of_mean, inverse, of_variance, 8, 1, pixels, 1e-5F);
    CHECK(std::abs(static_cast<double>(of_mean.at(0)) / mean - 1) < 1e-7);
    CHECK(std::abs(static_cast<double>(of_variance.at(0)) / variance - 1) < 1e-4);
    Array<float> running_mean(*device, 1, 0.0F);
    Array<float> running_variance(*device, 1, 0.0F);
    device->running_statistics(of_mean, of_variance, running_mean, running_variance, 1, 8 * pixels, 1.0F);
    CHECK(std::abs(static_cast<double>(running_variance.at(0)) / variance - 1) < 1e-4);
  }
}

TEST_CASE("transposed matrices lie where their strides say, and between them nothing is written") {
  for (const auto& device : image_devices())
    for (const auto& [rows, columns] : {std::pair<int, int>{3, 5}, {1, 7}, {17, 33}, {40, 1}}) {
      const std::int64_t batch = 2, elements = rows * columns, from_stride = elements + 3,
                         to_stride = elements + 2;
      std::vector<float> values(static_cast<std::size_t>(batch * from_stride));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
      Array<float> from(*device, values);
      Array<float> to(*device, static_cast<std::size_t>(batch * to_stride), -1.0F);
      device->transpose(from, from_stride, to, to_stride, batch, rows, columns);
      for (std::int64_t b = 0; b < batch; ++b) {
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < columns; ++c)
            REQUIRE(to.at(static_cast<std::size_t>(b * to_stride + c * rows + r)) ==
                    static_cast<float>(b * from_stride + r * columns + c));
        for (std::int64_t gap = elements; gap < to_stride; ++gap)
          REQUIRE(to.at(static_cast<std::size_t>(b * to_stride + gap)) == -1.0F);
      }
    }
}

TEST_CASE("running statistics move a tenth of the way to the batch's mean and its unbiased variance") {
  for (const auto& device : image_devices()) {
    // Channels 1 3 5 7 and 2 2 2 6: means 4 and 3, variances 5 and 3, unbiased 20/3 and 4.
    Array<float> x(*device, std::vector<float>{1, 3, 2, 2, 5, 7, 2, 6});
    Array<float> weight(*device, 2, 1.0F);
    Array<float> y(*device, 8);
    Array<float> mean(*device, 2);
    Array<float> inverse(*device, 2);
    Array<float> variance(*device, 2);
    Array<float> running_mean(*device, 2, 10.0F);
    Array<float> running_variance(*device, 2, 1.0F);
    device->batch_norm_forward(x, weight, weight, y, mean, inverse, variance, 2, 2, 2, 1e-3F);
    device->running_statistics(mean, variance, running_mean, running_variance, 2, 4, 0.1F);
    CHECK(running_mean.at(0) == Approx(9.4));
    CHECK(running_mean.at(1) == Approx(9.3));
    CHECK(running_variance.at(0) == Approx(0.9 + 2.0 / 3));
    CHECK(running_variance.at(1) == Approx(0.9 + 0.4));
  }
}

}  // namespace orrery::exec::test
