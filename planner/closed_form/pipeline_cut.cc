#include "planner/closed_form/pipeline_cut.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace orrery::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<double> summed(const std::vector<double>& values, std::size_t count) {
  std::vector<double> sums(count + 1, 0);
  for (std::size_t i = 0; i < std::min(count, values.size()); ++i) sums[i + 1] = sums[i] + values[i];
  for (std::size_t i = values.size(); i < count; ++i) sums[i + 1] = sums[i];
  return sums;
}

class Chain {
 public:
  Chain(const PipelineChain& chain, const std::vector<PipelineStage>& stages)
      : chain_(chain), stages_(stages), layers_(static_cast<int>(chain.compute_s.front().size())) {
    const auto count = static_cast<std::size_t>(layers_);
    for (const auto& kind : chain.compute_s) compute_.push_back(summed(kind, count));
    state_ = summed(chain.state_bytes, count);
    kept_ = summed(chain.kept_bytes, count);
  }

  int layers() const { return layers_; }

  double crossing_s(int stage, int position) const {
    if (position <= 0 || position >= layers_) return 0;
    return chain_.crossing_s[stages_[stage].way][position];
  }

  double stage_s(int stage, int begin, int end) const {
    const std::vector<double>& compute = compute_[stages_[stage].device];
    const double in = stage > 0 ? crossing_s(stage - 1, begin) : 0;
    const double out = crossing_s(stage, end);
    return std::max(compute[end] - compute[begin] + chain_.charged * (in + out), out);
  }

  bool fits(int stage, int begin, int end) const {
    const PipelineStage& at = stages_[stage];
    if (at.memory_bytes <= 0) return true;
    return state_[end] - state_[begin] + at.in_flight * (kept_[end] - kept_[begin]) <= at.memory_bytes;
  }

  // By stage and end: the least value of `join(value of the stages before, value of this stage)`, and where
  // the stage then begins. Stages may take `limit` at most. Compute and memory grow as the beginning moves
  // to the front: once a stage's compute is beyond the limit (or, where the value is a time, beyond the best
  // known), no earlier beginning is better.
  template <typename Value, typename Join>
  double run(double limit, bool of_times, Value value, Join join, std::vector<int>* cut) const {
    const int stages = static_cast<int>(stages_.size());
    std::vector<std::vector<double>> best(stages, std::vector<double>(layers_ + 1, kNever));
    std::vector<std::vector<int>> begin(stages, std::vector<int>(layers_ + 1, -1));
    for (int stage = 0; stage < stages; ++stage) {
      const std::vector<double>& compute = compute_[stages_[stage].device];
      const int left = stages - 1 - stage;
      for (int end = stage + 1; end <= layers_ - left; ++end) {
        for (int from = stage == 0 ? 0 : end - 1; from >= stage; --from) {
          const double most = of_times ? best[stage][end] : limit;
          if (!fits(stage, from, end) || compute[end] - compute[from] > most) break;
          const double before = stage == 0 ? 0 : best[stage - 1][from];
          const double own = stage_s(stage, from, end);
          if (before == kNever || own > limit) continue;
          const double joined = join(before, value(stage, end, own));
          if (joined >= best[stage][end]) continue;
          best[stage][end] = joined;
          begin[stage][end] = from;
        }
      }
    }
    const double answer = best[stages - 1][layers_];
    if (answer == kNever) return kNever;
    cut->assign(stages, 0);
    for (int stage = stages - 1, end = layers_; stage >= 0; --stage) {
      (*cut)[stage] = end - begin[stage][end];
      end = begin[stage][end];
    }
    return answer;
  }

 private:
  const PipelineChain& chain_;
  const std::vector<PipelineStage>& stages_;
  int layers_ = 0;
  std::vector<std::vector<double>> compute_;
  std::vector<double> state_, kept_;
};

}  // namespace

