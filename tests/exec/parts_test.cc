// The executor's parts that need no MPI: shards, data, the plan of memory, the fit of a calibration.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "cost/compute_cost.h"
#include "exec/calibration/calibration_fit.h"
#include "exec/data/data.h"
#include "exec/math/values.h"
#include "program/tensor_shard.h"
#include "topologies/readers/catalog.h"

namespace orrery::exec {
namespace {

ParameterTensor tensor(std::vector<std::int64_t> shape, int split_dim, int parts = 1) {
  ParameterTensor t;
  t.name = "t";
  t.shape = std::move(shape);
  t.split_dim = split_dim;
  t.split_parts = parts;
  return t;
}

}  // namespace

TEST_CASE("the shards of all ranks hold every element of a tensor exactly once") {
  for (const ParameterTensor& t :
       {tensor({6, 4}, 0), tensor({6, 4}, 1), tensor({5, 3}, 0), tensor({4, 12}, 1, 3), tensor({12}, 0, 3),
        tensor({7}, -1), tensor({2, 8, 3}, 1, 2)}) {
    for (const int tp : {1, 2, 4}) {
      std::vector<int> seen(static_cast<std::size_t>(t.elements()));
      const auto shape = local_shape(t, {tp, 0});
      const std::int64_t local =
          std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
      for (int rank = 0; rank < (t.split_dim < 0 ? 1 : tp); ++rank)
        for (const Run& run : runs_of(t, {tp, rank})) {
          CHECK(run.local + run.count <= local);
          for (std::int64_t i = 0; i < run.count; ++i) ++seen[static_cast<std::size_t>(run.global + i)];
        }
      CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
    }
  }
}

TEST_CASE("ranks that share experts hold every element of the stack once among them") {
  for (const int split : {1, 2}) {
    ParameterTensor t = tensor({6, 4, 8}, split);
    t.expert = true;
    for (const int ep : {1, 2, 3}) {
      for (const int etp : {1, 2, 4}) {
        std::vector<int> seen(static_cast<std::size_t>(t.elements()));
        for (int expert = 0; expert < ep; ++expert) {
          for (int part = 0; part < etp; ++part) {
            const ShardPlace place{4, part, ep, expert, etp, part};
            const auto shape = local_shape(t, place);
            const std::int64_t local =
                std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
            CHECK(local == t.elements() / (ep * etp));
            for (const Run& run : runs_of(t, place)) {
              CHECK(run.local + run.count <= local);
              for (std::int64_t i = 0; i < run.count; ++i) ++seen[static_cast<std::size_t>(run.global + i)];
            }
          }
        }
        CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
      }
    }
  }
}

TEST_CASE("experts are whole on one of the expert ranks, whatever the tensor ranks") {
  ParameterTensor t = tensor({4, 3, 2}, 1);
  t.expert = true;
  CHECK(local_shape(t, {2, 1, 2, 1}) == std::vector<std::int64_t>{2, 3, 2});
  const auto runs = runs_of(t, {2, 0, 2, 1});
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].global == 12);
  CHECK(runs[0].count == 12);
}

TEST_CASE("fused parts are each split by themselves") {
  // q | k | v of two columns each, over two ranks: rank 1 has q1 k1 v1.
  const auto runs = runs_of(tensor({1, 6}, 1, 3), {2, 1});
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].global == 1);
  CHECK(runs[1].global == 3);
  CHECK(runs[2].global == 5);
  CHECK(runs[2].local == 2);
}

