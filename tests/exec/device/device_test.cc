// Conformance of every Device against plain double-precision mathematics; gradients by finite differences.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/exec/device/device_fixture.h"

namespace orrery::exec::test {
namespace {

Doubles norm_reference(NormKind kind, const Doubles& x, const std::vector<float>& weight,
                       const std::vector<float>& bias, int rows, int columns, double epsilon) {
  Doubles y(x.size());
  for (int r = 0; r < rows; ++r) {
    const double* row = x.data() + static_cast<std::ptrdiff_t>(r) * columns;
    double mean = 0;
    double square = 0;
    if (kind == NormKind::layer_norm)
      for (int c = 0; c < columns; ++c) mean += row[c] / columns;
    for (int c = 0; c < columns; ++c) square += (row[c] - mean) * (row[c] - mean) / columns;
    const double inverse = 1 / std::sqrt(square + epsilon);
    for (int c = 0; c < columns; ++c)
      y[static_cast<std::size_t>(r * columns + c)] =
          (row[c] - mean) * inverse * static_cast<double>(weight[static_cast<std::size_t>(c)]) +
          (bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<std::size_t>(c)]));
  }
  return y;
}

double activation_reference(Activation kind, double x) {
  if (kind == Activation::gelu)
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (kind == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  if (kind == Activation::silu) return x / (1 + std::exp(-x));
  return std::max(x, 0.0);
}

Doubles attention_reference(const AttentionSize& s, const Doubles& qkv) {
  const int stride = s.qkv_columns();
  Doubles out(static_cast<std::size_t>(s.batch) * s.seq * s.heads * s.head_dim);
  for (int b = 0; b < s.batch; ++b)
    for (int h = 0; h < s.heads; ++h)
      for (int i = 0; i < s.seq; ++i) {
        const auto at = [&](int row, int head, int d) {
          return qkv[static_cast<std::size_t>((b * s.seq + row) * stride + head * s.head_dim + d)];
        };
        const int shared = h / (s.heads / s.kv_heads);
        const int keys = s.causal ? i + 1 : s.seq;
        const int from = s.window > 0 ? std::max(0, i + 1 - s.window) : 0;
        Doubles p(static_cast<std::size_t>(keys));
        double sum = 0;
        for (int j = from; j < keys; ++j) {
          double score = 0;
          for (int d = 0; d < s.head_dim; ++d) score += at(i, h, d) * at(j, s.heads + shared, d);
          p[static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(s.head_dim));
          sum += p[static_cast<std::size_t>(j)];
        }
        for (int d = 0; d < s.head_dim; ++d) {
          double value = 0;
          for (int j = from; j < keys; ++j)
            value += p[static_cast<std::size_t>(j)] / sum * at(j, s.heads + s.kv_heads + shared, d);
          out[static_cast<std::size_t>(((b * s.seq + i) * s.heads + h) * s.head_dim + d)] = value;
        }
      }
  return out;
}

}  // namespace

TEST_CASE("gemm multiplies in all four orientations, with strides and accumulation") {
  for (const auto& device : devices()) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const int m = 5;
        const int n = 7;
        const int k = 3;
        const int lda = (ta ? m : k) + 2;
        const int ldb = (tb ? k : n) + 1;
        const int ldc = n + 3;
        const auto a = random_values(static_cast<std::size_t>((ta ? k : m) * lda), 1);
        const auto b = random_values(static_cast<std::size_t>((tb ? n : k) * ldb), 2);
        const auto c = random_values(static_cast<std::size_t>(m * ldc), 3);
        Doubles expected = doubles(c);
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j) {
            double sum = 0;
            for (int l = 0; l < k; ++l)
              sum += static_cast<double>(a[static_cast<std::size_t>(ta ? l * lda + i : i * lda + l)]) *
                     static_cast<double>(b[static_cast<std::size_t>(tb ? j * ldb + l : l * ldb + j)]);
            double& to = expected[static_cast<std::size_t>(i * ldc + j)];
            to = 2 * sum + 0.5 * to;
          }
        Array<float> da(*device, a);
        Array<float> db(*device, b);
        Array<float> dc(*device, c);
        device->gemm(ta, tb, m, n, k, 2, da, lda, db, ldb, 0.5F, dc, ldc);
        CHECK(difference(dc.values(), expected) < 1e-5);
      }
    }
  }
}

