#include "workloads/readers/huggingface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "workloads/checks.h"
#include "workloads/readers/huggingface_json.h"
#include "workloads/readers/huggingface_networks.h"
#include "workloads/readers/huggingface_structure.h"
#include "workloads/readers/huggingface_towers.h"
#include "workloads/readers/huggingface_vision_language.h"

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

// How the names of transformers' classes with such heads end.
constexpr std::array<std::string_view, 5> kHeadsOfLabels = {"ForSequenceClassification",
                                                            "ForTokenClassification", "ForQuestionAnswering",
                                                            "ForMultipleChoice", "RewardModel"};

// What bitsandbytes, GPTQ or AWQ store the weights in, which stay as they are beside adapters. (fp4 and the
// latter's 4 bits are about as large as nf4.)
BaseType base_type_of(Config& config) {
  const Json* quantised = config.find("quantization_config");
  if (quantised == nullptr) return BaseType::none;
  if (!quantised->is_object())
    config.fail("quantization_config", "is no object", "expected what bitsandbytes or another is told");
  const auto says = [&](const char* key) {
    const auto at = quantised->find(key);
    return at != quantised->end() && at->is_boolean() && at->get<bool>();
  };
  if (const auto method = quantised->find("quant_method");
      method != quantised->end() && (*method == "gptq" || *method == "awq")) {
    const auto bits = quantised->find("bits");
    const bool eight = bits != quantised->end() && *bits == 8;
    if (bits != quantised->end() && !eight && *bits != 4)
      config.fail("quantization_config", fmt::format("bits {:.20}", bits->dump()), "expected 4 or 8");
    return eight ? BaseType::int8 : BaseType::nf4;
  }
  if (says("load_in_8bit")) return BaseType::int8;
  if (!says("load_in_4bit")) return BaseType::none;
  return says("bnb_4bit_use_double_quant") ? BaseType::nf4_dq : BaseType::nf4;
}

// Of others fp8 is how checkpoints of models trained so are stored; what is for inference is not what is
// trained here, and reported as ignored.
bool ignores_quantisation(Config& config) {
  const Json* quantised = config.find("quantization_config");
  if (quantised == nullptr || base_type_of(config) != BaseType::none) return false;
  const auto method = quantised->find("quant_method");
  return method == quantised->end() || *method != "fp8";
}

// A model with a head of some labels, or with none, is planned as the language model that it was.
std::string note_on_head(Config& config, const Transformer& t) {
  const std::string name = config.first_class();
  const bool labels = std::any_of(kHeadsOfLabels.begin(), kHeadsOfLabels.end(),
                                  [&](std::string_view end) { return name.ends_with(end); });
  // BERT's has a head of its own kind; GPT-2's ...LMHeadModel and ...DoubleHeadsModel have this one.
  const bool none = name.ends_with("Model") && !name.ends_with("HeadModel") &&
                    !name.ends_with("HeadsModel") && !t.pooler && !t.mlm_head;
  if (none && !labels)
    return fmt::format(
        "{} has no head: it is planned with a language model's over {} tokens and its loss, without which a "
        "step takes less time and memory",
        name, t.vocab);
  if (!labels) return {};
  return fmt::format(
      "{} is planned with a language model's head over {} tokens and its loss; its own head, of some labels, "
      "takes less time and memory",
      name, t.vocab);
}

// Towers and the like beside a language model, none of which is read ("vision_config"); empty: none.
std::string note_on_parts(const Json& root, const std::vector<std::string>& unread) {
  std::vector<std::string> parts;
  for (const std::string& key : unread)
    if (key.ends_with("_config") && root.at(key).is_object() && root.at(key).size() > 1) parts.push_back(key);
  if (parts.empty()) return "";
  return fmt::format("Planned is the language model of text_config alone: {} {} left out.",
                     fmt::join(parts, ", "), parts.size() == 1 ? "is" : "are");
}

