#include "workloads/readers/huggingface_families.h"

#include <fmt/format.h>

#include <string>

#include "base/json.h"
#include "workloads/checks.h"

namespace orrery::internal {
namespace {

Activation read_activation(Config& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.text(key, fallback);
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "relu") return Activation::relu;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu_erf;
  // gelu_fast is the tanh form, too; quick_gelu is another function of about the same cost
  // (read_mathematics).
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh" || name == "quick_gelu")
    return Activation::gelu;
  config.fail(key, fmt::format("'{}' is not known", name), "expected a gelu, silu or relu");
}

int default_heads_dim(Config& config, const Transformer& t, std::string_view heads_key) {
  if (t.hidden % t.heads != 0)
    config.fail(heads_key, fmt::format("{} does not divide the hidden size {}", t.heads, t.hidden),
                "expected a divisor of it, or head_dim");
  return t.hidden / t.heads;
}

// What most classes have, by its usual keys. `kv_default`: of an absent num_key_value_heads, 0 for as many as
// heads; null always means as many as heads.
void read_common(Config& config, int kv_default, Transformer* t) {
  t->layers = config.required("num_hidden_layers", kMaxLayers);
  t->hidden = config.required("hidden_size", kMaxWidth);
  t->heads = config.required("num_attention_heads", kMaxHeads);
  t->vocab = config.required("vocab_size", kMaxVocab);
  const int kv = kv_default == 0 || config.has("num_key_value_heads") ? t->heads : kv_default;
  t->kv_heads = config.integer("num_key_value_heads", kv, 1, kMaxHeads);
  if (t->heads % t->kv_heads != 0)
    config.fail("num_key_value_heads", fmt::format("{} does not divide the {} heads", t->kv_heads, t->heads),
                "expected a divisor of num_attention_heads");
  const Json* dim = config.find("head_dim");
  t->head_dim = dim != nullptr ? config.integer("head_dim", 0, 1, kMaxHeads)
                               : default_heads_dim(config, *t, "num_attention_heads");
}

// Rotary positions: `rope_theta`, or v5's `rope_parameters`.
void read_rope(Config& config, double theta, double fraction, Transformer* t) {
  t->rope_theta = config.real("rope_theta", theta, 1, 1e12);
  t->rotary_fraction = config.real("partial_rotary_factor", fraction, 1e-3, 1);
  const Json* parameters = config.find("rope_parameters");
  if (parameters == nullptr || !parameters->is_object()) return;
  const auto number = [&](const char* key, double fallback) {
    const auto at = parameters->find(key);
    if (at == parameters->end() || !at->is_number()) return fallback;
    return at->get<double>();
  };
  const double named = number("rope_theta", t->rope_theta);
  const double part = number("partial_rotary_factor", t->rotary_fraction);
  if (!(named >= 1 && named <= 1e12) || !(part > 0 && part <= 1))
    config.fail("rope_parameters", "has an impossible rope_theta or partial_rotary_factor",
                "expected positive numbers");
  t->rope_theta = named;
  t->rotary_fraction = part;
}

// Llama and what descends from it: RMS norm, rotary positions, gated MLP.
void read_llama_like(Config& config, int kv_default, int positions, double theta, double epsilon,
                     Transformer* t) {
  read_common(config, kv_default, t);
  t->ffn_hidden = config.required("intermediate_size", kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", positions, 1, kMaxPositions);
  t->gated_ffn = true;
  t->norm = NormKind::rms_norm;
  t->activation = read_activation(config, "hidden_act", "silu");
  t->norm_epsilon = config.real("rms_norm_eps", epsilon, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", false);
  read_rope(config, theta, 1, t);
}

void read_llama(Config& config, Transformer* t) {
  read_llama_like(config, 0, 2048, 10000, 1e-6, t);
  t->qkv_bias = t->proj_bias = config.boolean("attention_bias", false);
  t->mlp_bias = config.boolean("mlp_bias", false);
}

int read_window(Config& config, int absent) {
  const int fallback = config.has("sliding_window") ? 0 : absent;
  return config.integer("sliding_window", fallback, 1, kMaxPositions);
}

void read_mistral(Config& config, Transformer* t) {
  read_llama_like(config, 8, 131072, 10000, 1e-6, t);
  t->sliding_window = read_window(config, 4096);
}

void read_mixtral(Config& config, Transformer* t) {
  read_llama_like(config, 8, 131072, 1e6, 1e-5, t);
  t->sliding_window = read_window(config, 0);
  MixtureOfExperts moe;
  moe.experts = config.integer("num_local_experts", 8, 1, kMaxExperts);
  moe.experts_per_token = config.integer("num_experts_per_tok", 2, 1, moe.experts);
  moe.expert_ffn_hidden = t->ffn_hidden;
  moe.auxiliary_loss = config.real("router_aux_loss_coef", 0.001, 0, 1e3);
  t->moe = moe;
}

// Qwen2 and Qwen3 slide only where asked, and only from max_window_layers on.
void read_qwen_window(Config& config, int layers_default, Transformer* t) {
  const bool slides = config.boolean("use_sliding_window", false);
  const int window = read_window(config, 4096);
  const int from = config.integer("max_window_layers", layers_default, 0, kMaxLayers);
  if (!slides) return;
  t->sliding_window = window;
  t->sliding_window_from_layer = from;
}

void read_qwen2(Config& config, Transformer* t) {
  read_llama_like(config, 32, 32768, 10000, 1e-6, t);
  t->qkv_bias = true;
  read_qwen_window(config, 28, t);
}

void read_qwen3(Config& config, Transformer* t) {
  read_llama_like(config, 32, 32768, 10000, 1e-6, t);
  if (!config.has("head_dim")) t->head_dim = 128;
  t->qkv_bias = t->proj_bias = config.boolean("attention_bias", false);
  t->qk_norm = true;
  read_qwen_window(config, 28, t);
}

// Layers that have an MLP in place of experts, where these are the first ones.
int read_dense_layers(Config& config) {
  const Json* list = config.find("mlp_only_layers");
  if (list == nullptr) return 0;
  int next = 0;
  if (!list->is_array()) config.fail("mlp_only_layers", "is no list", "expected a list of layers");
  for (const Json& layer : *list) {
    if (!layer.is_number_integer() || layer.get<std::int64_t>() != next)
      config.fail("mlp_only_layers", "is not the first layers", "expected [], [0], [0, 1], ...");
    ++next;
  }
  return next;
}

void read_qwen_experts(Config& config, int experts, int per_token, int width, Transformer* t) {
  MixtureOfExperts moe;
  moe.experts = config.integer("num_experts", experts, 1, kMaxExperts);
  moe.experts_per_token = config.integer("num_experts_per_tok", per_token, 1, moe.experts);
  moe.expert_ffn_hidden = config.integer("moe_intermediate_size", width, 1, kMaxWidth);
  moe.layer_period = config.integer("decoder_sparse_step", 1, 1, kMaxLayers);
  moe.first_dense_layers = read_dense_layers(config);
  moe.scaled_weights = config.boolean("norm_topk_prob", false);
  moe.auxiliary_loss = config.real("router_aux_loss_coef", 0.001, 0, 1e3);
  t->moe = moe;
}

void read_qwen2_moe(Config& config, Transformer* t) {
  read_llama_like(config, 16, 32768, 10000, 1e-6, t);
  t->qkv_bias = config.boolean("qkv_bias", true);
  read_qwen_window(config, 28, t);
  read_qwen_experts(config, 60, 4, 1408, t);
  t->moe->shared_ffn_hidden = config.integer("shared_expert_intermediate_size", 5632, 0, kMaxWidth);
  t->moe->shared_gate = t->moe->shared_ffn_hidden > 0;
}

void read_qwen3_moe(Config& config, Transformer* t) {
  read_llama_like(config, 4, 32768, 10000, 1e-6, t);
  t->qkv_bias = t->proj_bias = config.boolean("attention_bias", false);
  t->qk_norm = true;
  read_qwen_window(config, 28, t);
  read_qwen_experts(config, 128, 8, 768, t);
}

void read_deepseek(Config& config, bool v3, Transformer* t) {
  t->layers = config.required("num_hidden_layers", kMaxLayers);
  t->hidden = config.required("hidden_size", kMaxWidth);
  t->heads = t->kv_heads = config.required("num_attention_heads", kMaxHeads);
  config.use("num_key_value_heads");  // of the attention behind the low ranks: as many as heads
  config.use("head_dim");             // in files of transformers: the rotary part
  config.use("qk_head_dim");
  t->vocab = config.required("vocab_size", kMaxVocab);
  t->ffn_hidden = config.required("intermediate_size", kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", v3 ? 4096 : 2048, 1, kMaxPositions);
  t->gated_ffn = true;
  t->norm = NormKind::rms_norm;
  t->activation = read_activation(config, "hidden_act", "silu");
  t->norm_epsilon = config.real("rms_norm_eps", 1e-6, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", false);
  t->qkv_bias = t->proj_bias = config.boolean("attention_bias", false);
  read_rope(config, 10000, 1, t);

  LatentAttention mla;
  mla.q_lora_rank = config.integer("q_lora_rank", config.has("q_lora_rank") ? 0 : 1536, 1, kMaxWidth);
  mla.kv_lora_rank = config.integer("kv_lora_rank", 512, 1, kMaxWidth);
  mla.qk_nope_head_dim = config.integer("qk_nope_head_dim", 128, 1, kMaxHeads);
  mla.qk_rope_head_dim = config.integer("qk_rope_head_dim", 64, 0, kMaxHeads);
  mla.v_head_dim = config.integer("v_head_dim", 128, 1, kMaxHeads);
  t->mla = mla;
  t->head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;

  t->multi_token_layers = config.integer("num_nextn_predict_layers", 0, 0, 64);
  const int experts = config.integer("n_routed_experts", v3 ? 256 : 0, 1, kMaxExperts);
  const int shared = config.integer("n_shared_experts", v3 ? 1 : 0, 0, kMaxExperts);
  const int per_token = config.integer("num_experts_per_tok", v3 ? 8 : 0, 1, kMaxExperts);
  const int width = config.integer("moe_intermediate_size", v3 ? 2048 : 1407, 1, kMaxWidth);
  const int first = config.integer("first_k_dense_replace", v3 ? 3 : 0, 0, kMaxLayers);
  const int period = config.integer("moe_layer_freq", 1, 1, kMaxLayers);
  const bool scaled = config.boolean("norm_topk_prob", v3);
  if (experts == 0) return;
  MixtureOfExperts moe;
  moe.experts = experts;
  if (per_token < 1 || per_token > experts)
    config.fail("num_experts_per_tok", fmt::format("{}", per_token),
                fmt::format("expected 1 to {}", experts));
  moe.experts_per_token = per_token;
  moe.expert_ffn_hidden = width;
  if (static_cast<std::int64_t>(width) * shared > kMaxWidth)
    config.fail("n_shared_experts", fmt::format("{}", shared), "expected fewer shared experts");
  moe.shared_ffn_hidden = width * shared;
  moe.first_dense_layers = first;
  moe.layer_period = period;
  moe.scaled_weights = scaled;
  // The router's correction bias came with v3's auxiliary-loss-free balancing.
  moe.router_bias = config.text("topk_method", v3 ? "noaux_tc" : "greedy") == "noaux_tc";
  t->moe = moe;
}

void read_gpt2(Config& config, Transformer* t) {
  t->layers = config.required("n_layer", kMaxLayers);
  t->hidden = config.required("n_embd", kMaxWidth);
  t->heads = t->kv_heads = config.required("n_head", kMaxHeads);
  t->head_dim = default_heads_dim(config, *t, "n_head");
  t->vocab = config.integer("vocab_size", 50257, 1, kMaxVocab);
  t->ffn_hidden = config.integer("n_inner", std::min(4 * t->hidden, kMaxWidth), 1, kMaxWidth);
  t->max_positions = config.integer("n_positions", 1024, 1, kMaxPositions);
  t->learned_positions = true;
  t->activation = read_activation(config, "activation_function", "gelu_new");
  t->norm_epsilon = config.real("layer_norm_epsilon", 1e-5, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", true);
  t->qkv_bias = t->linear_bias = true;
  if (config.boolean("add_cross_attention", false))
    config.fail("add_cross_attention", "true", "expected a decoder without an encoder");
}

void read_gpt_neox(Config& config, Transformer* t) {
  read_common(config, 0, t);
  t->ffn_hidden = config.required("intermediate_size", kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", 2048, 1, kMaxPositions);
  t->activation = read_activation(config, "hidden_act", "gelu");
  t->norm_epsilon = config.real("layer_norm_eps", 1e-5, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", false);
  t->parallel_residual = config.boolean("use_parallel_residual", true);
  t->qkv_bias = t->proj_bias = config.boolean("attention_bias", true);
  t->mlp_bias = true;
  read_rope(config, config.real("rotary_emb_base", 10000, 1, 1e12), config.real("rotary_pct", 0.25, 1e-3, 1),
            t);
}

void read_bert(Config& config, Transformer* t) {
  read_common(config, 0, t);
  t->ffn_hidden = config.required("intermediate_size", kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", 512, 1, kMaxPositions);
  t->token_types = config.integer("type_vocab_size", 2, 0, 1024);
  t->activation = read_activation(config, "hidden_act", "gelu");
  t->norm_epsilon = config.real("layer_norm_eps", 1e-12, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", true);
  t->qkv_bias = t->linear_bias = true;
  t->learned_positions = t->post_norm = t->bidirectional = true;
  if (config.boolean("is_decoder", false)) t->bidirectional = false;
  // Which heads there are is the class's business: BertForMaskedLM has no pooler, BertModel no head of its
  // own (it is trained through the tied embeddings), BertForPreTraining both.
  t->mlm_head = true;
  t->pooler = true;
  const Json* classes = config.find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->empty() || !classes->front().is_string()) return;
  const std::string name = classes->front().get<std::string>();
  if (name == "BertForMaskedLM" || name == "BertLMHeadModel") t->pooler = false;
  if (name == "BertModel") t->mlm_head = false;
}

void read_opt(Config& config, Transformer* t) {
  read_common(config, 0, t);
  t->ffn_hidden = config.required("ffn_dim", kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", 2048, 1, kMaxPositions);
  t->position_offset = 2;
  t->learned_positions = true;
  t->activation = read_activation(config, "activation_function", "relu");
  t->tied_embeddings = config.boolean("tie_word_embeddings", true);
  t->qkv_bias = t->linear_bias = config.boolean("enable_bias", true);
  if (!config.boolean("do_layer_norm_before", true))
    config.fail("do_layer_norm_before", "false", "expected true: OPT-350M's post-norm is not supported");
  if (config.integer("word_embed_proj_dim", t->hidden, 1, kMaxWidth) != t->hidden)
    config.fail("word_embed_proj_dim", "differs from hidden_size", "expected the same");
  config.use("_remove_final_layer_norm");
}

void read_falcon(Config& config, Transformer* t) {
  t->layers = config.required(config.has("n_layer") ? "n_layer" : "num_hidden_layers", kMaxLayers);
  t->hidden = config.required("hidden_size", kMaxWidth);
  t->heads = config.required(config.has("n_head") ? "n_head" : "num_attention_heads", kMaxHeads);
  t->head_dim = default_heads_dim(config, *t, "hidden_size");
  t->vocab = config.required("vocab_size", kMaxVocab);
  const bool grouped = config.boolean("new_decoder_architecture", false);
  const bool multi_query = config.boolean("multi_query", true);
  const int groups =
      config.integer("num_kv_heads", config.integer("n_head_kv", t->heads, 1, t->heads), 1, t->heads);
  t->kv_heads = grouped ? groups : multi_query ? 1 : t->heads;
  if (t->heads % t->kv_heads != 0)
    config.fail("num_kv_heads", fmt::format("{} does not divide the {} heads", t->kv_heads, t->heads),
                "expected a divisor");
  t->ffn_hidden = config.integer("ffn_hidden_size", std::min(4 * t->hidden, kMaxWidth), 1, kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", 2048, 1, kMaxPositions);
  t->activation = read_activation(config, "activation", "gelu");
  t->norm_epsilon = config.real("layer_norm_epsilon", 1e-5, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", true);
  t->qkv_bias = t->linear_bias = config.boolean("bias", false);
  t->parallel_residual = grouped || config.boolean("parallel_attn", true);
  const int norms = config.integer("num_ln_in_parallel_attn", grouped ? 2 : 1, 1, 2);
  t->single_norm = t->parallel_residual && !(grouped && norms == 2);
  if (grouped && !t->single_norm) t->family = "falcon_new";
  if (config.boolean("alibi", false)) config.fail("alibi", "true", "expected rotary positions");
  read_rope(config, 10000, 1, t);
}

void read_phi(Config& config, Transformer* t) {
  read_common(config, 0, t);
  t->ffn_hidden = config.required("intermediate_size", kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", 2048, 1, kMaxPositions);
  t->activation = read_activation(config, "hidden_act", "gelu_new");
  t->norm_epsilon = config.real("layer_norm_eps", 1e-5, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", false);
  t->qkv_bias = t->linear_bias = t->head_bias = true;
  t->parallel_residual = t->single_norm = true;
  if (config.boolean("qk_layernorm", false)) config.fail("qk_layernorm", "true", "expected false");
  read_rope(config, 10000, 0.5, t);
}

void read_gemma(Config& config, Transformer* t) {
  read_llama_like(config, 16, 8192, 10000, 1e-6, t);
  if (!config.has("head_dim")) t->head_dim = 256;
  if (const Json* newer = config.find("hidden_activation"); newer != nullptr)
    t->activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  if (!config.has("tie_word_embeddings")) t->tied_embeddings = true;
  t->qkv_bias = t->proj_bias = config.boolean("attention_bias", false);
}

// transformers' NemotronHConfig; the pattern has a letter a layer, or layers_block_type a word.
std::string read_pattern(Config& config, std::string_view key, std::string_view list_key) {
  const std::string pattern = config.text(key, "");
  const Json* words = config.find(list_key);
  if (!pattern.empty() || words == nullptr) return pattern;
  static const std::map<std::string_view, char> letters = {
      {"mamba", 'M'}, {"attention", '*'}, {"mlp", '-'}, {"moe", 'E'}};
  std::string found;
  for (const Json& word : *words) {
    const auto at = word.is_string() ? letters.find(word.get_ref<const std::string&>()) : letters.end();
    if (at == letters.end())
      config.fail(list_key, "has an unknown kind", "expected mamba, attention, mlp or moe");
    found += at->second;
  }
  return found;
}

void read_nemotron_h(Config& config, Transformer* t) {
  t->layer_pattern = read_pattern(config, "hybrid_override_pattern", "layers_block_type");
  if (t->layer_pattern.empty() || t->layer_pattern.size() > kMaxLayers)
    config.fail("hybrid_override_pattern", "missing, or too long", "expected a letter a layer");
  t->layers = config.integer("num_hidden_layers", static_cast<int>(t->layer_pattern.size()), 1, kMaxLayers);
  t->hidden = config.required("hidden_size", kMaxWidth);
  t->heads = config.required("num_attention_heads", kMaxHeads);
  t->vocab = config.required("vocab_size", kMaxVocab);
  t->kv_heads = config.integer("num_key_value_heads", 8, 1, t->heads);
  if (t->heads % t->kv_heads != 0)
    config.fail("num_key_value_heads", fmt::format("{} does not divide the {} heads", t->kv_heads, t->heads),
                "expected a divisor of num_attention_heads");
  t->head_dim = config.integer(config.has("head_dim") ? "head_dim" : "attention_head_dim", 128, 1, kMaxHeads);
  t->ffn_hidden = config.integer("intermediate_size", 21504, 1, kMaxWidth);
  t->max_positions = config.integer("max_position_embeddings", 4096, 1, kMaxPositions);
  t->norm = NormKind::rms_norm;
  if (const std::string name = config.text("mlp_hidden_act", "relu2"); name != "relu2")
    config.fail("mlp_hidden_act", fmt::format("'{}' is not known", name), "expected relu2");
  t->activation = Activation::relu;  // squared: as many reads and writes
  t->norm_epsilon =
      config.real(config.has("layer_norm_epsilon") ? "layer_norm_epsilon" : "norm_eps", 1e-5, 1e-30, 1);
  t->tied_embeddings = config.boolean("tie_word_embeddings", false);
  t->qkv_bias = t->proj_bias = config.boolean("attention_bias", false);
  t->mlp_bias = config.boolean("mlp_bias", false);
  for (const char* unused : {"sliding_window",
                             "rope_theta",
                             "partial_rotary_factor",
                             "norm_eps",
                             "rms_norm_eps",
                             "mamba_hidden_act",
                             "expand",
                             "time_step_min",
                             "time_step_max",
                             "time_step_limit",
                             "time_step_floor",
                             "time_step_rank",
                             "residual_in_fp32",
                             "rescale_prenorm_residual",
                             "num_logits_to_keep",
                             "use_mamba_kernels",
                             "mamba_proj_bias",
                             "mamba_ssm_cache_dtype",
                             "layers_block_type",
                             "norm_topk_prob"})
    config.use(unused);

  StateSpaceShape s;
  s.heads = config.integer("mamba_num_heads", 128, 1, kMaxHeads);
  s.head_dim = config.integer("mamba_head_dim", 64, 1, kMaxHeads);
  s.state = config.integer("ssm_state_size", 128, 1, kMaxHeads);
  s.groups = config.integer("n_groups", 8, 1, kMaxHeads);
  s.conv_kernel = config.integer("conv_kernel", 4, 1, 1024);
  s.chunk = config.integer("chunk_size", 128, 1, kMaxPositions);
  if (config.boolean("use_bias", false)) config.fail("use_bias", "true", "expected projections without bias");
  if (!config.boolean("use_conv_bias", true))
    config.fail("use_conv_bias", "false", "expected a convolution with bias");
  t->state_space = s;

  t->multi_token_layers = config.integer("num_nextn_predict_layers", 0, 0, 64);
  t->multi_token_pattern = read_pattern(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type");
  if (t->multi_token_layers == 0) t->multi_token_pattern.clear();
  if ((t->layer_pattern + t->multi_token_pattern).find('E') == std::string::npos) {
    for (const char* unused :
         {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
          "moe_shared_expert_intermediate_size", "moe_latent_size", "moe_shared_expert_overlap"})
      config.use(unused);
    return;
  }
  MixtureOfExperts moe;
  moe.experts = config.required("n_routed_experts", kMaxExperts);
  moe.experts_per_token = config.integer("num_experts_per_tok", 2, 1, moe.experts);
  moe.expert_ffn_hidden = config.required("moe_intermediate_size", kMaxWidth);
  moe.shared_ffn_hidden = config.integer("moe_shared_expert_intermediate_size", 0, 0, kMaxWidth);
  const int shared = config.integer("n_shared_experts", 1, 0, kMaxExperts);
  if (static_cast<std::int64_t>(moe.shared_ffn_hidden) * shared > kMaxWidth)
    config.fail("n_shared_experts", fmt::format("{}", shared), "expected fewer shared experts");
  moe.shared_ffn_hidden *= shared;
  moe.latent = config.integer("moe_latent_size", 0, 0, kMaxWidth);
  config.use("moe_shared_expert_overlap");
  moe.router_bias = true;
  t->moe = moe;
}

}  // namespace

const std::map<std::string_view, ReadModel>& huggingface_families() {
  static const std::map<std::string_view, ReadModel> table = {
      {"bert", read_bert},
      {"deepseek_v2", [](Config& c, Transformer* t) { read_deepseek(c, false, t); }},
      {"deepseek_v3", [](Config& c, Transformer* t) { read_deepseek(c, true, t); }},
      {"falcon", read_falcon},
      {"gemma", read_gemma},
      {"gpt2", read_gpt2},
      {"gpt_neox", read_gpt_neox},
      {"llama", read_llama},
      {"mistral", read_mistral},
      {"mixtral", read_mixtral},
      {"nemotron_h", read_nemotron_h},
      {"opt", read_opt},
      {"phi", read_phi},
      {"qwen2", read_qwen2},
      {"qwen2_moe", read_qwen2_moe},
      {"qwen3", read_qwen3},
      {"qwen3_moe", read_qwen3_moe},
  };
  return table;
}

}  // namespace orrery::internal