TEST_CASE("samples are bytes and the bytes that follow, drawn by seed, step and index alone") {
  const TextData data(kDefaultText, 16, 1);
  const std::string text = read_file(kDefaultText);
  std::vector<std::int32_t> tokens(16);
  std::vector<std::int32_t> targets(16);
  std::vector<std::int32_t> again(16);
  data.sample(3, 5, tokens, targets);
  data.sample(3, 5, again, targets);
  CHECK(tokens == again);
  CHECK(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
  const std::string drawn(tokens.begin(), tokens.end());
  CHECK(text.find(drawn) != std::string::npos);
  data.sample(4, 5, again, targets);
  CHECK(tokens != again);
  data.sample(3, 6, again, targets);
  CHECK(tokens != again);
}

TEST_CASE("a text that is missing or shorter than a sequence is the user's error") {
  CHECK_THROWS_AS(TextData("/nonexistent", 16, 1), UserError);
  CHECK_THROWS_AS(TextData(kDefaultText, 1 << 20, 1), UserError);
}

TEST_CASE("values that are not alive together share memory, others never do") {
  const Key a{TensorKind::activation, 0, 0, Form::whole};
  const Key b{TensorKind::activation, 1, 0, Form::whole};
  const Key c{TensorKind::activation, 2, 0, Form::whole};
  Values values;
  const auto first = values.define_bytes(a, 100);
  values.advance();
  values.use(a);
  const auto second = values.define_bytes(b, 200);
  values.advance();
  values.use(b);
  const auto third = values.define_bytes(c, 64);  // a is dead
  CHECK(values.plan() == 128 + 256);
  std::vector<char> arena(384);
  values.bind(arena.data());
  CHECK(values.at(first) == arena.data());
  CHECK(values.at(second) == arena.data() + 128);
  CHECK(values.at(third) == arena.data());
}

TEST_CASE("a value that communication holds keeps its memory until it is waited for") {
  Values values;
  const auto sent = values.define_bytes({TensorKind::activation, 0, 0, Form::whole}, 64);
  values.advance();
  const auto next = values.define_bytes({TensorKind::activation, 1, 0, Form::whole}, 64);
  values.keep_until(sent, 1);
  std::vector<std::byte> arena(values.plan());
  CHECK(arena.size() == 128);
  values.bind(arena.data());
  CHECK(values.at(sent) != values.at(next));
}

TEST_CASE("reading what was never written, or whose memory was changed under another name, is found") {
  const Key a{TensorKind::activation, 0, 0, Form::whole};
  const Key b{TensorKind::activation, 1, 0, Form::whole};
  Values values;
  CHECK_THROWS_AS(values.use(a), InternalError);
  values.alias(b, values.define_bytes(a, 64));
  values.use(b);
  values.change(a);
  values.use(a);
  CHECK_THROWS_AS(values.use(b), InternalError);
}

TEST_CASE("memory of random lifetimes never overlaps") {
  const CounterRandom random(5, 0);
  Values values;
  struct Life {
    Values::Id id;
    int first, last;
    std::size_t bytes;
  };
  std::vector<Life> lives;
  for (int i = 0; i < 300; ++i) {
    const std::size_t bytes = 64 * (1 + random.bits(static_cast<std::uint64_t>(2 * i)) % 9);
    const int last = i + static_cast<int>(random.bits(static_cast<std::uint64_t>(2 * i + 1)) % 12);
    const auto id = values.define_bytes({TensorKind::activation, i, 0, Form::whole}, bytes);
    values.keep_until(id, last);
    lives.push_back({id, i, last, bytes});
    values.advance();
  }
  std::vector<char> arena(values.plan());
  values.bind(arena.data());
  for (const Life& a : lives)
    for (const Life& b : lives) {
      if (a.id >= b.id || a.last < b.first || b.last < a.first) continue;
      const auto* x = static_cast<const char*>(values.at(a.id));
      const auto* y = static_cast<const char*>(values.at(b.id));
      CHECK((x + a.bytes <= y || y + b.bytes <= x));
    }
}

TEST_CASE("a fit finds the device that made the observations") {
  DeviceProfile truth = catalog_device("generic-cpu");
  const auto fp32 = static_cast<std::size_t>(DType::fp32);
  truth.matmul[fp32] = MatmulModel{};
  truth.matmul[fp32].efficiency = 0.6;
  truth.matmul[fp32].half_k = 8;
  truth.matmul[fp32].tile_m = truth.matmul[fp32].tile_n = 8;
  truth.matmul[fp32].kernel_overhead_s = 3e-6;
  truth.matmul[fp32].sharpness = 1;  // operands are packed before they are multiplied
  truth.matmul[fp32].memory_efficiency = 0.3;
  truth.attention[fp32][1] = {0.5, 0.4, 64};
  truth.vector = {{"norm", 9e9, 5e9}};
  std::vector<Observation> observations;
  for (const double m : {64.0, 100.0, 512.0})
    for (const double k : {32.0, 256.0, 1024.0}) {
      Observation o;
      o.work.products = {{m, 3 * k, k}};
      o.seconds = product_seconds(o.work.products[0], DType::fp32, truth);
      observations.push_back(o);
    }
  for (const double seq : {32.0, 128.0, 512.0})
    for (const bool backward : {false, true}) {
      Observation o;
      o.kind = OperatorKind::attention;
      o.backward = backward;
      o.seq_len = seq;
      o.work.attention_flops = 1e8;
      o.seconds = attention_seconds(1e8, seq, 0, DType::fp32, true, backward, truth);
      observations.push_back(o);
    }
  for (const bool backward : {false, true}) {
    Observation o;
    o.kind = OperatorKind::norm;
    o.backward = backward;
    o.work.vector_bytes = 1e6;
    o.seconds = vector_seconds(1e6, OperatorKind::norm, backward, truth);
    observations.push_back(o);
  }
  DeviceProfile fitted = catalog_device("generic-cpu");
  const FitQuality quality = fit_device(observations, fitted);
  CHECK(quality.matmul_median_error < 1e-3);
  CHECK(quality.attention_median_error < 1e-6);
  CHECK(quality.vector_median_error < 1e-6);
  CHECK(fitted.matmul[fp32].efficiency == Approx(0.6).epsilon(0.01));
  CHECK(fitted.matmul[fp32].memory_efficiency == 0.3);
  CHECK(fitted.attention[fp32][1].half_sequence == 64);
}

}  // namespace orrery::exec
