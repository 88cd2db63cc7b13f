#include "program/lower/lowering.h"

#include <algorithm>

#include "base/error.h"
#include "program/lower/workbench.h"
#include "program/placement.h"
#include "workloads/graph_split.h"

namespace orrery {
namespace internal {

Lowering::Lowering(const Plan& plan, int rank) : plan_(plan), shard_(shard_of(plan)) {
  program.rank = rank;
  program.at = coordinates_of(plan, rank);
  const auto& operators = plan.job->workload.operators;
  uses_.resize(operators.size());
  for (int i = 0; i < op_count(); ++i) {
    for (const int input : op(i).inputs) {
      OperatorUse& use = uses_[static_cast<std::size_t>(input)];
      use.last_consumer = std::max(use.last_consumer, i);
      if (!splits_columns(op(i))) continue;
      if (use.first_column_consumer < 0) use.first_column_consumer = i;
      use.last_column_consumer = i;
    }
  }
  if (shard_.tp == 1 || plan.job->workload.transformer) return;
  for (int i = 0; i < op_count(); ++i)
    uses_[static_cast<std::size_t>(i)].returns = features_return(operators, i);
}

double Lowering::activation_bytes(int index) const {
  return shard_.rows * static_cast<double>(op(index).output_elements) * bytes_of(plan_.activation_type());
}

int Lowering::group(GroupKind kind) {
  const auto [at, unknown] = groups_.try_emplace(kind, -1);
  int& index = at->second;
  if (!unknown) return index;
  Group made = group_of(kind, plan_, program.rank);
  if (made.ranks.size() > 1) {
    index = static_cast<int>(program.groups.size());
    program.groups.push_back(std::move(made));
    sequences_.push_back(0);
  }
  return index;
}

std::uint32_t Lowering::emit(Instruction&& instruction) {
  const auto index = static_cast<std::uint32_t>(program.instructions.size());
  if (instruction.op == Op::collective) {
    instruction.sequence = sequences_[static_cast<std::size_t>(instruction.group)]++;
  }
  if (instruction.stream == Stream::compute) last_compute_ = index;
  program.instructions.push_back(std::move(instruction));
  return index;
}

}  // namespace internal

Program lower(const Plan& plan, int rank) {
  internal::Lowering lowering(plan, rank);
  internal::lay_out_buckets(lowering);
  for (int chunk = 0; chunk < plan.choices.interleave; ++chunk) {
    lowering.chunks.push_back(internal::build_chunk(lowering, chunk));
  }
  internal::mark_completions(lowering);
  internal::finish_step(lowering, internal::run_schedule(lowering));
  internal::add_services(lowering);
  return std::move(lowering.program);
}

}  // namespace orrery
