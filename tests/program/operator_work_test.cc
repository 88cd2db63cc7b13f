#include "program/operator_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "program/operator_shard.h"
#include "tests/support/gpt_layer.h"
#include "tests/support/jobs.h"
#include "workloads/fine_tuning.h"
#include "workloads/readers/catalog.h"

using namespace orrery;

namespace {

// Megatron 22B (arXiv 2205.05198, table 3): h 6144, a 64, s 2048, micro-batch 4.
constexpr double kS = 2048, kB = 4, kH = 6144, kA = 64;

Shard shard(int tp, bool sequence_parallel) {
  Shard s;
  s.samples = kB;
  s.seq_len = static_cast<int>(kS);
  s.rows = kS * kB;
  s.tp = tp;
  s.sequence_parallel = sequence_parallel;
  s.precision = DType::fp16;
  s.fused_attention = false;
  return s;
}

std::vector<Operator> model() {
  return test::gpt_operators({6144, 64, 51200, 1});
}

RuntimeProfile megatron() {
  return catalog_runtime("megatron-lm-2022");
}

// Operators 1 to 11 of `model()` are its one layer.
double layer_bytes(const Shard& s, bool selective) {
  return saved_bytes(model(), 1, 11, selective ? module_bit("core_attn") : ModuleSet{0}, s, megatron());
}

// Two of eight experts, 100 wide each; elements moved for each that comes out.
Operator activation_of_two_experts(double moved) {
  Operator act;
  act.kind = OperatorKind::activation;
  act.split = TensorSplit::column;
  act.active_experts = 2;
  act.experts = 8;
  act.output_elements = 2 * 100;
  act.vector_elements = moved * 100;
  return act;
}

}  // namespace

TEST_CASE("a layer keeps what Korthikanti et al. table 2 says") {
  const double sbh = kS * kB * kH;
  const double as_h = kA * kS / kH;
  CHECK(layer_bytes(shard(1, false), false) == Approx(sbh * (34 + 5 * as_h)));
  for (const int t : {2, 4, 8}) {
    CHECK(layer_bytes(shard(t, false), false) == Approx(sbh * (10 + 24.0 / t + 5 * as_h / t)));
    CHECK(layer_bytes(shard(t, true), false) == Approx(sbh / t * (34 + 5 * as_h)));
    CHECK(layer_bytes(shard(t, false), true) == Approx(sbh * (10 + 24.0 / t)));
    CHECK(layer_bytes(shard(t, true), true) == Approx(sbh * 34 / t));
  }
}

TEST_CASE("selective recomputation of named modules forgets what they put out") {
  const double sbh = kS * kB * kH;
  const double whole = layer_bytes(shard(1, false), false);
  const auto kept = [&](const char* modules) {
    return saved_bytes(model(), 1, 11, modules_from_names(modules), shard(1, false), megatron());
  };
  CHECK(kept("core_attn") == layer_bytes(shard(1, false), true));
  CHECK(kept("layernorm") == Approx(whole - 4 * sbh));  // inputs of qkv and of the MLP
  CHECK(kept("mlp_act") == Approx(whole - 8 * sbh));    // input of the MLP's second product
  CHECK(kept("mlp") == Approx(whole - 16 * sbh));       // and what its first one put out
  CHECK(kept("moe_act,moe,mla_up_proj") == Approx(whole));
  CHECK(kept("layernorm,mlp") == Approx(whole - 20 * sbh));
}

TEST_CASE("ReLU keeps what it puts out alone, unless that is run again") {
  const double sbh = kS * kB * kH;
  Shard s = shard(1, false);
  const double whole = layer_bytes(s, false);
  s.relu = true;
  const auto kept = [&](const char* modules) {
    return saved_bytes(model(), 1, 11, modules_from_names(modules), s, megatron());
  };
  CHECK(layer_bytes(s, false) == Approx(whole - 8 * sbh));  // what it reads
  CHECK(kept("mlp_act") == Approx(whole - 8 * sbh));        // what it puts out, instead
  CHECK(kept("mlp") == Approx(whole - 16 * sbh));
}

TEST_CASE("FlashAttention's output is kept as it came and as the projection reads it") {
  const double sbh = kS * kB * kH;
  Shard s = shard(8, true);
  s.fused_attention = true;
  const double once = layer_bytes(s, false), without_core = layer_bytes(s, true);
  s.copies_attention_output = true;
  CHECK(layer_bytes(s, false) == Approx(once + 2 * sbh / 8));
  CHECK(layer_bytes(s, true) == without_core);
}

TEST_CASE("norms of queries and keys keep what they read") {
  const double sbh = kS * kB * kH;
  std::vector<Operator> operators = model();
  for (Operator& op : operators)
    if (op.attention) op.attention->qk_norm = true;
  const Shard s = shard(2, false);
  const double normed = saved_bytes(operators, 1, 11, ModuleSet{0}, s, megatron());
  CHECK(normed == Approx(layer_bytes(s, false) + 4 * sbh / 2));
}