// Some families keep fields in objects of their parts ("attn_config"), and an activation in one by its name:
// read as the configuration's own.
void lift_nested(Json* root, std::string_view file) {
  const auto type = root->find("model_type");
  if (type == root->end() || !type->is_string()) return;
  const auto family = huggingface_families().find(type->get<std::string>());
  if (family == huggingface_families().end() || !family->second.set.contains("nested")) return;
  for (const Json& key : family->second.set.at("nested")) {
    const auto part = root->find(key.get<std::string>());
    if (part == root->end() || part->is_null()) continue;
    if (!part->is_object())
      throw UserError(file, 0, fmt::format("{}: is no object", key.get<std::string>()),
                      "expected the configuration of one part");
    Json fields = std::move(*part);
    root->erase(part);
    for (auto& [name, value] : fields.items()) {
      const bool named = value.is_object() && value.size() == 1 && value.contains("name");
      if (!root->contains(name)) (*root)[name] = named ? value["name"] : std::move(value);
    }
  }
}

}  // namespace

Workload workload_from_huggingface(std::string_view text, std::string_view file) {
  Json root = parse_json(plain_json(text, file), file);
  if (!root.is_object())
    throw UserError(file, 1, "is not a JSON object", "expected a Hugging Face config.json");
  lift_nested(&root, file);
  Config outer(root, text, 0, file);
  std::vector<std::string> left_out;  // why a model of several parts is planned by one of them
  // diffusers' models say their class instead.
  const auto towers = huggingface_families().find(outer.text("model_type", outer.text("_class_name", "")));
  if (towers != huggingface_families().end() && !towers->second.graph.empty()) {
    Workload workload;
    workload.name = name_from(file, outer.text("_name_or_path", ""), towers->first);
    workload.source = fmt::format("Hugging Face configuration {}", file);
    if (is_network(towers->second.graph)) {
      read_network(outer, towers->second, file, &workload);
      return workload;
    }
    if (towers->second.graph != "vision_language") {
      read_towers(outer, towers->second, text, file, &workload);
      return workload;
    }
    if (read_vision_language(root, towers->second, text, file, &workload)) return workload;
    left_out = std::move(workload.notes);
  }
  const Json* nested = outer.find("text_config");
  if (nested != nullptr && !nested->is_object())
    outer.fail("text_config", "is no object", "expected the language model's configuration");
  // A multimodal model is planned by its language model; the rest is reported as ignored.
  const std::size_t start = nested == nullptr ? 0 : std::min(text.find("\"text_config\""), text.size());
  Config config(nested == nullptr ? root : *nested, text, start, file);
  const std::string type = config.text("model_type", "");

  Workload workload;
  const bool said_already = !left_out.empty();
  workload.notes = std::move(left_out);
  Transformer t = read_transformer(config, type, &workload);
  t.fine_tuning.base = base_type_of(outer);
  if (std::string note = note_on_head(outer, t); !note.empty()) workload.notes.push_back(std::move(note));
  const bool ignored = ignores_quantisation(outer);
  check_transformer(t, [&](auto, auto what, auto expected) { throw UserError(file, 0, what, expected); });
  const std::string given = outer.text("_name_or_path", "");
  workload.name = name_from(file, given, type);
  workload.source = fmt::format("Hugging Face configuration {}", file);
  workload.layers = t.layers;
  workload.default_seq_len = std::min(t.max_positions, kMaxDefaultSeqLen);
  workload.operators = transformer_operators(t);
  workload.transformer = std::move(t);
  workload.ignored_keys = config.unread();
  if (nested != nullptr) {
    std::vector<std::string> unread = outer.unread();
    if (std::string note = note_on_parts(root, unread); !note.empty() && !said_already)
      workload.notes.push_back(std::move(note));
    for (std::string& key : unread) workload.ignored_keys.push_back(std::move(key));
  }
  if (ignored) workload.ignored_keys.emplace_back("quantization_config");
  return workload;
}

}  // namespace orrery
