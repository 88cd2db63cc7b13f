// Keys of configurations that change what is computed, and neither shapes nor cost.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <map>

#include "base/error.h"
#include "workloads/checks.h"
#include "workloads/huggingface_config.h"
#include "workloads/readers/huggingface_structure.h"

namespace orrery::internal {
namespace {

constexpr double kMostFactor = 1e6;
constexpr int kMostScaledPositions = 1 << 28;
constexpr int kMostGroups = 1 << 16;

// `rope_scaling`, or v5's `rope_parameters`.
void read_scaling(Config& config, std::string_view key, Transformer* t) {
  const Json* said = config.find(key);
  if (said == nullptr) return;
  if (!said->is_object()) config.fail(key, "is no object", "expected a rope_type and its numbers");
  const auto number = [&](const char* name, double fallback) {
    const auto at = said->find(name);
    if (at == said->end() || at->is_null()) return fallback;
    const double value = at->is_number() ? at->get<double>() : NAN;
    if (!(value > 0 && value <= kMostScaledPositions))
      config.fail(key, fmt::format("{} is {}", name, at->dump()), "expected a positive number");
    return value;
  };
  std::string kind = "default";
  for (const char* name : {"type", "rope_type"})
    if (const auto at = said->find(name); at != said->end() && at->is_string()) kind = at->get<std::string>();
  if (kind == "default" || kind == "mrope") return;  // text alone has one position in all of mrope's three
  // What transformers' classes do not start without.
  const auto demand = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const auto at = said->find(name); at == said->end() || at->is_null())
        config.fail(key, fmt::format("'{}' without {}", kind, name), "expected it beside the rope_type");
  };
  if (kind == "linear" || kind == "dynamic" || kind == "llama3" || kind == "yarn") demand({"factor"});
  if (kind == "llama3") demand({"low_freq_factor", "high_freq_factor"});
  if (kind == "longrope") {
    demand({"short_factor", "long_factor"});
    const double turned = t->mla ? t->mla->qk_rope_head_dim : t->head_dim * t->rotary_fraction;
    const auto pairs = static_cast<std::size_t>(std::lround(turned) / 2);
    for (const char* name : {"short_factor", "long_factor"})
      if (const Json& list = said->at(name); !list.is_array() || list.size() != pairs)
        config.fail(key, fmt::format("{} has {} numbers", name, list.is_array() ? list.size() : 0),
                    fmt::format("expected {}, one for every two of a head's turned dimensions", pairs));
  }
  RotaryScaling scaling;
  scaling.factor = std::clamp(number("factor", 1), 1.0, kMostFactor);
  scaling.original_positions = static_cast<int>(number("original_max_position_embeddings", t->max_positions));
  if (kind == "linear") {
    scaling.kind = RopeScaling::linear;
  } else if (kind == "dynamic") {
    scaling.kind = RopeScaling::dynamic;
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::llama3;
    scaling.low_frequency = number("low_freq_factor", 1);
    scaling.high_frequency = number("high_freq_factor", 4);
  } else if (kind == "yarn") {
    scaling.kind = RopeScaling::yarn;
    scaling.beta_fast = number("beta_fast", 32);
    scaling.beta_slow = number("beta_slow", 1);
    const double all = number("mscale_all_dim", 0);
    const double of_both =
        all > 0 ? yarn_amplitude(scaling.factor, number("mscale", 1)) / yarn_amplitude(scaling.factor, all)
                : yarn_amplitude(scaling.factor, 1);
    scaling.attention_factor = number("attention_factor", of_both);
    if (all > 0 && t->mla) {  // DeepSeek's classes scale all scores besides, turned or not
      const double amplitude = yarn_amplitude(scaling.factor, all);
      t->attention_scale = amplitude * amplitude / std::sqrt(t->head_dim);
    }
  } else {
    // transformers' others, and names that models in its style have; none changes what a step takes.
    constexpr std::array<std::string_view, 5> kOthers = {"longrope", "su", "ntk", "xdrope", "proportional"};
    if (std::find(kOthers.begin(), kOthers.end(), kind) == kOthers.end())
      config.fail(key, fmt::format("the rope_type '{}' is not known", kind),
                  fmt::format("expected default, linear, dynamic, llama3, yarn, mrope, {}",
                              fmt::join(kOthers, ", ")));
    t->unexecuted.push_back(fmt::format("{} of the kind '{}'", key, kind));
    return;
  }
  t->rotary_scaling = scaling;
}

