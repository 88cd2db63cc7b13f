#include "planner/closed_form/layer_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>

namespace orrery::planner {
namespace {

void add_signature(const Operator& op, std::string& text) {
  fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{},{};", static_cast<int>(op.kind),
                 static_cast<int>(op.split), op.output_elements, op.saved_elements, op.vector_elements,
                 op.active_experts, op.experts);
  for (const MatmulShape& shape : op.matmuls)
    fmt::format_to(std::back_inserter(text), "{}x{}x{}x{};", shape.rows_per_row, shape.n, shape.k,
                   shape.groups);
  if (op.attention)
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{};", op.attention->heads,
                   op.attention->kv_heads, op.attention->qk_head_dim, op.attention->v_head_dim,
                   op.attention->causal, op.attention->window);
  if (op.state_space)
    fmt::format_to(std::back_inserter(text), "s{},{},{},{},{},{};", op.state_space->heads,
                   op.state_space->head_dim, op.state_space->state, op.state_space->groups,
                   op.state_space->conv_kernel, op.state_space->chunk);
  for (const ParameterTensor& tensor : op.parameters) {
    fmt::format_to(std::back_inserter(text), "p{},{},{},{}", tensor.split_dim, tensor.split_parts,
                   tensor.expert, tensor.tied_to);
    for (const std::int64_t size : tensor.shape) fmt::format_to(std::back_inserter(text), "x{}", size);
  }
}

}  // namespace

LayerParts layer_parts(const Workload& workload) {
  LayerParts parts;
  const auto& operators = workload.operators;
  const int count = workload.layers + 2;
  for (int part = 0; part <= count; ++part) {
    const auto at = std::partition_point(operators.begin(), operators.end(),
                                         [&](const Operator& op) { return op.layer < part - 1; });
    parts.begin.push_back(part == 0       ? 0
                          : part == count ? static_cast<int>(operators.size())
                                          : static_cast<int>(at - operators.begin()));
  }
  std::unordered_map<std::string, int> first;
  for (int part = 0; part < count; ++part) {
    const bool edge = part == 0 || part == count - 1;
    if (edge || !workload.transformer) {
      parts.twin.push_back(part);
      continue;
    }
    std::string signature;
    for (int op = parts.begin[part]; op < parts.begin[part + 1]; ++op)
      add_signature(operators[op], signature);
    parts.twin.push_back(first.try_emplace(std::move(signature), part).first->second);
  }
  return parts;
}

}  // namespace orrery::planner
