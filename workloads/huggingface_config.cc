#include "workloads/huggingface_config.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

struct Class {
  const char* name;
  const char* epsilon = "rms_norm_eps";
  const char* activation = "hidden_act";
};

// By model_type.
const Class* class_of(std::string_view type) {
  static const std::map<std::string_view, Class> classes = {
      {"gpt2", {"GPT2LMHeadModel", "layer_norm_epsilon", "activation_function"}},
      {"bert", {"BertForMaskedLM", "layer_norm_eps"}},
      {"gpt_neox", {"GPTNeoXForCausalLM", "layer_norm_eps"}},
      {"llama", {"LlamaForCausalLM"}},
      {"mistral", {"MistralForCausalLM"}},
      {"mixtral", {"MixtralForCausalLM"}},
      {"qwen2", {"Qwen2ForCausalLM"}},
      {"qwen3", {"Qwen3ForCausalLM"}},
      {"qwen3_moe", {"Qwen3MoeForCausalLM"}},
      {"olmo2", {"Olmo2ForCausalLM"}},
      {"olmoe", {"OlmoeForCausalLM"}},
      {"gemma", {"GemmaForCausalLM"}},
      {"gemma2", {"Gemma2ForCausalLM", "rms_norm_eps", "hidden_activation"}},
      {"stablelm", {"StableLmForCausalLM", "layer_norm_eps"}},
      {"starcoder2", {"Starcoder2ForCausalLM", "norm_epsilon"}},
  };
  const auto at = classes.find(type);
  return at == classes.end() ? nullptr : &at->second;
}

// Families whose tensors have one set of names.
std::string type_of(const Transformer& t) {
  return t.family == "qwen3_moe" && t.qk_norm_whole ? "olmoe" : t.family;
}

const char* word_of(Activation activation, bool gpt2) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::relu:
      return "relu";
    case Activation::gelu_erf:
      return "gelu";
    case Activation::gelu:
      break;
  }
  return gpt2 ? "gelu_new" : "gelu_pytorch_tanh";
}

Json scaling_of(const RotaryScaling& scaling) {
  Json json = {{"factor", scaling.factor}, {"original_max_position_embeddings", scaling.original_positions}};
  if (scaling.kind == RopeScaling::linear || scaling.kind == RopeScaling::dynamic)
    json = {{"rope_type", scaling.kind == RopeScaling::linear ? "linear" : "dynamic"},
            {"factor", scaling.factor}};
  if (scaling.kind == RopeScaling::llama3) {
    json["rope_type"] = "llama3";
    json["low_freq_factor"] = scaling.low_frequency;
    json["high_freq_factor"] = scaling.high_frequency;
  }
  if (scaling.kind == RopeScaling::yarn) {
    json["rope_type"] = "yarn";
    json["beta_fast"] = scaling.beta_fast;
    json["beta_slow"] = scaling.beta_slow;
    json["attention_factor"] = scaling.attention_factor;
  }
  return json;
}

void say_gpt2(const Transformer& t, Json* json) {
  json->update({{"n_layer", t.layers},
                {"n_embd", t.hidden},
                {"n_head", t.heads},
                {"n_inner", t.ffn_hidden},
                {"n_positions", t.max_positions},
                {"embd_pdrop", t.dropouts.embedding},
                {"attn_pdrop", t.dropouts.attention},
                {"resid_pdrop", t.dropouts.mlp_out}});
}

void say_width(const Transformer& t, Json* json) {
  json->update({{"num_hidden_layers", t.layers},
                {"hidden_size", t.hidden},
                {"num_attention_heads", t.heads},
                {"intermediate_size", t.ffn_hidden},
                {"max_position_embeddings", t.max_positions}});
}

void say_bert(const Transformer& t, Json* json) {
  say_width(t, json);
  json->update({{"type_vocab_size", t.token_types},
                {"hidden_dropout_prob", t.dropouts.mlp_out},
                {"attention_probs_dropout_prob", t.dropouts.attention}});
}

void say_neox(const Transformer& t, Json* json) {
  say_width(t, json);
  json->update({{"rotary_emb_base", t.rope_theta},
                {"rotary_pct", t.rotary_fraction},
                {"attention_bias", t.qkv_bias},
                {"use_parallel_residual", t.parallel_residual},
                {"hidden_dropout", t.dropouts.mlp_out},
                {"attention_dropout", t.dropouts.attention}});
}

void say_window(const Transformer& t, const std::string& type, Json* json) {
  const Json window = t.sliding_window > 0 ? Json(t.sliding_window) : Json();
  if (type.starts_with("qwen")) {
    (*json)["use_sliding_window"] = t.sliding_window > 0;
    if (t.sliding_window > 0)
      json->update({{"sliding_window", window}, {"max_window_layers", t.sliding_window_from_layer}});
  } else if (type == "mistral" || type == "mixtral" || type == "starcoder2" || type == "gemma2") {
    (*json)["sliding_window"] = window;
  }
}

