#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "base/random.h"
#include "workloads/layer_graph.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

Transformer small() {
  Transformer t;
  t.family = "gpt2";
  t.layers = 2;
  t.hidden = 16;
  t.heads = t.kv_heads = 4;
  t.head_dim = 4;
  t.ffn_hidden = 64;
  t.vocab = 100;
  t.max_positions = 32;
  t.learned_positions = t.tied_embeddings = t.qkv_bias = t.linear_bias = true;
  return t;
}

Workload workload_of(const Transformer& t) {
  Workload w;
  w.transformer = t;
  w.layers = t.layers;
  w.default_seq_len = t.max_positions;
  w.operators = transformer_operators(t);
  return w;
}

std::string names(const std::vector<Operator>& operators, int layer) {
  std::string all;
  for (const Operator& op : operators)
    if (op.layer == layer) all += (all.empty() ? "" : " ") + op.name;
  return all;
}

TEST_CASE("transformer: a layer of a pattern is one thing between a norm and its residual") {
  Transformer t = small();
  t.family = "nemotron_h";
  t.learned_positions = t.qkv_bias = t.linear_bias = t.tied_embeddings = false;
  t.norm = NormKind::rms_norm;
  t.layers = 4;
  t.layer_pattern = "M*-E";
  t.state_space = StateSpaceShape{4, 8, 16, 2, 4, 32};
  t.moe = MixtureOfExperts{8, 2, 32, 16};
  t.moe->latent = 8;
  const std::vector<Operator> operators = transformer_operators(t);
  CHECK(names(operators, 0) == "h.0.norm1 h.0.state_in h.0.scan h.0.state_out h.0.residual1");
  CHECK(names(operators, 1) == "h.1.norm1 h.1.qkv h.1.attention h.1.proj h.1.residual1");
  CHECK(names(operators, 2) == "h.2.norm1 h.2.mlp_up h.2.activation h.2.mlp_down h.2.residual1");
  CHECK(names(operators, 3) ==
        "h.3.norm1 h.3.router h.3.latent_down h.3.dispatch h.3.experts_up h.3.activation h.3.experts_down "
        "h.3.combine h.3.latent_up h.3.shared_up h.3.shared_activation h.3.shared_down h.3.residual1");
  for (const Operator& op : operators) {
    // 32 channels of gate and of input, two maps of 2 x 16, a step size a head; the convolution has all but
    // the gate.
    if (op.name == "h.0.state_in") CHECK(op.output_elements == 32 + 96 + 4);
    if (op.name == "h.0.scan") {
      CHECK(op.parameter_count() == 96 * 4 + 96 + 3 * 4 + 32);
      // 32 x (4 x 16 + 32) of states and squares, 2 x 2 x 32 x 16 of scores, 2 x 4 x 96 of the convolution
      CHECK(op.forward_flops_per_row(64) == 3072 + 2048 + 768);
    }
    if (op.name == "h.3.dispatch") CHECK(op.output_elements == 2 * 8);
    if (op.name == "h.3.experts_up") CHECK(op.parameter_count() == 8 * 32 * 8);
  }
}

TEST_CASE("transformer: operators stand in the documented order") {
  Transformer t = small();
  CHECK(names(transformer_operators(t), 0) ==
        "h.0.norm1 h.0.qkv h.0.attention h.0.proj h.0.residual1 h.0.norm2 h.0.mlp_up h.0.activation "
        "h.0.mlp_down h.0.residual2");
  CHECK(names(transformer_operators(t), -1) == "embedding");
  CHECK(names(transformer_operators(t), 2) == "final_norm head loss_max loss_sum loss");
  t.moe = MixtureOfExperts{8, 2, 32, 16, 1, 1};
  CHECK(names(transformer_operators(t), 1) ==
        "h.1.norm1 h.1.qkv h.1.attention h.1.proj h.1.residual1 h.1.norm2 h.1.router h.1.dispatch "
        "h.1.experts_up h.1.activation h.1.experts_down h.1.combine h.1.shared_up h.1.shared_activation "
        "h.1.shared_down h.1.residual2");
  t = small();
  t.post_norm = true;
  CHECK(names(transformer_operators(t), 0) ==
        "h.0.qkv h.0.attention h.0.proj h.0.residual1 h.0.norm1 h.0.mlp_up h.0.activation h.0.mlp_down "
        "h.0.residual2 h.0.norm2");
  t = small();
  t.parallel_residual = true;
  const auto parallel = transformer_operators(t);
  CHECK(names(parallel, 0) ==
        "h.0.norm1 h.0.qkv h.0.attention h.0.proj h.0.norm2 h.0.mlp_up h.0.activation h.0.mlp_down "
        "h.0.residual2");
  CHECK(parallel[9].inputs == std::vector<int>{4, 8, 0});
}

TEST_CASE("transformer: GPT-2's tensors have Hugging Face's names, shapes and splits") {
  const auto operators = transformer_operators(small());
  const Operator& qkv = operators[2];
  REQUIRE(qkv.parameters.size() == 2);
  CHECK(qkv.parameters[0].name == "transformer.h.0.attn.c_attn.weight");
  CHECK(qkv.parameters[0].shape == std::vector<std::int64_t>{16, 48});
  CHECK(qkv.parameters[0].split_dim == 1);
  CHECK(qkv.parameters[0].split_parts == 3);
  CHECK(qkv.parameters[1].split_dim == 0);
  const Operator& down = operators[9];
  CHECK(down.parameters[0].split_dim == 0);
  CHECK(down.parameters[1].split_dim == -1);
  for (const Operator& op : operators)
    if (op.kind == OperatorKind::head) CHECK(op.parameters[0].tied_to == "transformer.wte.weight");
}