TEST_CASE("gemm with beta 0 does not read the result, no rows is no work, and a sum of nothing is zero") {
  for (const auto& device : devices()) {
    Array<float> a(*device, {1, 2});
    Array<float> b(*device, {3, 4});
    Array<float> c(*device, std::vector<float>{NAN});
    device->gemm(false, false, 1, 1, 2, 1, a, 2, b, 1, 0, c, 1);
    CHECK(c.at(0) == 11);
    device->gemm(false, false, 0, 1, 2, 1, a, 2, b, 1, 0, c, 1);
    CHECK(c.at(0) == 11);
    device->gemm(true, false, 1, 1, 0, 1, a, 1, b, 1, 1, c, 1);
    CHECK(c.at(0) == 11);
    Array<float> d(*device, std::vector<float>{NAN, 5});
    device->gemm(true, false, 1, 1, 0, 1, a, 1, b, 1, 0, d, 2);
    CHECK(d.values() == std::vector<float>{0, 5});
  }
}

TEST_CASE("norms and their gradients agree with double precision") {
  const int rows = 3;
  const int columns = 21;
  const auto x = random_values(rows * columns, 1);
  const auto weight = random_values(columns, 2);
  const auto bias = random_values(columns, 3);
  const auto dy = random_values(rows * columns, 4);
  const auto before = random_values(rows * columns, 5);
  for (const auto& device : devices()) {
    for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
      const bool layer = kind == NormKind::layer_norm;
      const auto biases = layer ? bias : std::vector<float>();
      Array<float> dx_in(*device, x);
      Array<float> w(*device, weight);
      Array<float> bi(*device, bias);
      Array<float> y(*device, x.size());
      Array<float> mean(*device, rows);
      Array<float> inverse(*device, rows);
      device->norm_forward(kind, dx_in, w, layer ? static_cast<float*>(bi) : nullptr, y,
                           layer ? static_cast<float*>(mean) : nullptr, inverse, rows, columns, 1e-5F);
      CHECK(difference(y.values(), norm_reference(kind, doubles(x), weight, biases, rows, columns, 1e-5)) <
            1e-5);

      Array<float> g(*device, dy);
      Array<float> dweight(*device, columns, 1.0F);
      Array<float> dbias(*device, columns, 1.0F);
      auto expected = numeric_gradient(x, dy, [&](const Doubles& at) {
        return norm_reference(kind, at, weight, biases, rows, columns, 1e-5);
      });
      Array<float> dx(*device, std::vector<float>(x.size(), NAN));
      device->norm_backward(kind, g, dx_in, w, mean, inverse, dx, false, dweight,
                            layer ? static_cast<float*>(dbias) : nullptr, rows, columns);
      CHECK(difference(dx.values(), expected) < 1e-4);
      const auto expected_weight = numeric_gradient(weight, dy, [&](const Doubles& at) {
        return norm_reference(kind, doubles(x), {at.begin(), at.end()}, biases, rows, columns, 1e-5);
      });
      Doubles offset = expected_weight;
      for (double& v : offset) v += 1;  // accumulated onto ones
      // The reference takes its weight as float: the step of the difference is quantised.
      CHECK(difference(dweight.values(), offset) < 2e-2);
      if (layer)
        for (int c = 0; c < columns; ++c) {
          double sum = 1;
          for (int r = 0; r < rows; ++r)
            sum += static_cast<double>(dy[static_cast<std::size_t>(r * columns + c)]);
          CHECK(dbias.at(static_cast<std::size_t>(c)) == Approx(sum).margin(1e-5));
        }

      Array<float> accumulated(*device, before);
      device->norm_backward(kind, g, dx_in, w, mean, inverse, accumulated, true, dweight,
                            layer ? static_cast<float*>(dbias) : nullptr, rows, columns);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(before[i]);
      CHECK(difference(accumulated.values(), expected) < 1e-4);
    }
  }
}

