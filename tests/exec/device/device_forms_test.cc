// Device operations of ring attention, of two-byte types and of compressed gradients, against plain
// references.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "exec/state/compression.h"
#include "program/operator_shard.h"
#include "tests/exec/device/device_fixture.h"

namespace orrery::exec::test {
namespace {

// The rows of a whole tensor that a context position holds.
std::vector<float> rows_of_position(const std::vector<float>& whole, int batch, int seq, int columns, int cp,
                                    int position) {
  const ContextPart part = context_part(seq, cp, position);
  std::vector<float> rows;
  for (int b = 0; b < batch; ++b)
    for (const int first : part.first) {
      const auto begin = whole.begin() + (static_cast<std::ptrdiff_t>(b) * seq + first) * columns;
      rows.insert(rows.end(), begin, begin + static_cast<std::ptrdiff_t>(part.length) * columns);
    }
  return rows;
}

double worst(const std::vector<float>& a, const std::vector<float>& b) {
  return difference(a, std::vector<double>(b.begin(), b.end()));
}

}  // namespace

TEST_CASE("the parts of all context positions are the whole sequence, once") {
  for (const int cp : {2, 3, 4}) {
    std::vector<int> seen(24);
    for (int p = 0; p < cp; ++p) {
      const ContextPart part = context_part(24, cp, p);
      for (const int first : part.first)
        for (int i = 0; i < part.length; ++i) ++seen[static_cast<std::size_t>(first + i)];
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  }
}

namespace {

// `most`: by which values and gradients may differ. Of two bytes probabilities are rounded, each block's by
// its own, and what the blocks so far have made.
void check_ring_attention(Device& device, DType type, bool causal, int cp, int seq, double most,
                          double most_of_gradients) {
  const int batch = 2;
  const AttentionSize whole{batch, seq, 4, 2, 8, causal};
  const int stride = whole.qkv_columns();
  const int width = whole.heads * whole.head_dim;
  const int key_columns = whole.kv_heads * whole.head_dim;
  const auto qkv = random_values(static_cast<std::size_t>(batch * seq * stride), 1);
  const auto dout = random_values(static_cast<std::size_t>(batch * seq * width), 2);
  const Held all_qkv(device, type, qkv);
  const Held all_dout(device, type, dout);
  const Held all_out(device, type, dout.size());
  Array<float> all_statistics(device, static_cast<std::size_t>(batch * seq * whole.heads));
  const Held all_dqkv(device, type, qkv.size());
  device.attention_forward(whole, all_qkv, all_out, all_statistics);
  device.attention_backward(whole, all_qkv, all_out, all_dout, all_statistics, all_dqkv);

  AttentionSize size = whole;
  size.seq = seq / cp;
  const int rows = batch * size.seq;
  const auto key_elements = static_cast<std::size_t>(rows * key_columns);
  // Between a row of queries, keys and values and what travels: keys, then values.
  const auto travel = [&](Numbers message, Numbers packed, bool to_message) {
    for (std::size_t half = 0; half < 2; ++half) {
      const Numbers part = message + half * key_elements;
      const Numbers columns = packed + width + half * static_cast<std::size_t>(key_columns);
      if (to_message)
        device.copy_matrix(part, key_columns, columns, stride, rows, key_columns);
      else
        device.copy_matrix(columns, stride, part, key_columns, rows, key_columns);
    }
  };
  std::vector<std::unique_ptr<Held>> mine;
  std::vector<std::unique_ptr<Held>> keys;
  std::vector<std::unique_ptr<Held>> gradients;
  std::vector<std::unique_ptr<Held>> dqkv;
  for (int p = 0; p < cp; ++p) {
    mine.push_back(std::make_unique<Held>(device, type, rows_of_position(qkv, batch, seq, stride, cp, p)));
    keys.push_back(std::make_unique<Held>(device, type, 2 * key_elements));
    travel(*keys.back(), *mine.back(), true);
    gradients.push_back(std::make_unique<Held>(device, type, 2 * key_elements));
    dqkv.push_back(std::make_unique<Held>(device, type, static_cast<std::size_t>(rows * stride)));
  }
  for (int p = 0; p < cp; ++p) {
    const auto at = static_cast<std::size_t>(p);
    const Held my_dout(device, type, rows_of_position(dout, batch, seq, width, cp, p));
    const Held out(device, type, static_cast<std::size_t>(rows * width));
    Array<float> statistics(device, static_cast<std::size_t>(rows * whole.heads));
    const auto block_of = [&](int other) {
      AttentionBlock block{size, 0, size.seq};
      if (causal) (other < p ? block.keys : block.query_begin) = size.seq / 2;
      return block;
    };
    device.attention_forward(size, *mine[at], out, statistics);
    for (int i = 1; i < cp; ++i) {
      const int other = (p - i + cp) % cp;
      const Numbers message = *keys[static_cast<std::size_t>(other)];
      device.attention_block_forward(block_of(other), *mine[at], message, message + key_elements, out,
                                     statistics);
    }
    CHECK(worst(out.values(), rows_of_position(all_out.values(), batch, seq, width, cp, p)) < most);
    device.attention_backward(size, *mine[at], out, my_dout, statistics, *dqkv[at]);
    const Held share(device, type, 2 * key_elements);
    for (int i = 0; i < cp; ++i) {
      const int other = (p - i + cp) % cp;
      const Numbers message = *keys[static_cast<std::size_t>(other)];
      const Numbers dkeys = share;
      if (i == 0)
        travel(share, *dqkv[at], true);
      else
        device.attention_block_backward(block_of(other), *mine[at], message, message + key_elements, out,
                                        my_dout, statistics, *dqkv[at], dkeys, dkeys + key_elements);
      device.add(*gradients[static_cast<std::size_t>(other)], share, 2 * key_elements);
    }
  }
  for (int p = 0; p < cp; ++p) {
    const auto at = static_cast<std::size_t>(p);
    travel(*gradients[at], *dqkv[at], false);
    CHECK(worst(dqkv[at]->values(), rows_of_position(all_dqkv.values(), batch, seq, stride, cp, p)) <
          most_of_gradients);
  }
}

}  // namespace

TEST_CASE("blocks of ring attention add up to the whole attention, forward and backward") {
  for (const auto& device : devices())
    for (const bool causal : {true, false})
      for (const int cp : {2, 3}) {
        check_ring_attention(*device, DType::fp32, causal, cp, 24, 2e-6, 5e-6);
        check_ring_attention(*device, DType::bf16, causal, cp, 24, 1e-2, 3e-2);
        if (causal && cp == 3)  // blocks that begin within a tile; what is emulated is slow
          check_ring_attention(*device, DType::bf16, causal, cp, 240, 1e-2, 3e-2);
      }
}

TEST_CASE("two-byte types round to nearest even and come back") {
  const std::vector<float> x = {1, 1.00390625F, 1.01171875F, -3.1415927F, 0, 65504, 1e6F, 1e-8F};
  for (const auto& device : devices()) {
    Array<float> from(*device, x);
    Array<std::uint16_t> two(*device, x.size());
    Array<float> to(*device, x.size());
    const auto through = [&](DType type, float scale, bool saturate) {
      device->narrow(type, from, two, x.size(), scale, saturate);
      device->widen(type, two, to, x.size(), 1 / scale);
      return to.values();
    };
    auto back = through(DType::bf16, 1, false);
    // 8 significant bits: 1 + 1/256 lies between 1 and 1 + 1/128, and goes to the even one.
    CHECK(back[1] == 1.0F);
    CHECK(back[2] == 1.015625F);
    CHECK(back[3] == -3.140625F);
    CHECK(back[6] == Approx(1e6).epsilon(1.0 / 256));
    Array<float> rounded(*device, x);
    device->round_to(DType::bf16, rounded, x.size());
    CHECK(rounded.values() == back);
    back = through(DType::fp16, 1, /*saturate=*/true);
    CHECK(back[1] == 1.00390625F);
    CHECK(back[5] == 65504);
    CHECK(back[6] == 65504);
    CHECK(back[7] == 0);
    back = through(DType::fp16, 1, /*saturate=*/false);
    CHECK(std::isinf(back[6]));
    device->round_to(DType::fp16, from, x.size());
    CHECK(from.values() == back);
    Array<float> small(*device, std::vector<float>{1e-8F});
    device->narrow(DType::fp16, small, two, 1, 1024, false);
    device->widen(DType::fp16, two, to, 1, 1.0F / 1024);
    CHECK(to.at(0) == Approx(1e-8).epsilon(0.01));
    device->narrow(DType::fp16, from, two, 0, 1, false);
  }
}

TEST_CASE("every device rounds all kinds of numbers to two bytes as the processor does") {
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0xFFFF0000U; bits += 0x00012345U)
    x.push_back(std::bit_cast<float>(bits));
  for (const float edge : {65519.99F, 65520.0F, 6.1035156e-05F, 6.1005e-05F, 5.9604645e-08F, 2.9802322e-08F,
                           2.9802326e-08F, 1.0009766F, 1.0004883F, 1.0014648F})
    x.insert(x.end(), {edge, -edge});
  const auto processor = make_cpu_device();
  for (const auto& device : devices())
    for (const DType type : {DType::bf16, DType::fp16}) {
      Array<float> here(*processor, x);
      Array<float> there(*device, x);
      processor->round_to(type, here, x.size());
      device->round_to(type, there, x.size());
      const auto a = here.values();
      const auto b = there.values();
      std::size_t unlike = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (std::isnan(a[i]) ? !std::isnan(b[i])
                             : std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
          ++unlike;
      CHECK(unlike == 0);
    }
}

TEST_CASE("products of values of a narrow type are exact in that type, wherever they begin") {
  for (const auto& device : devices())
    for (const DType type : {DType::fp32, DType::tf32, DType::bf16, DType::fp16})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          const int m = 9;
          const int n = 3;
          const int k = 17;
          const int lda = (ta ? m : k) + 1;
          const int ldb = (tb ? k : n) + 2;
          // Not at the beginning of what was allocated, which is aligned to more than an element.
          Array<float> a(*device, random_values(static_cast<std::size_t>((ta ? k : m) * lda) + 1, 1));
          Array<float> b(*device, random_values(static_cast<std::size_t>((tb ? n : k) * ldb) + 3, 2));
          Array<float> c(*device, random_values(static_cast<std::size_t>(m * n) + 1, 3));
          // bf16's eight bits are values of all four.
          device->round_to(DType::bf16, a, a.values().size());
          device->round_to(DType::bf16, b, b.values().size());
          const auto left = a.values();
          const auto right = b.values();
          std::vector<double> expected;
          for (const float value : c.values()) expected.push_back(static_cast<double>(value));
          for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j)
              for (int l = 0; l < k; ++l)
                expected[static_cast<std::size_t>(1 + i * n + j)] +=
                    static_cast<double>(
                        left[static_cast<std::size_t>(1 + (ta ? l * lda + i : i * lda + l))]) *
                    static_cast<double>(
                        right[static_cast<std::size_t>(3 + (tb ? j * ldb + l : l * ldb + j))]);
          device->set_product_type(type);
          device->gemm(ta, tb, m, n, k, 1, a + 1, lda, b + 3, ldb, 1, c + 1, n);
          CHECK(difference(c.values(), expected) < 1e-5);
        }
}

