#include "planner/tables/layer_kinds.h"

#include <algorithm>
#include <optional>

namespace orrery::planner {
namespace {

// Whether they cost the same: layers are compared for every model of memory or time, of which a search makes
// dozens.
bool are_twins(const MatmulShape& a, const MatmulShape& b) {
  return a.rows_per_row == b.rows_per_row && a.n == b.n && a.k == b.k && a.groups == b.groups;
}

bool are_twins(const LowRankAdapter& a, const LowRankAdapter& b) {
  return a.rank == b.rank && a.in == b.in && a.out == b.out && a.magnitude == b.magnitude;
}

bool are_twins(const AttentionShape& a, const AttentionShape& b) {
  return a.heads == b.heads && a.kv_heads == b.kv_heads && a.qk_head_dim == b.qk_head_dim &&
         a.v_head_dim == b.v_head_dim && a.causal == b.causal && a.window == b.window &&
         a.chunked == b.chunked && a.qk_norm == b.qk_norm && a.index_heads == b.index_heads &&
         a.index_head_dim == b.index_head_dim;
}

bool are_twins(const StateSpaceShape& a, const StateSpaceShape& b) {
  return a.heads == b.heads && a.head_dim == b.head_dim && a.state == b.state && a.groups == b.groups &&
         a.conv_kernel == b.conv_kernel && a.chunk == b.chunk && a.kind == b.kind;
}

bool are_twins(const ParameterTensor& a, const ParameterTensor& b) {
  return a.split_dim == b.split_dim && a.split_parts == b.split_parts && a.expert == b.expert &&
         a.tied_to == b.tied_to && a.shape == b.shape;
}

template <typename T>
bool are_twins(const std::optional<T>& a, const std::optional<T>& b) {
  return a.has_value() == b.has_value() && (!a || are_twins(*a, *b));
}

template <typename T>
bool are_twins(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& one, const T& other) { return are_twins(one, other); });
}

bool are_twins(const Operator& a, const Operator& b) {
  if (a.passes_gradient != b.passes_gradient || a.base != b.base || a.keeps_input != b.keeps_input ||
      !are_twins(a.adapters, b.adapters) || !are_twins(a.frozen, b.frozen))
    return false;
  return a.kind == b.kind && a.split == b.split && a.output_elements == b.output_elements &&
         a.saved_elements == b.saved_elements && a.vector_elements == b.vector_elements &&
         a.active_experts == b.active_experts && a.experts == b.experts && are_twins(a.matmuls, b.matmuls) &&
         are_twins(a.attention, b.attention) && are_twins(a.state_space, b.state_space) &&
         are_twins(a.parameters, b.parameters);
}

}  // namespace

bool LayerParts::layers_alike() const {
  return std::all_of(twin.begin() + 1, twin.end() - 1, [](int first) { return first == 1; });
}

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
  const auto alike = [&](int one, int other) {
    const auto at = [&](int part) { return operators.begin() + parts.begin[static_cast<std::size_t>(part)]; };
    return std::equal(at(one), at(one + 1), at(other), at(other + 1),
                      [](const Operator& a, const Operator& b) { return are_twins(a, b); });
  };
  std::vector<int> kinds;  // the first of each
  for (int part = 0; part < count; ++part) {
    const bool edge = part == 0 || part == count - 1;
    if (edge || !workload.transformer) {
      parts.twin.push_back(part);
      continue;
    }
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](int first) { return alike(first, part); });
    parts.twin.push_back(kind == kinds.end() ? part : *kind);
    if (kind == kinds.end()) kinds.push_back(part);
  }
  return parts;
}

}  // namespace orrery::planner