TEST_CASE("activations, plain and gated, agree with double precision out to where they saturate") {
  const int rows = 2;
  const int columns = 40;
  for (const auto& device : devices()) {
    for (const Activation kind :
         {Activation::gelu, Activation::gelu_erf, Activation::silu, Activation::relu}) {
      for (const bool gated : {false, true}) {
        const int width = gated ? 2 * columns : columns;
        auto x = random_values(static_cast<std::size_t>(rows * width), 1, 3);
        if (kind != Activation::relu) {
          x[0] = 100;
          x[1] = -100;
          x[2] = 0;
        }
        const auto dy = random_values(rows * columns, 2);
        const auto reference = [&](const Doubles& at) {
          Doubles y(static_cast<std::size_t>(rows * columns));
          for (int r = 0; r < rows; ++r)
            for (int c = 0; c < columns; ++c) {
              const double f = activation_reference(kind, at[static_cast<std::size_t>(r * width + c)]);
              y[static_cast<std::size_t>(r * columns + c)] =
                  gated ? f * at[static_cast<std::size_t>(r * width + columns + c)] : f;
            }
          return y;
        };
        Array<float> dx_in(*device, x);
        Array<float> y(*device, dy.size());
        device->activation_forward(kind, gated, dx_in, y, rows, columns);
        CHECK(difference(y.values(), reference(doubles(x))) < 2e-6);
        Array<float> g(*device, dy);
        Array<float> dx(*device, x.size());
        device->activation_backward(kind, gated, dx_in, g, dx, rows, columns);
        CHECK(difference(dx.values(), numeric_gradient(x, dy, reference)) < 1e-5);
      }
    }
  }
}

TEST_CASE(
    "attention and its gradient agree with double precision: causal or not, shared heads, odd lengths, "
    "windows") {
  for (const auto& device : devices()) {
    for (const AttentionSize& size :
         {AttentionSize{1, 1, 1, 1, 4, true}, AttentionSize{2, 5, 4, 2, 6, true},
          AttentionSize{1, 7, 2, 2, 8, false}, AttentionSize{1, 70, 2, 1, 4, true},
          AttentionSize{2, 9, 2, 1, 4, true, 0, 1}, AttentionSize{1, 12, 4, 2, 4, true, 0, 5},
          AttentionSize{1, 150, 2, 1, 4, true, 0, 33}, AttentionSize{1, 70, 1, 1, 4, true, 0, 70}}) {
      const std::size_t rows = static_cast<std::size_t>(size.batch) * size.seq;
      const std::size_t width = static_cast<std::size_t>(size.heads) * size.head_dim;
      const auto qkv = random_values(rows * size.qkv_columns(), 1);
      const auto dout = random_values(rows * width, 2);
      Array<float> in(*device, qkv);
      Array<float> out(*device, rows * width);
      Array<float> statistics(*device, rows * size.heads);
      device->attention_forward(size, in, out, statistics);
      CHECK(difference(out.values(), attention_reference(size, doubles(qkv))) < 1e-5);
      Array<float> g(*device, dout);
      Array<float> dqkv(*device, std::vector<float>(qkv.size(), NAN));
      device->attention_backward(size, in, out, g, statistics, dqkv);
      CHECK(difference(dqkv.values(), numeric_gradient(qkv, dout, [&](const Doubles& at) {
                         return attention_reference(size, at);
                       })) < 1e-4);
    }
  }
}

