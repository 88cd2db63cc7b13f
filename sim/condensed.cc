#include "sim/condensed.h"

#include <algorithm>
#include <memory>

namespace orrery::sim {
namespace {

// Rounds of the two steps that stand for the whole one, and how many times their sum it must have. In two
// rounds the queue of the slowest stage may not have filled yet: 2 and 3 were 0.8% off for a DeepSeek-V3 of
// 32 unequal stages, 3 and 4 are 0.02%.
struct Rounds {
  std::int64_t shorter = 3, longer = 4;
};
// Of chunks the queue may fill over a whole step, where the slowest stage is slower by little: Llama 3 70B in
// 27 chunks on nine stages is 1.6% off with 3 and 4 rounds and still 1.1% with 12 and 16 of 60. So they are
// condensed only where the whole step is long.
constexpr Rounds kRoundsOfChunks{6, 8};
constexpr double kWholePasses = 20'000;  // passes_of(), some 0.3 s

constexpr std::int64_t kLeastMicroBatches = 8;  // of the shorter, where stages are few
constexpr std::int64_t kLeastSaving = 2;

Plan with_micro_batches(const Plan& plan, std::int64_t count) {
  auto job = std::make_shared<Job>(*plan.job);
  job->training.global_batch = count * plan.choices.micro_batch * plan.choices.dp;
  job->training.lengths.samples_each = plan.micro_batches() * plan.choices.micro_batch;
  return {std::move(job), plan.choices};
}

class Extension {
 public:
  explicit Extension(double ratio) : ratio_(ratio) {}
  // Nothing falls with the micro-batches; what is constant may do so by rounding.
  double operator()(double shorter, double longer) const {
    return longer + std::max(0.0, longer - shorter) * ratio_;
  }
  void extend(const std::vector<double>& shorter, std::vector<double>* longer) const {
    for (std::size_t i = 0; i < longer->size(); ++i)
      if (i < shorter.size()) (*longer)[i] = (*this)(shorter[i], (*longer)[i]);
  }

 private:
  double ratio_;
};

void extend_links(const Extension& extension, const Simulation& shorter, double grown, Simulation* longer,
                  double longer_end_s) {
  const double end_s = extension(shorter.step_ends_s.back(), longer_end_s);
  for (LinkLoad& link : longer->links) {
    const auto same = [&](const LinkLoad& other) { return other.name == link.name; };
    const auto known = std::find_if(shorter.links.begin(), shorter.links.end(), same);
    const double bytes =
        known != shorter.links.end() ? extension(known->bytes, link.bytes) : link.bytes * grown;
    if (link.bytes > 0 && end_s > 0) link.utilization *= bytes / link.bytes * longer_end_s / end_s;
    link.bytes = bytes;
  }
  std::stable_sort(longer->links.begin(), longer->links.end(),
                   [](const LinkLoad& a, const LinkLoad& b) { return a.utilization > b.utilization; });
}

// The parts add up to the step, as they do in both.
void extend_breakdown(const Simulation& shorter, double before_s, double ratio, Simulation* longer) {
  if (shorter.critical_rank != longer->critical_rank) {
    longer->breakdown.scale(longer->step_time_s / before_s);
    return;
  }
  Breakdown more = longer->breakdown;
  more.add(shorter.breakdown, -1);
  longer->breakdown.add(more, ratio);
}

}  // namespace

double passes_of(const Plan& plan, std::int64_t micro_batches) {
  return static_cast<double>(micro_batches) * std::max(plan.job->workload.layers, plan.stages());
}

std::optional<Fewer> fewer_micro_batches(const Plan& plan) {
  const Choices& c = plan.choices;
  if (c.asynchronous() || !c.replica_batches.empty()) return std::nullopt;
  const std::int64_t round = c.pp;
  const bool chunks = c.interleave > 1;
  if (chunks && passes_of(plan, plan.micro_batches()) <= kWholePasses) return std::nullopt;
  const Rounds rounds = chunks ? kRoundsOfChunks : Rounds{};
  const std::int64_t least = (kLeastMicroBatches + rounds.shorter * round - 1) / (rounds.shorter * round);
  const Fewer fewer{rounds.shorter * round * least, rounds.longer * round * least};
  if (plan.micro_batches() < kLeastSaving * (fewer.shorter + fewer.longer)) return std::nullopt;
  return fewer;
}

std::optional<Condensed> condensed(const Plan& plan) {
  const std::optional<Fewer> fewer = fewer_micro_batches(plan);
  if (!fewer) return std::nullopt;
  return Condensed{with_micro_batches(plan, fewer->shorter), with_micro_batches(plan, fewer->longer),
                   static_cast<double>(plan.micro_batches() - fewer->longer) /
                       static_cast<double>(fewer->longer - fewer->shorter)};
}

Simulation extended(const Condensed& plans, const Simulation& shorter, Simulation longer) {
  const Extension extension(plans.ratio);
  const double before_s = longer.step_time_s, longer_end_s = longer.step_ends_s.back();
  longer.step_time_s = extension(shorter.step_time_s, before_s);
  const double grown = longer.step_time_s / before_s;
  extend_links(extension, shorter, grown, &longer, longer_end_s);
  extension.extend(shorter.step_ends_s, &longer.step_ends_s);
  extend_breakdown(shorter, before_s, plans.ratio, &longer);
  for (auto& [kind, seconds] : longer.busy_s) {
    const auto known = shorter.busy_s.find(kind);
    seconds = known != shorter.busy_s.end() ? extension(known->second, seconds) : seconds * grown;
  }
  extension.extend(shorter.stage_compute_s, &longer.stage_compute_s);
  extension.extend(shorter.replica_compute_s, &longer.replica_compute_s);
  longer.host_s = extension(shorter.host_s, longer.host_s);
  longer.energy_j = extension(shorter.energy_j, longer.energy_j);
  longer.events += shorter.events;
  return longer;
}

}  // namespace orrery::sim
