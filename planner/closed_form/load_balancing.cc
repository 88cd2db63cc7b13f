#include "planner/closed_form/load_balancing.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "planner/closed_form/pipeline_cut.h"

namespace orrery::planner {
std::vector<std::int64_t> balanced_shares(const std::vector<double>& seconds, std::int64_t micro_batches,
                                          std::int64_t unit) {
  const auto replicas = static_cast<std::int64_t>(seconds.size());
  if (unit < 1 || micro_batches % unit != 0 || micro_batches / unit < replicas) return {};
  std::vector<std::int64_t> shares(seconds.size(), 0);
  // Proportional, rounded down, and the rest one by one to who then finishes first: no exchange of a unit
  // between two replicas makes the last finish earlier.
  double rate = 0;
  for (const double s : seconds) rate += 1 / s;
  const std::int64_t units = micro_batches / unit;
  std::int64_t left = units;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    shares[i] = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(units) / (seconds[i] * rate)));
    left -= shares[i];
  }
  const auto last_to_finish = [&] {
    std::size_t last = seconds.size();
    for (std::size_t i = 0; i < seconds.size(); ++i)
      if (shares[i] > 1 && (last == seconds.size() || static_cast<double>(shares[i]) * seconds[i] >
                                                          static_cast<double>(shares[last]) * seconds[last]))
        last = i;
    return last;
  };
  for (; left < 0; ++left) --shares[last_to_finish()];
  using Finish = std::tuple<double, std::size_t>;  // with one unit more
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> next;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    next.emplace(static_cast<double>(shares[i] + 1) * seconds[i], i);
  for (; left > 0; --left) {
    const std::size_t i = std::get<1>(next.top());
    next.pop();
    ++shares[i];
    next.emplace(static_cast<double>(shares[i] + 1) * seconds[i], i);
  }
  for (std::int64_t& share : shares) share *= unit;
  return shares;
}

std::vector<int> cut_by_stage_times(const std::vector<std::vector<double>>& seconds) {
  PipelineChain chain;  // every stage has a kind of device of its own, and sends for nothing
  std::vector<PipelineStage> stages;
  for (const std::vector<double>& sums : seconds) {
    std::vector<double>& layers = chain.compute_s.emplace_back();
    for (std::size_t i = 1; i < sums.size(); ++i) layers.push_back(sums[i] - sums[i - 1]);
    stages.push_back({static_cast<int>(stages.size()), 0, 0, 1});
  }
  chain.crossing_s.emplace_back(seconds.front().size(), 0.0);
  const std::optional<PipelineCut> cut = optimal_cut(chain, stages);
  return cut ? cut->layers : std::vector<int>{};
}

}  // namespace orrery::planner