TEST_CASE("rotary embedding turns each pair by position times frequency, and back") {
  for (const auto& device : devices()) {
    const AttentionSize size{2, 5, 2, 1, 8, true};
    const auto qkv = random_values(static_cast<std::size_t>(size.batch * size.seq * size.qkv_columns()), 1);
    for (const int dim : {8, 4}) {
      RotaryAngles angles;
      angles.pairs = dim / 2;
      angles.amplitude = 1.25;
      for (int i = 0; i < dim / 2; ++i)
        angles.frequency[static_cast<std::size_t>(i)] = std::pow(10000.0, -2.0 * i / dim);
      Array<float> turned(*device, qkv);
      device->rotary(size, turned, angles, false);
      Doubles expected = doubles(qkv);
      for (int r = 0; r < size.batch * size.seq; ++r)
        for (int h = 0; h < size.heads + size.kv_heads; ++h)
          for (int i = 0; i < dim / 2; ++i) {
            const double angle = (r % size.seq) * std::pow(10000.0, -2.0 * i / dim);
            double& a = expected[static_cast<std::size_t>(r * size.qkv_columns() + h * size.head_dim + i)];
            double& b =
                expected[static_cast<std::size_t>(r * size.qkv_columns() + h * size.head_dim + i + dim / 2)];
            const double old = a;
            a = 1.25 * (a * std::cos(angle) - b * std::sin(angle));
            b = 1.25 * (b * std::cos(angle) + old * std::sin(angle));
          }
      CHECK(difference(turned.values(), expected) < 1e-5);
      // Back, and once more by the amplitude: the gradient of what was multiplied.
      device->rotary(size, turned, angles, true);
      Doubles back = doubles(qkv);
      for (int r = 0; r < size.batch * size.seq; ++r)
        for (int h = 0; h < size.heads + size.kv_heads; ++h)
          for (int i = 0; i < dim; ++i)
            back[static_cast<std::size_t>(r * size.qkv_columns() + h * size.head_dim + i)] *= 1.25 * 1.25;
      CHECK(difference(turned.values(), back) < 1e-5);
    }
  }
}

TEST_CASE("an embedding split over two ranks sums to the whole, forward and backward") {
  for (const auto& device : devices()) {
    const std::vector<std::int32_t> tokens = {0, 3, 5, 3};
    const auto table = random_values(6 * 4, 1);
    const auto dout = random_values(4 * 4, 2);
    Array<std::int32_t> t(*device, tokens);
    Array<float> g(*device, dout);
    Array<float> first(*device, std::vector<float>(table.begin(), table.begin() + 12));
    Array<float> second(*device, std::vector<float>(table.begin() + 12, table.end()));
    Array<float> a(*device, 16);
    Array<float> b(*device, 16);
    device->embedding_forward(t, first, a, 4, 4, 0, 3);
    device->embedding_forward(t, second, b, 4, 4, 3, 3);
    for (std::size_t r = 0; r < 4; ++r)
      for (std::size_t c = 0; c < 4; ++c)
        CHECK(a.at(r * 4 + c) + b.at(r * 4 + c) ==
              static_cast<double>(table[static_cast<std::size_t>(tokens[r]) * 4 + c]));
    Array<float> dtable(*device, 12, 1.0F);
    device->embedding_backward(t, g, dtable, 4, 4, 3, 3);
    for (std::size_t c = 0; c < 4; ++c) {
      CHECK(dtable.at(c) ==
            Approx(1.0 + static_cast<double>(dout[4 + c]) + static_cast<double>(dout[12 + c])));
      CHECK(dtable.at(4 + c) == 1.0);
      CHECK(dtable.at(8 + c) == Approx(1.0 + static_cast<double>(dout[8 + c])));
    }
  }
}

TEST_CASE("positions are added by row within the sequence, and collect gradients over samples") {
  for (const auto& device : devices()) {
    const auto table = random_values(3 * 2, 1);
    const auto dout = random_values(6 * 2, 2);
    Array<float> t(*device, table);
    Array<float> out(*device, 12, 1.0F);
    device->positions_forward(t, out, 6, 2, 3);
    for (std::size_t i = 0; i < 12; ++i) CHECK(out.at(i) == Approx(1.0 + static_cast<double>(table[i % 6])));
    Array<float> g(*device, dout);
    Array<float> dtable(*device, 6);
    device->positions_backward(g, dtable, 6, 2, 3);
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(dtable.at(i) ==
            Approx(static_cast<double>(dout[i]) + static_cast<double>(dout[i + 6])).margin(1e-6));
  }
}

