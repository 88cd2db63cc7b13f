// Vision transformers: every form of parallelism that networks on images have, and heads shared by tensor
// ranks.
#include "test_plans.h"

namespace orrery::exec::test {
namespace {

Choices degrees(int tp, int pp, int dp, std::int64_t micro_batch, Schedule schedule = Schedule::one_f_one_b) {
  Choices c;
  c.tp = tp;
  c.pp = pp;
  c.dp = dp;
  c.micro_batch = micro_batch;
  c.schedule = schedule;
  c.sequence_parallel = tp > 1;
  return c;
}

Choices zero(Choices c, int stage) {
  c.zero = stage;
  return c;
}

Choices recomputed(Choices c) {
  c.recompute = Recompute::full;
  return c;
}

PlanCase vit(std::string name, Choices c, Optimizer optimizer = Optimizer::sgd,
             std::function<Workload()> network = tiny_vit) {
  PlanCase result{"vit " + std::move(name), false, std::move(c), optimizer};
  result.network = std::move(network);
  // Its weights begin small: gradients do more to them at higher rates, if not yet better in twenty steps.
  if (optimizer == Optimizer::sgd) result.learning_rate = 0.2;
  if (optimizer == Optimizer::momentum) result.learning_rate = 0.05;
  result.learns = optimizer == Optimizer::adam || optimizer == Optimizer::adamw;
  return result;
}

// As Megatron-LM splits a transformer: heads and the MLP's features.
Workload by_heads() {
  return with_splits(tiny_vit(), {{"0.qkv", TensorSplit::column},
                                  {"0.proj", TensorSplit::row},
                                  {"0.mlp_up", TensorSplit::column},
                                  {"0.mlp_down", TensorSplit::row},
                                  {"1.qkv", TensorSplit::column},
                                  {"1.proj", TensorSplit::row},
                                  {"2.mlp_up", TensorSplit::column},
                                  {"2.mlp_down", TensorSplit::row}});
}

// Features that go back to their samples: of heads, of tokens, of one token, of the patches' pixels.
Workload returned() {
  return with_splits(tiny_vit(), {{"patches", TensorSplit::column},
                                  {"0.qkv", TensorSplit::column},
                                  {"1.proj", TensorSplit::column},
                                  {"1.mlp_up", TensorSplit::column},
                                  {"2.mlp_down", TensorSplit::column}});
}

Workload split_head() {
  return with_splits(tiny_vit(), {{"2.qkv", TensorSplit::column}, {"classifier", TensorSplit::column}});
}

}  // namespace

std::vector<PlanCase> patch_cases() {
  const Optimizer momentum = Optimizer::momentum;
  PlanCase clipped = vit("dp2 zero2 clipped", zero(degrees(1, 1, 2, 4), 2), momentum);
  clipped.clip = true;
  PlanCase narrow = vit("bf16 dp2 zero1", zero(degrees(1, 1, 2, 4), 1), Optimizer::adam);
  narrow.precision = DType::bf16;
  PlanCase narrow_heads = vit("fp16 tp2", degrees(2, 1, 1, 4), Optimizer::sgd, by_heads);
  narrow_heads.precision = DType::fp16;
  PlanCase uneven = vit("dp3 uneven", degrees(1, 1, 3, 1), momentum);
  uneven.replica_batches = {3, 3, 2};
  PlanCase server = vit("dp2 2 servers", degrees(1, 1, 2, 2), momentum);
  server.choices.sync = Sync::parameter_server;
  server.choices.servers = 2;
  return {
      vit("accumulation, recompute", recomputed(degrees(1, 1, 1, 2))),
      vit("dp2", degrees(1, 1, 2, 2)),
      clipped,
      vit("dp2 zero3 recompute", recomputed(zero(degrees(1, 1, 2, 2), 3))),
      vit("pp2", degrees(1, 2, 1, 2), momentum),
      vit("pp2 zero-bubble", degrees(1, 2, 1, 2, Schedule::zero_bubble)),
      vit("tp2", degrees(2, 1, 1, 4), momentum, by_heads),
      vit("tp2 recompute", recomputed(degrees(2, 1, 1, 4)), Optimizer::sgd, by_heads),
      vit("tp2, features returned", degrees(2, 1, 1, 4), Optimizer::sgd, returned),
      vit("tp2, a split classifier", degrees(2, 1, 1, 8), momentum, split_head),
      narrow,
      narrow_heads,
      server,
      uneven,
      vit("pp3 gpipe", degrees(1, 3, 1, 2, Schedule::gpipe)),
      vit("tp2 dp2 zero1", zero(degrees(2, 1, 2, 2), 1), momentum, by_heads),
      vit("tp2 dp2 zero3", zero(degrees(2, 1, 2, 2), 3), Optimizer::sgd, returned),
      vit("tp2 pp2", degrees(2, 2, 1, 4), momentum, by_heads),
      vit("tp2 pp2 zero-bubble, features returned", degrees(2, 2, 1, 2, Schedule::zero_bubble),
          Optimizer::sgd, returned),
      vit("tp4", degrees(4, 1, 1, 4), momentum, by_heads),
      vit("dp4 zero3 adamw", zero(degrees(1, 1, 4, 1), 3), Optimizer::adamw),
      vit("tp2 pp2 dp2 zero1", zero(degrees(2, 2, 2, 2), 1), Optimizer::sgd, by_heads),
  };
}

}  // namespace orrery::exec::test
