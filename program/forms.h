// Forms of parallelism: what each one means for a plan, said once. Whoever wants to know who talks to whom,
// which gradients are parts of a sum or how many rows a rank works on asks here or in what is built on it
// (placement.h, operator_shard.h, buckets.h), and so learns of a form that is added.
//
// What a form puts into a Program is in program/lower/forms.h, how it is executed in exec/math/forms.h.
// CONTRIBUTING.md says how one is added.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace orrery {

struct Shard;

// A kind of group: who is in it, and what for.
struct GroupRule {
  GroupKind kind = GroupKind::world;
  std::string_view name;
  // The ranks of `rank`'s group, itself one of them, in the order in which collectives number them.
  std::vector<std::int32_t> (*members)(const Plan& plan, int rank) = nullptr;
  // Whether any instruction of such a plan may go over such groups of several ranks.
  bool (*used)(const Plan& plan) = nullptr;
  bool in_layers = false;      // computation inside a layer waits for what it brings
  bool reduces_data = false;   // gradients of buckets are reduced over it
  bool inside_tensor = false;  // neighbours of one tensor group
};

struct FormOfParallelism {
  Parallelism id = Parallelism::none;
  // Choices::degrees has its degree by this name, unless the Choices have a field for it.
  std::string_view name;
  std::string_view kind;  // by which people group its communication: "tensor_comm"
  // Computation reads at once what its collectives bring (waiting_seconds in cost/compute_cost.h).
  bool waited_for = false;
  // The group whose members its exchanges inside layers are between.
  GroupKind exchanges_in = GroupKind::world;
  std::vector<GroupRule> groups;  // beyond those of placement.cc
  // Of how many ranks the plan makes use in this form; none: Choices::degrees says so.
  int (*degree)(const Choices& choices) = nullptr;
  // Throws UserError where a plan with this degree, above 1, makes no sense.
  void (*check)(const Plan& plan, int degree) = nullptr;
  // Whether each tensor rank has a part of the sum that is this tensor's gradient.
  bool (*gradient_is_partial)(const Operator& op, const ParameterTensor& tensor,
                              const Shard& shard) = nullptr;
  // Ranks that share the rows that the operator would run on without the form.
  int (*rows_split)(const Operator& op, int degree) = nullptr;
};

// The built-in ones first. Those that are there stay where they are.
std::span<const FormOfParallelism> forms_of_parallelism();
// Throws InternalError for one that nobody registered.
const FormOfParallelism& form_of(Parallelism id);
int degree_of(const FormOfParallelism& form, const Choices& choices);
// Adds one whose id, name and kinds of groups no other has, or, with an InternalError, nothing. Other threads
// may read and register meanwhile; a plan that has the form comes after it, as does the server of simulations
// (sim/processes/isolate.h), which knows what was registered when it started.
void register_form(FormOfParallelism form);

// All kinds of groups, the built-in ones (placement.cc) first.
std::span<const GroupRule> group_rules();
const GroupRule& group_rule(GroupKind kind);  // throws InternalError for one that nobody registered

}  // namespace orrery