TEST_CASE("selective recomputation of latent attention and of experts") {
  const Workload deepseek = load_workload("deepseek-v3");
  const RuntimeProfile runtime = catalog_runtime("megatron-core");
  int begin = 0, end = 0;  // a layer with experts
  for (int i = 0; i < static_cast<int>(deepseek.operators.size()); ++i) {
    if (deepseek.operators[i].layer == 5 && begin == 0) begin = i;
    if (deepseek.operators[i].layer == 5) end = i + 1;
  }
  Shard s = shard(1, false);
  s.precision = DType::bf16;
  s.fused_attention = true;
  const double tokens = s.rows;
  const auto kept = [&](const char* modules) {
    return saved_bytes(deepseek.operators, begin, end, modules_from_names(modules), s, runtime);
  };
  const double whole = saved_bytes(deepseek.operators, begin, end, 0, s, runtime);
  // Queries and keys of 192 and values of 128 in each of 128 heads; the input of the second product of eight
  // experts, 2048 wide.
  CHECK(kept("mla_up_proj") == Approx(whole - tokens * 2 * 128 * (192 + 192 + 128)));
  CHECK(kept("moe_act") == Approx(whole - tokens * 2 * 8 * 2048));
  CHECK(kept("mlp") == Approx(whole));  // none of its MLPs is dense
  CHECK(kept("moe") < kept("moe_act"));
}

TEST_CASE("the plan says what selective recomputation runs again, or else the runtime") {
  RuntimeProfile runtime = megatron();
  Choices choices;
  CHECK(modules_run_again(choices, runtime) == 0);
  choices.recompute = Recompute::selective;
  CHECK(names_of(modules_run_again(choices, runtime)) == std::vector<std::string>{"core_attn"});
  runtime.selective_modules = "mlp,layernorm";
  CHECK(names_of(modules_run_again(choices, runtime)) == std::vector<std::string>{"layernorm", "mlp"});
  choices.recompute_modules = modules_from_names("moe+moe_act");
  CHECK(names_of(modules_run_again(choices, runtime)) == std::vector<std::string>{"moe_act", "moe"});
  CHECK_THROWS_WITH(modules_from_names("mlp,attention"),
                    Catch::Contains("'attention'") && Catch::Contains("core_attn"));
  CHECK_THROWS_AS(modules_from_names(""), UserError);
}

TEST_CASE("a model has the modules of which one of its layers has something") {
  const auto has = [](const char* name) { return names_of(modules_of(load_workload(name), 0xff)); };
  using Names = std::vector<std::string>;
  CHECK(has("llama3-8b") == Names{"core_attn", "layernorm", "mlp_act", "mlp"});
  CHECK(has("mixtral-8x7b") == Names{"core_attn", "layernorm", "moe_act", "moe"});
  CHECK(has("deepseek-v3") ==
        Names{"core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp_act", "mlp", "moe"});
  CHECK(has("resnet50").empty());
  // BERT's norms put out what the next layer reads, or what a residual adds: the latter alone is forgotten.
  const Workload bert = load_workload("bert-base");
  for (int i = 0; i < static_cast<int>(bert.operators.size()); ++i)
    if (brought_back(bert.operators, i, module_bit("layernorm")) && bert.operators[i].layer < bert.layers)
      CHECK(bert.operators[i + 1].layer == bert.operators[i].layer);
}

TEST_CASE("full recomputation keeps a layer's input, 2 sbh, or its sequence shard") {
  const auto ops = model();
  CHECK(output_bytes(ops[10], shard(8, false)) == Approx(2 * kS * kB * kH));
  CHECK(output_bytes(ops[10], shard(8, true)) == Approx(2 * kS * kB * kH / 8));
}

TEST_CASE("adapters beside frozen weights: a layer keeps what PyTorch's operators keep, by hand") {
  const Workload workload = load_workload("llama2-7b");
  FineTuning tuning;
  tuning.rank = 8;
  tuning.targets = kQuery | kValue;
  const auto kept = [&](BaseType base, const RuntimeProfile& runtime) {
    Workload tuned = workload;
    FineTuning own = tuning;
    own.base = base;
    fine_tune(tuned, own);
    const int layer = 3;  // what reaches it has passed adapters
    int begin = 0, end = 0;
    for (std::size_t i = 0; i < tuned.operators.size(); ++i) {
      if (tuned.operators[i].layer < layer) begin = static_cast<int>(i) + 1;
      if (tuned.operators[i].layer == layer) end = static_cast<int>(i) + 1;
    }
    Shard s;
    s.samples = 1;
    s.seq_len = 1024;
    s.rows = 1024;
    s.precision = DType::bf16;
    const double bytes = saved_bytes(tuned.operators, begin, end, false, s, runtime);
    return bytes / (2.0 * 1024 * 4096);  // in tensors of the hidden size
  };
  RuntimeProfile fused;
  RuntimeProfile eager = fused;
  fused.fused_elementwise = true;
  eager.fused_elementwise = false;
  const double ffn = 11008.0 / 4096;
  // Two adapters' inner products and the fused core's row sums.
  const double thin = 2 * 8.0 / 4096 + 32 * 2.0 / 4096;
  // Norms' inputs, what the adapters read, queries, keys, values and what attention puts out of them; gate
  // and up.
  CHECK(kept(BaseType::none, fused) == Approx(2 + 1 + 3 + 1 + 2 * ffn + thin));
  // Norms keep what they normalised, too, and the gate's activation is a tensor of its own.
  CHECK(kept(BaseType::none, eager) == Approx(4 + 1 + 3 + 1 + 3 * ffn + thin));
  // bitsandbytes' products keep what they read: beside what the adapters read, a copy of what attention put
  // out, what the MLP reads and what its last product reads.
  eager.quantised_keep_input = true;
  CHECK(kept(BaseType::nf4, eager) == Approx(4 + 2 + 3 + 2 + 1 + 4 * ffn + thin));
  CHECK(kept(BaseType::none, eager) == Approx(4 + 1 + 3 + 1 + 3 * ffn + thin));
}

