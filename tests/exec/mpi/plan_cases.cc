// Plans of every form of parallelism, alone and combined.
#include <functional>

#include "test_plans.h"

namespace orrery::exec::test {
namespace {

Choices choices(int tp, int pp, int dp, int micro_batch, Schedule schedule = Schedule::one_f_one_b) {
  Choices c;
  c.tp = tp;
  c.pp = pp;
  c.dp = dp;
  c.micro_batch = micro_batch;
  c.schedule = schedule;
  return c;
}

Choices with(Choices c, const std::function<void(Choices&)>& change) {
  change(c);
  return c;
}

std::vector<PlanCase> dense_cases() {
  const auto zero = [](Choices& c) { c.zero = 1; };
  const auto sp = [](Choices& c) { c.sequence_parallel = true; };
  const auto full = [](Choices& c) { c.recompute = Recompute::full; };
  const auto selective = [](Choices& c) { c.recompute = Recompute::selective; };
  const auto late = [](Choices& c) { c.overlap_grad_reduce = false; };
  const auto of = [](const char* modules) {
    return [modules](Choices& c) {
      c.recompute = Recompute::selective;
      c.recompute_modules = modules_from_names(modules);
    };
  };
  return {
      {"accumulation", false, choices(1, 1, 1, 2)},
      {"recompute full", true, with(choices(1, 1, 1, 4), full)},
      {"recompute selective", false, with(choices(1, 1, 1, 4), selective)},
      {"recompute norms, llama", true, with(choices(1, 1, 1, 4), of("layernorm,mlp_act"))},
      {"recompute MLPs, llama", true, with(choices(1, 1, 1, 4), of("mlp"))},
      {"recompute all modules", false, with(choices(1, 1, 1, 4), of("core_attn,layernorm,mlp"))},
      {"tp2 recompute modules", false, with(choices(2, 1, 1, 4), of("core_attn,layernorm,mlp"))},
      {"tp2 sp llama recompute modules", true, with(with(choices(2, 1, 1, 2), sp), of("layernorm,mlp"))},
      {"pp2 zero-bubble recompute modules", false,
       with(choices(1, 2, 1, 2, Schedule::zero_bubble), of("layernorm,mlp"))},
      {"clipping", false, choices(1, 1, 1, 8), Optimizer::momentum, true},
      {"dp2", false, choices(1, 1, 2, 4)},
      {"dp2 llama momentum", true, choices(1, 1, 2, 2), Optimizer::momentum},
      {"dp2 no overlap", false, with(choices(1, 1, 2, 4), late)},
      {"dp2 zero1", false, with(choices(1, 1, 2, 2), zero)},
      {"dp2 zero1 adam", true, with(choices(1, 1, 2, 4), zero), Optimizer::adam},
      {"dp2 uneven", false, choices(1, 1, 2, 2), Optimizer::sgd, false, {6, 2}},
      {"tp2", false, choices(2, 1, 1, 4)},
      {"tp2 llama", true, choices(2, 1, 1, 8)},
      {"tp2 sp", false, with(choices(2, 1, 1, 4), sp)},
      {"tp2 sp llama recompute", true, with(with(choices(2, 1, 1, 2), sp), full)},
      {"pp2 gpipe", false, choices(1, 2, 1, 2, Schedule::gpipe)},
      {"pp2 1f1b llama", true, choices(1, 2, 1, 2)},
      {"pp2 1f1b adamw clipped", false, choices(1, 2, 1, 1), Optimizer::adamw, true},
      {"pp2 interleaved", false,
       with(choices(1, 2, 1, 2, Schedule::interleaved), [](Choices& c) { c.interleave = 2; })},
      {"pp2 uneven stages", false,
       with(choices(1, 2, 1, 2),
            [](Choices& c) {
              c.stage_layers = {1, 3};
            })},
      {"pp2 interleaved, ends without layers", true,
       with(choices(1, 2, 1, 2, Schedule::interleaved),
            [](Choices& c) {
              c.interleave = 3;
              c.stage_layers = {0, 1, 1, 1, 1, 0};
            })},
      {"pp2 dp2 zero3, no layer with the head", false,
       with(choices(1, 2, 2, 1),
            [](Choices& c) {
              c.zero = 3;
              c.stage_layers = {4, 0};
            })},
      {"pp2 zero-bubble", false, choices(1, 2, 1, 2, Schedule::zero_bubble)},
      {"dp2 zero2", false, with(choices(1, 1, 2, 1), [](Choices& c) { c.zero = 2; })},
      {"dp2 zero3", true, with(choices(1, 1, 2, 2), [](Choices& c) { c.zero = 3; })},
      {"dp2 zero3 tied clipped", false, with(choices(1, 1, 2, 2), [](Choices& c) { c.zero = 3; }),
       Optimizer::momentum, true},
      {"dp4 zero3 hybrid recompute", false,
       with(choices(1, 1, 4, 1),
            [](Choices& c) {
              c.zero = 3;
              c.shard_group = 2;
              c.recompute = Recompute::full;
            })},
      {"dp4 hierarchical momentum", false, with(choices(1, 1, 4, 1), [](Choices& c) { c.shard_group = 2; }),
       Optimizer::momentum},
      {"dp4 hierarchical late clipped llama", true,
       with(choices(1, 1, 4, 2),
            [](Choices& c) {
              c.shard_group = 2;
              c.overlap_grad_reduce = false;
            }),
       Optimizer::sgd, true},
      {"pp2 dp4 hierarchical tied", false, with(choices(1, 2, 4, 1), [](Choices& c) { c.shard_group = 2; })},
      {"dp8 hierarchical adam", true, with(choices(1, 1, 8, 1), [](Choices& c) { c.shard_group = 4; }),
       Optimizer::adam},
      {"dp4 zero1 hybrid clipped", true,
       with(choices(1, 1, 4, 1),
            [](Choices& c) {
              c.zero = 1;
              c.shard_group = 2;
            }),
       Optimizer::sgd, true},
      {"pp2 dp2 zero2", false, with(choices(1, 2, 2, 1), [](Choices& c) { c.zero = 2; })},
      {"tp2 sp dp2 zero3", false, with(with(choices(2, 1, 2, 2), sp), [](Choices& c) { c.zero = 3; })},
      {"tp2 sp pp2 zero-bubble", true, with(choices(2, 2, 1, 1, Schedule::zero_bubble), sp)},
      {"dp2 hierarchical in one", false, with(choices(1, 1, 2, 2), [](Choices& c) { c.shard_group = 2; })},
      {"dp3", true, with(choices(1, 1, 3, 1), [](Choices&) {}), Optimizer::sgd, false, {3, 3, 2}},
      {"dp4 zero1 momentum", false, with(choices(1, 1, 4, 1), zero), Optimizer::momentum},
      {"tp2 dp2", false, choices(2, 1, 2, 2)},
      {"tp2 sp dp2 zero1", false, with(with(choices(2, 1, 2, 2), sp), zero)},
      {"tp2 pp2", false, choices(2, 2, 1, 2)},
      {"tp2 sp pp2 gpipe recompute", false, with(with(choices(2, 2, 1, 2, Schedule::gpipe), sp), full)},
      {"pp2 dp2 1f1b zero1", true, with(choices(1, 2, 2, 1), zero)},
      {"pp4 1f1b", false, choices(1, 4, 1, 1)},
      {"pp4 gpipe adam", true, choices(1, 4, 1, 2, Schedule::gpipe), Optimizer::adam},
      {"tp4", false, choices(4, 1, 1, 8)},
      {"tp2 pp2 dp2", false, choices(2, 2, 2, 1)},
      {"tp2 sp pp2 dp2 zero1 recompute clipped", false, with(with(with(choices(2, 2, 2, 1), sp), zero), full),
       Optimizer::sgd, true},
      {"tp2 pp2 dp2 llama gpipe", true, choices(2, 2, 2, 2, Schedule::gpipe)},
      {"pp4 dp2 zero1", false, with(choices(1, 4, 2, 1), zero)},
      {"dp8 zero1", true, with(choices(1, 1, 8, 1), zero)},
  };
}

// Ring attention.
std::vector<PlanCase> context_cases() {
  const auto cp = [](Choices c, int n) { return with(c, [n](Choices& x) { x.cp = n; }); };
  return {
      {"cp2", false, cp(choices(1, 1, 1, 2), 2)},
      {"cp2 llama selective", true,
       with(cp(choices(1, 1, 1, 4), 2), [](Choices& c) { c.recompute = Recompute::selective; })},
      {"cp3", true, cp(choices(1, 1, 1, 2), 3), Optimizer::momentum},
      {"cp4 llama", true, cp(choices(1, 1, 1, 4), 4)},
      {"cp2 dp2 zero1 clipped", false, with(cp(choices(1, 1, 2, 2), 2), [](Choices& c) { c.zero = 1; }),
       Optimizer::sgd, true},
      {"cp2 dp2 zero3 llama", true, with(cp(choices(1, 1, 2, 2), 2), [](Choices& c) { c.zero = 3; })},
      {"cp2 tp2 sp", true, with(cp(choices(2, 1, 1, 2), 2), [](Choices& c) { c.sequence_parallel = true; })},
      {"cp2 pp2 zero-bubble", false, cp(choices(1, 2, 1, 2, Schedule::zero_bubble), 2)},
      {"cp2 tp2 dp2 recompute", false,
       with(cp(choices(2, 1, 2, 2), 2), [](Choices& c) { c.recompute = Recompute::full; })},
      {"cp2 tp2 pp2 llama", true, cp(choices(2, 2, 1, 2), 2)},
      {"cp4 dp2 zero2", false, with(cp(choices(1, 1, 2, 2), 4), [](Choices& c) { c.zero = 2; })},
  };
}

std::vector<PlanCase> compression_cases() {
  const auto compressed = [](Choices c, Compression kind, double ratio = 0.01) {
    return with(c, [=](Choices& x) {
      x.grad_compression = kind;
      x.topk_ratio = ratio;
    });
  };
  const auto late = [](Choices& c) { c.overlap_grad_reduce = false; };
  // All entries kept is no loss.
  return {
      {"dp2 topk:1", false, compressed(choices(1, 1, 2, 2), Compression::topk, 1)},
      {"dp2 pp2 topk:1 clipped", false, compressed(choices(1, 2, 2, 2), Compression::topk, 1), Optimizer::sgd,
       true},
      {"dp2 fp16",
       false,
       compressed(choices(1, 1, 2, 2), Compression::fp16),
       Optimizer::sgd,
       false,
       {},
       2e-3},
      {"dp4 fp16 zero1 llama",
       true,
       with(compressed(choices(1, 1, 4, 1), Compression::fp16), [](Choices& c) { c.zero = 1; }),
       Optimizer::momentum,
       false,
       {},
       2e-3},
      {"dp2 int8",
       false,
       compressed(choices(1, 1, 2, 2), Compression::int8),
       Optimizer::sgd,
       false,
       {},
       0.02},
      {"dp3 int8 uneven",
       true,
       compressed(choices(1, 1, 3, 1), Compression::int8),
       Optimizer::momentum,
       false,
       {3, 3, 2},
       0.02},
      {"dp2 tp2 sp int8 late",
       false,
       with(with(compressed(choices(2, 1, 2, 2), Compression::int8), late),
            [](Choices& c) { c.sequence_parallel = true; }),
       Optimizer::sgd,
       false,
       {},
       0.02},
      {"dp2 topk:0.1",
       false,
       compressed(choices(1, 1, 2, 2), Compression::topk, 0.1),
       Optimizer::sgd,
       false,
       {},
       0.02,
       100},
      {"dp4 topk:0.1 llama",
       true,
       compressed(choices(1, 1, 4, 2), Compression::topk, 0.1),
       Optimizer::momentum,
       false,
       {},
       0.02,
       100},
      {"cp2 dp2 pp2 int8",
       true,
       with(compressed(choices(1, 2, 2, 2), Compression::int8), [](Choices& c) { c.cp = 2; }),
       Optimizer::sgd,
       false,
       {},
       0.02},
  };
}

std::vector<PlanCase> server_cases() {
  const auto servers = [](Choices c, int n) {
    return with(c, [n](Choices& x) {
      x.sync = Sync::parameter_server;
      x.servers = n;
    });
  };
  const auto one = [](Choices c) { return with(c, [](Choices& x) { x.sync = Sync::single_process; }); };
  return {
      {"dp2 server", false, servers(choices(1, 1, 2, 2), 1)},
      {"dp3 2 servers uneven", true, servers(choices(1, 1, 3, 1), 2), Optimizer::momentum, false, {3, 3, 2}},
      {"dp4 3 servers clipped", false, servers(choices(1, 1, 4, 1), 3), Optimizer::momentum, true},
      {"dp4 4 servers late", false,
       with(servers(choices(1, 1, 4, 2), 4), [](Choices& c) { c.overlap_grad_reduce = false; }),
       Optimizer::adam},
      {"dp4 2 servers, many buckets", false,
       with(servers(choices(1, 1, 4, 2), 2), [](Choices& c) { c.bucket_bytes = 6000; }), Optimizer::adamw,
       true},
      {"dp8 2 servers", true, servers(choices(1, 1, 8, 1), 2)},
      {"dp2 one process", false, one(choices(1, 1, 2, 2)), Optimizer::momentum},
      {"dp4 one process clipped", true, one(choices(1, 1, 4, 1)), Optimizer::sgd, true},
      {"dp4 one process recompute", false,
       with(one(choices(1, 1, 4, 2)), [](Choices& c) { c.recompute = Recompute::full; })},
  };
}

// Mixtures of experts. The auxiliary loss and capacities are defined by the tokens of a micro-batch that one
// rank routes: with sequence and context parallelism these are other ones than one rank's.
std::vector<PlanCase> expert_cases() {
  const auto plain = [](Transformer& t) {
    t.moe = MixtureOfExperts{};
    t.moe->experts = 4;
    t.moe->experts_per_token = 2;
    t.moe->expert_ffn_hidden = 24;
  };
  const auto balanced = [plain](Transformer& t) {
    plain(t);
    t.moe->auxiliary_loss = 0.05;
  };
  const auto shared = [balanced](Transformer& t) {
    balanced(t);
    t.moe->shared_ffn_hidden = 32;
    t.moe->first_dense_layers = 1;
  };
  // Four tensor ranks need as many key-value heads.
  const auto all_heads = [](const std::function<void(Transformer&)>& model) {
    return [model](Transformer& t) {
      model(t);
      t.kv_heads = t.heads;
    };
  };
  const auto ep = [](Choices c, int n) { return with(c, [n](Choices& x) { x.ep = n; }); };
  const auto zero = [](Choices c, int n) { return with(c, [n](Choices& x) { x.zero = n; }); };
  const auto capacity = [](Choices c, double f) {
    return with(c, [f](Choices& x) { x.capacity_factor = f; });
  };
  const auto sp = [](Choices c) { return with(c, [](Choices& x) { x.sequence_parallel = true; }); };
  const auto cp = [](Choices c, int n) { return with(c, [n](Choices& x) { x.cp = n; }); };
  const auto etp = [](Choices c, int n) { return with(c, [n](Choices& x) { x.etp = n; }); };
  const auto full = [](Choices c) { return with(c, [](Choices& x) { x.recompute = Recompute::full; }); };
  const auto overlapped = [](Choices c) { return with(c, [](Choices& x) { x.overlap_experts = true; }); };
  const auto of = [](const char* modules, Choices c) {
    c.recompute = Recompute::selective;
    c.recompute_modules = modules_from_names(modules);
    return c;
  };
  const auto moe = [](std::string name, Choices c, const std::function<void(Transformer&)>& model,
                      Optimizer optimizer = Optimizer::sgd, bool clip = false) {
    PlanCase result{std::move(name), true, c, optimizer, clip};
    result.model = model;
    return result;
  };
  return {
      moe("experts recompute", full(choices(1, 1, 1, 4)), balanced),
      moe("experts recompute activation", of("layernorm,moe_act", choices(1, 1, 1, 4)), shared),
      moe("dp2 ep2 recompute activation", of("layernorm,moe_act", ep(choices(1, 1, 2, 2), 2)), balanced),
      moe("dp2 ep2 recompute experts", of("moe,layernorm", ep(choices(1, 1, 2, 2), 2)), shared),
      moe("tp2 sp dp2 ep4 recompute experts", of("moe,mlp,core_attn", ep(sp(choices(2, 1, 2, 2)), 4)), plain),
      moe("experts capacity", capacity(choices(1, 1, 1, 4), 1), shared, Optimizer::momentum),
      moe("dp2 experts", choices(1, 1, 2, 2), balanced, Optimizer::sgd, true),
      moe("dp2 ep2", ep(choices(1, 1, 2, 2), 2), balanced),
      moe("dp2 ep2 shared clipped", ep(choices(1, 1, 2, 4), 2), shared, Optimizer::momentum, true),
      moe("dp2 ep2 weights as they are", ep(choices(1, 1, 2, 2), 2),
          [balanced](Transformer& t) {
            balanced(t);
            t.moe->scaled_weights = false;
          }),
      moe("dp2 ep2 capacity 1", capacity(ep(choices(1, 1, 2, 2), 2), 1), balanced),
      moe("dp2 ep2 capacity 1.25 zero1", capacity(zero(ep(choices(1, 1, 2, 2), 2), 1), 1.25), balanced),
      moe("dp2 ep2 zero3", zero(ep(choices(1, 1, 2, 2), 2), 3), shared),
      moe("tp2 experts", choices(2, 1, 1, 2), shared),
      moe("tp2 sp experts clipped", sp(choices(2, 1, 1, 2)), plain, Optimizer::sgd, true),
      moe("cp2 ep2", ep(cp(choices(1, 1, 1, 4), 2), 2), plain),
      moe("pp2 experts zero-bubble", choices(1, 2, 1, 2, Schedule::zero_bubble), shared),
      moe("dp4 ep4 momentum", ep(choices(1, 1, 4, 1), 4), balanced, Optimizer::momentum),
      moe("dp4 ep2 zero2 clipped", zero(ep(choices(1, 1, 4, 1), 2), 2), shared, Optimizer::sgd, true),
      moe("dp4 ep2 zero3", zero(ep(choices(1, 1, 4, 2), 2), 3), balanced),
      moe("pp2 dp2 ep2", ep(choices(1, 2, 2, 2), 2), balanced),
      moe("dp2 ep2 overlapped", overlapped(ep(choices(1, 1, 2, 1), 2)), balanced),
      moe("dp2 ep2 overlapped zero2 recompute", overlapped(full(zero(ep(choices(1, 1, 2, 1), 2), 2))), shared,
          Optimizer::momentum, true),
      moe("pp2 dp2 ep2 overlapped",
          overlapped(
              with(ep(choices(1, 2, 2, 1, Schedule::interleaved), 2), [](Choices& c) { c.interleave = 2; })),
          balanced),
      moe("pp2 dp2 ep2 zero-bubble capacity",
          capacity(ep(choices(1, 2, 2, 1, Schedule::zero_bubble), 2), 1.5), shared),
      moe("tp2 dp2 ep2 recompute", full(ep(choices(2, 1, 2, 2), 2)), balanced, Optimizer::sgd, true),
      moe("tp2 sp dp2 ep2 shared zero1", zero(sp(ep(choices(2, 1, 2, 2), 2)), 1),
          [shared](Transformer& t) {
            shared(t);
            t.moe->auxiliary_loss = 0;
          }),
      moe("cp2 dp2 ep4 zero1", zero(ep(cp(choices(1, 1, 2, 2), 2), 4), 1), plain),
      moe("tp2 pp2 dp2 ep2 capacity", capacity(ep(choices(2, 2, 2, 1), 2), 1), shared),
      moe("tp2 sp pp2 dp2 ep2 zero2 recompute", full(zero(sp(ep(choices(2, 2, 2, 1), 2)), 2)), plain),
      moe("cp2 tp2 dp2 ep4", ep(cp(choices(2, 1, 2, 2), 2), 4), plain, Optimizer::momentum),
      moe("dp8 ep4 zero3 adam", zero(ep(choices(1, 1, 8, 1), 4), 3), balanced, Optimizer::adam),
      moe("tp2 etp2 shared capacity", capacity(etp(choices(2, 1, 1, 2), 2), 1.25), shared),
      moe("tp2 sp etp2 clipped", etp(sp(choices(2, 1, 1, 2)), 2), plain, Optimizer::momentum, true),
      moe("tp4 etp2 recompute", full(etp(choices(4, 1, 1, 2), 2)), all_heads(balanced), Optimizer::sgd, true),
      moe("tp4 sp ep2 etp2", etp(ep(sp(choices(4, 1, 1, 2)), 2), 2), all_heads(plain)),
      moe("tp2 dp2 ep2 etp2 zero2 clipped", zero(etp(ep(choices(2, 1, 2, 2), 2), 2), 2), shared,
          Optimizer::sgd, true),
      moe(
          "tp2 sp dp2 ep2 etp2 zero1 shared", zero(etp(ep(sp(choices(2, 1, 2, 2)), 2), 2), 1),
          [shared](Transformer& t) {
            shared(t);
            t.moe->auxiliary_loss = 0;
          },
          Optimizer::momentum),
      moe("tp2 sp pp2 etp2 zero-bubble", etp(sp(choices(2, 2, 1, 2, Schedule::zero_bubble)), 2), plain),
      moe("tp2 sp cp2 ep2 etp2", etp(ep(cp(sp(choices(2, 1, 1, 2)), 2), 2), 2), plain),
      moe("tp2 sp pp2 dp2 ep2 etp2 zero1 recompute", full(zero(etp(ep(sp(choices(2, 2, 2, 1)), 2), 2), 1)),
          plain, Optimizer::momentum),
      moe("tp4 sp dp2 ep2 etp2 zero3", zero(etp(ep(sp(choices(4, 1, 2, 2)), 2), 2), 3), all_heads(plain),
          Optimizer::sgd, true),
      moe("tp4 dp2 ep2 etp2 capacity", capacity(etp(ep(choices(4, 1, 2, 2), 2), 2), 1), all_heads(balanced)),
  };
}

// BERT: masked tokens, both directions, segments, norms after the residual, a head of its own.
std::vector<PlanCase> encoder_cases() {
  const auto bert = [](std::string name, Choices c, Optimizer optimizer = Optimizer::sgd, bool clip = false) {
    PlanCase result{std::move(name), false, c, optimizer, clip};
    result.model = [](Transformer& t) {
      t.family = "bert";
      t.post_norm = true;
      t.bidirectional = true;
      t.token_types = 2;
      t.mlm_head = true;
      t.norm_epsilon = 1e-12;
    };
    return result;
  };
  const auto zero = [](Choices c, int n) { return with(c, [n](Choices& x) { x.zero = n; }); };
  const auto sp = [](Choices c) { return with(c, [](Choices& x) { x.sequence_parallel = true; }); };
  const auto cp = [](Choices c, int n) { return with(c, [n](Choices& x) { x.cp = n; }); };
  const auto full = [](Choices c) { return with(c, [](Choices& x) { x.recompute = Recompute::full; }); };
  std::vector<PlanCase> cases = {
      bert("bert recompute clipped", full(choices(1, 1, 1, 4)), Optimizer::momentum, true),
      bert("bert dp2", choices(1, 1, 2, 2)),
      bert("bert dp2 zero3", zero(choices(1, 1, 2, 2), 3), Optimizer::momentum),
      bert("bert tp2", choices(2, 1, 1, 4)),
      bert("bert tp2 sp recompute", full(sp(choices(2, 1, 1, 2)))),
      bert("bert pp2", choices(1, 2, 1, 2)),
      bert("bert pp2 zero-bubble", choices(1, 2, 1, 1, Schedule::zero_bubble), Optimizer::momentum),
      bert("bert pp2 interleaved",
           with(choices(1, 2, 1, 2, Schedule::interleaved), [](Choices& c) { c.interleave = 2; })),
      bert("bert cp2", cp(choices(1, 1, 1, 2), 2)),
      bert("bert cp3", cp(choices(1, 1, 1, 4), 3)),
      bert("bert tp2 sp pp2", sp(choices(2, 2, 1, 2))),
      bert("bert tp2 dp2 zero1 clipped", zero(choices(2, 1, 2, 2), 1), Optimizer::sgd, true),
      bert("bert pp2 dp2 zero2", zero(choices(1, 2, 2, 1), 2)),
      bert("bert cp2 tp2 sp", sp(cp(choices(2, 1, 1, 2), 2))),
      bert("bert tp2 sp pp2 dp2 zero1", zero(sp(choices(2, 2, 2, 1)), 1), Optimizer::momentum),
      bert("bert cp2 tp2 pp2", cp(choices(2, 2, 1, 2), 2)),
      bert("bert dp8 zero1 adamw", zero(choices(1, 1, 8, 1), 1), Optimizer::adamw),
  };
  PlanCase narrow = bert("bert bf16 tp2 sp", sp(choices(2, 1, 1, 2)));
  narrow.precision = DType::bf16;
  cases.push_back(narrow);
  PlanCase one = bert("bert dp2 one process", choices(1, 1, 2, 2));
  one.choices.sync = Sync::single_process;
  cases.push_back(one);
  PlanCase biased{"gpt2 with a bias on its head, tp2", false, choices(2, 1, 1, 2)};
  biased.model = [](Transformer& t) { t.head_bias = true; };
  cases.push_back(biased);
  return cases;
}

// Networks on images. Batch norms go by the statistics of a micro-batch, so that a plan equals one rank with
// the same micro-batches.
std::vector<PlanCase> image_cases() {
  const auto net = [](std::string name, Workload (*network)(), Choices c,
                      Optimizer optimizer = Optimizer::sgd, bool clip = false) {
    PlanCase result{std::move(name), false, c, optimizer, clip};
    result.network = network;
    return result;
  };
  const auto zero = [](Choices c, int n) { return with(c, [n](Choices& x) { x.zero = n; }); };
  const auto full = [](Choices c) { return with(c, [](Choices& x) { x.recompute = Recompute::full; }); };
  PlanCase uneven = net("resnet dp2 uneven", tiny_resnet, choices(1, 1, 2, 2));
  uneven.replica_batches = {6, 2};
  PlanCase server = net("vgg dp3 2 servers", tiny_vgg, choices(1, 1, 3, 1), Optimizer::momentum);
  server.choices.sync = Sync::parameter_server;
  server.choices.servers = 2;
  server.replica_batches = {3, 3, 2};
  PlanCase one = net("resnet dp4 one process", tiny_resnet, choices(1, 1, 4, 1), Optimizer::momentum, true);
  one.choices.sync = Sync::single_process;
  // By the statistics of one image at a time, not within twenty steps.
  one.learns = false;
  PlanCase eight = net("resnet dp8", tiny_resnet, choices(1, 1, 8, 1));
  eight.learns = false;
  PlanCase narrow = net("bf16 resnet dp2 zero1", tiny_resnet, zero(choices(1, 1, 2, 4), 1), Optimizer::adam);
  narrow.precision = DType::bf16;
  PlanCase packed = net("resnet dp2 int8", tiny_resnet, choices(1, 1, 2, 4));
  packed.choices.grad_compression = Compression::int8;
  packed.lossy = 0.02;
  // Samples shared between tensor ranks: features that stay split between two products, those that go back to
  // their samples, and those of a convolution.
  const auto pair = [] {
    return with_splits(tiny_vgg(),
                       {{"classifier.0", TensorSplit::column}, {"classifier.2", TensorSplit::row}});
  };
  const auto back = [] {
    return with_splits(tiny_vgg(),
                       {{"classifier.0", TensorSplit::column}, {"classifier.2", TensorSplit::column}});
  };
  const auto pixels = [] {
    return with_splits(tiny_vgg(), {{"features.3", TensorSplit::column},
                                    {"classifier.0", TensorSplit::row},
                                    {"classifier.2", TensorSplit::column}});
  };
  // A sum of parts and its bias, which are in buckets of their own.
  const auto biased = [] {
    return with_splits(tiny_vgg(), {{"features.0", TensorSplit::column}, {"features.3", TensorSplit::row}});
  };
  // A block whose input the shortcut reads, too; norms between the two products; the layer that reads images.
  const auto block = [] {
    return with_splits(tiny_resnet(),
                       {{"layer1.0.conv1", TensorSplit::column}, {"layer1.0.conv2", TensorSplit::row}});
  };
  const auto shortcut = [] {
    return with_splits(tiny_resnet(), {{"layer2.0.conv1", TensorSplit::column},
                                       {"layer2.0.conv2", TensorSplit::column},
                                       {"layer2.0.downsample.0", TensorSplit::column}});
  };
  const auto first = [] {
    return with_splits(tiny_resnet(), {{"conv1", TensorSplit::column}, {"fc", TensorSplit::column}});
  };
  const auto perceptron = [] {
    return with_splits(tiny_perceptron(), {{"fc1", TensorSplit::column}, {"fc2", TensorSplit::row}});
  };
  const auto sp = [](Choices c) { return with(c, [](Choices& x) { x.sequence_parallel = true; }); };
  return {
      net("resnet tp2, a split block", block, sp(choices(2, 1, 1, 8)), Optimizer::momentum),
      net("resnet tp2, a split shortcut, recompute", shortcut, full(sp(choices(2, 1, 1, 8)))),
      net("resnet tp2, split images", first, sp(choices(2, 1, 1, 8))),
      net("resnet tp2 pp2, a split block", block, sp(choices(2, 2, 1, 4))),
      net("resnet tp2 dp2 zero2, a split shortcut", shortcut, zero(sp(choices(2, 1, 2, 4)), 2)),
      net("vgg tp2 dp2 zero2, split images", biased, zero(sp(choices(2, 1, 2, 2)), 2)),
      net("vgg tp2, a bias apart", biased, sp(choices(2, 1, 1, 4)), Optimizer::momentum, true),
      net("perceptron tp2 dp2", perceptron, sp(choices(2, 1, 2, 2)), Optimizer::momentum),
      net("vgg tp2", pair, sp(choices(2, 1, 1, 4))),
      net("vgg tp2, features returned", back, sp(choices(2, 1, 1, 2)), Optimizer::momentum),
      net("vgg tp2, split pixels, recompute", pixels, full(sp(choices(2, 1, 1, 4)))),
      net("vgg tp2 dp2 clipped", back, sp(choices(2, 1, 2, 2)), Optimizer::adam, true),
      net("vgg tp2 dp2 zero1", pair, zero(sp(choices(2, 1, 2, 2)), 1), Optimizer::momentum),
      net("vgg tp2 dp2 zero3", pixels, zero(sp(choices(2, 1, 2, 2)), 3)),
      net("vgg tp2 pp2, features between stages", pixels, sp(choices(2, 2, 1, 2))),
      net("vgg tp2 pp2 zero-bubble", pair, sp(choices(2, 2, 1, 2, Schedule::zero_bubble)), Optimizer::adam),
      net(
          "vgg tp4 dp2",
          [] {
            return with_splits(tiny_vgg(), {{"classifier.0", TensorSplit::column}});
          },
          sp(choices(4, 1, 2, 4)), Optimizer::sgd, true),
      net("resnet accumulation recompute", tiny_resnet, full(choices(1, 1, 1, 4))),
      net("perceptron clipped", tiny_perceptron, choices(1, 1, 1, 2), Optimizer::adamw, true),
      net("resnet dp2", tiny_resnet, choices(1, 1, 2, 2)),
      net("resnet dp2 zero2 clipped", tiny_resnet, zero(choices(1, 1, 2, 4), 2), Optimizer::momentum, true),
      net("vgg dp2 zero3", tiny_vgg, zero(choices(1, 1, 2, 2), 3)),
      uneven,
      packed,
      net("resnet pp2", tiny_resnet, choices(1, 2, 1, 2), Optimizer::momentum),
      net("vgg pp2 zero-bubble", tiny_vgg, choices(1, 2, 1, 1, Schedule::zero_bubble)),
      narrow,
      one,
      server,
      net("resnet pp3 gpipe", tiny_resnet, choices(1, 3, 1, 2, Schedule::gpipe)),
      net("resnet dp4 zero1", tiny_resnet, zero(choices(1, 1, 4, 2), 1), Optimizer::momentum),
      net("perceptron pp2 dp2", tiny_perceptron, choices(1, 2, 2, 1), Optimizer::adam),
      net("resnet pp2 dp2 zero1 recompute", tiny_resnet, full(zero(choices(1, 2, 2, 2), 1))),
      eight,
      net("vgg dp8 zero3 clipped", tiny_vgg, zero(choices(1, 1, 8, 1), 3), Optimizer::sgd, true),
  };
}

// Mixed precision.
std::vector<PlanCase> precision_cases() {
  const auto in = [](DType type, std::string name, bool llama, Choices c,
                     Optimizer optimizer = Optimizer::sgd, bool clip = false) {
    PlanCase result{std::move(name), llama, c, optimizer, clip};
    result.precision = type;
    return result;
  };
  const auto zero = [](Choices c, int n) { return with(c, [n](Choices& x) { x.zero = n; }); };
  const auto sp = [](Choices c) { return with(c, [](Choices& x) { x.sequence_parallel = true; }); };
  const auto cp = [](Choices c, int n) { return with(c, [n](Choices& x) { x.cp = n; }); };
  const DType bf16 = DType::bf16;
  const DType fp16 = DType::fp16;
  std::vector<PlanCase> cases = {
      in(bf16, "bf16 recompute", true,
         with(choices(1, 1, 1, 4), [](Choices& c) { c.recompute = Recompute::full; })),
      in(fp16, "fp16 clipped", false, choices(1, 1, 1, 4), Optimizer::adamw, true),
      in(bf16, "bf16 dp2 zero1", false, zero(choices(1, 1, 2, 2), 1), Optimizer::adam),
      in(bf16, "bf16 dp2 zero3 llama", true, zero(choices(1, 1, 2, 2), 3)),
      in(bf16, "bf16 tp2 sp", false, sp(choices(2, 1, 1, 2))),
      in(bf16, "bf16 pp2 zero-bubble", true, choices(1, 2, 1, 2, Schedule::zero_bubble), Optimizer::adamw),
      in(bf16, "bf16 cp2", false, cp(choices(1, 1, 1, 2), 2)),
      in(fp16, "fp16 dp2 zero2", false, zero(choices(1, 1, 2, 2), 2), Optimizer::momentum),
      in(fp16, "fp16 pp2 clipped", true, choices(1, 2, 1, 2), Optimizer::adam, true),
      in(bf16, "bf16 tp2 pp2 llama", true, choices(2, 2, 1, 2), Optimizer::momentum),
      in(fp16, "fp16 tp2 sp dp2 zero1", false, zero(sp(choices(2, 1, 2, 2)), 1)),
      in(bf16, "bf16 tp2 pp2 dp2 clipped", false, choices(2, 2, 2, 1), Optimizer::sgd, true),
  };
  PlanCase server = in(bf16, "bf16 dp2 server", false, choices(1, 1, 2, 2));
  server.choices.sync = Sync::parameter_server;
  server.choices.servers = 1;
  cases.push_back(server);
  PlanCase experts = in(bf16, "bf16 dp2 ep2", true, choices(1, 1, 2, 2));
  experts.choices.ep = 2;
  experts.model = [](Transformer& t) {
    t.moe = MixtureOfExperts{};
    t.moe->experts = 4;
    t.moe->experts_per_token = 2;
    t.moe->expert_ffn_hidden = 24;
  };
  cases.push_back(experts);
  experts.name = "bf16 tp2 sp etp2";
  experts.choices = sp(choices(2, 1, 1, 2));
  experts.choices.etp = 2;
  cases.push_back(experts);
  return cases;
}

// Windows shorter than the sequence (in some layers), and norms of heads' queries and keys.
std::vector<PlanCase> attention_cases() {
  const auto windowed = [](Transformer& t) {
    t.sliding_window = 7;
    t.full_attention_period = 2;
  };
  const auto normalised = [](Transformer& t) { t.qk_norm = true; };
  const auto both = [=](Transformer& t) {
    windowed(t);
    normalised(t);
  };
  const auto in = [](std::string name, Choices c, std::function<void(Transformer&)> model,
                     Optimizer optimizer = Optimizer::sgd) {
    PlanCase result{std::move(name), true, c, optimizer};
    result.model = std::move(model);
    return result;
  };
  const auto sp = [](Choices& c) { c.sequence_parallel = true; };
  const auto full = [](Choices& c) { c.recompute = Recompute::full; };
  const auto selective = [](Choices& c) { c.recompute = Recompute::selective; };
  const auto zero3 = [](Choices& c) { c.zero = 3; };
  const auto cp2 = [](Choices& c) { c.cp = 2; };
  const auto interleave = [](Choices& c) { c.interleave = 2; };
  // Gemma 2 but for its windows, which `cp` does not have.
  const auto gemma = [](Transformer& t) {
    t.family = "gemma2";
    t.branch_norms = t.norms_offset = t.tied_embeddings = true;
    t.activation = Activation::gelu;
    t.attention_softcap = 0.3;
    t.final_softcap = 0.5;
    t.attention_scale = 0.7;
    t.embedding_scale = 5.5;
  };
  const auto gemma2 = [gemma, windowed](Transformer& t) {
    gemma(t);
    windowed(t);
  };
  const auto bare = [](Transformer& t) {
    t.family = "olmo2";
    t.branch_norms = t.no_input_norms = true;
    // Norms of what is next to nothing make much of rounding: a stream of its usual size.
    t.embedding_scale = 30;
    t.norm_epsilon = 1e-3;
  };
  const auto olmo2 = [bare](Transformer& t) {
    bare(t);
    t.qk_norm = t.qk_norm_whole = true;
  };
  const auto neox = [](Transformer& t) {
    t.family = "gpt_neox";
    t.kv_heads = t.heads;
    t.norm = NormKind::layer_norm;
    t.gated_ffn = false;
    t.activation = Activation::gelu_erf;
    t.qkv_bias = t.linear_bias = t.parallel_residual = true;
    t.rotary_fraction = 0.25;
    t.dropouts = {0.1, 0.1, 0.1, 0.1};
  };
  return {
      in("gemma2 recompute", with(choices(1, 1, 1, 4), full), gemma2),
      in("gemma2 dp2 zero3", with(choices(1, 1, 2, 2), zero3), gemma2, Optimizer::momentum),
      in("gemma2 tp2", choices(2, 1, 1, 4), gemma2),
      in("gemma2 tp2 sp selective", with(with(choices(2, 1, 1, 4), sp), selective), gemma2),
      in("gemma2 pp2 zero-bubble", choices(1, 2, 1, 2, Schedule::zero_bubble), gemma2),
      in("gemma cp2", with(choices(1, 1, 1, 4), cp2), gemma),
      in("gemma2 tp2 sp pp2", with(choices(2, 2, 1, 2), sp), gemma2),
      in("olmo2 recompute", with(choices(1, 1, 1, 4), full), olmo2),
      in("olmo2 dp2 zero2", with(choices(1, 1, 2, 2), [](Choices& c) { c.zero = 2; }), olmo2,
         Optimizer::momentum),
      in("olmo2 cp2", with(choices(1, 1, 1, 4), cp2), olmo2),
      in("olmo2 pp2 interleaved", with(choices(1, 2, 1, 2, Schedule::interleaved), interleave), olmo2),
      in("olmo2 pp2 zero-bubble", choices(1, 2, 1, 2, Schedule::zero_bubble), olmo2),
      in("no input norms tp2", choices(2, 1, 1, 4), bare, Optimizer::momentum),
      in("no input norms tp2 sp recompute", with(with(choices(2, 1, 1, 4), sp), full), bare),
      in("no input norms tp2 sp pp2", with(choices(2, 2, 1, 2), sp), bare),
      in("neox recompute", with(choices(1, 1, 1, 4), full), neox),
      in("neox dp2 zero3", with(choices(1, 1, 2, 2), zero3), neox, Optimizer::momentum),
      in("neox tp2", choices(2, 1, 1, 4), neox),
      in("neox tp2 sp selective", with(with(choices(2, 1, 1, 4), sp), selective), neox),
      in("neox pp2 zero-bubble", choices(1, 2, 1, 2, Schedule::zero_bubble), neox),
      in("neox cp2", with(choices(1, 1, 1, 4), cp2), neox),
      in("neox tp2 sp pp2 dp2", with(choices(2, 2, 2, 2), sp), neox),
      in("window recompute", with(choices(1, 1, 1, 4), full), windowed),
      in("window tp2", choices(2, 1, 1, 4), windowed),
      in("window pp2 dp2", choices(1, 2, 2, 2), windowed, Optimizer::momentum),
      in("qk norm recompute", with(choices(1, 1, 1, 2), full), normalised),
      in("qk norm tp2", choices(2, 1, 1, 4), normalised, Optimizer::momentum),
      in("qk norm tp2 sp selective", with(with(choices(2, 1, 1, 4), sp), selective), normalised),
      in("qk norm pp2 zero-bubble", choices(1, 2, 1, 2, Schedule::zero_bubble), both),
      in("qk norm cp2", with(choices(1, 1, 1, 4), [](Choices& c) { c.cp = 2; }), normalised),
      in("qk norm window dp2 zero3", with(choices(1, 1, 2, 2), zero3), both, Optimizer::momentum),
      in("qk norm window tp2 sp dp2 clipped", with(choices(2, 1, 2, 2), sp), both),
  };
}

// Adapters beside frozen weights, and frozen layers.
std::vector<PlanCase> fine_tuning_cases() {
  const auto tuned = [](std::string name, bool llama, Choices c, FineTuning tuning,
                        DType precision = DType::fp32) {
    PlanCase result{std::move(name), llama, c, Optimizer::momentum};
    result.model = [tuning](Transformer& t) { t.fine_tuning = tuning; };
    result.precision = precision;
    result.learns = false;              // adapters this small, in twenty steps
    result.parameter_tolerance = 1e-4;  // B begins at zero: its norm is that of few steps
    return result;
  };
  FineTuning lora;
  lora.rank = 4;
  lora.alpha = 8;  // a larger scale makes twenty steps a matter of rounding
  FineTuning dora = lora;
  dora.dora = true;
  dora.targets = kQuery | kKey | kValue | kGate | kUp;
  FineTuning some = lora;
  some.targets = kQuery | kValue | kDown;
  some.frozen_layers = 2;
  FineTuning eight = lora, four = lora;
  eight.base = BaseType::int8;
  four.base = BaseType::nf4;
  FineTuning still;
  still.frozen_layers = 2;
  FineTuning double_four = dora;
  double_four.base = BaseType::nf4_dq;
  const auto zero = [](Choices c, int n) { return with(c, [n](Choices& x) { x.zero = n; }); };
  const auto sp = [](Choices c) { return with(c, [](Choices& x) { x.sequence_parallel = true; }); };
  const auto cp = [](Choices c) { return with(c, [](Choices& x) { x.cp = 2; }); };
  const auto full = [](Choices c) { return with(c, [](Choices& x) { x.recompute = Recompute::full; }); };
  const DType bf16 = DType::bf16;
  return {
      tuned("lora recompute", true, full(choices(1, 1, 1, 4)), lora),
      tuned("dora nf4-dq recompute", true, full(choices(1, 1, 1, 4)), double_four),
      tuned("lora dp2", false, choices(1, 1, 2, 2), lora),
      tuned("lora dp2 zero3", true, zero(choices(1, 1, 2, 2), 3), lora),
      tuned("lora bf16 dp2 zero3", true, zero(choices(1, 1, 2, 2), 3), lora, bf16),
      tuned("dora dp2 zero1", false, zero(choices(1, 1, 2, 2), 1), dora),
      tuned("qlora int8 dp2 zero2", true, zero(choices(1, 1, 2, 2), 2), eight),
      tuned("lora tp2", false, choices(2, 1, 1, 4), lora),
      tuned("lora tp2 sp llama", true, sp(choices(2, 1, 1, 4)), lora),
      tuned("qlora int8 tp2 sp", true, sp(choices(2, 1, 1, 4)), eight),
      tuned("dora tp2", true, choices(2, 1, 1, 4), dora),
      tuned("qlora nf4 pp2", true, choices(1, 2, 1, 2), four),
      tuned("lora some pp2", true, choices(1, 2, 1, 2), some),
      tuned("lora pp2 zero-bubble", false, choices(1, 2, 1, 2, Schedule::zero_bubble), lora),
      tuned("dora pp2 zero-bubble", true, choices(1, 2, 1, 2, Schedule::zero_bubble), dora),
      tuned("lora cp2", true, cp(choices(1, 1, 1, 4)), lora),
      tuned("qlora nf4 bf16 dp2", true, choices(1, 1, 2, 2), four, bf16),
      tuned("frozen layers dp2", false, choices(1, 1, 2, 2), still),
      tuned("frozen layers pp2", true, choices(1, 2, 1, 2), still),
      tuned("frozen layers dp2 zero3", true, zero(choices(1, 1, 2, 2), 3), still),
      tuned("lora tp2 sp dp2 zero3", true, zero(sp(choices(2, 1, 2, 2)), 3), lora),
      tuned("lora some tp2 pp2", false, choices(2, 2, 1, 2), some),
      tuned("qlora int8 tp2 pp2 dp2", true, choices(2, 2, 2, 1), eight),
  };
}

}  // namespace

std::vector<PlanCase> all_cases() {
  std::vector<PlanCase> cases = dense_cases();
  for (const auto& more :
       {context_cases(), compression_cases(), server_cases(), expert_cases(), encoder_cases(), image_cases(),
        precision_cases(), fine_tuning_cases(), attention_cases(), dropout_cases(), patch_cases(), v_cases()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace orrery::exec::test