namespace {

// The slowest stage's least time; then, stages limited to that or `limit`, the least transfer.
std::optional<PipelineCut> cut_within(const Chain& layers, double limit) {
  PipelineCut result;
  result.slowest_s = limit;
  if (limit == kNever) {
    result.slowest_s = layers.run(
        kNever, true, [](int, int, double own) { return own; },
        [](double before, double own) { return std::max(before, own); }, &result.layers);
    if (result.slowest_s == kNever) return {};
  }
  // Sums of the same numbers in another order may differ in the last place.
  result.transfer_s = layers.run(
      result.slowest_s * (1 + 1e-12), false,
      [&](int stage, int end, double) { return layers.crossing_s(stage, end); },
      [](double before, double own) { return before + own; }, &result.layers);
  return result;
}

bool possible(const PipelineChain& chain, const std::vector<PipelineStage>& stages) {
  return !stages.empty() && !chain.compute_s.empty() && chain.compute_s.front().size() >= stages.size();
}

}  // namespace

std::optional<PipelineCut> optimal_cut(const PipelineChain& chain, const std::vector<PipelineStage>& stages) {
  if (!possible(chain, stages)) return {};
  return cut_within(Chain(chain, stages), kNever);
}

std::vector<PipelineCut> cut_front(const PipelineChain& chain, const std::vector<PipelineStage>& stages) {
  if (!possible(chain, stages)) return {};
  const Chain layers(chain, stages);
  std::vector<PipelineCut> front;
  if (auto best = cut_within(layers, kNever)) front.push_back(std::move(*best));
  if (front.empty()) return {};
  double all = 0;  // no stage takes longer
  for (const auto& kind : chain.compute_s)
    all = std::max(all, std::accumulate(kind.begin(), kind.end(), 0.0));
  for (const auto& way : chain.crossing_s) all += 2 * *std::max_element(way.begin(), way.end());
  const double least = cut_within(layers, std::max(all, front.front().slowest_s))->transfer_s;
  for (double limit = front.front().slowest_s; front.back().transfer_s > least && limit < all;) {
    limit *= kFrontStep;
    PipelineCut next = *cut_within(layers, limit);
    if (next.transfer_s >= front.back().transfer_s) continue;
    next.slowest_s = slowest_stage_s(chain, stages, next.layers);
    front.push_back(std::move(next));
  }
  return front;
}

double period_1f1b_s(const std::vector<PipelineSlot>& stages) {
  const int count = static_cast<int>(stages.size());
  double longest = 0;
  for (int first = 0; first < count; ++first) {
    double loop = stages[static_cast<std::size_t>(first)].weights_s;
    for (int last = first; last < count; ++last) {
      const PipelineSlot& stage = stages[static_cast<std::size_t>(last)];
      if (last > first) loop += 2 * stages[static_cast<std::size_t>(last) - 1].way_s;
      longest = std::max(longest, stage.busy_s);
      loop += stage.through_s;
      if (count > kAllLoops && last != count - 1 && last != first + 1) continue;
      if (last > first) longest = std::max(longest, loop / (last - first + 1));
    }
    if (count > kAllLoops && first > kAllLoops) break;
  }
  return longest;
}

double pipeline_s(const PipelineChain& chain, const std::vector<PipelineStage>& stages,
                  const std::vector<int>& layers, double micro_batches) {
  const int count = static_cast<int>(stages.size());
  std::vector<PipelineSlot> slots;
  int layer = 0;
  double through = 0;
  for (int stage = 0; stage < count; ++stage) {
    const PipelineStage& at = stages[static_cast<std::size_t>(stage)];
    const auto begin = chain.compute_s[static_cast<std::size_t>(at.device)].begin() + layer;
    layer += layers[static_cast<std::size_t>(stage)];
    const double compute = std::accumulate(begin, begin + layers[static_cast<std::size_t>(stage)], 0.0);
    const double way =
        stage + 1 < count
            ? chain.crossing_s[static_cast<std::size_t>(at.way)][static_cast<std::size_t>(layer)]
            : 0;
    slots.push_back({compute, compute, way});
    through += compute + 2 * way;
  }
  return through + (micro_batches - 1) * period_1f1b_s(slots);
}

double slowest_stage_s(const PipelineChain& chain, const std::vector<PipelineStage>& stages,
                       const std::vector<int>& layers) {
  const Chain whole(chain, stages);
  double slowest = 0;
  int begin = 0;
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    const int end = begin + layers[static_cast<std::size_t>(stage)];
    slowest = std::max(slowest, whole.stage_s(stage, begin, end));
    begin = end;
  }
  return slowest;
}

}  // namespace orrery::planner
