// Compressed gradients: what is packed, and what travels.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/program/lower/lowered.h"

using namespace orrery;
using orrery::test::count;
using orrery::test::small_plan;
using orrery::test::SmallModel;
using orrery::test::sum;
using orrery::test::verify;

TEST_CASE("compressed gradients travel as small as they were packed") {
  SmallModel model;
  for (const Compression compression : {Compression::fp16, Compression::int8, Compression::topk}) {
    for (const bool overlap : {false, true}) {
      Choices choices;
      choices.dp = 3;
      choices.pp = 2;
      choices.grad_compression = compression;
      choices.topk_ratio = 0.1;
      choices.bucket_bytes = 20000;
      choices.overlap_grad_reduce = overlap;
      const Plan plan = small_plan(choices, 2, model);
      verify(plan);
      const Program program = lower(plan, 0);
      double payload = 0;
      for (const Bucket& bucket : program.buckets) {
        const auto n = static_cast<double>(bucket.elements);
        payload += compression == Compression::fp16   ? 2 * n
                   : compression == Compression::int8 ? n + 4 * std::ceil(n / 1024)
                                                      : 8 * std::ceil(n * 0.1);
      }
      const double travels = sum(program, [](const Instruction& instruction) {
        return instruction.op == Op::collective && instruction.writes[0].kind == TensorKind::compressed;
      });
      // A gather's size is the whole over its members.
      CHECK(travels == payload * (compression == Compression::fp16 ? 1 : 3));
      const auto of = [&](Op op) {
        return count(program, [op](const Instruction& i) { return i.op == op; });
      };
      CHECK(of(Op::pack) == static_cast<int>(program.buckets.size()));
      CHECK(of(Op::unpack) == of(Op::pack));
    }
  }
  Choices sharded;
  sharded.dp = 2;
  sharded.zero = 1;
  sharded.grad_compression = Compression::fp16;
  verify(small_plan(sharded, 2));
}