TEST_CASE("biases and residuals add, and bias gradients are column sums") {
  for (const auto& device : devices()) {
    const auto x = random_values(3 * 5, 1);
    const auto bias = random_values(4, 2);
    Array<float> data(*device, x);
    Array<float> b(*device, bias);
    device->add_bias(data, b, 3, 4, 5);
    for (std::size_t i = 0; i < 15; ++i)
      CHECK(data.at(i) ==
            Approx(static_cast<double>(x[i]) + (i % 5 < 4 ? static_cast<double>(bias[i % 5]) : 0)));
    Array<float> g(*device, x);
    Array<float> dbias(*device, 4, 1.0F);
    device->bias_gradient(g, dbias, 3, 4, 5);
    for (std::size_t c = 0; c < 4; ++c)
      CHECK(dbias.at(c) == Approx(1.0 + static_cast<double>(x[c]) + static_cast<double>(x[5 + c]) +
                                  static_cast<double>(x[10 + c])));
    Array<float> stream(*device, 12, 2.0F);
    Array<float> branch(*device, std::vector<float>(x.begin(), x.begin() + 12));
    device->residual_forward(branch, b, stream, stream, 3, 4);
    for (std::size_t i = 0; i < 12; ++i)
      CHECK(stream.at(i) == Approx(2.0 + static_cast<double>(x[i]) + static_cast<double>(bias[i % 4])));
  }
}

TEST_CASE("a fully connected layer is a product and a bias in every row, wherever the bias begins") {
  for (const auto& device : devices())
    for (const bool out_by_in : {false, true})
      for (const bool with_bias : {false, true}) {
        const std::size_t rows = 4;
        const std::size_t out = 3;
        const std::size_t in = 5;
        const auto x = random_values(rows * (in + 1), 1);
        const auto weight = random_values(out * in, 2);
        const auto bias = random_values(out + 1, 3);
        Array<float> dx(*device, x);
        Array<float> dweight(*device, weight);
        Array<float> dbias(*device, bias);
        for (const std::size_t skipped : {std::size_t{1}, std::size_t{0}}) {
          Array<float> y(*device, rows * (out + 2), 7.0F);
          device->linear(out_by_in, rows, out, in, dx, in + 1, dweight, with_bias ? dbias + skipped : nullptr,
                         y, out + 2);
          Doubles expected(rows * (out + 2), 7);
          for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t o = 0; o < out; ++o) {
              double& sum = expected[r * (out + 2) + o];
              sum = with_bias ? static_cast<double>(bias[skipped + o]) : 0;
              for (std::size_t i = 0; i < in; ++i)
                sum += static_cast<double>(x[r * (in + 1) + i]) *
                       static_cast<double>(weight[out_by_in ? o * in + i : i * out + o]);
            }
          CHECK(difference(y.values(), expected) < 1e-5);
        }
        device->linear(out_by_in, 0, out, in, dx, in + 1, dweight, dbias, nullptr, out);
      }
}

