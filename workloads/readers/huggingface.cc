#include "workloads/readers/huggingface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "workloads/checks.h"
#include "workloads/readers/huggingface_families.h"

namespace orrery {
namespace {

using namespace internal;

std::string_view last_part(std::string_view path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// "models/gpt2/config.json" and "gpt2.json" are called "gpt2"; a bare "config.json" by what stands in it.
std::string name_from(std::string_view file, std::string_view given, std::string_view type) {
  std::string_view base = last_part(file);
  if (base == "config.json")
    base = last_part(file.substr(0, file.size() - std::min(file.size(), base.size() + 1)));
  if (base.size() > 5 && base.substr(base.size() - 5) == ".json") base.remove_suffix(5);
  if (base.empty() || base == "." || base == "..") base = last_part(given);
  return std::string(base.empty() ? type : base);
}

}  // namespace

Workload workload_from_huggingface(std::string_view text, std::string_view file) {
  const Json root = parse_json(text, file);
  if (!root.is_object())
    throw UserError(file, 1, "is not a JSON object", "expected a Hugging Face config.json");
  Config outer(root, text, 0, file);
  const Json* nested = outer.find("text_config");
  if (nested != nullptr && !nested->is_object())
    outer.fail("text_config", "is no object", "expected the language model's configuration");
  // A multimodal model is planned by its language model; the rest is reported as ignored.
  const std::size_t start = nested == nullptr ? 0 : std::min(text.find("\"text_config\""), text.size());
  Config config(nested == nullptr ? root : *nested, text, start, file);
  const std::string type = config.text("model_type", "");
  const auto& families = huggingface_families();
  const auto model = families.find(type);
  if (model == families.end()) {
    std::vector<std::string_view> known;
    for (const auto& entry : families) known.push_back(entry.first);
    config.fail("model_type", type.empty() ? "missing" : fmt::format("'{}' is not known", type),
                fmt::format("expected one of {}", fmt::join(known, " ")));
  }

  Workload workload;
  Transformer t;
  t.family = type;
  model->second(config, &t);
  check_transformer(t, [&](auto, auto what, auto expected) { throw UserError(file, 0, what, expected); });
  const std::string given = outer.text("_name_or_path", "");
  workload.name = name_from(file, given, type);
  workload.source = fmt::format("Hugging Face configuration {}", file);
  workload.layers = t.layers;
  workload.default_seq_len = std::min(t.max_positions, kMaxDefaultSeqLen);
  workload.operators = transformer_operators(t);
  workload.transformer = std::move(t);
  workload.ignored_keys = config.unread();
  if (nested != nullptr)
    for (std::string& key : outer.unread()) workload.ignored_keys.push_back(std::move(key));
  return workload;
}

}  // namespace orrery
