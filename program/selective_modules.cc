// What selective recomputation runs again: which operators each of its modules stands for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "program/operator_work.h"

namespace orrery {

std::vector<std::string> names_of(ModuleSet modules) {
  std::vector<std::string> names;
  for (const std::string_view name : kSelectiveModules)
    if ((modules & module_bit(name)) != 0) names.emplace_back(name);
  return names;
}

ModuleSet modules_from_names(std::string_view names) {
  ModuleSet modules = 0;
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find_first_of(",+", at), names.size());
    const std::string_view name = names.substr(at, end - at);
    if (module_bit(name) == 0)
      throw UserError(fmt::format("unknown module '{}'", name),
                      fmt::format("expected of {}", fmt::join(kSelectiveModules, ", ")));
    modules |= module_bit(name);
    at = end + 1;
  }
  return modules;
}

ModuleSet modules_run_again(const Choices& choices, const RuntimeProfile& runtime) {
  if (choices.recompute != Recompute::selective) return 0;
  if (choices.recompute_modules != 0) return choices.recompute_modules;
  return runtime.selective_modules.empty() ? module_bit("core_attn")
                                           : modules_from_names(runtime.selective_modules);
}

namespace {

constexpr ModuleSet kCoreModule = module_bit("core_attn"), kNormModule = module_bit("layernorm"),
                    kUpModule = module_bit("mla_up_proj"), kExpertActivationModule = module_bit("moe_act"),
                    kActivationModule = module_bit("mlp_act"), kDenseModule = module_bit("mlp"),
                    kExpertModule = module_bit("moe");

// Behind the layer's core (attention or scan) and its output's product, or in a layer without a core.
bool of_mlp(const std::vector<Operator>& operators, int i) {
  const Operator& op = operators[static_cast<std::size_t>(i)];
  if (op.layer < 0 || op.kind == OperatorKind::norm || op.kind == OperatorKind::residual) return false;
  for (int before = i; before >= 0 && operators[static_cast<std::size_t>(before)].layer == op.layer;
       --before) {
    const OperatorKind kind = operators[static_cast<std::size_t>(before)].kind;
    if (kind != OperatorKind::attention && kind != OperatorKind::scan) continue;
    return before != i && (op.inputs.empty() || op.inputs.front() != before);
  }
  // In front of the core, or in a layer that has none.
  for (std::size_t behind = static_cast<std::size_t>(i) + 1;
       behind < operators.size() && operators[behind].layer == op.layer; ++behind)
    if (operators[behind].kind == OperatorKind::attention || operators[behind].kind == OperatorKind::scan)
      return false;
  return true;
}

bool routes(const std::vector<Operator>& operators, int i) {
  const int layer = operators[static_cast<std::size_t>(i)].layer;
  int begin = i;
  while (begin > 0 && operators[static_cast<std::size_t>(begin) - 1].layer == layer) --begin;
  for (std::size_t at = static_cast<std::size_t>(begin);
       at < operators.size() && operators[at].layer == layer; ++at)
    if (operators[at].kind == OperatorKind::router) return true;
  return false;
}

// A product that reads a norm that reads a product: latent attention's way up.
bool leads_out_of_latent(const std::vector<Operator>& operators, const Operator& op) {
  if (op.kind != OperatorKind::linear || op.inputs.empty()) return false;
  const Operator& norm = operators[static_cast<std::size_t>(op.inputs.front())];
  return norm.kind == OperatorKind::norm && !norm.inputs.empty() &&
         operators[static_cast<std::size_t>(norm.inputs.front())].kind == OperatorKind::linear;
}

// A norm's output that nobody keeps needs not be run again, and what the next layer reads is kept whatever
// is.
bool frees_something(const std::vector<Operator>& operators, int norm) {
  const int layer = operators[static_cast<std::size_t>(norm)].layer;
  bool kept = false;
  for (std::size_t i = static_cast<std::size_t>(norm) + 1;
       i < operators.size() && operators[i].layer <= layer + 1; ++i) {
    const Operator& op = operators[i];
    if (std::find(op.inputs.begin(), op.inputs.end(), norm) == op.inputs.end()) continue;
    if (op.layer != layer) return false;
    kept |= op.keeps_input && op.kind != OperatorKind::residual;
  }
  return kept;
}

}  // namespace

bool brought_back(const std::vector<Operator>& operators, int i, ModuleSet modules) {
  const Operator& op = operators[static_cast<std::size_t>(i)];
  if (modules == 0 || op.layer < 0) return false;
  const auto named = [modules](ModuleSet module) { return (modules & module) != 0; };
  switch (op.kind) {
    case OperatorKind::attention:
      return named(kCoreModule);
    case OperatorKind::norm:
      return named(kNormModule) && frees_something(operators, i);
    case OperatorKind::activation:
      if (named(op.experts > 0 ? kExpertActivationModule : kActivationModule)) return true;
      break;
    case OperatorKind::linear:
      if (named(kUpModule) && leads_out_of_latent(operators, op)) return true;
      break;
    default:
      break;
  }
  return named(kDenseModule | kExpertModule) && of_mlp(operators, i) &&
         named(routes(operators, i) ? kExpertModule : kDenseModule);
}

ModuleSet modules_of(const Workload& workload, ModuleSet modules) {
  const std::vector<Operator>& operators = workload.operators;
  if (!workload.transformer) modules &= kCoreModule;  // a graph's layers have no parts of these names
  ModuleSet found = 0;
  for (const std::string_view name : kSelectiveModules) {
    const ModuleSet one = modules & module_bit(name);
    for (std::size_t i = 0; one != 0 && (found & one) == 0 && i < operators.size(); ++i)
      if (operators[i].layer < workload.layers && brought_back(operators, static_cast<int>(i), one))
        found |= one;
  }
  return found;
}

}  // namespace orrery
