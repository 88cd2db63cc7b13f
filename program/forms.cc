#include "program/forms.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "program/operator_shard.h"
#include "program/placement.h"

namespace orrery {
namespace {

std::deque<FormOfParallelism> built_in_forms() {
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
  tensor.gradient_is_partial = internal::partial_over_tensor_ranks;

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

struct Registry {
  Registry() {
    for (const FormOfParallelism& form : forms)
      groups.insert(groups.end(), form.groups.begin(), form.groups.end());
  }
  std::deque<FormOfParallelism> forms = built_in_forms();
  std::vector<GroupRule> groups = built_in_group_rules();
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

const std::deque<FormOfParallelism>& forms_of_parallelism() {
  return registry().forms;
}

const std::vector<GroupRule>& group_rules() {
  return registry().groups;
}

const FormOfParallelism& form_of(Parallelism id) {
  for (const FormOfParallelism& form : registry().forms)
    if (form.id == id) return form;
  throw InternalError("form of parallelism " + std::to_string(static_cast<int>(id)) + " is not registered");
}

const GroupRule& group_rule(GroupKind kind) {
  for (const GroupRule& rule : registry().groups)
    if (rule.kind == kind) return rule;
  throw InternalError("groups of kind " + std::to_string(static_cast<int>(kind)) + " are not registered");
}

int degree_of(const FormOfParallelism& form, const Choices& choices) {
  return form.degree != nullptr ? form.degree(choices) : choices.degree(form.name);
}

void register_form(FormOfParallelism form) {
  Registry& all = registry();
  for (const FormOfParallelism& other : all.forms)
    ORRERY_CHECK(other.id != form.id && other.name != form.name,
                 "two forms of parallelism called " + std::string(form.name));
  for (const GroupRule& rule : form.groups) {
    ORRERY_CHECK(std::none_of(all.groups.begin(), all.groups.end(),
                              [&](const GroupRule& other) { return other.kind == rule.kind; }),
                 "two kinds of groups called " + std::string(rule.name));
    all.groups.push_back(rule);
  }
  all.forms.push_back(std::move(form));
}

}  // namespace orrery
