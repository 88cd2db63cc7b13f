// Attention of two-byte numbers: held to the same in fp32, on operands that two bytes hold.
#include <catch2/catch.hpp>
#include <cmath>

#include "device_fixture.h"

namespace orrery::exec::test {
namespace {

// |a - b| by |b|.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

struct Attended {
  std::vector<float> out, gradient, statistics;
};

Attended attend(Device& device, DType type, const AttentionSize& size, const std::vector<float>& qkv,
                const std::vector<float>& dout) {
  const auto rows = static_cast<std::size_t>(size.batch) * static_cast<std::size_t>(size.seq);
  // Not all of them aligned: then they are copied first.
  const std::int64_t skipped = size.seq % 3;
  std::vector<float> later(static_cast<std::size_t>(skipped));
  later.insert(later.end(), qkv.begin(), qkv.end());
  const Held in(device, type, later), g(device, type, dout);
  const Held out(device, type, std::vector<float>(dout.size(), NAN));
  Array<float> statistics(device, std::vector<float>(rows * static_cast<std::size_t>(size.heads), NAN));
  const Held dqkv(device, type, std::vector<float>(qkv.size(), NAN));
  device.attention_forward(size, in + skipped, out, statistics);
  device.attention_backward(size, in + skipped, out, g, statistics, dqkv);
  return {out.values(), dqkv.values(), statistics.values()};
}

std::vector<float> rounded(Device& device, DType type, const std::vector<float>& values) {
  Array<float> on_device(device, values);
  device.round_to(type, on_device, values.size());
  return on_device.values();
}

}  // namespace

TEST_CASE("attention of bf16 and fp16 is fp32's but for the rounding of probabilities and results") {
  std::vector<AttentionSize> sizes = {
      {1, 1, 1, 1, 4, true},    {2, 5, 4, 2, 6, true},     {1, 7, 2, 2, 8, false},
      {1, 64, 1, 1, 64, true},  {2, 130, 4, 2, 64, true},  {1, 150, 2, 1, 32, true, 0, 33},
      {1, 70, 2, 2, 80, false}, {1, 129, 2, 1, 128, true}, {1, 200, 1, 1, 96, true, 0, 64},
      {1, 65, 3, 1, 5, false},  {1, 90, 1, 1, 160, true}};
  for (const auto& device : devices())
    for (const DType type : {DType::bf16, DType::fp16})
      for (const bool more : {false, true})
        for (AttentionSize size : sizes) {
          // What is emulated is slow, and the types differ in what they round to alone.
          if (type == DType::fp16 && size.seq > 64) continue;
          const auto rows = static_cast<std::size_t>(size.batch) * static_cast<std::size_t>(size.seq);
          // Of every row, as exec/device/dropout.h makes them.
          std::vector<std::uint64_t> keys(rows);
          for (std::size_t i = 0; i < rows; ++i)
            keys[i] = dropout_row_key(3, 1, static_cast<std::int64_t>(i), 0);
          const Array<std::uint64_t> on_device(*device, keys);
          if (more) {
            size.softcap = 1.5F;
            size.scale = 0.3F;
            size.dropout = {{const_cast<Array<std::uint64_t>&>(on_device), dropout_place(5, 0), 0.25, 0},
                            0,
                            size.seq,
                            {0, 0}};
          }
          const auto qkv =
              rounded(*device, type, random_values(rows * static_cast<std::size_t>(size.qkv_columns()), 1));
          const auto dout = rounded(
              *device, type, random_values(rows * static_cast<std::size_t>(size.heads * size.head_dim), 2));
          const Attended exact = attend(*device, DType::fp32, size, qkv, dout);
          const Attended seen = attend(*device, type, size, qkv, dout);
          CAPTURE(size.seq, size.heads, size.head_dim, size.causal, size.window, more, type == DType::bf16);
          const double most = type == DType::bf16 ? 6e-3 : 8e-4;
          CHECK(distance(seen.out, exact.out) < most);
          CHECK(distance(seen.gradient, exact.gradient) < most);
          CHECK(distance(seen.statistics, exact.statistics) < 1e-5);
        }
}

}  // namespace orrery::exec::test