TEST_CASE("rows by index are gathered, summed and multiplied, and -1 is none") {
  for (const auto& device : devices()) {
    Array<float> from(*device, std::vector<float>{1, 2, 3, 4, 5, 6});  // three rows of two
    Array<std::int32_t> index(*device, std::vector<std::int32_t>{2, -1, 0, 1});
    Array<float> scale(*device, std::vector<float>{2, 3, 4, 5});
    Array<float> to(*device, 8, -1.0F);
    device->gather_rows(from, index, scale, to, 4, 2);
    CHECK(to.values() == std::vector<float>{10, 12, 0, 0, 4, 8, 15, 20});
    device->gather_rows(from, index, nullptr, to, 1, 2);
    CHECK(to.at(0) == 5);
    Array<float> sum(*device, 4, 1.0F);
    device->sum_rows(from, index, scale, sum, 2, 2, 2, /*accumulate=*/true);
    CHECK(sum.values() == std::vector<float>{11, 13, 20, 29});
    device->sum_rows(from, index, nullptr, sum, 2, 2, 2, /*accumulate=*/false);
    CHECK(sum.values() == std::vector<float>{5, 6, 4, 6});
    Array<float> a(*device, std::vector<float>{1, 1, 2, 0});
    Array<float> dots(*device, 4, -1.0F);
    device->dot_rows(a, from, index, dots, 2, 2, 2);
    CHECK(dots.values() == std::vector<float>{11, 0, 2, 6});
    device->gather_rows(from, index, nullptr, to, 0, 2);
  }
}

