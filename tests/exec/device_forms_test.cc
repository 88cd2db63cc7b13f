// Device operations of ring attention, of two-byte types and of compressed gradients, against plain
// references.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "device_fixture.h"
#include "exec/compression.h"
#include "exec/ring_attention.h"

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

TEST_CASE("blocks of ring attention add up to the whole attention, forward and backward") {
  const auto device = make_cpu_device();
  for (const bool causal : {true, false})
    for (const int cp : {2, 3}) {
      const int batch = 2;
      const int seq = 24;
      AttentionSize whole{batch, seq, 4, 2, 8, causal};
      const int stride = whole.qkv_columns();
      const int width = whole.heads * whole.head_dim;
      const int key_columns = whole.kv_heads * whole.head_dim;
      const auto qkv = random_values(static_cast<std::size_t>(batch * seq * stride), 1);
      const auto dout = random_values(static_cast<std::size_t>(batch * seq * width), 2);
      std::vector<float> out(static_cast<std::size_t>(batch * seq * width));
      std::vector<float> statistics(static_cast<std::size_t>(batch * seq * whole.heads));
      std::vector<float> dqkv(qkv.size());
      device->attention_forward(whole, qkv.data(), out.data(), statistics.data());
      device->attention_backward(whole, qkv.data(), out.data(), dout.data(), statistics.data(), dqkv.data());

      AttentionSize size = whole;
      size.seq = seq / cp;
      const int rows = batch * size.seq;
      std::vector<std::vector<float>> keys(static_cast<std::size_t>(cp));
      std::vector<std::vector<float>> gradients(static_cast<std::size_t>(cp));  // dkeys, then dvalues
      const auto key_elements = static_cast<std::size_t>(rows * key_columns);
      for (int p = 0; p < cp; ++p) {
        const auto mine = rows_of_position(qkv, batch, seq, stride, cp, p);
        auto& message = keys[static_cast<std::size_t>(p)];
        message.resize(2 * key_elements);
        for (std::size_t half = 0; half < 2; ++half)
          device->copy_matrix(message.data() + half * key_elements, key_columns,
                              mine.data() + width + half * static_cast<std::size_t>(key_columns), stride,
                              rows, key_columns);
        gradients[static_cast<std::size_t>(p)].resize(2 * key_elements);
      }
      std::vector<std::vector<float>> dqueries;
      for (int p = 0; p < cp; ++p) {
        const auto mine = rows_of_position(qkv, batch, seq, stride, cp, p);
        const auto my_dout = rows_of_position(dout, batch, seq, width, cp, p);
        std::vector<float> my_out(static_cast<std::size_t>(rows * width));
        std::vector<float> my_statistics(static_cast<std::size_t>(rows * whole.heads));
        const auto block_of = [&](int other) {
          AttentionBlock block{size, 0, size.seq};
          if (causal) (other < p ? block.keys : block.query_begin) = size.seq / 2;
          return block;
        };
        device->attention_forward(size, mine.data(), my_out.data(), my_statistics.data());
        for (int i = 1; i < cp; ++i) {
          const int other = (p - i + cp) % cp;
          const auto& message = keys[static_cast<std::size_t>(other)];
          device->attention_block_forward(block_of(other), mine.data(), message.data(),
                                          message.data() + key_elements, my_out.data(), my_statistics.data());
        }
        CHECK(worst(my_out, rows_of_position(out, batch, seq, width, cp, p)) < 2e-6);
        std::vector<float> my_dqkv(mine.size());
        device->attention_backward(size, mine.data(), my_out.data(), my_dout.data(), my_statistics.data(),
                                   my_dqkv.data());
        std::vector<float> share(2 * key_elements);
        for (int i = 0; i < cp; ++i) {
          const int other = (p - i + cp) % cp;
          const auto& message = keys[static_cast<std::size_t>(other)];
          if (i == 0)
            for (std::size_t half = 0; half < 2; ++half)
              device->copy_matrix(share.data() + half * key_elements, key_columns,
                                  my_dqkv.data() + width + half * static_cast<std::size_t>(key_columns),
                                  stride, rows, key_columns);
          else
            device->attention_block_backward(block_of(other), mine.data(), message.data(),
                                             message.data() + key_elements, my_out.data(), my_dout.data(),
                                             my_statistics.data(), my_dqkv.data(), share.data(),
                                             share.data() + key_elements);
          device->add(gradients[static_cast<std::size_t>(other)].data(), share.data(), share.size());
        }
        dqueries.push_back(my_dqkv);
      }
      for (int p = 0; p < cp; ++p) {
        auto& mine = dqueries[static_cast<std::size_t>(p)];
        for (std::size_t half = 0; half < 2; ++half)
          device->copy_matrix(mine.data() + width + half * static_cast<std::size_t>(key_columns), stride,
                              gradients[static_cast<std::size_t>(p)].data() + half * key_elements,
                              key_columns, rows, key_columns);
        CHECK(worst(mine, rows_of_position(dqkv, batch, seq, stride, cp, p)) < 5e-6);
      }
    }
}

