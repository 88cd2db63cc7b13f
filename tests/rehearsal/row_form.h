// A form of parallelism that the product does not know, to hold that one can be added from outside: rows.
// Tensor ranks hold an MLP whole; each runs it on its share of the micro-batch's rows, and the shares of what
// comes out are gathered. So are, going back, the shares of the gradient of what went in.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "program/forms.h"
#include "program/lower/forms.h"
#include "program/operator_work.h"
#include "program/placement.h"

namespace orrery::test {

constexpr auto kRows = Parallelism{100};
constexpr auto kRowsGroup = GroupKind{100};
constexpr const char* kRowsName = "rows";

// The workload's MLPs, held whole by every tensor rank.
inline void hold_mlps_whole(Workload& workload) {
  for (Operator& op : workload.operators) {
    if (op.name.find("mlp_") == std::string::npos && !op.name.ends_with("activation")) continue;
    op.split = TensorSplit::replicated;
    for (ParameterTensor& tensor : op.parameters) tensor.split_dim = -1;
  }
}

// Of the MLPs that are held whole.
inline bool shares_rows(const Operator& op) {
  return op.layer >= 0 && op.split == TensorSplit::replicated &&
         (op.kind == OperatorKind::linear || op.kind == OperatorKind::activation);
}

inline std::vector<std::int32_t> row_members(const Plan& plan, int rank) {
  Coordinates at = coordinates_of(plan, rank);
  const int degree = plan.choices.degree(kRowsName);
  at.tp -= at.tp % degree;
  std::vector<std::int32_t> ranks;
  for (int i = 0; i < degree; ++i, ++at.tp) ranks.push_back(rank_of(plan, at));
  return ranks;
}

inline void check_rows(const Plan& plan, int degree) {
  const Choices& c = plan.choices;
  if (degree != c.tp || c.sequence_parallel)
    throw UserError(
        "rows are shared by " + std::to_string(degree) + " of " + std::to_string(c.tp) + " tensor ranks",
        "expected all of them, without sequence parallelism");
  if (c.micro_batch * plan.job->training.seq_len % degree != 0)
    throw UserError("a micro-batch's rows do not divide by " + std::to_string(degree),
                    "expected rows that do");
}

namespace rows {

using internal::Communications;
using internal::Lowering;

inline bool in_use(const Lowering& lowering, int op) {
  return lowering.choices().degree(kRowsName) > 1 && shares_rows(lowering.op(op));
}

inline void gather(Lowering& lowering, TensorKind kind, int op, Communications* out) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::tensor;
  instruction.form = kRows;
  instruction.collective = CollectiveKind::all_gather;
  instruction.group = lowering.group(kRowsGroup);
  instruction.dtype = lowering.plan().activation_type();
  instruction.bytes = lowering.activation_bytes(op);
  instruction.micro_batch = internal::kOpenMicroBatch;
  const TensorRef tensor{kind, op, internal::kOpenMicroBatch};
  instruction.reads.push_back(tensor);
  instruction.writes.push_back(tensor);
  out->push_back(std::move(instruction));
}

inline void after_forward(Lowering& lowering, int op, Communications* out) {
  if (in_use(lowering, op) && !shares_rows(lowering.op(lowering.use(op).last_consumer)))
    gather(lowering, TensorKind::activation, op, out);
}

inline void after_backward(Lowering& lowering, int op, Communications* out) {
  if (!in_use(lowering, op)) return;
  const int input = lowering.op(op).inputs.front();
  if (!shares_rows(lowering.op(input))) gather(lowering, TensorKind::activation_gradient, input, out);
}

}  // namespace rows

// Once a process.
inline void register_rows() {
  FormOfParallelism form;
  form.id = kRows;
  form.name = kRowsName;
  form.kind = "rows_comm";
  form.waited_for = true;
  GroupRule group;
  group.kind = kRowsGroup;
  group.name = kRowsName;
  group.members = row_members;
  group.used = [](const Plan& plan) { return plan.choices.degree(kRowsName) > 1; };
  group.in_layers = true;
  group.inside_tensor = true;
  form.groups.push_back(group);
  form.check = check_rows;
  form.gradient_is_partial = [](const Operator& op, const ParameterTensor&, const Shard&) {
    return shares_rows(op);
  };
  form.rows_split = [](const Operator& op, int degree) { return shares_rows(op) ? degree : 1; };
  register_form(std::move(form));

  internal::LoweringForm lowering;
  lowering.id = kRows;
  lowering.after_forward = rows::after_forward;
  lowering.after_backward = rows::after_backward;
  internal::register_lowering(lowering);
}

}  // namespace orrery::test