TEST_CASE("embedding, final norm, head and loss keep what section 4.3 says") {
  const auto ops = model();
  const double sbh = kS * kB * kH, v = 51200;
  const int t = 8;
  const Shard s = shard(t, true);
  CHECK(saved_bytes(ops[0], s, megatron()) == Approx(sbh / t));  // dropout mask
  const double head = saved_bytes(ops, 11, 16, false, s, megatron());
  CHECK(head == Approx(4 * sbh / t * (1 + v / kH)));  // 4sbh/t (1 + v/h)
}

TEST_CASE("a fused attention keeps row sums instead of scores") {
  const auto ops = model();
  Shard s = shard(1, false);
  s.fused_attention = true;
  CHECK(saved_bytes(ops[3], s, megatron()) == Approx(6 * kS * kB * kH + 4 * kA * kS * kB));
}

TEST_CASE("FLOPs of a layer are Narayanan et al.'s 24 s b h^2 (1 + s / 12h), causal counted once") {
  const auto ops = model();
  const RuntimeProfile runtime = megatron();
  double forward = 0, backward = 0, input = 0, weight = 0;
  for (int i = 1; i < 11; ++i) {
    forward += operator_work(ops[i], ComputeKind::forward, shard(1, false), runtime).flops;
    backward += operator_work(ops[i], ComputeKind::backward, shard(1, false), runtime).flops;
    input += operator_work(ops[i], ComputeKind::backward_input, shard(1, false), runtime).flops;
    weight += operator_work(ops[i], ComputeKind::backward_weight, shard(1, false), runtime).flops;
  }
  // 24 Bsh^2 of products and 2 B s^2 h of attention (half of 4 B s^2 h).
  CHECK(forward == Approx(24 * kB * kS * kH * kH + 2 * kB * kS * kS * kH));
  CHECK(backward == Approx(2 * forward));
  CHECK(input + weight == Approx(backward));
  CHECK(weight == Approx(24 * kB * kS * kH * kH));
}

TEST_CASE("tensor parallelism divides products, attention and parameters evenly") {
  const auto ops = model();
  const RuntimeProfile runtime = megatron();
  for (const ComputeKind kind : {ComputeKind::forward, ComputeKind::backward}) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const double whole = operator_work(ops[i], kind, shard(1, false), runtime).flops;
      const double part = operator_work(ops[i], kind, shard(8, false), runtime).flops;
      CHECK(part == Approx(whole / 8));
    }
  }
  // qkv 3h^2 + 3h, proj h^2 + h (bias whole), up 4h^2 + 4h, down 4h^2 + h; norms 4h whole.
  std::int64_t local = 0;
  for (int i = 1; i < 11; ++i) local += local_parameters(ops[i], shard(8, false));
  CHECK(local == static_cast<std::int64_t>(12 * kH * kH / 8 + (3 * kH + 4 * kH) / 8 + 2 * kH + 4 * kH));
}

TEST_CASE("a vocabulary that does not divide is padded to the next multiple") {
  const auto ops = test::gpt_operators({64, 4, 50257, 1});
  const Shard s = shard(8, false);
  CHECK(local_parameters(ops[0], s) == 6283 * 64);  // ceil(50257 / 8) rows
  const OperatorWork head = operator_work(ops[12], ComputeKind::forward, s, megatron());
  REQUIRE(head.products.size() == 1);
  CHECK(head.products[0].n == 6283);
}

TEST_CASE("sequence parallelism shares out norms and residuals, not products") {
  const auto ops = model();
  const RuntimeProfile runtime = megatron();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const OperatorWork plain = operator_work(ops[i], ComputeKind::forward, shard(4, false), runtime);
    const OperatorWork shared = operator_work(ops[i], ComputeKind::forward, shard(4, true), runtime);
    CHECK(shared.flops == Approx(plain.flops));
    const bool replicated = ops[i].split == TensorSplit::replicated;
    CHECK(shared.vector_bytes == Approx(plain.vector_bytes / (replicated ? 4 : 1))
                                     .margin(ops[i].name == "embedding" ? kS * kB * kH : 0));
  }
}

TEST_CASE(
    "an embedding's gradient is the table's size where it is dense, the tokens' where it is added in place") {
  const auto ops = model();
  const Shard s = shard(1, false);
  RuntimeProfile runtime = megatron();
  const double table = static_cast<double>(local_parameters(ops[0], s));
  const double dense = operator_work(ops[0], ComputeKind::backward, s, runtime).vector_bytes;
  CHECK(dense >= 12 * table);
  runtime.embedding_gradient_in_place = true;
  const double sparse = operator_work(ops[0], ComputeKind::backward, s, runtime).vector_bytes;
  CHECK(sparse == Approx(kS * kB * kH * (2 + 2 * 4)));  // dy read; fp32 sums read and written
}

TEST_CASE("grouped-query attention keeps fewer keys but computes as many scores") {
  Operator op = test::make(OperatorKind::attention, TensorSplit::heads, "attention", 0, 4096, 0);
  op.attention = AttentionShape{32, 8, 128, 128, true, 0};
  Shard s = shard(1, false);
  s.rows = 8192;
  s.seq_len = 8192;
  s.fused_attention = true;
  const OperatorWork work = operator_work(op, ComputeKind::forward, s, megatron());
  CHECK(work.attention_flops == Approx(2.0 * 8192 * 8192 * 4096));
  CHECK(saved_bytes(op, s, megatron()) == Approx(8192.0 * (32 + 16) * 128 * 2 + 8192.0 * 32 * 4));
  op.attention->window = 4096;  // queries beyond the window see 4096 keys: w - w^2 / 2s = 3072 of 4096
  CHECK(operator_work(op, ComputeKind::forward, s, megatron()).attention_flops ==
        Approx(0.75 * 2.0 * 8192 * 8192 * 4096));
}