TEST_CASE("two-byte types round to nearest even and come back") {
  const auto device = make_cpu_device();
  const std::vector<float> x = {1, 1.00390625F, 1.01171875F, -3.1415927F, 0, 65504, 1e6F, 1e-8F};
  std::vector<std::uint16_t> two(x.size());
  std::vector<float> back(x.size());
  device->narrow(DType::bf16, x.data(), two.data(), x.size(), 1, false);
  device->widen(DType::bf16, two.data(), back.data(), x.size(), 1);
  // 8 significant bits: 1 + 1/256 lies between 1 and 1 + 1/128, and goes to the even one.
  CHECK(back[1] == 1.0F);
  CHECK(back[2] == 1.015625F);
  CHECK(back[3] == -3.140625F);
  CHECK(back[6] == Approx(1e6).epsilon(1.0 / 256));
  std::vector<float> rounded = x;
  device->round_to(DType::bf16, rounded.data(), rounded.size());
  CHECK(rounded == back);
  device->narrow(DType::fp16, x.data(), two.data(), x.size(), 1, /*saturate=*/true);
  device->widen(DType::fp16, two.data(), back.data(), x.size(), 1);
  CHECK(back[1] == 1.00390625F);
  CHECK(back[5] == 65504);
  CHECK(back[6] == 65504);
  CHECK(back[7] == 0);
  device->narrow(DType::fp16, x.data(), two.data(), x.size(), 1, /*saturate=*/false);
  device->widen(DType::fp16, two.data(), back.data(), x.size(), 1);
  CHECK(std::isinf(back[6]));
  device->narrow(DType::fp16, x.data() + 7, two.data(), 1, 1024, false);
  device->widen(DType::fp16, two.data(), back.data(), 1, 1.0F / 1024);
  CHECK(back[0] == Approx(1e-8).epsilon(0.01));
  device->narrow(DType::fp16, x.data(), two.data(), 0, 1, false);
}

TEST_CASE("what a quantised gradient does not say is kept, and nothing is lost") {
  const auto device = make_cpu_device();
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1024}, std::size_t{2500}}) {
    const auto gradient = random_values(count, 3, 1e-3);
    std::vector<float> error = random_values(count, 4, 1e-5);
    std::vector<float> whole = gradient;
    device->add(whole.data(), error.data(), count);
    std::vector<std::byte> payload(count + (count + 1023) / 1024 * 4);
    device->quantize(gradient.data(), error.data(), payload.data(), count);
    std::vector<float> said(count);
    device->add_quantized(payload.data(), said.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(static_cast<double>(said[i] + error[i]) == Approx(static_cast<double>(whole[i])).margin(1e-9));
      CHECK(std::abs(error[i]) <= 5e-3F / 127);  // half a step of a block whose largest is below 5 sigma
    }
  }
}

TEST_CASE("the largest entries travel and the others are kept") {
  const auto device = make_cpu_device();
  const std::vector<float> gradient = {0.5F, -3, 0.25F, 2, -0.5F};
  std::vector<float> error = {0, 0, 2.5F, 0, 0};
  std::vector<std::byte> payload(3 * sizeof(SparseEntry));
  device->keep_largest(gradient.data(), error.data(), payload.data(), 5, 3);
  CHECK(error == std::vector<float>{0.5F, 0, 0, 0, -0.5F});
  std::vector<float> said(5, 1);
  device->add_largest(payload.data(), said.data(), 3);
  CHECK(said == std::vector<float>{1, -2, 3.75F, 3, 1});
  device->keep_largest(gradient.data(), error.data(), payload.data(), 0, 0);
}

}  // namespace orrery::exec::test
