// A decoder of one sequence: known families by their rows, others by their fields.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "workloads/readers/huggingface_structure.h"

namespace orrery::internal {
namespace {

// The ways on for a model whose configuration cannot be read.
constexpr std::string_view kWaysOn =
    "; or the model as an .onnx file; or its dimensions in a .textproto, such as: name: \"mine\" transformer "
    "{ "
    "family: \"llama\" layers: 32 hidden: 4096 heads: 32 kv_heads: 8 ffn_hidden: 14336 vocab: 128256 "
    "max_positions: 8192 gated_ffn: true activation: \"silu\" norm: \"rmsnorm\" }";

// Why a model_type that is not known cannot be read by its fields, at the field; nothing where it can.
void refuse_other_kinds(Config& config) {
  const auto no = [&](std::string_view key, std::string_view why) {
    config.fail(
        key, why,
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
  for (const char* key : {"hidden_act", "hidden_activation", "activation_function"})
    if (const Json* says = config.find(key); says != nullptr && *says == "relu2")
      config.fail(key, "'relu2', by which some MLPs have a gate and others none",
                  fmt::format("expected silu or a gelu{}", kWaysOn));
  if (!config.first_class().ends_with("ForCausalLM")) no("architectures", "is no ...ForCausalLM");
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

}  // namespace

Transformer read_transformer(Config& config, const std::string& type, Workload* workload) {
  const auto& families = huggingface_families();
  const auto known = families.find(type);
  if (type.empty()) {
    std::vector<std::string_view> names;
    for (const auto& entry : families) names.push_back(entry.first);
    config.fail("model_type", "missing", fmt::format("expected one of {}", fmt::join(names, " ")));
  }
  const Family& family = known == families.end() ? unknown_family() : known->second;
  if (known == families.end()) {
    config.suspect(type);
    refuse_other_kinds(config);
  }
  config.take_defaults(family.defaults);
  Transformer t = Structure(config, family).read();
  read_mathematics(config, family, &t, workload);
  for (const auto& [key, why] : family.left_out)
    if (!why.empty() && config.in_file(key))
      workload->notes.push_back(fmt::format("{} is left out: {}.", key, why));
  if (known != families.end()) return t;
  if (const std::vector<std::string> unread = config.unread(); !unread.empty())
    config.fail(unread.front(), "not understood",
                fmt::format("expected a known model_type, or fields that are{}", kWaysOn));
  note_how_it_was_read(config, type, workload);
  return t;
}

}  // namespace orrery::internal
