#include "exec/math/objective.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/random.h"

namespace orrery::exec {
namespace {

constexpr double kHiddenShare = 0.15;
constexpr double kMaskedOfHidden = 0.8;
constexpr double kRandomOfHidden = 0.1;
constexpr std::uint64_t kHidingStream = 0x6D61736B;  // "mask"

}  // namespace

std::int64_t predictions_per_sample(const Job& job) {
  const Workload& workload = job.workload;
  if (!workload.transformer) return 1;
  if (!workload.transformer->mlm_head) return job.training.seq_len;
  return std::max<std::int64_t>(1, std::llround(kHiddenShare * job.training.seq_len));
}

void hide_tokens(const Job& job, std::int64_t step, std::int64_t sample, std::int32_t kinds,
                 std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                 std::optional<std::int32_t> mask) {
  const CounterRandom of_step(job.training.seed, kHidingStream + static_cast<std::uint64_t>(step));
  const CounterRandom random(of_step.bits(static_cast<std::uint64_t>(sample)), kHidingStream);
  // Three draws a position: its place in line, what becomes of it, which random token.
  const auto draw = [&](std::size_t position, int which) {
    return 3 * static_cast<std::uint64_t>(position) + static_cast<std::uint64_t>(which);
  };
  std::vector<std::pair<std::uint64_t, std::size_t>> line(tokens.size());
  for (std::size_t i = 0; i < line.size(); ++i) line[i] = {random.bits(draw(i, 0)), i};
  const auto hidden = static_cast<std::ptrdiff_t>(predictions_per_sample(job));
  std::nth_element(line.begin(), line.begin() + hidden - 1, line.end());
  std::fill(targets.begin(), targets.end(), kNoTarget);
  for (auto at = line.begin(); at != line.begin() + hidden; ++at) {
    const std::size_t i = at->second;
    targets[i] = tokens[i];
    const double fate = random.uniform(draw(i, 1));
    if (fate < kMaskedOfHidden)
      tokens[i] = mask.value_or(kinds);
    else if (fate < kMaskedOfHidden + kRandomOfHidden)
      tokens[i] = static_cast<std::int32_t>(random.bits(draw(i, 2)) % static_cast<std::uint64_t>(kinds));
  }
}

}  // namespace orrery::exec
