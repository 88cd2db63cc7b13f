#include "workloads/readers/huggingface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "workloads/checks.h"
#include "workloads/readers/huggingface_structure.h"
#include "workloads/readers/huggingface_towers.h"

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

// What bitsandbytes stores the weights in, which stay as they are beside adapters. (fp4 has as many bits and
// scales as nf4.)
BaseType base_type_of(Config& config) {
  const Json* quantised = config.find("quantization_config");
  if (quantised == nullptr) return BaseType::none;
  if (!quantised->is_object())
    config.fail("quantization_config", "is no object", "expected what bitsandbytes or another is told");
  const auto says = [&](const char* key) {
    const auto at = quantised->find(key);
    return at != quantised->end() && at->is_boolean() && at->get<bool>();
  };
  if (says("load_in_8bit")) return BaseType::int8;
  if (!says("load_in_4bit")) return BaseType::none;
  return says("bnb_4bit_use_double_quant") ? BaseType::nf4_dq : BaseType::nf4;
}

// Of others fp8 is how checkpoints of models trained so are stored; what is for inference (gptq, awq) is not
// what is trained here, and reported as ignored.
bool ignores_quantisation(Config& config) {
  const Json* quantised = config.find("quantization_config");
  if (quantised == nullptr || base_type_of(config) != BaseType::none) return false;
  const auto method = quantised->find("quant_method");
  return method == quantised->end() || *method != "fp8";
}

// The ways on for a model whose configuration cannot be read.
constexpr std::string_view kWaysOn =
    "; or the model as an .onnx file; or its dimensions in a .textproto, such as: name: \"mine\" transformer "
    "{ "
    "family: \"llama\" layers: 32 hidden: 4096 heads: 32 kv_heads: 8 ffn_hidden: 14336 vocab: 128256 "
    "max_positions: 8192 gated_ffn: true activation: \"silu\" norm: \"rmsnorm\" }";

// Why a model_type that is not known cannot be read by its fields, at the field; nothing where it can.
void refuse_other_kinds(Config& config, std::string_view type) {
  const auto no = [&](std::string_view key, std::string_view why) {
    config.fail(
        key, fmt::format("{}, and its model_type '{}' is not known", why, type),
        fmt::format("expected a decoder with RMS norms and rotary positions, for one that is not known{}",
                    kWaysOn));
  };
  for (const char* key : {"is_encoder_decoder", "encoder_layers", "decoder_layers", "num_decoder_layers"})
    if (const Json* says = config.find(key); says != nullptr && *says != false)
      no(key, "has an encoder and a decoder");
  for (const char* key : {"patch_size", "image_size", "num_channels", "num_mel_bins"})
    if (config.find(key) != nullptr) no(key, "reads no tokens");
  if (config.find("rms_norm_eps") == nullptr) no("rms_norm_eps", "missing");
  if (config.find("rope_theta") == nullptr && config.find("rope_parameters") == nullptr &&
      config.find("rope_scaling") == nullptr)
    no("rope_theta", "missing");
  const Json* classes = config.find("architectures");
  const bool decoder = classes != nullptr && classes->is_array() && !classes->empty() &&
                       classes->front().is_string() &&
                       classes->front().get<std::string>().ends_with("ForCausalLM");
  if (!decoder) no("architectures", "is no ...ForCausalLM");
}

// What Llama's kind has and configurations do not say.
const Family& unknown_family() {
  static const Family family = [] {
    Family f;
    f.tensors = "llama";
    f.is = {"rms_norm", "gated_ffn"};
    f.unexecuted = {"a model_type that is not known"};
    return f;
  }();
  return family;
}

void note_how_it_was_read(const Config& config, std::string_view type, Workload* workload) {
  workload->notes.push_back(
      fmt::format("model_type '{}' is not known; all of its fields are ({}). Read as a decoder of Llama's "
                  "kind with these: RMS "
                  "norms before attention and MLP, a gated MLP, rotary positions; embeddings tied unless it "
                  "says otherwise.",
                  type, fmt::join(config.read(), " ")));
}

Transformer read_model(Config& config, const std::string& type, Workload* workload) {
  const auto& families = huggingface_families();
  const auto known = families.find(type);
  if (type.empty()) {
    std::vector<std::string_view> names;
    for (const auto& entry : families) names.push_back(entry.first);
    config.fail("model_type", "missing", fmt::format("expected one of {}", fmt::join(names, " ")));
  }
  const Family& family = known == families.end() ? unknown_family() : known->second;
  if (known == families.end()) refuse_other_kinds(config, type);
  config.take_defaults(family.defaults);
  Transformer t = Structure(config, family).read();
  read_mathematics(config, &t);
  for (const auto& [key, why] : family.left_out)
    if (!why.empty() && config.in_file(key))
      workload->notes.push_back(fmt::format("{} is left out: {}.", key, why));
  if (known != families.end()) return t;
  if (const std::vector<std::string> unread = config.unread(); !unread.empty())
    config.fail(unread.front(), fmt::format("not understood, of a model_type '{}' that is not known", type),
                fmt::format("expected a known model_type, or fields that are{}", kWaysOn));
  note_how_it_was_read(config, type, workload);
  return t;
}

}  // namespace

Workload workload_from_huggingface(std::string_view text, std::string_view file) {
  const Json root = parse_json(text, file);
  if (!root.is_object())
    throw UserError(file, 1, "is not a JSON object", "expected a Hugging Face config.json");
  Config outer(root, text, 0, file);
  const auto towers = huggingface_families().find(outer.text("model_type", ""));
  if (towers != huggingface_families().end() && !towers->second.graph.empty()) {
    Workload workload;
    workload.name = name_from(file, outer.text("_name_or_path", ""), towers->first);
    workload.source = fmt::format("Hugging Face configuration {}", file);
    read_towers(outer, towers->second, text, file, &workload);
    return workload;
  }
  const Json* nested = outer.find("text_config");
  if (nested != nullptr && !nested->is_object())
    outer.fail("text_config", "is no object", "expected the language model's configuration");
  // A multimodal model is planned by its language model; the rest is reported as ignored.
  const std::size_t start = nested == nullptr ? 0 : std::min(text.find("\"text_config\""), text.size());
  Config config(nested == nullptr ? root : *nested, text, start, file);
  const std::string type = config.text("model_type", "");

  Workload workload;
  Transformer t = read_model(config, type, &workload);
  t.fine_tuning.base = base_type_of(outer);
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
  if (nested != nullptr)
    for (std::string& key : outer.unread()) workload.ignored_keys.push_back(std::move(key));
  if (ignored) workload.ignored_keys.emplace_back("quantization_config");
  return workload;
}

}  // namespace orrery