TEST_CASE("cross entropy over a split and padded vocabulary is that of the whole") {
  const int rows = 3;
  const int vocabulary = 7;
  const int stride = 4;  // two ranks of four columns, the second's last is padding
  const auto logits = random_values(rows * vocabulary, 1, 4);
  const std::vector<std::int32_t> targets = {6, 0, 3};
  for (const auto& device : devices()) {
    Array<std::int32_t> t(*device, targets);
    std::vector<std::unique_ptr<Array<float>>> part;
    std::vector<std::unique_ptr<Array<float>>> sums;
    std::vector<float> maximum(rows, -INFINITY);
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<float> mine(rows * stride, 1e30F);
      const int columns = rank == 0 ? 4 : 3;
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
          mine[static_cast<std::size_t>(r * stride + c)] =
              logits[static_cast<std::size_t>(r * vocabulary + rank * 4 + c)];
      part.push_back(std::make_unique<Array<float>>(*device, mine));
      sums.push_back(std::make_unique<Array<float>>(*device, 2 * rows));
      Array<float> local(*device, rows);
      device->loss_max(*part.back(), local, rows, columns, stride);
      for (int r = 0; r < rows; ++r)
        maximum[static_cast<std::size_t>(r)] =
            std::max(maximum[static_cast<std::size_t>(r)], local.values()[static_cast<std::size_t>(r)]);
    }
    Array<float> most(*device, maximum);
    device->loss_sum(*part[0], most, t, *sums[0], rows, 4, stride, 0);
    device->loss_sum(*part[1], most, t, *sums[1], rows, 3, stride, 4);
    device->add(*sums[0], *sums[1], 2 * rows);

    double expected = 0;
    Doubles gradient(rows * vocabulary);
    for (int r = 0; r < rows; ++r) {
      double sum = 0;
      for (int c = 0; c < vocabulary; ++c)
        sum += std::exp(static_cast<double>(logits[static_cast<std::size_t>(r * vocabulary + c)]));
      for (int c = 0; c < vocabulary; ++c)
        gradient[static_cast<std::size_t>(r * vocabulary + c)] =
            0.25 *
            (std::exp(static_cast<double>(logits[static_cast<std::size_t>(r * vocabulary + c)])) / sum -
             (c == targets[static_cast<std::size_t>(r)] ? 1 : 0));
      expected +=
          std::log(sum) -
          static_cast<double>(
              logits[static_cast<std::size_t>(r * vocabulary + targets[static_cast<std::size_t>(r)])]);
    }
    for (int rank = 0; rank < 2; ++rank) {
      Array<double> loss(*device, std::vector<double>{1.0});
      device->loss_gradient(*part[static_cast<std::size_t>(rank)], most, *sums[0], t, 0.25F, rows,
                            rank == 0 ? 4 : 3, stride, rank * 4, loss);
      CHECK(loss.at(0) == Approx(1 + expected).epsilon(1e-6));
      const auto got = part[static_cast<std::size_t>(rank)]->values();
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < stride; ++c) {
          const double want = rank * 4 + c < vocabulary
                                  ? gradient[static_cast<std::size_t>(r * vocabulary + rank * 4 + c)]
                                  : 0;
          CHECK(static_cast<double>(got[static_cast<std::size_t>(r * stride + c)]) ==
                Approx(want).margin(1e-6));
        }
    }
  }
}

TEST_CASE("rows without a target have neither loss nor gradient") {
  for (const auto& device : devices()) {
    const int rows = 3;
    const int columns = 5;
    const int stride = 6;
    const auto logits = random_values(rows * stride, 1);
    const auto loss_of = [&](const std::vector<std::int32_t>& targets, std::vector<float>* gradient) {
      Array<float> x(*device, logits);
      Array<std::int32_t> t(*device, targets);
      Array<float> most(*device, rows);
      Array<float> sums(*device, 2 * rows);
      Array<double> loss(*device, 1);
      device->loss_max(x, most, rows, columns, stride);
      device->loss_sum(x, most, t, sums, rows, columns, stride, 0);
      device->loss_gradient(x, most, sums, t, 0.5F, rows, columns, stride, 0, loss);
      *gradient = x.values();
      return loss.at(0);
    };
    std::vector<float> all;
    std::vector<float> some;
    std::vector<float> none;
    const double whole = loss_of({1, 4, 0}, &all);
    const double part = loss_of({1, -1, 0}, &some);
    CHECK(loss_of({-1, -1, -1}, &none) == 0);
    CHECK(part < whole);
    for (int i = 0; i < rows * stride; ++i) {
      const auto at = static_cast<std::size_t>(i);
      CHECK(none[at] == 0);
      CHECK(some[at] == (i / stride == 1 ? 0 : all[at]));
    }
  }
}

