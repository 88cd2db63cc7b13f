// How fast each operation of a Device is, at the sizes of GPT-2 (124 M) with 8 sequences of 1024 tokens:
// rates beside what memory and tensor cores can do show which one is worth another look.
//
//   device_speed_cpu | device_speed_gpu [bf16|fp16|tf32|fp32] [SHARE]
//
// Prints the median of five timings of each operation, and by how many bytes or operations a second that is:
// of bytes that have to be read or written once. SHARE (1): of the rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "exec/device/device.h"

namespace orrery::exec {
namespace {

class Bench {
 public:
  explicit Bench(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  Device& device() { return *device_; }

  // As the device holds activations.
  Numbers numbers(DType type, std::int64_t count) {
    const DType held = device_->held_as(type);
    float* words = floats(count);
    if (held == DType::fp32) return words;
    void* narrow = device_->allocate(static_cast<std::size_t>(2 * count));
    device_->narrow(held, words, static_cast<std::uint16_t*>(narrow), static_cast<std::size_t>(count), 1,
                    false);
    device_->release(words);
    return {narrow, held};
  }

  float* floats(std::int64_t count) {
    auto* data = static_cast<float*>(device_->allocate(static_cast<std::size_t>(count) * sizeof(float)));
    std::vector<float> host(static_cast<std::size_t>(std::min<std::int64_t>(count, 1 << 20)));
    const CounterRandom random(1, static_cast<std::uint64_t>(count));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(random.normal(i));
    for (std::int64_t done = 0; done < count; done += static_cast<std::int64_t>(host.size()))
      device_->copy_to_device(data + done, host.data(),
                              static_cast<std::size_t>(std::min<std::int64_t>(
                                  count - done, static_cast<std::int64_t>(host.size()))) *
                                  sizeof(float));
    return data;
  }

  void time(const std::string& name, double bytes, double flops, const std::function<void()>& work) {
    work();
    std::vector<double> seconds;
    constexpr int kTimes = 5;
    for (int i = 0; i < kTimes; ++i) {
      const Mark begin = device_->mark();
      work();
      const Mark end = device_->mark();
      seconds.push_back(device_->seconds_of(end) - device_->seconds_of(begin));
    }
    device_->release_marks();
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[kTimes / 2];
    fmt::print("{:<34} {:10.1f} us  {:8.1f} GB/s", name, 1e6 * median, 1e-9 * bytes / median);
    if (flops > 0) fmt::print("  {:8.1f} TFLOP/s", 1e-12 * flops / median);
    fmt::print("\n");
  }

 private:
  std::unique_ptr<Device> device_;
};

void run(Bench& bench, DType type, double share) {
  Device& device = bench.device();
  device.set_product_type(type);
  const int seq = 1024, heads = 12, dim = 64;
  const int batch = std::max(1, static_cast<int>(8 * share));
  const std::int64_t rows = static_cast<std::int64_t>(batch) * seq;
  const std::int64_t width = 768, inner = 3072, vocabulary = 50257, padded = 50264;
  const auto words = [](std::int64_t elements) { return 4.0 * static_cast<double>(elements); };
  const auto bytes = [held = bytes_of(device.held_as(type))](std::int64_t elements) {
    return held * static_cast<double>(elements);
  };
  const Numbers x = bench.numbers(type, rows * inner);
  const Numbers y = bench.numbers(type, rows * inner);
  const Numbers z = bench.numbers(type, rows * inner);
  float* weight = bench.floats(vocabulary * width);
  float* gradient = bench.floats(vocabulary * width);
  float* first = bench.floats(vocabulary * width);
  float* second = bench.floats(vocabulary * width);
  const Numbers logits = bench.numbers(type, rows * padded);
  float* small = bench.floats(rows * heads * 2);
  float* more = bench.floats(rows * heads * 2);
  std::vector<std::int32_t> host(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<std::int32_t>(splitmix64(i) % vocabulary);
  auto* tokens = static_cast<std::int32_t*>(device.allocate(host.size() * sizeof(std::int32_t)));
  device.copy_to_device(tokens, host.data(), host.size() * sizeof(std::int32_t));
  auto* loss = static_cast<double*>(device.allocate(sizeof(double)));
  fmt::print("{}, products in {}, {} sequences of {}\n", device.name(), name_of(type), batch, seq);

  const auto product = [&](const std::string& name, bool ta, bool tb, std::int64_t m, std::int64_t n,
                           std::int64_t k, ConstNumbers a, ConstNumbers b, Numbers c, std::int64_t ldc) {
    bench.time(fmt::format("{} {}x{}x{}", name, m, n, k), bytes(m * k + k * n + m * n),
               2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
               [&, a, b, c] { device.gemm(ta, tb, m, n, k, 1, a, ta ? m : k, b, tb ? k : n, 0, c, ldc); });
  };
  bench.time("linear qkv", bytes(rows * width * 4), 2.0 * static_cast<double>(rows * width * 3 * width),
             [&] { device.linear(false, rows, 3 * width, width, x, width, weight, small, y, 3 * width); });
  product("up", false, false, rows, inner, width, x, weight, y, inner);
  product("down", false, false, rows, width, inner, x, weight, y, width);
  product("up, input's", false, true, rows, width, inner, x, weight, y, width);
  product("up, weight's", true, false, width, inner, rows, x, y, gradient, inner);
  product("head", false, true, rows, vocabulary, width, x, weight, logits, padded);
  product("head, even", false, true, rows, vocabulary / 8 * 8, width, x, weight, logits, padded);
  bench.time(
      "head, input's", bytes(rows * padded), 2.0 * static_cast<double>(rows * width * vocabulary), [&] {
        device.gemm(false, false, rows, width, vocabulary, 1, logits, padded, weight, width, 0, y, width);
      });
  bench.time(
      "head, weight's", bytes(rows * padded), 2.0 * static_cast<double>(rows * width * vocabulary), [&] {
        device.gemm(true, false, vocabulary, width, rows, 1, logits, padded, x, width, 1, gradient, width);
      });

  AttentionSize size{batch, seq, heads, heads, dim, true};
  const double scores =
      static_cast<double>(batch) * heads * seq * seq * dim;  // causal: half of twice as many
  bench.time("attention", bytes(rows * width * 4), 2 * scores,
             [&] { device.attention_forward(size, x, y, small); });
  bench.time("attention, back", bytes(rows * width * 8), 5 * scores,
             [&] { device.attention_backward(size, x, y, z, small, logits); });
  RotaryAngles angles;
  angles.pairs = dim / 2;
  bench.time("rotary", bytes(2 * rows * width * 2), 0, [&] { device.rotary(size, x, angles, false); });

  bench.time("norm", bytes(2 * rows * width), 0, [&] {
    device.norm_forward(NormKind::layer_norm, x, weight, weight, y, small, more, rows, width, 1e-5F);
  });
  bench.time("norm, back", bytes(4 * rows * width), 0, [&] {
    device.norm_backward(NormKind::layer_norm, y, x, weight, small, more, z, true, gradient, gradient, rows,
                         width);
  });
  bench.time("gelu", bytes(2 * rows * inner), 0,
             [&] { device.activation_forward(Activation::gelu, false, x, y, rows, inner); });
  bench.time("gelu, back", bytes(3 * rows * inner), 0,
             [&] { device.activation_backward(Activation::gelu, false, x, y, z, rows, inner); });
  bench.time("silu gated", bytes(3 * rows * inner / 2), 0,
             [&] { device.activation_forward(Activation::silu, true, x, y, rows, inner / 2); });
  bench.time("silu gated, back", bytes(5 * rows * inner / 2), 0,
             [&] { device.activation_backward(Activation::silu, true, x, y, z, rows, inner / 2); });
  bench.time("residual with bias", bytes(3 * rows * width), 0,
             [&] { device.residual_forward(x, weight, y, z, rows, width); });
  bench.time("bias gradient", bytes(rows * inner), 0,
             [&] { device.bias_gradient(x, gradient, rows, inner, inner); });
  bench.time("add bias", bytes(2 * rows * inner), 0, [&] { device.add_bias(x, weight, rows, inner, inner); });
  bench.time("add", bytes(3 * rows * inner), 0,
             [&] { device.add(x, y, static_cast<std::size_t>(rows * inner)); });
  bench.time("fill", bytes(rows * inner), 0,
             [&] { device.fill(z, static_cast<std::size_t>(rows * inner), 0); });
  bench.time("round to bf16", words(2 * vocabulary * width), 0,
             [&] { device.round_to(DType::bf16, weight, static_cast<std::size_t>(vocabulary * width)); });
  bench.time("sum of squares", words(vocabulary * width), 0,
             [&] { (void)device.sum_of_squares(gradient, static_cast<std::size_t>(vocabulary * width)); });
  bench.time("transpose", bytes(2 * rows * inner), 0, [&] { device.transpose(x, 0, y, 0, 1, rows, inner); });
  bench.time("copy_matrix", bytes(2 * rows * width), 0,
             [&] { device.copy_matrix(y, width, x, inner, rows, width); });

  bench.time("embedding", bytes(2 * rows * width), 0,
             [&] { device.embedding_forward(tokens, weight, y, rows, width, 0, vocabulary); });
  bench.time("embedding, back", bytes(3 * rows * width), 0,
             [&] { device.embedding_backward(tokens, x, gradient, rows, width, 0, vocabulary); });
  bench.time("positions", bytes(2 * rows * width), 0,
             [&] { device.positions_forward(weight, y, rows, width, seq); });
  bench.time("positions, back", bytes(rows * width), 0,
             [&] { device.positions_backward(x, gradient, rows, width, seq); });
  bench.time("loss, largest", bytes(rows * padded), 0,
             [&] { device.loss_max(logits, small, rows, vocabulary, padded); });
  bench.time("loss, sums", bytes(2 * rows * padded), 0,
             [&] { device.loss_sum(logits, small, tokens, more, rows, vocabulary, padded, 0); });
  bench.time("loss, gradient", bytes(2 * rows * padded), 0, [&] {
    device.loss_gradient(logits, small, more, tokens, 1e-3F, rows, vocabulary, padded, 0, loss);
  });
  bench.time("adam", words(7 * vocabulary * width), 0, [&] {
    device.adam(weight, gradient, first, second, static_cast<std::size_t>(vocabulary * width), {1e-6F}, 3);
  });
}

int main(int argc, char** argv) {
  const std::string type = argc > 1 ? argv[1] : "bf16";
  const double share = argc > 2 ? std::atof(argv[2]) : 1;
#ifdef ORRERY_WITH_CUDA
  Bench bench(make_cuda_device(0));
#else
  Bench bench(make_cpu_device());
#endif
  run(bench,
      type == "fp32"   ? DType::fp32
      : type == "tf32" ? DType::tf32
      : type == "fp16" ? DType::fp16
                       : DType::bf16,
      share);
  return 0;
}

}  // namespace
}  // namespace orrery::exec

int main(int argc, char** argv) {
  return orrery::exec::main(argc, argv);
}
