// Plans with dropout: every one draws what one rank draws.
#include <utility>

#include "test_plans.h"

namespace orrery::exec::test {
namespace {

constexpr Dropouts kEverywhere{0.1, 0.15, 0.2, 0.1};

struct Degrees {
  int tp = 1, pp = 1, dp = 1, micro_batch = 2;
  Schedule schedule = Schedule::one_f_one_b;
};

PlanCase dropping(std::string name, bool llama, const Degrees& d,
                  const std::function<void(Choices&)>& change = {},
                  const std::function<void(Transformer&)>& model = {}) {
  PlanCase result{std::move(name), llama, {}};
  Choices& c = result.choices;
  c.tp = d.tp;
  c.pp = d.pp;
  c.dp = d.dp;
  c.micro_batch = d.micro_batch;
  c.schedule = d.schedule;
  if (change) change(c);
  result.model = [model](Transformer& t) {
    t.dropouts = kEverywhere;
    if (model) model(t);
  };
  result.optimizer = d.pp == 1 ? Optimizer::momentum : Optimizer::sgd;
  return result;
}

}  // namespace

std::vector<PlanCase> dropout_cases() {
  const auto full = [](Choices& c) { c.recompute = Recompute::full; };
  const auto selective = [](Choices& c) { c.recompute = Recompute::selective; };
  const auto sp = [](Choices& c) { c.sequence_parallel = true; };
  const auto cp2 = [](Choices& c) { c.cp = 2; };
  const auto bert = [](Transformer& t) {
    t.family = "bert";
    t.post_norm = true;
    t.bidirectional = true;
    t.token_types = 2;
    t.mlm_head = true;
    t.norm_epsilon = 1e-12;
  };
  const auto experts = [](Transformer& t) {
    t.moe = MixtureOfExperts{};
    t.moe->experts = 4;
    t.moe->experts_per_token = 2;
    t.moe->expert_ffn_hidden = 24;
    t.moe->shared_ffn_hidden = 32;
  };
  const auto windowed = [](Transformer& t) {
    t.sliding_window = 7;
    t.full_attention_period = 2;
  };
  std::vector<PlanCase> cases = {
      dropping("dropout recompute", false, {1, 1, 1, 4}, full),
      dropping("dropout window recompute", true, {1, 1, 1, 4}, selective, windowed),
      dropping("dropout dp2", false, {1, 1, 2, 2}),
      dropping("dropout dp2 zero3", false, {1, 1, 2, 2}, [](Choices& c) { c.zero = 3; }),
      dropping("dropout tp2", false, {2, 1, 1, 4}),
      dropping("dropout tp2 sp recompute", false, {2, 1, 1, 2},
               [](Choices& c) {
                 c.sequence_parallel = true;
                 c.recompute = Recompute::full;
               }),
      dropping("dropout tp2 sp llama", true, {2, 1, 1, 2}, sp),
      dropping("dropout pp2 interleaved", false, {1, 2, 1, 2, Schedule::interleaved},
               [](Choices& c) { c.interleave = 2; }),
      dropping("dropout pp2 zero-bubble", true, {1, 2, 1, 2, Schedule::zero_bubble}),
      dropping("dropout cp2 llama", true, {1, 1, 1, 4}, cp2),
      dropping("dropout bert cp2", false, {1, 1, 1, 2}, cp2, bert),
      dropping("dropout bert tp2 sp", false, {2, 1, 1, 2}, sp, bert),
      dropping("dropout bert pp2 zero-bubble", false, {1, 2, 1, 1, Schedule::zero_bubble}, {}, bert),
      dropping(
          "dropout dp2 ep2", true, {1, 1, 2, 2}, [](Choices& c) { c.ep = 2; }, experts),
      dropping("dropout dp2 server", false, {1, 1, 2, 2},
               [](Choices& c) {
                 c.sync = Sync::parameter_server;
                 c.servers = 1;
               }),
      dropping("dropout dp2 one process", false, {1, 1, 2, 2},
               [](Choices& c) { c.sync = Sync::single_process; }),
      dropping("dropout tp2 sp pp2 recompute", false, {2, 2, 1, 2},
               [](Choices& c) {
                 c.sequence_parallel = true;
                 c.recompute = Recompute::full;
               }),
      dropping("dropout cp2 tp2 dp2", true, {2, 1, 2, 2}, cp2),
      dropping("dropout tp2 pp2 dp2 zero2", false, {2, 2, 2, 1}, [](Choices& c) { c.zero = 2; }),
  };
  PlanCase narrow = dropping("dropout bf16 tp2 sp", false, {2, 1, 1, 2}, sp);
  narrow.precision = DType::bf16;
  cases.push_back(narrow);
  // Of networks on images: of whole rows, of features that stay split, and of pooled pixels.
  const auto vgg = [](TensorSplit first, TensorSplit second) {
    return [first, second] {
      Workload workload = with_splits(tiny_vgg(), {{"classifier.0", first}, {"classifier.2", second}});
      for (Operator& op : workload.operators)
        if (op.name == "relu3" || op.name == "pool1") op.image->dropout = 0.3;
      return workload;
    };
  };
  const auto net = [&](std::string name, const Degrees& d, const std::function<Workload()>& network,
                       const std::function<void(Choices&)>& change = {}) {
    PlanCase result = dropping(std::move(name), false, d, change);
    result.model = {};
    result.network = network;
    result.learns = false;
    return result;
  };
  constexpr TensorSplit kWhole = TensorSplit::replicated, kColumn = TensorSplit::column;
  cases.push_back(net("dropout vgg recompute", {1, 1, 1, 4}, vgg(kWhole, kWhole), full));
  cases.push_back(
      net("dropout vgg dp2 zero1", {1, 1, 2, 2}, vgg(kWhole, kWhole), [](Choices& c) { c.zero = 1; }));
  cases.push_back(
      net("dropout vgg tp2, features that stay split", {2, 1, 1, 4}, vgg(kColumn, TensorSplit::row), sp));
  cases.push_back(net("dropout vgg tp2 dp2, features returned", {2, 1, 2, 2}, vgg(kColumn, kColumn), sp));
  cases.push_back(net("dropout vgg pp2", {1, 2, 1, 2}, vgg(kWhole, kWhole)));
  PlanCase uneven = dropping("dropout dp2 uneven", false, {1, 1, 2, 2});
  uneven.replica_batches = {6, 2};
  cases.push_back(uneven);
  return cases;
}

}  // namespace orrery::exec::test
