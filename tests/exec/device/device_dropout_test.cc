// Dropout: what is left out is what exec/device/dropout.h says, on every device, forward and back. And soft
// caps, of attention's scores with it.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "program/operator_shard.h"
#include "tests/exec/device/device_fixture.h"

namespace orrery::exec::test {
namespace {

std::vector<std::uint64_t> keys_of(std::int64_t step, int batch, int seq) {
  std::vector<std::uint64_t> keys;
  for (int b = 0; b < batch; ++b)
    for (int s = 0; s < seq; ++s) keys.push_back(dropout_row_key(7, step, b, s));
  return keys;
}

float factor_of(std::uint64_t key, std::uint64_t place, double rate, int column) {
  if (key == kKeepsAll) return 1;
  const bool kept = dropout_bits(key ^ place, static_cast<std::uint32_t>(column)) >= dropout_threshold(rate);
  return kept ? dropout_scale(rate) : 0;
}

// Attention in double precision, its probabilities multiplied by what the dropout says.
std::vector<double> dropped_attention(const AttentionSize& s, const std::vector<std::uint64_t>& keys,
                                      const std::vector<double>& qkv) {
  const int stride = s.qkv_columns();
  std::vector<double> out(static_cast<std::size_t>(s.batch * s.seq * s.heads * s.head_dim));
  for (int b = 0; b < s.batch; ++b)
    for (int h = 0; h < s.heads; ++h)
      for (int i = 0; i < s.seq; ++i) {
        const auto at = [&](int row, int head, int d) {
          return qkv[static_cast<std::size_t>((b * s.seq + row) * stride + head * s.head_dim + d)];
        };
        const int shared = h / (s.heads / s.kv_heads);
        const int from = s.window > 0 ? std::max(0, i + 1 - s.window) : 0;
        const int end = s.causal ? i + 1 : s.seq;
        std::vector<double> p(static_cast<std::size_t>(end));
        double sum = 0;
        for (int j = from; j < end; ++j) {
          double score = 0;
          for (int d = 0; d < s.head_dim; ++d) score += at(i, h, d) * at(j, s.heads + shared, d);
          score *= static_cast<double>(s.score_scale());
          const auto cap = static_cast<double>(s.softcap);
          if (cap > 0) score = cap * std::tanh(score / cap);
          sum += p[static_cast<std::size_t>(j)] = std::exp(score);
        }
        const std::uint64_t place = dropout_place_of_head(s.dropout.all.place, s.dropout.first_head + h);
        for (int j = from; j < end; ++j) {
          const double kept = static_cast<double>(
              factor_of(keys[static_cast<std::size_t>(b * s.seq + i)], place, s.dropout.all.rate, j));
          for (int d = 0; d < s.head_dim; ++d)
            out[static_cast<std::size_t>(((b * s.seq + i) * s.heads + h) * s.head_dim + d)] +=
                kept * p[static_cast<std::size_t>(j)] / sum * at(j, s.heads + s.kv_heads + shared, d);
        }
      }
  return out;
}

// The rows that a context position holds.
template <typename T>
std::vector<T> rows_held(const std::vector<T>& whole, int batch, int seq, int columns, int cp, int position) {
  const ContextPart part = context_part(seq, cp, position);
  std::vector<T> rows;
  for (int b = 0; b < batch; ++b)
    for (const int first : part.first) {
      const auto begin = whole.begin() + (static_cast<std::ptrdiff_t>(b) * seq + first) * columns;
      rows.insert(rows.end(), begin, begin + static_cast<std::ptrdiff_t>(part.length) * columns);
    }
  return rows;
}

}  // namespace

TEST_CASE("a dropout keeps as many elements as its rate says, in every row, column, head and step") {
  constexpr int kRows = 512;
  constexpr int kColumns = 512;
  for (const double rate : {0.1, 0.5, 0.9}) {
    std::vector<double> of_row(kRows), of_column(kColumns);
    double neighbours = 0, rows_alike = 0, heads_alike = 0, steps_alike = 0;
    const std::uint64_t place = dropout_place(3, 0);
    const auto keys = keys_of(5, 1, kRows), later = keys_of(6, 1, kRows);
    for (int r = 0; r < kRows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      const auto left_out = [&](std::uint64_t key, std::uint64_t at, int column) {
        return factor_of(key, at, rate, column) == 0 ? 1 - rate : -rate;  // 0 in the mean
      };
      for (int c = 0; c < kColumns; ++c) {
        const double here = left_out(keys[row], place, c);
        of_row[row] += here;
        of_column[static_cast<std::size_t>(c)] += here;
        neighbours += here * left_out(keys[row], place, c + 1);
        rows_alike += here * left_out(keys[(row + 1) % kRows], place, c);
        steps_alike += here * left_out(later[row], place, c);
        heads_alike += left_out(keys[row], dropout_place_of_head(place, 0), c) *
                       left_out(keys[row], dropout_place_of_head(place, 1), c);
      }
    }
    const double variance = rate * (1 - rate);
    double all = 0;
    for (const double sum : of_row) {
      all += sum;
      CHECK(std::abs(sum) < 5 * std::sqrt(kColumns * variance));
    }
    for (const double sum : of_column) CHECK(std::abs(sum) < 5 * std::sqrt(kRows * variance));
    CHECK(std::abs(all) < 4 * std::sqrt(kRows * kColumns * variance));
    for (const double product : {neighbours, rows_alike, heads_alike, steps_alike})
      CHECK(std::abs(product) < 4 * std::sqrt(1.0 * kRows * kColumns) * variance);
  }
  CHECK(dropout_threshold(1) == UINT32_MAX);
  CHECK(dropout_row_key(1, 2, 3, 4) != dropout_row_key(1, 3, 2, 4));
  CHECK(dropout_place(1, 1) != dropout_place(1, 0));
}

TEST_CASE("every device leaves out the same elements, with the branch's bias, and none of an evaluation") {
  constexpr int kRows = 9;
  constexpr int kColumns = 70;
  for (const auto& device : devices()) {
    auto keys = keys_of(2, 3, 3);
    keys[4] = kKeepsAll;
    Array<std::uint64_t> on_device(*device, keys);
    const Dropout of{on_device, dropout_place(11, 1), 0.3, 40};
    const auto x = random_values(kRows * kColumns, 1), stream = random_values(kRows * kColumns, 2),
               bias = random_values(kColumns, 3);
    std::vector<double> dropped, added;
    for (int i = 0; i < kRows * kColumns; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto factor = static_cast<double>(
          factor_of(keys[static_cast<std::size_t>(i / kColumns)], of.place, of.rate, 40 + i % kColumns));
      dropped.push_back(factor * static_cast<double>(x[at]));
      added.push_back(factor * static_cast<double>(x[at] + bias[static_cast<std::size_t>(i % kColumns)]) +
                      static_cast<double>(stream[at]));
    }
    Array<float> in(*device, x), y(*device, x.size()), from(*device, stream), b(*device, bias);
    device->dropout(of, in, y, kRows, kColumns);
    CHECK(difference(y.values(), dropped) < 1e-6);
    device->dropout_residual(of, in, b, from, y, kRows, kColumns);
    CHECK(difference(y.values(), added) < 1e-6);
    device->dropout_residual(of, in, b, from, from, kRows, kColumns);
    CHECK(difference(from.values(), added) < 1e-6);
    device->dropout(of, in, in, kRows, kColumns);
    CHECK(difference(in.values(), dropped) < 1e-6);
  }
}

TEST_CASE("a soft cap and its slope agree with double precision, near zero and far out") {
  for (const auto& device : devices()) {
    const std::vector<float> x = {0,     1e-6F, -1e-3F, 0.1F,   -2,    9,    18.7F,
                                  18.8F, 31,    -60,    1000.F, -1e6F, 3e3F, -0.5F};
    Array<float> at(*device, x), slopes(*device, x.size());
    device->softcap(30, at, slopes, x.size());
    std::vector<double> values, derivatives;
    for (const float v : x) {
      const double t = std::tanh(static_cast<double>(v) / 30);
      values.push_back(30 * t);
      derivatives.push_back(1 - t * t);
    }
    CHECK(difference(at.values(), values) < 2e-7);
    CHECK(difference(slopes.values(), derivatives) < 3e-7);
    for (std::size_t i = 1; i < 4; ++i) CHECK(at.at(i) == Approx(values[i]).epsilon(3e-7));
    device->multiply(at, slopes, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) values[i] *= derivatives[i];
    CHECK(difference(at.values(), values) < 1e-5);
  }
}

TEST_CASE("attention whose probabilities are dropped out agrees with double precision, and so its gradient") {
  for (const auto& device : devices())
    for (const float cap : {0.0F, 0.8F}) {
      for (AttentionSize size :
           {AttentionSize{2, 5, 4, 2, 6, true}, AttentionSize{1, 7, 2, 2, 8, false},
            AttentionSize{1, 70, 2, 1, 4, true}, AttentionSize{1, 80, 2, 1, 4, true, 0, 33}}) {
        const std::size_t rows = static_cast<std::size_t>(size.batch) * size.seq;
        const std::size_t width = static_cast<std::size_t>(size.heads) * size.head_dim;
        const auto keys = keys_of(1, size.batch, size.seq);
        Array<std::uint64_t> on_device(*device, keys);
        size.dropout = {{on_device, dropout_place(5, 0), 0.25, 0}, 3, size.seq, {0, 0}};
        size.softcap = cap;
        size.scale = cap > 0 ? 0.6F : 0;
        const auto qkv = random_values(rows * size.qkv_columns(), 1);
        const auto dout = random_values(rows * width, 2);
        Array<float> in(*device, qkv), out(*device, rows * width), statistics(*device, rows * size.heads);
        device->attention_forward(size, in, out, statistics);
        CHECK(difference(out.values(), dropped_attention(size, keys, {qkv.begin(), qkv.end()})) < 1e-5);
        Array<float> g(*device, dout), dqkv(*device, std::vector<float>(qkv.size(), NAN));
        device->attention_backward(size, in, out, g, statistics, dqkv);
        CHECK(difference(dqkv.values(), numeric_gradient(qkv, dout, [&](const std::vector<double>& at) {
                           return dropped_attention(size, keys, at);
                         })) < 1e-4);
      }
    }
}

TEST_CASE("blocks of ring attention leave out what the whole attention does") {
  const int batch = 2, seq = 24, cp = 3;
  for (const auto& device : devices())
    for (const bool causal : {true, false}) {
      AttentionSize whole{batch, seq, 4, 2, 8, causal};
      whole.softcap = 0.7F;
      const int stride = whole.qkv_columns(), width = whole.heads * whole.head_dim;
      const int key_columns = whole.kv_heads * whole.head_dim;
      const auto keys = keys_of(3, batch, seq);
      const auto qkv = random_values(static_cast<std::size_t>(batch * seq * stride), 1);
      whole.dropout.all = {nullptr, dropout_place(9, 0), 0.2, 0};
      const std::vector<double> exact = dropped_attention(whole, keys, {qkv.begin(), qkv.end()});
      const std::vector<float> expected(exact.begin(), exact.end());
      const auto fused = [&](int position) { return rows_held(qkv, batch, seq, stride, cp, position); };
      AttentionSize size = whole;
      size.seq = seq / cp;
      const int rows = batch * size.seq;
      for (int p = 0; p < cp; ++p) {
        Array<std::uint64_t> own_keys(*device, rows_held(keys, batch, seq, 1, cp, p));
        const auto size_for = [&](int other) {
          const ContextPart part = context_part(seq, cp, other);
          AttentionSize result = size;
          result.dropout.all.rows = own_keys;
          result.dropout.run = part.length;
          result.dropout.first[0] = part.first[0];
          result.dropout.first[1] = part.first[1];
          return result;
        };
        Array<float> mine(*device, fused(p)), out(*device, static_cast<std::size_t>(rows * width));
        Array<float> statistics(*device, static_cast<std::size_t>(rows * whole.heads));
        device->attention_forward(size_for(p), mine, out, statistics);
        for (int other = 0; other < cp; ++other) {
          if (other == p) continue;
          Array<float> theirs(*device, fused(other));
          Array<float> message(*device, static_cast<std::size_t>(2 * rows * key_columns));
          for (int half = 0; half < 2; ++half)
            device->copy_matrix(message + half * rows * key_columns, key_columns,
                                theirs + width + half * key_columns, stride, rows, key_columns);
          AttentionBlock block{size_for(other), 0, size.seq};
          if (causal) (other < p ? block.keys : block.query_begin) = size.seq / 2;
          device->attention_block_forward(block, mine, message, message + rows * key_columns, out,
                                          statistics);
        }
        const auto held = rows_held(expected, batch, seq, width, cp, p);
        CHECK(difference(out.values(), {held.begin(), held.end()}) < 1e-5);
      }
    }
}

}  // namespace orrery::exec::test