TEST_CASE("transformer: FLOPs are two a multiply-add, half the square of causal attention, by hand") {
  Transformer t = small();
  const double s = 32, h = 16, v = 100;
  const double products = 2 * s * (2 * 12 * h * h + v * h);
  const double square = 2 * 2 * s * s * h;  // one layer: scores and context
  CHECK(workload_of(t).forward_flops_per_sample(32) == products + 2 * square / 2);
  t.bidirectional = true;
  CHECK(workload_of(t).forward_flops_per_sample(32) == products + 2 * square);
  t.bidirectional = false;
  t.sliding_window = 8;  // 8 - 64 / 64 = 7 keys on average
  CHECK(workload_of(t).forward_flops_per_sample(32) == products + 2 * 2 * 2 * s * 7 * h);
  t.sliding_window_from_layer = 1;
  CHECK(workload_of(t).forward_flops_per_sample(32) == products + square / 2 + 2 * 2 * s * 7 * h);
}

TEST_CASE("transformer: only the active experts cost FLOPs") {
  Transformer t = small();
  t.moe = MixtureOfExperts{8, 2, 64, 0, 0, 1};
  const double one = workload_of(t).forward_flops_per_sample(32);
  t.moe->experts_per_token = 4;
  CHECK(workload_of(t).forward_flops_per_sample(32) - one == 2.0 * 32 * 2 * 2 * (2 * 16 * 64));
}

TEST_CASE("transformer: a random model's operators are ordered, add up, and grow with it") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const CounterRandom random(seed, 7);
    std::uint64_t draw = 0;
    const auto below = [&](std::uint64_t n) { return static_cast<int>(random.bits(draw++) % n); };
    Transformer t;
    const char* families[] = {"gpt2", "llama", "bert", "gpt_neox", "mixtral", "deepseek_v3", "megatron"};
    t.family = families[below(7)];
    t.layers = 1 + below(5);
    t.heads = 1 << below(4);
    t.kv_heads = t.heads / (1 << below(2)) > 0 ? t.heads / (1 << below(2)) : 1;
    while (t.heads % std::max(1, t.kv_heads) != 0 || t.kv_heads < 1) t.kv_heads = t.heads;
    t.head_dim = 8 * (1 + below(3));
    t.hidden = t.heads * t.head_dim;
    t.ffn_hidden = 16 * (1 + below(8));
    t.vocab = 50 + below(100);
    t.max_positions = 64;
    t.gated_ffn = below(2) == 1;
    t.tied_embeddings = below(2) == 1;
    t.learned_positions = below(2) == 1;
    t.post_norm = below(4) == 0;
    t.parallel_residual = !t.post_norm && below(3) == 0;
    t.single_norm = t.parallel_residual && below(2) == 0;
    t.qkv_bias = below(2) == 1;
    t.multi_token_layers = t.post_norm ? 0 : below(2);
    if (below(3) == 0)
      t.moe = MixtureOfExperts{4 + below(4), 1 + below(3), 32, 16 * below(2), below(2),
                               1 + below(2), false,        0,  below(2) == 1, below(2) == 1};
    if (below(3) == 0) t.mla = LatentAttention{24 * below(2), 16, 8, 4, 12};
    const Workload w = workload_of(t);
    CHECK(boost::num_vertices(layer_graph(w)) == w.operators.size());
    std::int64_t parameters = 0;
    double flops = 0;
    std::set<std::string> tensors, operators, tied;
    int layer = -1;
    for (const Operator& op : w.operators) {
      CHECK(op.layer >= layer);
      layer = op.layer;
      parameters += op.parameter_count();
      flops += op.forward_flops_per_row(48);
      CHECK(operators.insert(op.name).second);
      CHECK(op.output_elements > 0);
      for (const ParameterTensor& tensor : op.parameters) {
        CHECK(tensors.insert(tensor.name).second);
        if (!tensor.tied_to.empty()) tied.insert(tensor.tied_to);
        CHECK(tensor.split_dim < static_cast<int>(tensor.shape.size()));
        if (tensor.split_dim >= 0) CHECK(tensor.shape[tensor.split_dim] % tensor.split_parts == 0);
      }
    }
    for (const std::string& name : tied) CHECK(tensors.count(name) == 1);
    CHECK(w.operators.back().kind == OperatorKind::loss);
    CHECK(parameters == w.parameters());
    CHECK(flops * 48 == Approx(w.forward_flops_per_sample(48)));
    Transformer deeper = t, wider = t;
    ++deeper.layers;
    wider.ffn_hidden *= 2;
    if (t.multi_token_layers == 0 ||
        !t.moe) {  // a module is of the last layer's kind, which deepening changes
      CHECK(workload_of(deeper).parameters() > w.parameters());
      CHECK(workload_of(deeper).forward_flops_per_sample(48) > w.forward_flops_per_sample(48));
    }
    CHECK(workload_of(wider).parameters() >= w.parameters());
    CHECK(w.forward_flops_per_sample(49) > w.forward_flops_per_sample(48));
  }
}

}  // namespace
TEST_CASE("a share of the tokens reaches the head, and experts may have biases") {
  Transformer t = small();
  t.moe = MixtureOfExperts{8, 2, 32, 0};
  const Workload plain = workload_of(t);
  t.moe->expert_bias = true;
  t.masked_share = 0.25;
  const Workload other = workload_of(t);
  CHECK(other.parameters() - plain.parameters() == 2 * 8 * 16);  // layers x experts x hidden
  for (std::size_t i = 0; i < plain.operators.size(); ++i) {
    const double share = plain.operators[i].layer < t.layers ? 1 : 0.25;
    CHECK(other.operators[i].vector_elements == share * plain.operators[i].vector_elements);
  }
}

}  // namespace orrery