TEST_CASE("context parallelism divides rows, and every rank still attends to the whole sequence") {
  const auto ops = model();
  Shard whole = shard(1, false);
  Shard part = whole;
  part.cp = 4;
  part.rows = whole.rows / 4;
  for (const bool fused : {false, true}) {
    whole.fused_attention = part.fused_attention = fused;
    for (const Operator& op : ops) {
      const OperatorWork a = operator_work(op, ComputeKind::forward, whole, megatron());
      const OperatorWork b = operator_work(op, ComputeKind::forward, part, megatron());
      CHECK(b.flops == Approx(a.flops / 4));
    }
  }
}

TEST_CASE("experts: each rank computes its tokens' share on its own experts") {
  // Mixtral: 8 experts, 2 a token, h 4096, f 14336; gate and up in one product.
  Operator up = test::make(OperatorKind::expert_linear, TensorSplit::column, "experts_up", 0, 2 * 28672, 0);
  up.matmuls = {{1, 28672, 4096, 1}};
  ParameterTensor w = test::tensor("w13", {8, 4096, 28672}, 2, 2);
  w.expert = true;
  up.parameters = {w};
  up.inputs = {0};
  up.experts = 8;
  up.active_experts = 2;
  Shard s;
  s.rows = 4096;
  s.seq_len = 4096;
  s.samples = 1;
  const RuntimeProfile runtime = catalog_runtime("megatron-core");
  for (const int ep : {1, 2, 4, 8}) {
    s.ep = ep;
    const OperatorWork work = operator_work(up, ComputeKind::forward, s, runtime);
    CHECK(work.flops == Approx(2.0 * 4096 * 2 * 28672 * 4096));
    REQUIRE(work.products.size() == 1);
    CHECK(work.products[0].count == 8.0 / ep);
    CHECK(local_parameters(up, s) == 8LL / ep * 4096 * 28672);
  }
  s.capacity_factor = 1.25;
  CHECK(operator_work(up, ComputeKind::forward, s, runtime).flops ==
        Approx(1.25 * 2.0 * 8192 * 28672 * 4096));
}

TEST_CASE("experts in 8 bits have rows in whole blocks of scales, of 16 bits as many as come") {
  // Kimi K2: 384 experts, 8 a token, h 7168: 16,384 tokens are 341.3 rows each.
  Operator up = test::make(OperatorKind::expert_linear, TensorSplit::column, "experts_up", 0, 2 * 2048, 0);
  up.experts = 384;
  up.active_experts = 8;
  up.matmuls = {{1, 4096, 7168}};
  Shard s = shard(1, false);
  s.rows = 16384;
  for (const DType type : {DType::bf16, DType::fp8}) {
    s.precision = type;
    const OperatorWork work = operator_work(up, ComputeKind::forward, s, catalog_runtime("nemo"));
    REQUIRE(work.products.size() == 1);
    const double blocks = work.products.front().m / 32;
    CHECK((std::floor(blocks) == blocks) == (type == DType::fp8));
    CHECK(work.products.front().m >= 16384.0 * 8 / 384);
    CHECK(work.products.front().m < 16384.0 * 8 / 384 + 32);
  }
}

// Mean share of the fullest of `ranks` over draws of experts' popularity, by the mean share.
double drawn_share(int experts, int ranks, double deviation, std::mt19937& random) {
  constexpr int kDraws = 40000;
  std::gamma_distribution<double> gamma(((experts - 1) / (deviation * deviation) - 1) / experts, 1);
  double shares = 0;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<double> of_rank(static_cast<std::size_t>(ranks));
    double all = 0;
    for (int e = 0; e < experts; ++e) {
      const double popularity = gamma(random);
      of_rank[static_cast<std::size_t>(e * ranks / experts)] += popularity;
      all += popularity;
    }
    shares += *std::max_element(of_rank.begin(), of_rank.end()) / all * ranks / kDraws;
  }
  return shares;
}

TEST_CASE("unequal experts: the fullest rank's share is that of drawn popularities") {
  std::mt19937 random(7);
  for (const auto& [experts, ranks] : {std::pair{8, 2}, {8, 4}, {8, 8}, {64, 8}, {4, 2}})
    for (const double spread : {0.05, 0.2, 0.4, 0.6}) {
      CAPTURE(experts, ranks, spread);
      const double law = internal::fullest_share(experts, ranks, 1, spread);
      CHECK(law ==
            Approx(drawn_share(experts, ranks, spread * std::sqrt(experts - 1), random)).epsilon(0.01));
      CHECK(law > internal::fullest_share(experts, ranks, 1, spread / 2));
      // With more a token they are loaded more evenly, and a rank of one expert has one of them at most.
      const double of_two = internal::fullest_share(experts, ranks, 2, spread);
      CHECK(of_two < law);
      CHECK(of_two <= ranks * std::min(2.0, static_cast<double>(experts) / ranks) / 2);
    }
  CHECK(internal::fullest_share(8, 2, 2, 0) == 1);
  CHECK(internal::fullest_share(8, 2, 1, 1) == Approx(2).epsilon(0.01));  // one expert has all
  CHECK(internal::fullest_share(8, 2, 8, 1) == 1);                        // every token goes to every expert
  CHECK(internal::fullest_share(256, 8, 8, 1e-4) == Approx(1).epsilon(1e-3));
}

