#include "workloads/fine_tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "workloads/fine_tuning_internal.h"
#include "workloads/tensor_names.h"
#include "workloads/workload.h"

namespace orrery {
namespace {

struct Named {
  std::string_view name;
  std::uint8_t bits;
};
constexpr std::array<Named, 7> kProjections = {{{"q", kQuery},
                                                {"k", kKey},
                                                {"v", kValue},
                                                {"o", kOutput},
                                                {"gate", kGate},
                                                {"up", kUp},
                                                {"down", kDown}}};
constexpr std::uint8_t kAttention = kQuery | kKey | kValue;
// What others call them: PEFT by Hugging Face's modules, Megatron-Bridge and NeMo by Megatron-Core's.
constexpr std::array<Named, 24> kOtherNames = {{{"q_proj", kQuery},          {"k_proj", kKey},
                                                {"v_proj", kValue},          {"o_proj", kOutput},
                                                {"gate_proj", kGate},        {"up_proj", kUp},
                                                {"down_proj", kDown},        {"qkv", kAttention},
                                                {"all", kAllProjections},    {"all-linear", kAllProjections},
                                                {"qkv_proj", kAttention},    {"gate_up_proj", kGate | kUp},
                                                {"c_attn", kAttention},      {"query_key_value", kAttention},
                                                {"Wqkv", kAttention},        {"dense_h_to_4h", kGate | kUp},
                                                {"dense_4h_to_h", kDown},    {"c_fc", kUp},
                                                {"linear_qkv", kAttention},  {"linear_proj", kOutput},
                                                {"linear_fc1", kGate | kUp}, {"linear_fc2", kDown},
                                                {"output_proj", kOutput},    {"mlp", kGate | kUp | kDown}}};

constexpr std::array kBaseTypes = {BaseType::none, BaseType::int8, BaseType::nf4, BaseType::nf4_dq};

// The projections that each two-dimensional weight of an operator is part of, in the operator's order.
std::vector<std::uint8_t> roles_of(const Operator& op, std::size_t weights) {
  const std::string_view name = std::string_view(op.name).substr(op.name.rfind('.') + 1);
  if (name == "q") return {kQuery};
  if (name == "kv" || name == "kv_down") return {kKey | kValue};
  if (name == "qkv" && weights == 3) return {kQuery, kKey, kValue};
  // Of latent attention: queries, then what keys and values come from.
  if ((name == "qkv" || name == "qkv_down") && weights == 2) return {kQuery, kKey | kValue};
  if (name == "qkv") return {kAttention};
  if (name == "proj") return {kOutput};
  if (name == "mlp_up" || name == "shared_up")
    return weights == 2 ? std::vector<std::uint8_t>{kGate, kUp} : std::vector<std::uint8_t>{kGate | kUp};
  if (name == "mlp_down" || name == "shared_down") return {kDown};
  return {};
}

// A: rank x inputs, B: outputs x rank. Of a weight that tensor ranks split by its outputs each has all of A,
// of one split by its inputs all of B; the sum of the ranks' parts is the gradient of what all have.
void add_adapter(const Transformer& model, int index, bool transposed, Operator* op) {
  const FineTuning& tuning = model.fine_tuning;
  const ParameterTensor& weight = op->frozen[static_cast<std::size_t>(index)];
  LowRankAdapter adapter;
  adapter.weight = index;
  adapter.rank = tuning.rank;
  adapter.in = weight.shape[transposed ? 0 : 1];
  adapter.out = weight.shape[transposed ? 1 : 0];
  adapter.magnitude = tuning.dora;
  const std::string_view stem =
      std::string_view(weight.name).substr(0, weight.name.size() - std::string_view(".weight").size());
  const bool columns = op->split == TensorSplit::column;
  const auto tensor = [&](std::string_view name, std::vector<std::int64_t> shape, int split_dim, int parts) {
    ParameterTensor own;
    own.name = fmt::format("base_model.model.{}.{}", stem, name);
    own.shape = std::move(shape);
    own.split_dim = split_dim;
    own.split_parts = split_dim < 0 ? 1 : parts;
    op->parameters.push_back(std::move(own));
  };
  tensor("lora_A.weight", {tuning.rank, adapter.in}, op->split == TensorSplit::row ? 1 : -1, 1);
  tensor("lora_B.weight", {adapter.out, tuning.rank}, columns ? 0 : -1, weight.split_parts);
  if (tuning.dora) tensor("lora_magnitude_vector", {adapter.out}, columns ? 0 : -1, weight.split_parts);
  op->adapters.push_back(adapter);
}

void add_adapters(const Transformer& model, Operator* op) {
  if (op->kind != OperatorKind::linear || op->layer < 0 || op->layer >= model.layers) return;
  std::vector<int> weights;
  for (std::size_t i = 0; i < op->frozen.size(); ++i)
    if (op->frozen[i].shape.size() == 2) weights.push_back(static_cast<int>(i));
  const std::vector<std::uint8_t> roles = roles_of(*op, weights.size());
  for (std::size_t i = 0; i < std::min(weights.size(), roles.size()); ++i)
    if ((roles[i] & model.fine_tuning.targets) != 0)
      add_adapter(model, weights[i], internal::tensor_names(model.family).transposed, op);
}

// Of a product without weights to train the input is not wanted again; of everything before the first that
// is trained, nothing is.
void mark_gradients(std::vector<Operator>* operators) {
  std::vector<bool> trains(operators->size(), false);  // it, or something before it
  for (std::size_t i = 0; i < operators->size(); ++i) {
    Operator& op = (*operators)[i];
    op.passes_gradient = std::any_of(op.inputs.begin(), op.inputs.end(),
                                     [&](int input) { return trains[static_cast<std::size_t>(input)]; });
    trains[i] = works_backward(op);
    const bool product = op.kind == OperatorKind::linear || op.kind == OperatorKind::expert_linear ||
                         op.kind == OperatorKind::head;
    if (!trains[i] || (product && op.parameters.empty() && !op.multiplies_inputs())) op.keeps_input = false;
  }
}

std::string wrong_with(const FineTuning& tuning) {
  if (tuning.rank == 0 && tuning.alpha > 0) return "`lora_alpha` without `lora_rank`";
  if (tuning.rank == 0 && tuning.dora) return "`dora` without `lora_rank`";
  if (tuning.rank == 0 && tuning.base != BaseType::none) return "`quantize_base` without `lora_rank`";
  return {};
}

}  // namespace

namespace internal {

void apply_fine_tuning(const Transformer& model, std::vector<Operator>* operators) {
  const FineTuning& tuning = model.fine_tuning;
  std::set<std::string> frozen;
  for (Operator& op : *operators) {
    const bool early = tuning.frozen_layers > 0 && op.layer < tuning.frozen_layers;
    if (tuning.rank > 0 || early) {
      op.frozen = std::exchange(op.parameters, {});
      for (const ParameterTensor& tensor : op.frozen) frozen.insert(tensor.name);
      const bool quantised = op.kind == OperatorKind::linear || op.kind == OperatorKind::expert_linear;
      if (quantised) op.base = tuning.base;
      if (tuning.rank > 0 && !early) add_adapters(model, &op);
      continue;
    }
    // What is one with a frozen tensor is frozen, too.
    const auto tied = std::stable_partition(
        op.parameters.begin(), op.parameters.end(),
        [&](const ParameterTensor& tensor) { return !frozen.contains(tensor.tied_to); });
    op.frozen.assign(tied, op.parameters.end());
    op.parameters.erase(tied, op.parameters.end());
  }
  mark_gradients(operators);
}

void freeze_layers(int layers, Workload* workload) {
  if (layers > workload->layers)
    throw UserError(fmt::format("`freeze` {} is more than the {} layers", layers, workload->layers),
                    "expected how many of the first layers are frozen");
  std::set<std::string> frozen;
  bool trains = false;
  for (Operator& op : workload->operators) {
    if (op.layer < layers)
      std::move(op.parameters.begin(), op.parameters.end(), std::back_inserter(op.frozen));
    if (op.layer < layers) op.parameters.clear();
    for (const ParameterTensor& tensor : op.frozen) frozen.insert(tensor.name);
    const auto tied = std::stable_partition(
        op.parameters.begin(), op.parameters.end(),
        [&](const ParameterTensor& tensor) { return !frozen.contains(tensor.tied_to); });
    std::move(tied, op.parameters.end(), std::back_inserter(op.frozen));
    op.parameters.erase(tied, op.parameters.end());
    trains = trains || !op.parameters.empty();
  }
  if (!trains) throw UserError("nothing is left to train", "expected fewer layers to `freeze`");
  workload->frozen_layers = layers;
  if (layers > 0) mark_gradients(&workload->operators);
}

}  // namespace internal

std::uint8_t projections_from(std::string_view list) {
  std::uint8_t bits = 0;
  std::size_t at = 0;
  while (at <= list.size()) {
    const std::size_t end = std::min(list.find_first_of(", ", at), list.size());
    const std::string_view name = list.substr(at, end - at);
    at = end + 1;
    if (name.empty()) continue;
    std::uint8_t found = 0;
    for (const Named& known : kProjections)
      if (known.name == name) found = known.bits;
    for (const Named& known : kOtherNames)
      if (known.name == name) found = known.bits;
    if (found == 0)
      throw UserError(fmt::format("`lora_targets` {} is unknown", name),
                      "expected q, k, v, o, gate, up, down, qkv or all, in a list");
    bits |= found;
  }
  if (bits == 0)
    throw UserError("`lora_targets` names nothing", "expected q, k, v, o, gate, up, down, qkv or all");
  return bits;
}

std::string names_of_projections(std::uint8_t targets) {
  std::vector<std::string_view> names;
  for (const Named& known : kProjections)
    if ((targets & known.bits) != 0) names.push_back(known.name);
  return fmt::format("{}", fmt::join(names, ","));
}

std::string_view name_of(BaseType type) {
  switch (type) {
    case BaseType::none:
      return "none";
    case BaseType::int8:
      return "int8";
    case BaseType::nf4:
      return "nf4";
    case BaseType::nf4_dq:
      return "nf4-dq";
  }
  return "none";
}

BaseType base_type_from_name(std::string_view name) {
  for (const BaseType type : kBaseTypes)
    if (name_of(type) == name) return type;
  throw UserError(fmt::format("`quantize_base` {} is unknown", name), "expected none, int8, nf4 or nf4-dq");
}

double base_bytes(BaseType type, DType storage) {
  constexpr double kBlock = 64, kScales = 256;
  switch (type) {
    case BaseType::none:
      return bytes_of(storage);
    case BaseType::int8:
      return 1;
    case BaseType::nf4:
      return 0.5 + 4 / kBlock;
    case BaseType::nf4_dq:
      return 0.5 + 1 / kBlock + 4 / (kBlock * kScales);
  }
  return bytes_of(storage);
}

void fine_tune(Workload& workload, const FineTuning& tuning) {
  if (const std::string wrong = wrong_with(tuning); !wrong.empty())
    throw UserError(wrong, "expected adapters of some rank beside it");
  if (!workload.transformer) {
    if (tuning.rank > 0)
      throw UserError(
          fmt::format("`lora_rank` {}: adapters are planned for stacks of transformer layers, and {} "
                      "is a graph of operators",
                      tuning.rank, workload.name),
          "expected no adapters");
    internal::freeze_layers(tuning.frozen_layers, &workload);
    return;
  }
  Transformer& model = *workload.transformer;
  if (tuning.frozen_layers > model.layers)
    throw UserError(fmt::format("`freeze` {} is more than the {} layers", tuning.frozen_layers, model.layers),
                    "expected how many of the first layers are frozen");
  model.fine_tuning = tuning;
  workload.operators = transformer_operators(model);
  if (std::none_of(workload.operators.begin(), workload.operators.end(),
                   [](const Operator& op) { return !op.parameters.empty(); }))
    throw UserError("nothing is left to train",
                    "expected `lora_targets` that the model has, or fewer layers to `freeze`");
}

std::string description_of(const FineTuning& tuning) {
  std::string text;
  if (tuning.rank > 0)
    text = fmt::format("{} of rank {} on {}", tuning.dora ? "DoRA" : "adapters", tuning.rank,
                       names_of_projections(tuning.targets));
  if (tuning.base != BaseType::none) text += fmt::format(", base in {}", name_of(tuning.base));
  if (tuning.frozen_layers > 0)
    text += fmt::format("{}first {} layers frozen", text.empty() ? "" : ", ", tuning.frozen_layers);
  return text;
}

std::string peft_config(const Workload& workload) {
  const Transformer& model = *workload.transformer;
  const FineTuning& tuning = model.fine_tuning;
  std::set<std::string> modules;
  bool transposed = false;
  for (const Operator& op : workload.operators)
    for (const LowRankAdapter& adapter : op.adapters) {
      const ParameterTensor& weight = op.frozen[static_cast<std::size_t>(adapter.weight)];
      const std::string stem = weight.name.substr(0, weight.name.rfind('.'));
      modules.insert(stem.substr(stem.rfind('.') + 1));
      transposed = internal::tensor_names(model.family).transposed;
    }
  Json config = {{"peft_type", "LORA"},
                 {"task_type", model.bidirectional ? "FEATURE_EXTRACTION" : "CAUSAL_LM"},
                 {"base_model_name_or_path", workload.name},
                 {"r", tuning.rank},
                 {"lora_alpha", tuning.alpha > 0 ? tuning.alpha : tuning.rank},
                 {"lora_dropout", 0.0},
                 {"target_modules", modules},
                 {"fan_in_fan_out", transposed},
                 {"use_dora", tuning.dora},
                 {"bias", "none"},
                 {"inference_mode", true}};
  if (tuning.frozen_layers > 0) {
    Json& layers = config["layers_to_transform"] = Json::array();
    for (int layer = tuning.frozen_layers; layer < model.layers; ++layer) layers.push_back(layer);
  }
  return config.dump(2) + "\n";
}

}  // namespace orrery
