#include "program/tensor_shard.h"

#include <algorithm>

namespace orrery {
namespace {

std::int64_t rounded_up(std::int64_t size, std::int64_t ranks) {
  return (size + ranks - 1) / ranks;
}

// Rows of the split dimension that a rank holds of each fused part.
std::int64_t rows_of_part(const ParameterTensor& tensor, int ranks) {
  const std::int64_t whole = tensor.shape[static_cast<std::size_t>(tensor.split_dim)];
  return rounded_up(whole / std::max(1, tensor.split_parts), ranks);
}

// Of the ranks that cut the split dimension.
int ranks_of(const ParameterTensor& tensor, const ShardPlace& place) {
  return tensor.expert ? place.etp : place.tp;
}

std::int64_t local_size(const ParameterTensor& tensor, std::size_t dimension, const ShardPlace& place) {
  if (tensor.expert && dimension == 0) return rounded_up(tensor.shape[0], place.ep);
  if (static_cast<int>(dimension) != tensor.split_dim) return tensor.shape[dimension];
  return std::max(1, tensor.split_parts) * rows_of_part(tensor, ranks_of(tensor, place));
}

}  // namespace

ShardPlace shard_place(const Choices& choices, const Coordinates& at) {
  return {choices.tp, at.tp, choices.ep, at.ep, choices.etp, at.tp % choices.etp};
}

std::vector<std::int64_t> local_shape(const ParameterTensor& tensor, const ShardPlace& place) {
  std::vector<std::int64_t> shape;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) shape.push_back(local_size(tensor, d, place));
  return shape;
}

std::int64_t local_elements(const ParameterTensor& tensor, const ShardPlace& place) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) elements *= local_size(tensor, d, place);
  return elements;
}

std::vector<Run> runs_of(const ParameterTensor& tensor, const ShardPlace& place) {
  const int ranks = ranks_of(tensor, place);
  const int rank = tensor.expert ? place.etp_rank : place.tp_rank;
  // The part of the stack: all of what is no stack.
  const std::int64_t elements = tensor.elements() / (tensor.expert ? place.ep : 1);
  const std::int64_t first = tensor.expert ? elements * place.ep_rank : 0;
  if (tensor.split_dim < 0 || ranks == 1) return {{0, first, elements}};
  const auto split = static_cast<std::size_t>(tensor.split_dim);
  std::int64_t inner = 1;
  for (std::size_t d = split + 1; d < tensor.shape.size(); ++d) inner *= tensor.shape[d];
  const std::int64_t outer = elements / (tensor.shape[split] * inner);
  const std::int64_t parts = tensor.split_parts;
  const std::int64_t whole = tensor.shape[split] / parts;
  const std::int64_t rows = rows_of_part(tensor, ranks);
  const std::int64_t begin = std::min(whole, rows * rank);
  const std::int64_t held = std::min(whole, begin + rows) - begin;
  std::vector<Run> runs;
  if (held == 0) return runs;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t p = 0; p < parts; ++p)
      runs.push_back(
          {(o * parts + p) * rows * inner, first + ((o * parts + p) * whole + begin) * inner, held * inner});
  return runs;
}

std::vector<Run> runs_within(const std::vector<Run>& runs, std::int64_t begin, std::int64_t end) {
  std::vector<Run> within;
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [begin](const Run& r) { return r.local + r.count <= begin; });
  for (; run != runs.end() && run->local < end; ++run) {
    const std::int64_t first = std::max(run->local, begin);
    const std::int64_t last = std::min(run->local + run->count, end);
    within.push_back({first, run->global + first - run->local, last - first});
  }
  return within;
}

}  // namespace orrery