TEST_CASE(
    "unequal experts: what is between dispatch and combine takes the fullest rank's time, nothing else "
    "does") {
  Operator up = test::make(OperatorKind::expert_linear, TensorSplit::column, "experts_up", 0, 2 * 1024, 0);
  up.matmuls = {{1, 1024, 512, 1}};
  up.experts = 8;
  up.active_experts = 2;
  Operator dispatch = up;
  dispatch.kind = OperatorKind::dispatch;
  Shard s;
  s.rows = 100000;
  s.ep = 2;
  RuntimeProfile runtime = catalog_runtime("typical");
  REQUIRE(runtime.expert_spread == 0);
  const auto fullest = [&](const Operator& op) {
    return operator_work(op, ComputeKind::forward, s, runtime).fullest;
  };
  const double even = fullest(up);
  CHECK(even == Approx(1).epsilon(0.01));
  runtime.expert_spread = 0.4;
  CHECK(fullest(up) == Approx(internal::fullest_share(8, 2, 2, 0.4)).epsilon(1e-3));
  CHECK(fullest(dispatch) == even);
  // Chance and the router together, of few rows.
  s.rows = 20;
  runtime.expert_spread = 0;
  const double by_chance = fullest(up) - 1;
  runtime.expert_spread = 0.4;
  CHECK(fullest(up) - 1 == Approx(std::hypot(by_chance, internal::fullest_share(8, 2, 2, 0.4) - 1)));
  s.capacity_factor = 1;
  CHECK(fullest(up) == 1);
  s.capacity_factor = 0;
  s.ep = 1;
  CHECK(fullest(up) == 1);
}

TEST_CASE("experts that tensor ranks share: each has all their tokens and a part of the features") {
  SECTION("with sequence parallelism the tokens are gathered") {
    const Operator act = activation_of_two_experts(6);
    Shard s;
    s.rows = 40;
    s.tp = 4;
    s.sequence_parallel = true;
    for (const int etp : {1, 2, 4}) {
      s.etp = etp;
      CHECK(local_rows(act, s) == 10 * etp);
      CHECK(output_bytes(act, s) == 10 * 200 * 2);  // more rows of fewer features
      Operator dispatch = act;
      dispatch.kind = OperatorKind::dispatch;
      dispatch.split = TensorSplit::replicated;
      CHECK(local_rows(dispatch, s) == 10);  // before they travel
    }
  }
  SECTION("without it all have them anyway") {
    Operator down = activation_of_two_experts(0);
    down.kind = OperatorKind::expert_linear;
    down.split = TensorSplit::row;
    down.output_elements = 2 * 64;
    down.matmuls = {{1, 64, 100, 1}};
    ParameterTensor w = test::tensor("w2", {8, 64, 100}, 2, 1);
    w.expert = true;
    down.parameters = {w};
    down.inputs = {0};
    Shard s;
    s.rows = 40;
    s.tp = 4;
    for (const int etp : {1, 2, 4}) {
      s.etp = etp;
      CHECK(operator_work(down, ComputeKind::forward, s, {}).flops == Approx(2.0 * 80 * 64 * 100 / etp));
      CHECK(local_parameters(down, s) == 8 * 64 * 100 / etp);
    }
  }
}

TEST_CASE("a convolution reads a pixel from memory once, not for every place of its kernel") {
  Operator conv = test::make(OperatorKind::conv, TensorSplit::replicated, "conv2", 0, 56 * 56 * 64, 0);
  conv.inputs = {0};
  conv.matmuls = {{56.0 * 56, 64, 64 * 9, 1}};
  conv.parameters = {test::tensor("conv2.weight", {64, 64, 3, 3}, -1)};
  Shard s;
  s.rows = s.samples = 32;
  s.precision = DType::fp16;
  const double image = 32.0 * 56 * 56 * 64 * 2, weights = 64.0 * 64 * 9 * 2;
  const RuntimeProfile runtime = catalog_runtime("horovod");
  CHECK(operator_work(conv, ComputeKind::forward, s, runtime).bytes == Approx(2 * image + weights));
  CHECK(operator_work(conv, ComputeKind::backward_input, s, runtime).bytes == Approx(2 * image + weights));
}

TEST_CASE("where batch norm, ReLU and addition are one kernel, the latter two cost little") {
  Operator relu = test::make(OperatorKind::activation, TensorSplit::replicated, "relu", 0, 1000, 2000);
  relu.keeps_input = false;
  Operator add = test::make(OperatorKind::elementwise, TensorSplit::replicated, "add", 0, 1000, 3000);
  add.keeps_input = false;
  Shard s;
  s.rows = s.samples = 8;
  s.precision = DType::fp16;
  RuntimeProfile runtime = catalog_runtime("horovod");
  CHECK(operator_work(relu, ComputeKind::forward, s, runtime).kernels == 0);
  CHECK(operator_work(add, ComputeKind::forward, s, runtime).vector_bytes == Approx(8 * 1000 * 2));
  runtime.fused_normalization = false;
  CHECK(operator_work(relu, ComputeKind::forward, s, runtime).vector_bytes == Approx(8 * 2000 * 2));
  CHECK(operator_work(add, ComputeKind::forward, s, runtime).vector_bytes == Approx(8 * 3000 * 2));
}

TEST_CASE("convolution as an implicit product: ResNet-50's first layer") {
  Operator conv = test::make(OperatorKind::conv, TensorSplit::replicated, "conv1", 0, 112 * 112 * 64, 0);
  conv.matmuls = {{112.0 * 112, 64, 147, 1}};
  conv.parameters = {test::tensor("conv1.weight", {64, 3, 7, 7}, -1)};
  Shard s;
  s.rows = s.samples = 32;
  s.precision = DType::fp32;
  const RuntimeProfile runtime = catalog_runtime("pytorch-ddp");
  // 118 MFLOPs of multiply-adds an image.
  CHECK(operator_work(conv, ComputeKind::forward, s, runtime).flops == Approx(32 * 2 * 118013952.0));
  // No gradient of the image.
  CHECK(operator_work(conv, ComputeKind::backward, s, runtime).flops == Approx(32 * 2 * 118013952.0));
}