TEST_CASE("optimizers follow their formulas") {
  const std::size_t count = 37;
  const auto w = random_values(count, 1);
  const auto g = random_values(count, 2);
  for (const auto& device : devices()) {
    Array<float> gradient(*device, g);
    Array<float> plain(*device, w);
    device->sgd(plain, gradient, count, 0.1F);
    Array<float> heavy(*device, w);
    Array<float> velocity(*device, count);
    device->momentum(heavy, gradient, velocity, count, 0.1F, 0.9F);
    device->momentum(heavy, gradient, velocity, count, 0.1F, 0.9F);
    for (const bool decoupled : {false, true}) {
      Array<float> adam(*device, w);
      Array<float> first(*device, count);
      Array<float> second(*device, count);
      AdamConstants constants;
      constants.rate = 0.01F;
      constants.weight_decay = 0.1F;
      constants.decoupled = decoupled;
      for (int step = 1; step <= 2; ++step)
        device->adam(adam, gradient, first, second, count, constants, step);
      for (std::size_t i = 0; i < count; ++i) {
        double x = static_cast<double>(w[i]);
        double m = 0;
        double v = 0;
        for (int step = 1; step <= 2; ++step) {
          const double d = static_cast<double>(g[i]) + (decoupled ? 0 : 0.1 * x);
          m = 0.9 * m + 0.1 * d;
          v = 0.999 * v + 0.001 * d * d;
          x = (decoupled ? x * (1 - 0.01 * 0.1) : x) -
              0.01 * (m / (1 - std::pow(0.9, step))) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
        }
        CHECK(adam.at(i) == Approx(x).margin(2e-5));
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      const double x = static_cast<double>(w[i]);
      const double d = static_cast<double>(g[i]);
      CHECK(plain.at(i) == Approx(x - 0.1 * d).margin(1e-6));
      CHECK(heavy.at(i) == Approx(x - 0.1 * d - 0.1 * 1.9 * d).margin(1e-6));
    }
  }
}

TEST_CASE("vectors fill, scale, add and have a norm, empty ones too") {
  for (const auto& device : devices()) {
    Array<float> x(*device, 5);
    device->fill(x, 5, 2);
    device->scale(x, 5, 1.5F);
    Array<float> y(*device, {1, 2, 3, 4, 5});
    device->add(x, y, 5);
    CHECK(x.values() == std::vector<float>{4, 5, 6, 7, 8});
    CHECK(device->sum_of_squares(x, 5) == Approx(190));
    device->fill(x, 0, 9);
    CHECK(device->sum_of_squares(x, 0) == 0);
    CHECK(x.at(0) == 4);
  }
}

TEST_CASE("peak memory is the most that was allocated at once, and marks go forward") {
  for (const auto& device : devices()) {
    const std::size_t before = device->peak_bytes();
    void* a = device->allocate(1000);
    void* b = device->allocate(5000);
    device->release(a);
    void* c = device->allocate(100);
    CHECK(device->peak_bytes() - before >= 6000);
    CHECK(device->peak_bytes() - before < 6000 + 3 * 512);
    device->release(b);
    device->release(c);
    const Mark first = device->mark();
    Array<float> x(*device, 100000);
    device->scale(x, 100000, 2);
    const Mark second = device->mark();
    CHECK(device->seconds_of(first) <= device->seconds_of(second));
    device->release_marks();
  }
}

TEST_CASE("what is recorded is done when it is replayed, as often, and with memory of its own") {
  for (const auto& device : devices()) {
    if (!device->records()) continue;
    Array<float> x(*device, std::vector<float>{1, 2, 3});
    Array<float> y(*device, 3, 0.0F);
    device->begin_recording();
    auto* between = static_cast<float*>(device->allocate(3 * sizeof(float)));
    device->copy(between, x, 3 * sizeof(float));
    device->scale(between, 3, 10);
    device->add(y, between, 3);
    device->release(between);
    const Recording recording = device->end_recording();
    CHECK(y.values() == std::vector<float>{0, 0, 0});
    device->replay(recording);
    CHECK(y.values() == std::vector<float>{10, 20, 30});
    device->fill(x, 3, 1);
    device->replay(recording);
    CHECK(y.values() == std::vector<float>{20, 30, 40});
  }
}

}  // namespace orrery::exec::test
