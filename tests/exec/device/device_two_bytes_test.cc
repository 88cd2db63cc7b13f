// Every operation of a Device on numbers of two bytes, where it holds such: what a processor makes of the
// same numbers in fp32, rounded once.
#include <catch2/catch.hpp>
#include <cmath>

#include "device_fixture.h"

namespace orrery::exec::test {
namespace {

// Of an operation: numbers of two bytes, or fp32 words beside them.
struct Given {
  std::vector<float> values;
  bool words = false;
};

Given numbers(std::size_t count, std::uint64_t stream) {
  return {random_values(count, stream), false};
}
Given words(std::size_t count, std::uint64_t stream) {
  return {random_values(count, stream), true};
}

using Operation = std::function<void(Device& device, const std::vector<Numbers>& all)>;

// The contents afterwards, of all.
std::vector<std::vector<float>> after(Device& device, DType type, const std::vector<Given>& given,
                                      const Operation& operation) {
  std::vector<std::unique_ptr<Held>> held;
  std::vector<Numbers> all;
  for (const Given& one : given) {
    held.push_back(std::make_unique<Held>(device, one.words ? DType::fp32 : type, one.values));
    all.emplace_back(*held.back());
  }
  operation(device, all);
  std::vector<std::vector<float>> contents;
  contents.reserve(held.size());
  for (const auto& one : held) contents.push_back(one->values());
  return contents;
}

// `slack`: of results, by the size of the largest one.
void check(Device& device, DType type, std::vector<Given> given, const Operation& operation,
           double slack = 1e-5) {
  const auto processor = make_cpu_device();
  for (Given& one : given) {
    if (one.words) continue;
    Array<float> here(*processor, one.values);
    processor->round_to(type, here, one.values.size());
    one.values = here.values();
  }
  const auto expected = after(*processor, DType::fp32, given, operation);
  const auto seen = after(device, type, given, operation);
  const double half_a_step = type == DType::bf16 ? 0x1p-8 : 0x1p-11;
  for (std::size_t i = 0; i < given.size(); ++i) {
    double largest = 0;
    for (const float value : expected[i]) largest = std::max(largest, static_cast<double>(std::fabs(value)));
    double worst = 0;
    for (std::size_t k = 0; k < seen[i].size(); ++k) {
      const auto want = static_cast<double>(expected[i][k]);
      const double allowed =
          slack * largest + (given[i].words ? 0 : std::max(half_a_step * std::fabs(want) * 1.001, 0x1p-24));
      worst = std::max(worst, std::fabs(static_cast<double>(seen[i][k]) - want) - allowed);
    }
    CAPTURE(i, name_of(type));
    CHECK(worst <= 0);
  }
}

// Calls run with a device that holds numbers of two bytes, and these.
template <class Run>
void on_two_bytes(Run run) {
  for (const auto& device : devices())
    for (const DType type : {DType::bf16, DType::fp16})
      if (device->held_as(type) == type) run(*device, type);
}

// Rows of whole pieces of 16 bytes, and others.
constexpr std::int64_t kWidths[] = {64, 13};

std::size_t many(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

}  // namespace

TEST_CASE("two bytes: vectors and matrices are filled, added, scaled, copied and turned") {
  on_two_bytes([](Device& device, DType type) {
    for (const std::int64_t width : kWidths) {
      const std::int64_t rows = 5;
      const std::size_t count = many(rows, width);
      check(device, type, {numbers(count, 1)},
            [&](Device& d, const auto& x) { d.fill(x[0] + 1, count - 1, 1.5F); });
      check(device, type, {numbers(count, 1), numbers(count, 2)},
            [&](Device& d, const auto& x) { d.add(x[0], x[1], count); });
      check(device, type, {numbers(count, 1), numbers(count, 2)},
            [&](Device& d, const auto& x) { d.add(x[0] + 1, x[1] + 1, count - 1); });
      check(device, type, {numbers(count, 1)}, [&](Device& d, const auto& x) { d.scale(x[0], count, 0.3F); });
      check(device, type, {numbers(count, 1), numbers(count, 2)},
            [&](Device& d, const auto& x) { d.multiply(x[0], x[1], count); });
      check(device, type, {numbers(count, 1), numbers(count, 2)},
            [&](Device& d, const auto& x) { d.softcap(1.5F, x[0], x[1], count); });
      check(device, type, {numbers(count, 1), numbers(many(rows, 2 * width), 2)},
            [&](Device& d, const auto& x) {
              d.copy_matrix(x[1] + width, 2 * width, x[0], width, rows, width);
            });
      check(device, type, {numbers(2 * count, 1), numbers(2 * count, 2)}, [&](Device& d, const auto& x) {
        d.transpose(x[0], rows * width, x[1], rows * width, 2, rows, width);
      });
    }
  });
}

TEST_CASE("two bytes: products, of them, of fp32 words beside them, and into either") {
  on_two_bytes([](Device& device, DType type) {
    device.set_product_type(type);
    struct Size {
      std::int64_t m, n, k, skipped;
    };
    // As they lie; with what is beyond a multiple of eight; to be packed; not at an aligned place.
    for (const Size& s : {Size{16, 24, 32, 0}, Size{72, 67, 16, 0}, Size{9, 5, 13, 0}, Size{16, 24, 32, 1}})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          for (const int given_as_words : {-1, 0, 1, 2})
            for (const float beta : {0.0F, 1.0F}) {
              const auto one = [&](int which, std::int64_t rows, std::int64_t columns) {
                Given g = numbers(many(rows, columns) + static_cast<std::size_t>(s.skipped),
                                  static_cast<std::uint64_t>(which) + 1);
                g.words = which == given_as_words;
                return g;
              };
              std::vector<Given> given = {one(0, s.m, s.k), one(1, s.k, s.n), one(2, s.m, s.n)};
              // What stands beside two bytes has their values.
              const auto processor = make_cpu_device();
              for (Given& g : given) {
                Array<float> here(*processor, g.values);
                processor->round_to(type, here, g.values.size());
                g.values = here.values();
              }
              check(device, type, given, [&](Device& d, const auto& x) {
                d.gemm(ta, tb, s.m, s.n, s.k, 0.5F, x[0] + s.skipped, ta ? s.m : s.k, x[1] + s.skipped,
                       tb ? s.k : s.n, beta, x[2] + s.skipped, s.n);
              });
            }
    check(device, type, {numbers(16, 1), numbers(16, 2), numbers(16, 3)}, [](Device& d, const auto& x) {
      d.gemm(false, false, 4, 4, 0, 1, x[0], 0, x[1], 4, 0.5F, x[2], 4);
    });
  });
}

TEST_CASE("two bytes: fully connected layers, biases and their gradients") {
  on_two_bytes([](Device& device, DType type) {
    device.set_product_type(type);
    for (const std::int64_t in : kWidths)
      for (const std::int64_t out : {24, 71})
        for (const bool out_by_in : {false, true}) {
          std::vector<Given> given = {numbers(many(6, in), 1), words(many(in, out), 2),
                                      words(static_cast<std::size_t>(out), 3), numbers(many(6, out + 1), 4)};
          const auto processor = make_cpu_device();
          for (Given& g : given) {
            Array<float> here(*processor, g.values);
            processor->round_to(type, here, g.values.size());
            g.values = here.values();
          }
          check(device, type, given, [&](Device& d, const auto& x) {
            d.linear(out_by_in, 6, out, in, x[0], in, x[1], x[2].floats(), x[3], out + 1);
          });
        }
    for (const std::int64_t width : kWidths) {
      check(device, type, {numbers(many(150, width), 1), words(static_cast<std::size_t>(width), 2)},
            [&](Device& d, const auto& x) { d.bias_gradient(x[0], x[1].floats(), 150, width, width); });
      for (const std::int64_t stride : {width, width + 3})
        check(device, type, {numbers(many(5, stride), 1), words(static_cast<std::size_t>(width), 2)},
              [&](Device& d, const auto& x) { d.add_bias(x[0], x[1].floats(), 5, width, stride); });
    }
  });
}

TEST_CASE("two bytes: residuals and dropouts") {
  on_two_bytes([](Device& device, DType type) {
    for (const std::int64_t width : kWidths) {
      const std::int64_t rows = 5;
      const std::size_t count = many(rows, width);
      const std::vector<Given> given = {numbers(count, 1), words(static_cast<std::size_t>(width), 2),
                                        numbers(count, 3), numbers(count, 4), numbers(count, 5)};
      check(device, type, given, [&](Device& d, const auto& x) {
        d.residual_forward(x[0], x[1].floats(), x[2], x[3], rows, width);
      });
      std::vector<std::uint64_t> keys;
      for (std::int64_t row = 0; row < rows; ++row) keys.push_back(dropout_row_key(1, 2, row, 3));
      check(device, type, given, [&](Device& d, const auto& x) {
        const Array<std::uint64_t> of_rows(d, keys);
        d.dropout({of_rows, dropout_place(4, 0), 0.3, 0}, x[0], x[4], rows, width);
        d.dropout_residual({of_rows, dropout_place(5, 0), 0.3, 0}, x[0], x[1].floats(), x[2], x[3], rows,
                           width);
      });
    }
  });
}

TEST_CASE("two bytes: norms, and back") {
  on_two_bytes([](Device& device, DType type) {
    for (const std::int64_t width : {std::int64_t{512}, std::int64_t{8}, std::int64_t{77}})
      for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm})
        for (const bool accumulate : {false, true}) {
          const std::int64_t rows = 70;
          const std::size_t count = many(rows, width);
          const auto of_columns = static_cast<std::size_t>(width);
          const bool layer = kind == NormKind::layer_norm;
          check(
              device, type,
              {numbers(count, 1), words(of_columns, 2), words(of_columns, 3), numbers(count, 4), words(70, 5),
               words(70, 6), numbers(count, 7), numbers(count, 8), words(of_columns, 9),
               words(of_columns, 10)},
              [&](Device& d, const auto& x) {
                d.norm_forward(kind, x[0], x[1].floats(), layer ? x[2].floats() : nullptr, x[3],
                               x[4].floats(), x[5].floats(), rows, width, 1e-5F);
                d.norm_backward(kind, x[6], x[0], x[1].floats(), x[4].floats(), x[5].floats(), x[7],
                                accumulate, x[8].floats(), layer ? x[9].floats() : nullptr, rows, width);
              },
              2e-5);
        }
  });
}