void say_experts(const MixtureOfExperts& moe, const std::string& type, Json* json) {
  (*json)[type == "mixtral" ? "num_local_experts" : "num_experts"] = moe.experts;
  (*json)["num_experts_per_tok"] = moe.experts_per_token;
  (*json)["router_aux_loss_coef"] = moe.auxiliary_loss;
  if (type == "qwen3_moe") {
    (*json)["moe_intermediate_size"] = moe.expert_ffn_hidden;
    (*json)["decoder_sparse_step"] = moe.layer_period;
    Json dense = Json::array();
    for (int layer = 0; layer < moe.first_dense_layers; ++layer) dense.push_back(layer);
    (*json)["mlp_only_layers"] = dense;
  } else {
    (*json)["intermediate_size"] = moe.expert_ffn_hidden;
  }
  if (type != "mixtral") (*json)["norm_topk_prob"] = moe.scaled_weights;
}

bool says_attention_bias(std::string_view type) {
  return type == "llama" || type == "olmo2" || type == "olmoe" || type.starts_with("qwen3") ||
         type.starts_with("gemma");
}

void say_llama(const Transformer& t, const std::string& type, Json* json) {
  say_width(t, json);
  json->update({{"num_key_value_heads", t.kv_heads},
                {"rope_theta", t.rope_theta},
                {"attention_dropout", t.dropouts.attention}});
  if (type != "qwen2" && type != "stablelm" && type != "starcoder2" && type != "olmoe" && type != "olmo2")
    (*json)["head_dim"] = t.head_dim;
  if (t.rotary_scaling.kind != RopeScaling::none) (*json)["rope_scaling"] = scaling_of(t.rotary_scaling);
  if (says_attention_bias(type)) (*json)["attention_bias"] = t.qkv_bias;
  if (type == "llama") (*json)["mlp_bias"] = t.mlp_bias;
  if (type == "starcoder2")
    json->update({{"use_bias", t.qkv_bias},
                  {"residual_dropout", t.dropouts.mlp_out},
                  {"embedding_dropout", t.dropouts.embedding}});
  if (type == "stablelm")
    json->update({{"use_qkv_bias", t.qkv_bias},
                  {"qk_layernorm", t.qk_norm},
                  {"use_parallel_residual", t.parallel_residual},
                  {"partial_rotary_factor", t.rotary_fraction},
                  {"hidden_dropout", t.dropouts.mlp_out}});
  if (type == "gemma2")
    json->update(
        {{"query_pre_attn_scalar",
          t.attention_scale > 0 ? std::round(1 / (t.attention_scale * t.attention_scale)) : t.head_dim},
         {"attn_logit_softcapping", t.attention_softcap},
         {"final_logit_softcapping", t.final_softcap}});
  say_window(t, type, json);
  if (t.moe) say_experts(*t.moe, type, json);
}

// What none of these families' configurations says.
bool says_more(const Transformer& t) {
  const bool experts = t.moe && (t.moe->shared_ffn_hidden > 0 || t.moe->latent > 0 || t.moe->selection_bias ||
                                 t.moe->router_linear_bias || t.moe->expert_bias || t.moe->expert_up_bias ||
                                 t.moe->layer_offset != t.moe->layer_period - 1);
  return experts || t.mla || t.state_space || !t.layer_pattern.empty() || !t.attention_pattern.empty() ||
         t.multi_token_layers > 0 || t.attention_gate || t.attention_sinks || t.qk_norm_absent_weights ||
         !t.unexecuted.empty();
}

}  // namespace

double yarn_amplitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

double yarn_scale_of(double factor, double amplitude) {
  return (amplitude - 1) / (0.1 * std::log(factor));
}

std::optional<std::string> huggingface_config(const Transformer& t) {
  const std::string type = type_of(t);
  const Class* known = class_of(type);
  if (known == nullptr || says_more(t)) return std::nullopt;
  // Others whose tensors have these names: GPT-J, and models whose attention has biases on one side.
  if (type == "gpt2" && (!t.learned_positions || t.parallel_residual)) return std::nullopt;
  if (says_attention_bias(type) && t.qkv_bias != t.proj_bias) return std::nullopt;
  Json json = {{"architectures", {known->name}}, {"model_type", type},
               {"vocab_size", t.vocab},          {known->activation, word_of(t.activation, type == "gpt2")},
               {known->epsilon, t.norm_epsilon}, {"tie_word_embeddings", t.tied_embeddings},
               {"torch_dtype", "float32"}};
  if (type == "gpt2") {
    say_gpt2(t, &json);
  } else if (type == "bert") {
    say_bert(t, &json);
  } else if (type == "gpt_neox") {
    say_neox(t, &json);
  } else {
    say_llama(t, type, &json);
  }
  return json.dump(2) + "\n";
}

}  // namespace orrery