// How experts are chosen beside softmax and top-k: DeepSeek-V2 and V3's groups, sigmoids and scales.
void read_routing(Config& config, Transformer* t) {
  const auto unless = [&](const char* key, const std::string& as_executed, const std::string& said) {
    if (said != as_executed) t->unexecuted.push_back(fmt::format("{} {}", key, said));
  };
  if (config.has("routed_scaling_factor"))
    unless("routed_scaling_factor", "1",
           fmt::format("{}", config.real("routed_scaling_factor", 1, 0, kMostFactor)));
  unless("scoring_func", "softmax", config.text("scoring_func", "softmax"));
  // One group is none, whatever is chosen of it.
  const int groups = config.has("n_group") ? config.integer("n_group", 1, 1, kMostGroups) : 1;
  unless("n_group", "1", std::to_string(groups));
  const int chosen = config.integer("topk_group", 1, 1, kMostGroups);
  if (groups > 1) unless("topk_group", "", std::to_string(chosen));
  const std::string method = config.text("topk_method", "greedy");
  const bool grouped = groups > 1 && (method != "greedy" || !config.has("topk_method"));
  if (grouped && t->moe && t->moe->experts % groups != 0)
    config.fail("n_group", fmt::format("{} groups of {} experts", groups, t->moe->experts),
                "expected a divisor of the experts");
  if (grouped && chosen > groups)
    config.fail("topk_group", fmt::format("{} of {} groups", chosen, groups), "expected at most n_group");
  if (method != "greedy" && (groups > 1 || method != "group_limited_greedy"))
    unless("topk_method", "greedy", method);
}

// Factors and caps of what is computed: gemma 2's, Granite's, Cohere's, GPT-OSS's, Llama 4's, MiniMax's.
void read_scales(Config& config, Transformer* t) {
  const auto unless = [&](const char* key, double neutral) {
    if (config.find(key) == nullptr) return;
    if (const double value = config.real(key, neutral, -kMostFactor, kMostFactor); value != neutral)
      t->unexecuted.push_back(fmt::format("{} {}", key, value));
  };
  for (const char* key :
       {"embedding_multiplier", "logits_scaling", "residual_multiplier", "logit_scale",
        "layernorm_full_attention_alpha", "layernorm_full_attention_beta", "layernorm_linear_attention_alpha",
        "layernorm_linear_attention_beta", "layernorm_mlp_alpha", "layernorm_mlp_beta",
        "full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor",
        "linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor"})
    unless(key, 1);
  for (const char* key : {"clip_qkv", "moe_jitter_eps", "input_jitter_noise", "swiglu_limit",
                          "attention_multiplier", "rope_local_base_freq", "local_rope_theta"})
    unless(key, 0);
  t->attention_softcap = config.real("attn_logit_softcapping", 0, 0, kMostFactor);
  t->final_softcap = config.real("final_logit_softcapping", 0, 0, kMostFactor);
  if (const double of = config.real("query_pre_attn_scalar", t->head_dim, 1e-6, kMostFactor);
      of != t->head_dim)
    t->attention_scale = 1 / std::sqrt(of);
  // Gemma 3's; of Gemma 4's words "all" means as much. Half the window lies on either side, the query in
  // both.
  if (const Json* says = config.find("use_bidirectional_attention"); says != nullptr && *says != false) {
    if (*says != true && *says != "all") {
      t->unexecuted.push_back(fmt::format("use_bidirectional_attention {}", says->dump()));
    } else if (!t->bidirectional) {
      t->bidirectional = true;
      if (t->sliding_window > 0) t->sliding_window = t->sliding_window / 2 + 1;
    }
  }
  for (const char* key : {"attn_temperature_tuning", "rope_interleaved", "sinusoidal_pos_embds"})
    if (const Json* says = config.find(key); says != nullptr && *says != false)
      t->unexecuted.push_back(fmt::format("{} {}", key, says->dump()));
  for (const char* key : {"attn_scale", "floor_scale"}) config.use(key);
}

