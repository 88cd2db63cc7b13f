#include "exec/shard.h"

#include <algorithm>

namespace orrery::exec {
namespace {

// Rows of the split dimension that a rank holds of each fused part.
std::int64_t rows_of_part(const ParameterTensor& tensor, int tp) {
  const std::int64_t whole = tensor.shape[static_cast<std::size_t>(tensor.split_dim)] / tensor.split_parts;
  return (whole + tp - 1) / tp;
}

}  // namespace

std::vector<std::int64_t> local_shape(const ParameterTensor& tensor, const ShardPlace& place) {
  const int tp = place.tp;
  std::vector<std::int64_t> shape = tensor.shape;
  if (tensor.expert) {
    shape[0] /= place.ep;
    return shape;
  }
  if (tensor.split_dim >= 0 && tp > 1)
    shape[static_cast<std::size_t>(tensor.split_dim)] = tensor.split_parts * rows_of_part(tensor, tp);
  return shape;
}

std::vector<Run> runs_of(const ParameterTensor& tensor, const ShardPlace& place) {
  const int tp = place.tp;
  const int tp_rank = place.tp_rank;
  if (tensor.expert) {
    const std::int64_t part = tensor.elements() / place.ep;
    return {{0, part * place.ep_rank, part}};
  }
  if (tensor.split_dim < 0 || tp == 1) return {{0, 0, tensor.elements()}};
  const auto split = static_cast<std::size_t>(tensor.split_dim);
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (d < split) outer *= tensor.shape[d];
    if (d > split) inner *= tensor.shape[d];
  }
  const std::int64_t parts = tensor.split_parts;
  const std::int64_t whole = tensor.shape[split] / parts;
  const std::int64_t rows = rows_of_part(tensor, tp);
  const std::int64_t begin = std::min(whole, rows * tp_rank);
  const std::int64_t held = std::min(whole, begin + rows) - begin;
  std::vector<Run> runs;
  if (held == 0) return runs;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t p = 0; p < parts; ++p)
      runs.push_back(
          {(o * parts + p) * rows * inner, ((o * parts + p) * whole + begin) * inner, held * inner});
  return runs;
}

}  // namespace orrery::exec