TEST_CASE("two bytes: activations, gated ones too, and back") {
  on_two_bytes([](Device& device, DType type) {
    for (const std::int64_t width : kWidths)
      for (const Activation kind :
           {Activation::gelu, Activation::silu, Activation::relu, Activation::gelu_erf})
        for (const bool gated : {false, true}) {
          const std::int64_t rows = 3;
          const std::size_t in = many(rows, width * (gated ? 2 : 1));
          check(
              device, type,
              {numbers(in, 1), numbers(many(rows, width), 2), numbers(many(rows, width), 3), numbers(in, 4)},
              [&](Device& d, const auto& x) {
                d.activation_forward(kind, gated, x[0], x[1], rows, width);
                d.activation_backward(kind, gated, x[0], x[2], x[3], rows, width);
              });
        }
  });
}

TEST_CASE("two bytes: rotations, embeddings and positions") {
  on_two_bytes([](Device& device, DType type) {
    AttentionSize size{2, 3, 4, 2, 8, true};
    RotaryAngles angles;
    angles.pairs = 3;
    for (int i = 0; i < angles.pairs; ++i)
      angles.frequency[static_cast<std::size_t>(i)] = std::pow(10000.0, -2.0 * i / 8);
    check(device, type, {numbers(many(6, size.qkv_columns()), 1)},
          [&](Device& d, const auto& x) { d.rotary(size, x[0], angles, false); });
    for (const std::int64_t width : kWidths)
      check(device, type,
            {words(many(6, width), 1), numbers(many(4, width), 2), numbers(many(4, width), 3),
             words(many(2, width), 4), words(many(3, width), 5), numbers(many(4, width), 6)},
            [&](Device& d, const auto& x) {
              const Array<std::int32_t> tokens(d, std::vector<std::int32_t>{0, 7, 3, 3});
              d.embedding_forward(tokens, x[0].floats(), x[1], 4, width, 1, 6);
              d.embedding_backward(tokens, x[2], x[4].floats(), 4, width, 1, 3);
              d.positions_forward(x[3].floats(), x[5], 4, width, 2);
              d.positions_backward(x[2], x[3].floats(), 4, width, 2);
            });
  });
}

