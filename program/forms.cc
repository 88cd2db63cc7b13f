#include "program/forms.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "base/append_only.h"
#include "base/error.h"
#include "program/operator_shard.h"
#include "program/placement.h"

namespace orrery {
namespace {

std::vector<FormOfParallelism> built_in_forms() {
  FormOfParallelism none;
  none.kind = "other";

  FormOfParallelism data;
  data.id = Parallelism::data;
  data.name = "data";
  data.kind = "data_comm";
  data.degree = [](const Choices& choices) { return choices.dp; };

  FormOfParallelism tensor;
  tensor.id = Parallelism::tensor;
  tensor.name = "tensor";
  tensor.kind = "tensor_comm";
  tensor.waited_for = true;
  tensor.degree = [](const Choices& choices) { return choices.tp; };
  tensor.gradient_is_partial = partial_over_tensor_ranks;

  FormOfParallelism pipeline;
  pipeline.id = Parallelism::pipeline;
  pipeline.name = "pipeline";
  pipeline.kind = "pipeline_comm";
  pipeline.degree = [](const Choices& choices) { return choices.pp; };

  FormOfParallelism expert;
  expert.id = Parallelism::expert;
  expert.name = "expert";
  expert.kind = "expert_comm";
  expert.waited_for = true;
  expert.degree = [](const Choices& choices) { return choices.ep * choices.etp; };

  FormOfParallelism context;
  context.id = Parallelism::context;
  context.name = "context";
  context.kind = "context_comm";
  context.exchanges_in = GroupKind::context;
  context.degree = [](const Choices& choices) { return choices.cp; };

  FormOfParallelism server;
  server.id = Parallelism::server;
  server.name = "server";
  server.kind = data.kind;
  server.degree = [](const Choices& choices) { return choices.has_servers() ? choices.dp : 1; };

  return {none, data, tensor, pipeline, expert, context, server};
}

constexpr std::size_t kMostForms = 64;

struct Registry {
  Registry() {
    for (const GroupRule& rule : built_in_group_rules()) groups.append(rule);
    for (FormOfParallelism& form : built_in_forms()) add(std::move(form));
  }
  // Whoever sees the form sees its groups.
  void add(FormOfParallelism form) {
    for (const GroupRule& rule : form.groups) groups.append(rule);
    forms.append(std::move(form));
  }
  std::mutex adding;
  AppendOnly<FormOfParallelism, kMostForms> forms{};
  AppendOnly<GroupRule, 2 * kMostForms> groups{};
};

Registry& registry() {
  static Registry all;
  return all;
}

bool has_group(const Registry& all, GroupKind kind) {
  const std::span<const GroupRule> rules = all.groups.items();
  return std::any_of(rules.begin(), rules.end(), [&](const GroupRule& rule) { return rule.kind == kind; });
}

}  // namespace

std::span<const FormOfParallelism> forms_of_parallelism() {
  return registry().forms.items();
}

std::span<const GroupRule> group_rules() {
  return registry().groups.items();
}

const FormOfParallelism& form_of(Parallelism id) {
  for (const FormOfParallelism& form : forms_of_parallelism())
    if (form.id == id) return form;
  throw InternalError("form of parallelism " + std::to_string(static_cast<int>(id)) + " is not registered");
}

const GroupRule& group_rule(GroupKind kind) {
  for (const GroupRule& rule : group_rules())
    if (rule.kind == kind) return rule;
  throw InternalError("groups of kind " + std::to_string(static_cast<int>(kind)) + " are not registered");
}

int degree_of(const FormOfParallelism& form, const Choices& choices) {
  return form.degree != nullptr ? form.degree(choices) : choices.degree(form.name);
}

void register_form(FormOfParallelism form) {
  Registry& all = registry();
  const std::lock_guard lock(all.adding);
  for (const FormOfParallelism& other : all.forms.items())
    ORRERY_CHECK(other.id != form.id && other.name != form.name,
                 "two forms of parallelism called " + std::string(form.name));
  for (const GroupRule& rule : form.groups)
    ORRERY_CHECK(!has_group(all, rule.kind), "two kinds of groups called " + std::string(rule.name));
  all.add(std::move(form));
}

}  // namespace orrery
