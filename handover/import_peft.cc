// PEFT's adapter_config.json: which adapters a model is trained with.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "handover/import.h"

namespace orrery::planner {
namespace {

[[noreturn]] void fail(const std::string& file, std::string_view key, std::string_view what,
                       std::string_view expected) {
  throw UserError(file, 0, fmt::format("{}: {}", key, what), std::string(expected));
}

// Keys of PEFT's LoraConfig that are not read, and why.
constexpr std::string_view kNoFigure = "changes no time and no memory of a step";
constexpr std::string_view kTrainedWhole =
    "trained whole beside the adapters, which is not planned: their gradients, states and updates are "
    "missing "
    "from time and memory";
constexpr std::string_view kOtherWork = "changes time or memory, and is not planned";
struct Unread {
  std::string_view key, why;  // none: it changes no figure, and nobody expects it to
};
constexpr std::array<Unread, 31> kUnread = {{
    {"auto_mapping", {}},
    {"base_model_name_or_path", {}},
    {"revision", {}},
    {"task_type", {}},
    {"inference_mode", {}},
    {"lora_dropout", {}},
    {"init_lora_weights", {}},
    {"fan_in_fan_out", {}},
    {"peft_version", {}},
    {"use_rslora", {}},
    {"megatron_core", {}},
    {"megatron_config", {}},
    {"loftq_config", {}},
    {"layers_pattern", {}},
    {"ensure_weight_tying", {}},
    {"bias", "biases are trained beside the adapters, which is not planned: some thousandths of the model"},
    {"modules_to_save", kTrainedWhole},
    {"trainable_token_indices", kTrainedWhole},
    {"rank_pattern", "all adapters are planned with the one rank `r`"},
    {"alpha_pattern", kNoFigure},
    {"eva_config", kNoFigure},
    {"corda_config", kNoFigure},
    {"exclude_modules", "the modules that it leaves out are planned with adapters"},
    {"layer_replication", kOtherWork},
    {"runtime_config", kOtherWork},
    {"lora_bias", "biases of the adapters are not planned: a thousandth of them"},
    {"target_parameters", "adapters of experts' parameters are not planned"},
    {"use_qalora", kOtherWork},
    {"qalora_group_size", kNoFigure},
    {"arrow_config", kOtherWork},
    {"alora_invocation_tokens", kOtherWork},
}};

std::string why_unread(std::string_view key, const Json& value) {
  const auto at = std::find_if(kUnread.begin(), kUnread.end(), [&](const Unread& u) { return u.key == key; });
  if (at == kUnread.end()) return fmt::format("{}: not known here", key);
  if (at->why.empty() || (key == "bias" && value == "none")) return {};
  if (key != "modules_to_save") return fmt::format("{}: {}", key, at->why);
  return fmt::format("{} {}: {}", key, value.dump(), at->why);
}

std::uint8_t targets_of(const Json& value, const std::string& file, std::vector<std::string>* ignored) {
  if (value.is_string()) {
    if (value.get<std::string>() == "all-linear") return kAllProjections;
    fail(file, "target_modules", "a regular expression", "expected a list of modules, or all-linear");
  }
  if (!value.is_array())
    fail(file, "target_modules", "is no list", "expected a list of modules, or all-linear");
  std::uint8_t targets = 0;
  for (const Json& name : value) {
    if (!name.is_string()) fail(file, "target_modules", "holds what is no name", "expected names of modules");
    try {
      targets |= projections_from(name.get<std::string>());
    } catch (const UserError&) {
      ignored->push_back("target_modules: " + name.get<std::string>() +
                         ": no product of a layer, whose adapters are planned");
    }
  }
  if (targets == 0)
    fail(file, "target_modules", "none of them is known", "expected q_proj, v_proj and the like");
  return targets;
}

// Adapters from some layer on.
int first_layer(const Json& value, const std::string& file, int layers) {
  const char* const expected = "expected all layers from one on, in order";
  if (!value.is_array() || value.empty() || static_cast<int>(value.size()) > layers)
    fail(file, "layers_to_transform", "is no such list", expected);
  const int first = layers - static_cast<int>(value.size());
  for (int i = first; i < layers; ++i)
    if (value[static_cast<std::size_t>(i - first)] != i)
      fail(file, "layers_to_transform", "has gaps", expected);
  return first;
}

}  // namespace

FineTuning import_peft(std::string_view text, const std::string& file, int layers, FineTuning tuning,
                       std::vector<std::string>* ignored) {
  const Json root = parse_json(text, file);
  if (!root.is_object())
    throw UserError(file, 1, "is not a JSON object", "expected PEFT's adapter_config.json");
  if (root.value("peft_type", Json()) != "LORA")
    fail(file, "peft_type", "is not LORA", "expected low-rank adapters");
  tuning.rank = 8;  // PEFT's default
  tuning.targets = kQuery | kValue;
  for (const auto& [key, value] : root.items()) {
    if (key == "peft_type" || value.is_null()) continue;
    if (key == "r") {
      const double rank = value.is_number() ? value.get<double>() : 0;
      if (!(rank >= 1 && rank <= kLargestAdapterRank) || rank != static_cast<int>(rank))
        fail(file, key, value.dump(),
             fmt::format("expected a whole number from 1 to {}", kLargestAdapterRank));
      tuning.rank = static_cast<int>(rank);
    } else if (key == "lora_alpha") {
      if (!value.is_number() || !(value.get<double>() > 0))
        fail(file, key, value.dump(), "expected a number above 0");
      tuning.alpha = value.get<double>();
    } else if (key == "target_modules") {
      tuning.targets = targets_of(value, file, ignored);
    } else if (key == "use_dora") {
      if (!value.is_boolean()) fail(file, key, value.dump(), "expected true or false");
      tuning.dora = value.get<bool>();
    } else if (key == "layers_to_transform") {
      tuning.frozen_layers = first_layer(value, file, layers);
    } else if (!value.empty() && value != false) {
      if (std::string why = why_unread(key, value); !why.empty()) ignored->push_back(std::move(why));
    }
  }
  return tuning;
}

}  // namespace orrery::planner
