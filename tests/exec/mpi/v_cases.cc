// Pipelines whose chunks lie in a V: both ends of the model on the first stage, its middle on the last.
#include "test_plans.h"

namespace orrery::exec::test {
namespace {

Choices in_a_v(int tp, int pp, int dp, int micro_batch, int zero = 0, Recompute recompute = Recompute::none) {
  Choices c;
  c.tp = tp;
  c.pp = pp;
  c.dp = dp;
  c.micro_batch = micro_batch;
  c.schedule = Schedule::dualpipe_v;
  c.interleave = 2;
  c.zero = zero;
  c.recompute = recompute;
  return c;
}

Choices sp(Choices c) {
  c.sequence_parallel = true;
  return c;
}

Choices ep(Choices c, bool overlapped) {
  c.ep = 2;
  c.overlap_experts = overlapped;
  return c;
}

Choices cp(Choices c) {
  c.cp = 2;
  return c;
}

PlanCase with_model(PlanCase c, std::function<void(Transformer&)> model) {
  c.model = std::move(model);
  return c;
}

}  // namespace

std::vector<PlanCase> v_cases() {
  const auto deep = [](int layers) { return [layers](Transformer& t) { t.layers = layers; }; };
  const auto experts = [](Transformer& t) {
    t.moe = MixtureOfExperts{};
    t.moe->experts = 4;
    t.moe->experts_per_token = 2;
    t.moe->expert_ffn_hidden = 24;
    t.moe->auxiliary_loss = 0.05;
    t.moe->shared_ffn_hidden = 32;
    t.moe->first_dense_layers = 1;
  };
  const auto plain_experts = [experts](Transformer& t) {  // what tensor ranks with rows of their own may have
    experts(t);
    t.moe->auxiliary_loss = 0;
  };
  const auto bert = [](Transformer& t) {
    t.family = "bert";
    t.post_norm = t.bidirectional = t.mlm_head = true;
    t.token_types = 2;
    t.norm_epsilon = 1e-12;
  };
  const auto lora = [](Transformer& t) {
    t.fine_tuning.rank = 4;
    t.fine_tuning.alpha = 8;
  };
  PlanCase uneven{"v pp2 uneven parts", false, in_a_v(1, 2, 1, 2)};
  uneven.choices.stage_layers = {1, 2, 1, 2};
  uneven.model = deep(6);
  PlanCase late{"v pp2 dp2 zero2 tied, no overlap", false, in_a_v(1, 2, 2, 1, 2), Optimizer::momentum, true};
  late.choices.overlap_grad_reduce = false;
  PlanCase tuned = with_model({"v lora pp2", false, in_a_v(1, 2, 1, 2), Optimizer::momentum}, lora);
  tuned.learns = false;
  tuned.parameter_tolerance = 1e-4;
  PlanCase tuned_whole = tuned;
  tuned_whole.name = "v lora pp2 dp2 zero3";
  tuned_whole.choices = in_a_v(1, 2, 2, 1, 3);
  PlanCase network{"v vgg pp2", false, in_a_v(1, 2, 1, 2), Optimizer::momentum};
  network.network = tiny_vgg;
  PlanCase split = network;
  split.name = "v vgg tp2 pp2, features between parts";
  split.network = [] {
    return with_splits(tiny_vgg(), {{"features.3", TensorSplit::column},
                                    {"classifier.0", TensorSplit::row},
                                    {"classifier.2", TensorSplit::column}});
  };
  split.choices = sp(in_a_v(2, 2, 1, 2));
  PlanCase narrow{"v bf16 pp2 llama", true, in_a_v(1, 2, 1, 2), Optimizer::adamw, true};
  narrow.precision = DType::bf16;
  return {
      {"v pp2 tied", false, in_a_v(1, 2, 1, 2)},
      {"v pp2 tied clipped adamw", false, in_a_v(1, 2, 1, 1), Optimizer::adamw, true},
      {"v pp2 llama recompute", true, in_a_v(1, 2, 1, 2, 0, Recompute::full), Optimizer::momentum},
      {"v pp2 selective", false, in_a_v(1, 2, 1, 1, 0, Recompute::selective)},
      uneven,
      narrow,
      tuned,
      network,
      with_model({"v pp3", true, in_a_v(1, 3, 1, 1)}, deep(6)),
      with_model({"v pp4 tied", false, in_a_v(1, 4, 1, 1), Optimizer::momentum}, deep(8)),
      with_model({"v bert pp2", false, in_a_v(1, 2, 1, 2)}, bert),
      with_model({"v pp2 experts", true, in_a_v(1, 2, 1, 2)}, experts),
      split,
      late,
      tuned_whole,
      {"v cp2 pp2 recompute", true, cp(in_a_v(1, 2, 1, 2, 0, Recompute::full))},
      {"v tp2 sp pp2 tied", false, sp(in_a_v(2, 2, 1, 2)), Optimizer::sgd, true},
      {"v pp2 dp2 zero1 tied", false, in_a_v(1, 2, 2, 1, 1), Optimizer::adam},
      {"v pp2 dp2 zero3 tied recompute", false, in_a_v(1, 2, 2, 1, 3, Recompute::full)},
      with_model({"v pp2 dp2 ep2", true, ep(in_a_v(1, 2, 2, 1), false)}, experts),
      with_model({"v pp2 dp2 ep2 overlapped", true, ep(in_a_v(1, 2, 2, 1), true)}, experts),
      with_model({"v pp2 dp2 ep2 overlapped zero2 recompute clipped", true,
                  ep(in_a_v(1, 2, 2, 1, 2, Recompute::full), true), Optimizer::momentum, true},
                 experts),
      with_model({"v tp2 sp pp2 dp2 ep2 overlapped zero1", true, sp(ep(in_a_v(2, 2, 2, 1, 1), true))},
                 plain_experts),
      with_model({"v bert tp2 sp pp2 dp2 zero1", false, sp(in_a_v(2, 2, 2, 1, 1)), Optimizer::momentum},
                 bert),
  };
}

}  // namespace orrery::exec::test