TEST_CASE("two bytes: logits are rounded once on the way to their gradients") {
  on_two_bytes([](Device& device, DType type) {
    for (const std::int64_t stride : {std::int64_t{64}, std::int64_t{61}}) {
      const std::int64_t rows = 4;
      const std::int64_t columns = 59;
      check(device, type, {numbers(many(rows, stride), 1), words(4, 2), words(8, 3)},
            [&](Device& d, const auto& x) {
              const Array<std::int32_t> targets(d, std::vector<std::int32_t>{5, -1, 58, 0});
              const Array<double> loss(d, 1);
              d.loss_max(x[0], x[1].floats(), rows, columns, stride);
              d.loss_sum(x[0], x[1].floats(), targets, x[2].floats(), rows, columns, stride, 0);
              d.loss_gradient(x[0], x[1].floats(), x[2].floats(), targets, 0.25F, rows, columns, stride, 0,
                              loss);
            });
    }
  });
}

TEST_CASE("two bytes: convolutions, pools and batch norms, and back") {
  on_two_bytes([](Device& device, DType type) {
    device.set_product_type(type);
    for (const std::int64_t groups : {1, 2}) {
      WindowSize size;
      size.batch = 3;
      size.groups = groups;
      size.image.input = {4, 6, 5};
      size.image.kernel = {3, 3};
      size.image.stride = {2, 1};
      size.image.padding = {1, 1};
      size.image.output = {6, 3, 5};
      const std::size_t in = many(3, size.image.input.elements());
      const std::size_t out = many(3, size.image.output.elements());
      std::vector<Given> given = {
          numbers(in, 1), words(many(6, 36 / groups), 2), words(6, 3), numbers(out, 4), numbers(out, 5),
          numbers(in, 6), words(many(6, 36 / groups), 7), words(6, 8)};
      const auto processor = make_cpu_device();
      Array<float> weights(*processor, given[1].values);
      processor->round_to(type, weights, given[1].values.size());
      given[1].values = weights.values();
      check(
          device, type, given,
          [&](Device& d, const auto& x) {
            d.convolution_forward(size, x[0], x[1].floats(), x[2].floats(), x[3]);
            d.convolution_backward_input(size, x[4], x[1].floats(), x[5]);
            d.convolution_backward_weight(size, x[0], x[4], x[6].floats(), x[7].floats(), true);
          },
          2e-5);
    }
    for (const bool average : {false, true}) {
      WindowSize size;
      size.batch = 2;
      size.image.input = {3, 6, 6};
      size.image.kernel = {3, 3};
      size.image.stride = {2, 2};
      size.image.padding = {1, 1};
      size.image.output = {3, 3, 3};
      size.image.average = average;
      check(device, type, {numbers(216, 1), numbers(54, 2), numbers(54, 3), numbers(216, 4)},
            [&](Device& d, const auto& x) {
              const Array<std::int32_t> places(d, 54);
              d.pool_forward(size, x[0], x[1], places);
              d.pool_backward(size, x[2], places, x[3]);
            });
    }
    check(
        device, type,
        {numbers(4 * 3 * 10, 1), words(3, 2), words(3, 3), numbers(4 * 3 * 10, 4), words(3, 5), words(3, 6),
         words(3, 7), numbers(4 * 3 * 10, 8), numbers(4 * 3 * 10, 9), words(3, 10), words(3, 11)},
        [&](Device& d, const auto& x) {
          d.batch_norm_forward(x[0], x[1].floats(), x[2].floats(), x[3], x[4].floats(), x[5].floats(),
                               x[6].floats(), 4, 3, 10, 1e-5F);
          d.batch_norm_backward(x[7], x[0], x[1].floats(), x[4].floats(), x[5].floats(), x[8], x[9].floats(),
                                x[10].floats(), 4, 3, 10);
        },
        2e-5);
  });
}

TEST_CASE("two bytes: rows by index") {
  on_two_bytes([](Device& device, DType type) {
    for (const std::int64_t width : kWidths)
      for (const bool accumulate : {false, true})
        check(device, type,
              {numbers(many(3, width), 1), words(4, 2), numbers(many(4, width), 3),
               numbers(many(2, width), 4), words(4, 5)},
              [&](Device& d, const auto& x) {
                const Array<std::int32_t> index(d, std::vector<std::int32_t>{2, -1, 0, 1});
                d.gather_rows(x[0], index, x[1].floats(), x[2], 4, width);
                d.dot_rows(x[3], x[0], index, x[4].floats(), 2, 2, width);
                d.sum_rows(x[0], index, x[1].floats(), x[3], 2, 2, width, accumulate);
              });
  });
}

TEST_CASE("two bytes: nothing takes them for fp32 words") {
  on_two_bytes([](Device& device, DType type) {
    const Held narrow(device, type, 8);
    CHECK_THROWS(Numbers(narrow).floats());
    const Array<float> wide(device, 8);
    CHECK_THROWS(device.add(narrow, wide, 8));
    CHECK_THROWS(make_cpu_device()->scale(narrow, 8, 2));
  });
}

}  // namespace orrery::exec::test