double* place_of(std::string_view name, Dropouts* d) {
  if (name == "embedding") return &d->embedding;
  if (name == "attention") return &d->attention;
  if (name == "attention_out") return &d->attention_out;
  ORRERY_CHECK(name == "mlp_out", "families.json has a place of dropout that is not known");
  return &d->mlp_out;
}

// Where Hugging Face's classes drop out, by the names that they have for it.
void read_dropouts(Config& config, const Family& family, Transformer* t) {
  using Places = std::vector<std::string>;
  static const std::map<std::string, Places, std::less<>> usual = {
      {"attn_pdrop", {"attention"}},
      {"attention_dropout", {"attention"}},
      {"attention_probs_dropout_prob", {"attention"}},
      {"embd_pdrop", {"embedding"}},
      {"emb_pdrop", {"embedding"}},
      {"embedding_dropout", {"embedding"}},
      {"resid_pdrop", {"attention_out", "mlp_out"}},
      {"residual_dropout", {"attention_out", "mlp_out"}},
      {"dropout", {"attention_out", "mlp_out"}},
      {"hidden_dropout", {"embedding", "attention_out", "mlp_out"}},
      {"hidden_dropout_prob", {"embedding", "attention_out", "mlp_out"}},
      {"activation_dropout", {}},
      {"expert_dropout", {}},
      {"mlp_dropout", {}},
  };
  for (const auto& [key, places] : usual) {
    const double rate = config.real(key, 0, 0, kMostDropout);
    if (rate == 0) continue;
    const auto own = family.dropouts.find(key);
    const Places& of = own == family.dropouts.end() ? places : own->second;
    if (of.empty()) t->unexecuted.push_back(fmt::format("{} {}", key, rate));
    for (const std::string& place : of) *place_of(place, &t->dropouts) = rate;
  }
}

}  // namespace

void read_mathematics(Config& config, const Family& family, Transformer* t, Workload* workload) {
  if (!t->learned_positions) {
    read_scaling(config, "rope_scaling", t);
    read_scaling(config, "rope_parameters", t);
  }
  const auto unexecuted = [&](std::string_view key, std::string_view value) {
    t->unexecuted.push_back(fmt::format("{} {}", key, value));
  };
  if (config.boolean("scale_attn_by_inverse_layer_idx", false))
    unexecuted("scale_attn_by_inverse_layer_idx", "true");
  if (!config.boolean("scale_attn_weights", true)) unexecuted("scale_attn_weights", "false");
  if (config.boolean("apply_residual_connection_post_layernorm", false))
    unexecuted("apply_residual_connection_post_layernorm", "true");
  if (const std::string kind = config.text("position_embedding_type", "absolute");
      kind != "absolute" && kind != "rotary" && kind != "rope") {
    unexecuted("position_embedding_type", kind);
    // BertSelfAttention's distance_embedding, a table for each layer; both query and key meet it by "_query".
    if (kind == "relative_key" || kind == "relative_key_query")
      workload->notes.push_back(
          fmt::format("position_embedding_type {}: {} in each layer, of {} parameters in all, and {} as "
                      "large as attention's "
                      "two are not counted.",
                      kind, "a table of distances",
                      std::int64_t{t->layers} * (2 * std::int64_t{t->max_positions} - 1) * t->head_dim,
                      kind == "relative_key" ? "a product" : "two products"));
  }
  for (const char* key : {"layerdrop", "router_jitter_noise"})
    if (const double share = config.real(key, 0, 0, 1); share > 0) unexecuted(key, fmt::format("{}", share));
  read_routing(config, t);
  // Scores are computed in fp32 anyway, in whatever order.
  config.boolean("reorder_and_upcast_attn", false);
  for (const char* key : {"activation_function", "hidden_act", "hidden_activation"})
    if (const Json* name = config.find(key); name != nullptr && *name == "quick_gelu")
      unexecuted(key, "quick_gelu");
  read_scales(config, t);
  read_dropouts(config, family, t);
}

}  // namespace orrery::internal
