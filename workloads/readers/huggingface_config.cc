#include "workloads/readers/huggingface_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace orrery::internal {
namespace {

// Keys that say nothing about shapes, cost or the mathematics of training: generation, initialisation,
// bookkeeping, precision of what is fp32 here, heads that are not trained, losses of routers that have their
// own keys. Dropouts are noted by read_mathematics. Everything else that is not read is reported, and not
// executed.
const std::set<std::string_view>& harmless_keys() {
  static const std::set<std::string_view> keys = {"_attn_implementation_autoset",
                                                  "_name_or_path",
                                                  "architectures",
                                                  "attention_dropout",
                                                  "attention_softmax_in_fp32",
                                                  "attn_pdrop",
                                                  "auto_map",
                                                  "aux_loss_alpha",
                                                  "bos_token_id",
                                                  "classifier_dropout",
                                                  "dropout",
                                                  "dtype",
                                                  "embd_pdrop",
                                                  "embd_layer_norm_epsilon",
                                                  "eos_token_id",
                                                  "ep_size",
                                                  "expert_dropout",
                                                  "finetuning_task",
                                                  "gradient_checkpointing",
                                                  "hidden_dropout",
                                                  "hidden_dropout_prob",
                                                  "attention_probs_dropout_prob",
                                                  "id2label",
                                                  "init_std",
                                                  "initializer_range",
                                                  "keys_to_ignore_at_inference",
                                                  "label2id",
                                                  "model_type",
                                                  "name_or_path",
                                                  "output_attentions",
                                                  "output_hidden_states",
                                                  "output_past",
                                                  "output_router_logits",
                                                  "pad_token_id",
                                                  "prefix",
                                                  "pretraining_tp",
                                                  "problem_type",
                                                  "quantization_config",
                                                  "resid_pdrop",
                                                  "rope_type",
                                                  "routed_scaling_factor",
                                                  "scoring_func",
                                                  "seq_aux",
                                                  "sep_token_id",
                                                  "summary_activation",
                                                  "summary_first_dropout",
                                                  "summary_proj_to_labels",
                                                  "summary_type",
                                                  "summary_use_proj",
                                                  "task_specific_params",
                                                  "tokenizer_class",
                                                  "topk_group",
                                                  "n_group",
                                                  "topk_method",
                                                  "torch_dtype",
                                                  "transformers_version",
                                                  "use_cache",
                                                  "n_ctx"};
  return keys;
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

}  // namespace

void Config::fail(std::string_view key, std::string_view what, std::string_view expected) const {
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
  return at == object_.end() || at->is_null() ? nullptr : &*at;
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

std::vector<std::string> Config::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (used_.count(key) == 0 && harmless_keys().count(key) == 0) keys.push_back(key);
  return keys;
}

int Config::integer_of(const Json& value, std::string_view key, int least, int most) const {
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!(number >= least && number <= most) || number != std::floor(number))
    fail(key, shown(value), fmt::format("expected a whole number from {} to {}", least, most));
  return static_cast<int>(number);
}

}  // namespace orrery::internal
