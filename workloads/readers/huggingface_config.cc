#include "workloads/readers/huggingface_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>

#include "base/error.h"

namespace orrery::internal {
namespace {

// Keys that say nothing about shapes, cost or the mathematics of training, each with the reason. Everything
// else that is not read is reported, and not executed.
bool is_harmless(std::string_view key) {
  static const std::map<std::string_view, std::string_view> reasons = [] {
    std::map<std::string_view, std::string_view> all;
    const auto add = [&](std::string_view reason, std::initializer_list<std::string_view> keys) {
      for (const std::string_view name : keys) all.emplace(name, reason);
    };
    add("how text is written, not how it is learned",
        {"use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "prefix",
         "tokenizer_class", "task_specific_params", "output_past", "cls_token_id", "cache_implementation",
         "num_logits_to_keep", "forced_bos_token_id", "decoder_start_token_id", "pad_vocab_size_multiple"});
    add("names and versions",
        {"_name_or_path", "name_or_path", "model_type", "_class_name", "_diffusers_version", "architectures",
         "auto_map", "transformers_version", "finetuning_task", "for_llm_compressor", "is_llama_config",
         "transformers.js_config"});
    add("which kernel computes the same attention",
        {"_attn_implementation_autoset", "attention_softmax_in_fp32", "_flash_attn_2_enabled",
         "fused_add_norm", "use_mamba_kernels", "deterministic_flash_attn", "reference_compile",
         "moe_shared_expert_overlap", "mamba_ssm_cache_dtype", "residual_in_fp32"});
    add("what a program hands back beside the loss",
        {"output_attentions", "output_hidden_states", "output_router_logits", "keys_to_ignore_at_inference"});
    add("the precision is the plan's", {"dtype", "torch_dtype", "quantization_config"});
    add("where training starts, which the plan's seed and `init` say",
        {"init_std", "initializer_range", "initializer_factor", "initializer_cutoff_factor",
         "rescale_prenorm_residual", "time_step_min", "time_step_max", "time_step_floor",
         "time_step_init_scheme", "time_step_scale"});
    add("recomputation and sharding are the plan's", {"gradient_checkpointing", "pretraining_tp", "ep_size"});
    add("classification heads, which are not trained",
        {"classifier_dropout", "classifier_activation", "classifier_bias", "classifier_pooling",
         "sparse_pred_ignore_index", "sparse_prediction", "id2label", "label2id", "problem_type",
         "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
         "summary_use_proj"});
    add("dropouts: read_mathematics reads every one of them, of what is executed",
        {"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "dropout", "embd_pdrop",
         "expert_dropout", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop", "residual_dropout",
         "embedding_dropout", "mlp_dropout", "activation_dropout"});
    add("the balancing loss has a key of its own", {"aux_loss_alpha", "seq_aux"});
    add("said again elsewhere: by rope_scaling, by n_positions",
        {"rope_type", "n_ctx", "d_inner", "expand", "original_max_position_embeddings", "max_seq_len",
         "initial_context_length", "_sliding_window_pattern"});
    add("the usual, which the family has anyway",
        {"mamba_hidden_act", "mamba_proj_bias", "time_step_limit", "time_step_rank", "ssm_cfg",
         "norm_before_gate", "decoder_bias"});
    return all;
  }();
  return reasons.count(key) > 0;
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

}  // namespace

std::optional<Activation> activation_named(std::string_view name) {
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "relu") return Activation::relu;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu_erf;
  // gelu_fast is the tanh form, too; quick_gelu is another function of about the same cost
  // (read_mathematics).
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh" || name == "quick_gelu")
    return Activation::gelu;
  return std::nullopt;
}

void Config::fail(std::string_view key, std::string_view what, std::string_view expected) const {
  if (!suspect_.empty())
    throw UserError(file_, in_file(key) ? line_of(key) : line_of("model_type"),
                    fmt::format("model_type '{}' is not known, and {}: {}", suspect_, key, what), expected);
  throw UserError(file_, line_of(key), fmt::format("{}: {}", key, what), expected);
}

int Config::line_of(std::string_view key) const {
  const int line = line_of_key(text_.substr(start_), key);
  if (line == 0) return 0;
  return line + static_cast<int>(
                    std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(start_), '\n'));
}

const Json* Config::find(std::string_view key) {
  used_.insert(std::string(key));
  const auto at = object_.find(std::string(key));
  if (at != object_.end()) return at->is_null() ? nullptr : &*at;
  if (defaults_ == nullptr) return nullptr;
  const auto usual = defaults_->find(std::string(key));
  return usual == defaults_->end() || usual->is_null() ? nullptr : &*usual;
}

int Config::integer(std::string_view key, int fallback, int least, int most) {
  const Json* value = find(key);
  return value == nullptr ? fallback : integer_of(*value, key, least, most);
}

int Config::required(std::string_view key, int most) {
  const Json* value = find(key);
  if (value == nullptr) fail(key, "missing", "expected a whole number");
  return integer_of(*value, key, 1, most);
}

bool Config::boolean(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(key, shown(*value), "expected true or false");
  return value->get<bool>();
}

double Config::real(std::string_view key, double fallback, double least, double most) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= least && number <= most))
    fail(key, shown(*value), fmt::format("expected a number from {} to {}", least, most));
  return number;
}

std::string Config::text(std::string_view key, std::string_view fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) fail(key, shown(*value), "expected a text");
  return value->get<std::string>();
}

std::string Config::first_class() {
  const Json* classes = find("architectures");
  const bool said =
      classes != nullptr && classes->is_array() && !classes->empty() && classes->front().is_string();
  return said ? classes->front().get<std::string>() : std::string();
}

std::vector<std::string> Config::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (used_.count(key) == 0 && !is_harmless(key)) keys.push_back(key);
  return keys;
}

std::vector<std::string> Config::read() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (used_.count(key) > 0 && !is_harmless(key)) keys.push_back(key);
  return keys;
}

int Config::integer_of(const Json& value, std::string_view key, int least, int most) const {
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!(number >= least && number <= most) || number != std::floor(number))
    fail(key, shown(value), fmt::format("expected a whole number from {} to {}", least, most));
  return static_cast<int>(number);
}

}  // namespace orrery::internal
