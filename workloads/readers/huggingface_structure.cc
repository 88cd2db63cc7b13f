#include "workloads/readers/huggingface_structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "workloads/checks.h"

namespace orrery::internal {
namespace {

using Names = std::vector<std::string_view>;

// The names that configurations have for a dimension.
const std::map<std::string_view, Names>& dimension_keys() {
  static const std::map<std::string_view, Names> keys = {
      {"layers", {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}},
      {"hidden", {"hidden_size", "n_embd", "d_model", "n_embed"}},
      {"heads", {"num_attention_heads", "n_head", "num_heads", "n_heads"}},
      {"kv_heads", {"num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads"}},
      {"head_dim", {"head_dim", "attention_head_dim"}},
      {"ffn_hidden", {"intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"}},
      {"vocab", {"vocab_size"}},
      {"positions", {"max_position_embeddings", "n_positions", "max_sequence_length"}},
      {"activation",
       {"hidden_activation", "hidden_act", "activation_function", "activation", "mlp_hidden_act"}},
      {"norm_epsilon", {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"}},
      {"rope_theta", {"rope_theta", "rotary_emb_base", "global_rope_theta"}},
      {"rotary_fraction", {"partial_rotary_factor", "rotary_pct"}},
      {"window", {"sliding_window", "attention_chunk_size", "local_attention"}},
      {"experts", {"num_local_experts", "n_routed_experts", "num_experts"}},
      {"experts_per_token", {"num_experts_per_tok", "num_experts_per_token", "experts_per_token"}},
      {"expert_ffn_hidden", {"moe_intermediate_size"}},
      {"shared_ffn_hidden",
       {"shared_expert_intermediate_size", "shared_intermediate_size",
        "moe_shared_expert_intermediate_size"}},
      {"shared_experts", {"n_shared_experts", "num_shared_experts"}},
  };
  return keys;
}

// What boolean keys decide.
const std::map<std::string_view, Names>& facts_by_key() {
  static const std::map<std::string_view, Names> facts = {
      {"attention_bias", {"qkv_bias", "proj_bias"}},
      {"attention_out_bias", {"proj_bias"}},
      {"mlp_bias", {"mlp_bias"}},
      {"bias", {"qkv_bias", "linear_bias"}},
      {"use_bias", {"qkv_bias", "linear_bias"}},
      {"enable_bias", {"qkv_bias", "linear_bias"}},
      {"qkv_bias", {"qkv_bias"}},
      {"use_qkv_bias", {"qkv_bias"}},
      {"lm_head_bias", {"head_bias"}},
      {"use_parallel_residual", {"parallel_residual"}},
      {"parallel_attn", {"parallel_residual"}},
      {"use_qk_norm", {"qk_norm"}},
      {"qk_layernorm", {"qk_norm"}},
      {"use_routing_bias", {"router_bias"}},
  };
  return facts;
}

struct Flag {
  std::string_view fact;
  bool Transformer::*field;
};
constexpr std::array<Flag, 25> kFlags = {{
    {"gated_ffn", &Transformer::gated_ffn},
    {"post_norm", &Transformer::post_norm},
    {"qkv_bias", &Transformer::qkv_bias},
    {"linear_bias", &Transformer::linear_bias},
    {"proj_bias", &Transformer::proj_bias},
    {"mlp_bias", &Transformer::mlp_bias},
    {"head_bias", &Transformer::head_bias},
    {"qk_norm", &Transformer::qk_norm},
    {"qk_norm_whole", &Transformer::qk_norm_whole},
    {"qk_norm_absent_weights", &Transformer::qk_norm_absent_weights},
    {"parallel_residual", &Transformer::parallel_residual},
    {"single_norm", &Transformer::single_norm},
    {"bidirectional", &Transformer::bidirectional},
    {"learned_positions", &Transformer::learned_positions},
    {"branch_norms", &Transformer::branch_norms},
    {"no_input_norms", &Transformer::no_input_norms},
    {"first_norm_absent", &Transformer::first_norm_absent},
    {"embedding_norm", &Transformer::embedding_norm},
    {"unbiased_norm", &Transformer::unbiased_norm},
    {"norms_offset", &Transformer::norms_offset},
    {"attention_gate", &Transformer::attention_gate},
    {"attention_sinks", &Transformer::attention_sinks},
    {"mlm_head", &Transformer::mlm_head},
    {"pooler", &Transformer::pooler},
    {"unbiased_transform", &Transformer::unbiased_transform},
}};

// The least that a workload's file may say: no element of a head.
constexpr double kTurnsNothing = 1e-6;

// Of the hidden size, an MLP's width.
constexpr int kMaxExpansion = 64;

int default_head_dim(Config& config, const Transformer& t, std::string_view key) {
  if (t.hidden % t.heads != 0)
    config.fail(key, fmt::format("{} does not divide the hidden size {}", t.heads, t.hidden),
                "expected a divisor of it, or head_dim");
  return t.hidden / t.heads;
}

}  // namespace

Structure::Structure(Config& config, const Family& family)
    : config_(config), family_(family), facts_(family.is) {}

std::string Structure::key_of(std::string_view dimension) {
  if (const auto own = family_.keys.find(dimension); own != family_.keys.end()) return own->second;
  const Names& names = dimension_keys().at(dimension);
  std::string_view chosen;
  for (const std::string_view name : names)
    if (chosen.empty() && config_.in_file(name) && config_.find(name) != nullptr) chosen = name;
  for (const std::string_view name : names)
    if (chosen.empty() && config_.in_file(name)) chosen = name;
  for (const std::string_view name : names)
    if (chosen.empty() && config_.has(name)) chosen = name;
  if (chosen.empty()) return std::string(names.front());
  // The same said twice.
  for (const std::string_view name : names)
    if (config_.in_file(name) && config_.find(name) != nullptr) config_.use(name);
  return std::string(chosen);
}

bool Structure::says(std::string_view dimension) {
  return config_.find(key_of(dimension)) != nullptr;
}

int Structure::number(std::string_view dimension, int fallback, int least, int most) {
  return config_.integer(key_of(dimension), fallback, least, most);
}

int Structure::required(std::string_view dimension, int most) {
  return config_.required(key_of(dimension), most);
}

int Structure::set_number(std::string_view name, int fallback) const {
  const auto at = family_.set.find(std::string(name));
  return at == family_.set.end() ? fallback : at->get<int>();
}

std::string Structure::set_text(std::string_view name) const {
  const auto at = family_.set.find(std::string(name));
  return at == family_.set.end() ? std::string() : at->get<std::string>();
}

void Structure::read_facts() {
  for (const auto& [key, usual] : facts_by_key()) {
    if (!config_.has(key) || !config_.boolean(key, false)) continue;
    const auto own = family_.means.find(key);
    if (own == family_.means.end()) {
      facts_.insert(usual.begin(), usual.end());
    } else {
      facts_.insert(own->second.begin(), own->second.end());
    }
    if (facts_.contains("refused")) config_.fail(key, "true", "expected false");
  }
  if (config_.find("norm_bias") != nullptr && config_.boolean("norm_bias", true))
    facts_.erase("unbiased_norm");
  if (fact("parallel_residual") && family_.set.contains("parallel_single_norm")) facts_.insert("single_norm");
  for (const Flag& flag : kFlags) t_.*flag.field = fact(flag.fact);
}

Activation Structure::activation() {
  const std::string key = key_of("activation");
  const std::string name = config_.text(key, "");
  if (const auto known = activation_named(name)) return *known;
  if (name == "relu2") {
    // Squared: as many reads and writes.
    if (set_text("mixer").empty()) t_.unexecuted.push_back(key + " relu2");
    return Activation::relu;
  }
  config_.fail(key, name.empty() ? "missing" : fmt::format("'{}' is not known", name),
               "expected a gelu, silu or relu");
}

void Structure::read_width() {
  const bool told_by_pattern = !set_text("mixer").empty() && (config_.in_file("hybrid_override_pattern") ||
                                                              config_.in_file("layers_block_type"));
  t_.layers = told_by_pattern ? number("layers", 0, 1, kMaxLayers) : required("layers", kMaxLayers);
  t_.hidden = required("hidden", kMaxWidth);
  t_.vocab = required("vocab", kMaxVocab);
  t_.activation = activation();
  t_.tied_embeddings = config_.boolean("tie_word_embeddings", true);
  const int multiple = config_.integer("expansion_ratio", set_number("ffn_multiple", 0), 0, kMaxExpansion);
  t_.ffn_hidden = number(
      "ffn_hidden", static_cast<int>(std::min<std::int64_t>(std::int64_t{multiple} * t_.hidden, kMaxWidth)),
      1, kMaxWidth);
  if (config_.boolean("add_cross_attention", false))
    config_.fail("add_cross_attention", "true", "expected a decoder without an encoder");
  if (config_.find("word_embed_proj_dim") != nullptr &&
      config_.integer("word_embed_proj_dim", 0, 1, kMaxWidth) != t_.hidden)
    config_.fail("word_embed_proj_dim", "differs from hidden_size", "expected the same");
}

void Structure::read_attention() {
  const std::string heads_key = key_of("heads");
  t_.heads = required("heads", kMaxHeads);
  // Falcon: one key and value head for all, unless of the new kind.
  const bool grouped = config_.boolean("new_decoder_architecture", false);
  const bool single = config_.boolean("multi_query", false) && !grouped;
  if (grouped) facts_.insert("parallel_residual");
  const int said = number("kv_heads", t_.heads, 1, kMaxHeads);
  t_.kv_heads = single ? 1 : config_.has("multi_query") && !grouped ? t_.heads : said;
  if (t_.heads % t_.kv_heads != 0)
    config_.fail(key_of("kv_heads"), fmt::format("{} does not divide the {} heads", t_.kv_heads, t_.heads),
                 "expected a divisor of " + heads_key);
  if (config_.has("multi_query")) {
    const int norms = config_.integer("num_ln_in_parallel_attn", grouped ? 2 : 1, 1, 2);
    if (fact("parallel_residual") && !(grouped && norms == 2)) facts_.insert("single_norm");
    if (grouped && norms == 2) t_.family += "_new";
  }
  t_.head_dim =
      says("head_dim") ? number("head_dim", 0, 1, kMaxHeads) : default_head_dim(config_, t_, heads_key);
}

void Structure::read_latent_attention() {
  t_.heads = t_.kv_heads = required("heads", kMaxHeads);
  config_.use("num_key_value_heads");  // of the attention behind the low ranks: as many as heads
  config_.use("head_dim");             // in files of transformers: the rotary part
  config_.use("qk_head_dim");
  LatentAttention mla;
  mla.q_lora_rank = config_.integer("q_lora_rank", 0, 1, kMaxWidth);
  mla.kv_lora_rank = config_.required("kv_lora_rank", kMaxWidth);
  mla.qk_nope_head_dim = config_.required("qk_nope_head_dim", kMaxHeads);
  mla.qk_rope_head_dim = config_.integer("qk_rope_head_dim", 0, 0, kMaxHeads);
  mla.v_head_dim = config_.required("v_head_dim", kMaxHeads);
  if (config_.find("index_n_heads") != nullptr) {
    mla.index_heads = config_.required("index_n_heads", kMaxHeads);
    mla.index_head_dim = config_.required("index_head_dim", kMaxHeads);
    mla.index_top_k = config_.required("index_topk", kMaxPositions);
  }
  t_.mla = mla;
  t_.head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
}

// Rotary positions: `rope_theta`, or v5's `rope_parameters`.
void Structure::read_rotary() {
  t_.rope_theta = config_.real(key_of("rope_theta"), 10000, 1, 1e12);
  t_.rotary_fraction = config_.real(key_of("rotary_fraction"), 1, 1e-3, 1);
  if (config_.find("rotary_dim") != nullptr)
    t_.rotary_fraction = config_.integer("rotary_dim", 0, 1, std::max(1, t_.head_dim)) /
                         static_cast<double>(std::max(1, t_.head_dim));
  const Json* parameters = config_.find("rope_parameters");
  if (parameters == nullptr || !parameters->is_object()) return;
  const auto number = [&](const char* key, double fallback) {
    const auto at = parameters->find(key);
    if (at == parameters->end() || !at->is_number()) return fallback;
    return at->get<double>();
  };
  const double named = number("rope_theta", t_.rope_theta);
  const double part = number("partial_rotary_factor", t_.rotary_fraction);
  if (!(named >= 1 && named <= 1e12) || !(part > 0 && part <= 1))
    config_.fail("rope_parameters", "has an impossible rope_theta or partial_rotary_factor",
                 "expected positive numbers");
  t_.rope_theta = named;
  t_.rotary_fraction = part;
  if (std::any_of(parameters->begin(), parameters->end(),
                  [](const Json& value) { return value.is_object(); }))
    t_.unexecuted.emplace_back("rope_parameters by kind of layer");
}

void Structure::read_positions() {
  t_.max_positions = number("positions", 2048, 1, kMaxPositions);
  t_.position_offset = set_number("position_offset", 0);
  if (const int within = set_number("positions_include_offset", 0); within > 0) {
    if (t_.max_positions <= within)
      config_.fail(key_of("positions"), fmt::format("{}", t_.max_positions), "expected a longer table");
    t_.position_offset = within;
    t_.max_positions -= within;
  }
  t_.token_types = config_.integer("type_vocab_size", 0, 0, 1024);
  if (config_.boolean("alibi", false)) facts_.insert("alibi");
  if (fact("alibi")) {
    t_.rotary_fraction = kTurnsNothing;
    t_.unexecuted.emplace_back("linear biases for positions (ALiBi)");
  } else if (!t_.learned_positions) {
    read_rotary();
  }
}

void Structure::read_norms() {
  t_.norm = fact("rms_norm") ? NormKind::rms_norm : NormKind::layer_norm;
  t_.norm_epsilon = config_.real(key_of("norm_epsilon"), 1e-5, 1e-30, 1);
  if (!config_.boolean("do_layer_norm_before", true))
    config_.fail("do_layer_norm_before", "false", "expected true: OPT-350M's post-norm is not supported");
  config_.use("_remove_final_layer_norm");
}

// Which heads there are is the class's business: …ForMaskedLM has no pooler, …Model no head of its own (it is
// trained through the tied embeddings), …ForPreTraining both.
void Structure::read_heads_of_encoders() {
  if (!fact("mlm_head")) return;
  if (config_.boolean("is_decoder", false)) t_.bidirectional = false;
  const std::string name = config_.first_class();
  if (name.ends_with("ForMaskedLM") || name.ends_with("LMHeadModel") || name.ends_with("ForCausalLM")) {
    t_.pooler = false;
  } else if (name.ends_with("Model")) {
    t_.mlm_head = false;
  }
}

Transformer Structure::read() {
  t_.family = family_.tensors;
  t_.unexecuted = family_.unexecuted;
  check_usual(config_, family_);
  read_facts();
  read_width();
  if (fact("scaled_embeddings")) t_.embedding_scale = std::sqrt(t_.hidden);
  const bool attends = set_text("mixer").empty() || config_.in_file("num_attention_heads");
  if (config_.find("kv_lora_rank") != nullptr) {
    read_latent_attention();
  } else if (attends) {
    read_attention();
    for (const Flag& flag : kFlags) t_.*flag.field = fact(flag.fact);
  }
  read_positions();
  read_norms();
  read_experts();
  read_windows();
  read_mixers();
  if (t_.layers == 0) config_.fail("num_hidden_layers", "missing", "expected a whole number");
  if (t_.heads == 0) config_.fail("num_attention_heads", "missing", "expected a whole number");
  if (t_.layer_pattern.empty() && !t_.moe && t_.ffn_hidden == 0) required("ffn_hidden", kMaxWidth);
  t_.multi_token_layers = config_.integer("num_nextn_predict_layers", 0, 0, 64);
  if (t_.multi_token_layers == 0) t_.multi_token_pattern.clear();
  read_heads_of_encoders();
  return std::move(t_);
}

}  // namespace orrery::internal