TEST_CASE("optimizer traffic counts states, gradient and weights") {
  RuntimeProfile runtime;
  runtime.fp32_gradients = true;
  // Adam over fp16: gradient 4, m and v read and written 16, master 8, weights 2.
  CHECK(optimizer_traffic_per_parameter(Optimizer::adam, DType::fp16, runtime) == 30);
  CHECK(optimizer_traffic_per_parameter(Optimizer::sgd, DType::fp32, runtime) == 12);
  CHECK(optimizer_traffic_per_parameter(Optimizer::momentum, DType::fp32, runtime) == 20);
}

TEST_CASE("work is finite, never negative and grows with rows, on random extreme shapes") {
  const CounterRandom random(7, 1);
  std::uint64_t draw = 0;
  const auto pick = [&](int low, int high) {
    const double x = random.uniform(draw++);
    return static_cast<int>(std::exp(std::log(low) + x * (std::log(high) - std::log(low))));
  };
  // Twice as many heads may be a multiple of four where as many were not: the softmax alone does not grow
  // then.
  RuntimeProfile runtime = megatron();
  runtime.fused_softmax_multiple = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int heads = pick(1, 256);
    const auto ops = test::gpt_operators({heads * pick(1, 300), heads, pick(1, 500000), 1});
    Shard s;
    s.seq_len = pick(1, 1000000);
    s.samples = pick(1, 4096);
    s.rows = s.seq_len * s.samples;
    s.tp = pick(1, 64);
    s.sequence_parallel = trial % 2 == 0;
    s.fused_attention = trial % 3 == 0;
    s.precision = trial % 5 == 0 ? DType::fp8 : DType::bf16;
    Shard twice = s;
    twice.rows *= 2;
    twice.samples *= 2;
    for (const Operator& op : ops) {
      for (const ComputeKind kind : {ComputeKind::forward, ComputeKind::backward, ComputeKind::backward_input,
                                     ComputeKind::backward_weight, ComputeKind::recompute}) {
        const OperatorWork a = operator_work(op, kind, s, runtime);
        const OperatorWork b = operator_work(op, kind, twice, runtime);
        for (const double x : {a.flops, a.bytes, a.kernels, a.vector_bytes, a.attention_flops}) {
          REQUIRE(std::isfinite(x));
          REQUIRE(x >= 0);
        }
        REQUIRE(b.flops >= a.flops);
        REQUIRE(b.bytes >= a.bytes);
      }
      REQUIRE(std::isfinite(saved_bytes(op, s, megatron())));
      REQUIRE(saved_bytes(op, twice, megatron()) >= saved_bytes(op, s, megatron()));
    }
  }
}

TEST_CASE(
    "Megatron-LM's fused softmax takes batches of heads in fours, and others are cast to fp32 and back") {
  RuntimeProfile runtime = megatron();
  REQUIRE(runtime.fused_softmax_multiple == 4);
  const Operator core = model()[3];
  REQUIRE(core.kind == OperatorKind::attention);
  Shard s = shard(8, false);  // 8 heads a rank
  for (const double samples : {1.0, 2.0}) {
    s.samples = samples;
    s.rows = kS * samples;
    RuntimeProfile any = runtime;
    any.fused_softmax_multiple = 0;
    const OperatorWork fused = operator_work(core, ComputeKind::forward, s, any);
    CHECK(operator_work(core, ComputeKind::forward, s, runtime).vector_bytes == fused.vector_bytes);
    runtime.fused_softmax_multiple = 16;  // as if: 8 heads are not enough, 16 are
    const OperatorWork loose = operator_work(core, ComputeKind::forward, s, runtime);
    runtime.fused_softmax_multiple = 4;
    const double scores = samples * 8 * kS * kS;
    CHECK(loose.vector_bytes - fused.vector_bytes == Approx(samples == 1 ? 32 * scores : 0));
    CHECK(loose.kernels - fused.kernels == Approx(samples == 1 ? 4 : 0));
  }
}

TEST_CASE("no fused softmax takes scores in fp32: the mask is filled in by kernels of its own") {
  RuntimeProfile fused = megatron(), any = megatron();
  any.fused_softmax_multiple = 0;
  const Operator core = model()[3];
  Shard s = shard(8, false);  // 8 heads a rank: a multiple of four
  const double scores = kB * 8 * kS * kS;
  for (const DType precision : {DType::fp16, DType::fp32, DType::tf32}) {
    s.precision = precision;
    const bool narrow = precision == DType::fp16;
    for (const auto& [kind, bytes, kernels] :
         {std::tuple(ComputeKind::forward, 8, 1), {ComputeKind::backward, 16, 2}}) {
      const OperatorWork work = operator_work(core, kind, s, fused),
                         least = operator_work(core, kind, s, any);
      CHECK(work.vector_bytes - least.vector_bytes == Approx(narrow ? 0 : bytes * scores));
      CHECK(work.kernels - least.kernels == Approx(narrow ? 0 : kernels));
    }
  }
}