TEST_CASE("what a quantised gradient does not say is kept, and nothing is lost") {
  for (const auto& device : devices())
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1024}, std::size_t{2501}}) {
      const auto gradient = random_values(count, 3, 1e-3);
      const auto before = random_values(count, 4, 1e-5);
      Array<float> given(*device, gradient);
      Array<float> error(*device, before);
      Array<std::byte> payload(*device, count + (count + 1023) / 1024 * 4);
      Array<float> said(*device, count);
      device->quantize(given, error, payload, count);
      device->add_quantized(payload, said, count);
      const auto kept = error.values();
      const auto told = said.values();
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(static_cast<double>(told[i] + kept[i]) ==
              Approx(static_cast<double>(gradient[i] + before[i])).margin(1e-9));
        CHECK(std::abs(kept[i]) <= 5e-3F / 127);  // half a step of a block whose largest is below 5 sigma
      }
    }
}

TEST_CASE("the largest entries travel and the others are kept") {
  for (const auto& device : devices()) {
    Array<float> gradient(*device, std::vector<float>{0.5F, -3, 0.25F, 2, -0.5F});
    Array<float> error(*device, std::vector<float>{0, 0, 2.5F, 0, 0});
    Array<std::byte> payload(*device, 3 * sizeof(SparseEntry));
    device->keep_largest(gradient, error, payload, 5, 3);
    CHECK(error.values() == std::vector<float>{0.5F, 0, 0, 0, -0.5F});
    Array<float> said(*device, std::vector<float>(5, 1));
    device->add_largest(payload, said, 3);
    CHECK(said.values() == std::vector<float>{1, -2, 3.75F, 3, 1});
    device->keep_largest(gradient, error, payload, 0, 0);
  }
}

TEST_CASE("of equal entries the first travel, in order, on every device alike") {
  // Few values, many of each, over several tiles; also all equal, all zero, and all that there are.
  const std::size_t count = 5000;
  std::vector<float> values = random_values(count, 5);
  for (float& v : values) v = std::round(v * 2) / 2;
  const auto processor = make_cpu_device();
  for (const auto& device : devices())
    for (const auto& given : {values, std::vector<float>(count, -1.5F), std::vector<float>(count, 0)})
      for (const std::size_t kept : {std::size_t{1}, std::size_t{700}, count - 1, count}) {
        const auto of = [&](Device& d) {
          Array<float> gradient(d, given);
          Array<float> error(d, count);
          Array<std::byte> payload(d, kept * sizeof(SparseEntry));
          d.keep_largest(gradient, error, payload, count, kept);
          return std::pair(payload.values(), error.values());
        };
        CHECK((of(*device) == of(*processor)));
      }
}

}  // namespace orrery::exec::test