TEST_CASE("experts run operator by operator, or inside their grouped 8-bit product") {
  const Operator act = activation_of_two_experts(6);
  Shard s;
  s.rows = 10;
  s.ep = 4;
  s.precision = DType::fp8;
  RuntimeProfile runtime;
  const auto bytes = [&](ComputeKind kind) { return operator_work(act, kind, s, runtime).vector_bytes; };
  CHECK(bytes(ComputeKind::forward) == Approx(10 * 600 * 2));
  runtime.eager_experts = true;
  CHECK(bytes(ComputeKind::forward) == Approx(10 * 200 * 32));
  CHECK(bytes(ComputeKind::backward) == Approx(10 * 200 * 168));
  s.gelu_experts = true;  // clamped before
  CHECK(bytes(ComputeKind::forward) == Approx(10 * 200 * 74));
  CHECK(bytes(ComputeKind::backward) == Approx(10 * 200 * 242));
  s.gelu_experts = false;
  runtime.fused_experts = true;
  CHECK(bytes(ComputeKind::forward) == 0);
  s.precision = DType::bf16;  // has no fused grouped layer
  CHECK(bytes(ComputeKind::forward) == Approx(10 * 200 * 32));
  s.precision = DType::fp8;
  s.gelu_experts = true;  // what is clamped has a kernel of its own between grouped products
  CHECK(bytes(ComputeKind::forward) == Approx(10 * 600 * 2));
}

TEST_CASE(
    "a scan moves its channels, states and squares, and a plain expert's arithmetic less than a gated "
    "one's") {
  Operator scan;
  scan.kind = OperatorKind::scan;
  scan.split = TensorSplit::heads;
  scan.state_space = StateSpaceShape{4, 8, 16, 2, 4, 32};
  scan.output_elements = 32;
  Shard s;
  s.rows = 64;
  RuntimeProfile runtime;
  // d 32, g 32, c 96, s 16 and b 64 a token: program/scan_work.cc has the passes.
  const OperatorWork forward = operator_work(scan, ComputeKind::forward, s, runtime);
  CHECK(forward.vector_bytes == Approx(64 * (2 * (2 * 96 + 6 * 32 + 4 * 32) + 12 * 16 + 8 * 64)));
  CHECK(forward.attention_flops == Approx(64 * (32 * (4 * 16 + 32) + 2 * 2 * 32 * 16 + 2 * 4 * 96)));
  const OperatorWork backward = operator_work(scan, ComputeKind::backward, s, runtime);
  CHECK(backward.flops == Approx(2 * forward.flops));
  CHECK(backward.vector_bytes > 2 * forward.vector_bytes);
  CHECK(operator_work(scan, ComputeKind::backward_weight, s, runtime).bytes == 0);
  s.tp = 2;  // heads and groups are split
  CHECK(operator_work(scan, ComputeKind::forward, s, runtime).vector_bytes ==
        Approx(forward.vector_bytes / 2));
  // Kept: gate, convolved channels and step sizes as they came, and the output before its norm.
  CHECK(saved_bytes(scan, s, runtime) == Approx(64 * (2 * 32 + 96 + 4) / 2.0 * 2));

  const Operator act = activation_of_two_experts(4);
  runtime.eager_experts = true;
  s = Shard{};
  s.rows = 10;
  s.gated_experts = false;
  CHECK(operator_work(act, ComputeKind::forward, s, runtime).vector_bytes == Approx(10 * 200 * 20));
  runtime.fused_experts = true;  // Transformer Engine's kernel is SwiGLU's
  s.precision = DType::fp8;
  CHECK(operator_work(act, ComputeKind::backward, s, runtime).vector_bytes == Approx(10 * 200 * 58));
}

TEST_CASE("scans of other kinds move what their own kernels do, by hand") {
  Operator scan;
  scan.kind = OperatorKind::scan;
  scan.split = TensorSplit::heads;
  Shard s;
  s.rows = 64;
  const RuntimeProfile runtime;
  const auto bytes = [&](ComputeKind kind) {
    return operator_work(scan, kind, s, runtime).vector_bytes / 64;
  };
  // Qwen3-Next's dimensions by an eighth: 4 heads of 16 values, 2 of keys of 8, chunks of 64.
  scan.state_space = StateSpaceShape{4, 16, 8, 2, 4, 64};
  scan.state_space->kind = StateSpaceKind::gated_delta;
  scan.output_elements = 64;
  // d 64, c 96, k 32, s 8 and b 256 a token.
  CHECK(bytes(ComputeKind::forward) == Approx(2 * (2 * 96 + 11 * 32 + 9 * 64 + 2 * 8 + 2 * 256) + 8 * 256));
  CHECK(bytes(ComputeKind::backward) == Approx(2 * (3 * 96 + 27 * 32 + 21 * 64 + 4 * 8 + 2 * 256)));
  const double flops =
      64 * (4.0 * 8 + 64) + 2.0 * 2 * 64 * 8 + 2.0 * 4 * 96 + 4 * 64 * (2.0 * 8 + 16) + 2.0 * 64 * 8;
  CHECK(operator_work(scan, ComputeKind::forward, s, runtime).attention_flops == Approx(64 * flops));
  CHECK(operator_work(scan, ComputeKind::backward, s, runtime).attention_flops ==
        Approx(64 * (2 * flops + 4 * 64 * 24 + 4.0 * 64 * 8)));

  // MiniMax's: as many keys as values, no convolution, no states in memory.
  scan.state_space = StateSpaceShape{4, 16, 16, 4, 0, 256};
  scan.state_space->kind = StateSpaceKind::lightning;
  CHECK(bytes(ComputeKind::forward) == Approx(2 * 15 * 64));
  CHECK(bytes(ComputeKind::backward) == Approx(2 * 34 * 64));

  // Mamba's: 64 channels of 16 states. Its arithmetic is no product.
  scan.state_space = StateSpaceShape{64, 1, 16, 1, 4, 128};
  scan.state_space->kind = StateSpaceKind::mamba1;
  CHECK(bytes(ComputeKind::forward) == Approx(2 * (7 * 64 + 2 * 16)));
  CHECK(bytes(ComputeKind::backward) == Approx(2 * (14 * 64 + 2 * 16) + 4 * 2 * 16));
  const OperatorWork work = operator_work(scan, ComputeKind::forward, s, runtime);
  CHECK(work.attention_flops == 0);
  CHECK(work.scalar_flops == Approx(64 * 22.0 * 64 * 16));
  CHECK(operator_work(scan, ComputeKind::backward, s, runtime).scalar_flops == Approx(64 * 38.0 * 64 * 16));
  CHECK(work.flops == Approx(64 * (6.0 * 64 * 16 + 2 * 4 * 64)));
  s.tp = 2;
  CHECK(operator_work(scan, ComputeKind::forward, s, runtime).scalar_flops == Approx(work.scalar_flops / 2));
}

TEST_CASE("products of 4 bits read 4 bits and a share of their scales, and are cast in three passes") {
  const Operator up = model()[7];
  REQUIRE(up.kind == OperatorKind::linear);
  Shard s = shard(1, false);
  s.precision = DType::fp8;
  const OperatorWork eight = operator_work(up, ComputeKind::forward, s, megatron());
  s.precision = DType::fp4;
  const OperatorWork four = operator_work(up, ComputeKind::forward, s, megatron());
  REQUIRE(four.products.size() == eight.products.size());
  CHECK(four.flops == eight.flops);
  const double in = s.rows * static_cast<double>(up.matmuls[0].k);
  CHECK(eight.quantize_bytes == Approx(in * (2 + 2)));
  CHECK(four.quantize_bytes == Approx(in * (3 * 2 + 2 * 0.5625)));
  CHECK(storage_type(DType::fp4) == DType::bf16);
  CHECK(product_type(OperatorKind::head, DType::fp4) == DType::bf16);
}

TEST_CASE("full recomputation may keep what goes into attention") {
  RuntimeProfile runtime = megatron();
  const std::vector<Operator> ops = model();
  const Operator& qkv = ops[2];
  REQUIRE(qkv.name.ends_with("qkv"));
  CHECK(operator_work(qkv, ComputeKind::recompute, shard(1, false), runtime).flops > 0);
  runtime.recompute_keeps_projections = true;
  CHECK(operator_work(qkv, ComputeKind::recompute, shard(1, false), runtime).flops == 0);
  CHECK(operator_work(qkv, ComputeKind::forward, shard(1, false), runtime).flops > 0);
}

TEST_CASE("autocast: as many kernels as traces of eager models count") {
  // PyTorch 2.11, transformers 5.17, one micro-batch; without the optimizer's (docs/accuracy.md, "Measured by
  // us").
  struct Traced {
    const char* model;
    int batch, seq_len;
    double forward, backward;
  };
  for (const Traced& traced :
       {Traced{"gpt2", 8, 1024, 411, 706}, Traced{"llama-3.2-1b", 1, 2048, 854, 1659}}) {
    const auto job = test::make_job(fmt::format("{}/huggingface/{}.json", ORRERY_TEST_DATA, traced.model),
                                    "dgx-h200", 1, traced.batch, traced.seq_len, "hugging-face");
    Choices choices;
    choices.micro_batch = traced.batch;
    const Shard shard = shard_of({job, choices});
    double forward = 0, backward = 0;
    for (const Operator& op : job->workload.operators) {
      forward += operator_work(op, ComputeKind::forward, shard, job->runtime).kernels;
      backward += operator_work(op, ComputeKind::backward, shard, job->runtime).kernels;
    }
    INFO(traced.model << ": " << forward << " and " << backward);
    CHECK(forward == Approx(traced.forward).epsilon(0.15));
    CHECK(backward == Approx(traced.backward).epsilon(0.15));
  }
}

TEST_CASE("autocast: weights are cast once a pass, inputs for each matrix, and nothing in fp32") {
  RuntimeProfile runtime = catalog_runtime("hugging-face");
  Shard s;
  s.rows = 1000;
  s.samples = 1;
  s.seq_len = 1000;
  Operator up = test::make(OperatorKind::linear, TensorSplit::column, "up", 0, 4000, 0);
  up.inputs = {0};
  up.matmuls = {{1, 4000, 1000, 1}};
  up.parameters = {test::tensor("gate.weight", {2000, 1000}, 0), test::tensor("up.weight", {2000, 1000}, 0)};
  const auto bytes = [&](ComputeKind kind) { return operator_work(up, kind, s, runtime).vector_bytes; };
  CHECK(bytes(ComputeKind::forward) == Approx(6 * (4e6 + 2 * 1e6)));
  // Gradients are widened at half of the rate; those of the input that both read are added.
  CHECK(bytes(ComputeKind::backward_weight) == Approx(12 * 4e6));
  CHECK(bytes(ComputeKind::backward_input) == Approx(1e6 * (2 * 12 + 12)));
  s.accumulating = 0.75;  // of four micro-batches
  CHECK(bytes(ComputeKind::backward_weight) == Approx(4e6 * (12 + 0.75 * 12)));
  s.precision = DType::fp32;
  CHECK(bytes(ComputeKind::forward) == 0);
  CHECK(optimizer_traffic_per_parameter(Optimizer::adam, DType::bf16, runtime) == 34);
  runtime.optimizer_bytes_per_parameter = 0;
  CHECK(optimizer_traffic_per_parameter(Optimizer::adam, DType::bf16, runtime) == 28);
}
