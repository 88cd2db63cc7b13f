#include "planner/search/pareto.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "planner/closed_form/memory_model.h"
#include "planner/search/candidates.h"

namespace orrery::planner {
namespace {

std::tuple<double, double, double, double> in_order(const Figures& f) {
  return {f.step_s, f.memory_bytes, f.energy_j, f.cost_usd};
}

// A front that plans are added to one by one.
class Front {
 public:
  void add(const Figures& figures, const Choices& choices) {
    for (const auto& [other, unused] : members_)
      if (dominates(other, figures) || in_order(other) == in_order(figures)) return;
    members_.erase(std::remove_if(members_.begin(), members_.end(),
                                  [&](const auto& member) { return dominates(figures, member.first); }),
                   members_.end());
    members_.emplace_back(figures, choices);
  }
  std::vector<Choices> take() {
    std::stable_sort(members_.begin(), members_.end(),
                     [](const auto& a, const auto& b) { return in_order(a.first) < in_order(b.first); });
    std::vector<Choices> plans;
    for (auto& [figures, choices] : members_) plans.push_back(std::move(choices));
    return plans;
  }

 private:
  std::vector<std::pair<Figures, Choices>> members_;
};

}  // namespace

bool dominates(const Figures& a, const Figures& b) {
  const bool no_worse = a.step_s <= b.step_s && a.cost_usd <= b.cost_usd && a.energy_j <= b.energy_j &&
                        a.memory_bytes <= b.memory_bytes;
  return no_worse && in_order(a) != in_order(b);
}

std::vector<std::size_t> pareto_front(const std::vector<Figures>& figures) {
  std::vector<std::size_t> order(figures.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return in_order(figures[a]) < in_order(figures[b]); });
  // What dominates a plan stands before it.
  std::vector<std::size_t> front;
  for (const std::size_t i : order) {
    const bool beaten = std::any_of(front.begin(), front.end(), [&](std::size_t other) {
      return dominates(figures[other], figures[i]) || in_order(figures[other]) == in_order(figures[i]);
    });
    if (!beaten) front.push_back(i);
  }
  return front;
}

Figures figures_of(const Evaluation& evaluation) {
  const double step_s = evaluation.step_time_s();
  const sim::Simulation& simulation = evaluation.simulation.value();
  const Cluster& cluster = evaluation.plan.job->cluster;
  return {step_s, usd_per_s(cluster) * step_s, states_power(cluster) ? simulation.energy_j : 0,
          evaluation.memory.total};
}

Survey survey(const std::shared_ptr<const Job>& job, const Pins& pins, Estimator& estimator,
              std::int64_t most, double fillable) {
  Survey result;
  const std::vector<BoundedFamily> families =
      families_by_bound(job, pins, estimator, [](const Choices&) { return true; });
  for (const BoundedFamily& each : families) result.space += each.family.count();
  result.beyond_s = std::numeric_limits<double>::infinity();
  const double price = usd_per_s(job->cluster);
  const bool powered = states_power(job->cluster);
  MemoryModel memory(job);
  Front front;
  for (const auto& [bound_s, family] : families) {
    if (result.looked_into >= most) {
      result.beyond_s = bound_s;
      break;
    }
    for (const Recomputed& recomputed : *family.recomputes) {
      for (const Sharding& sharding : *family.shardings) {
        const Choices choices =
            family.plan(recomputed, sharding, family.overlaps->front(), family.buckets->front().bytes);
        const Memory bytes = memory.predict(choices);
        if (!bytes.fits(fillable)) continue;
        ++result.looked_into;
        const StepTimes times = estimator.times(choices);
        const double energy_j =
            powered ? objective_value(Objective::energy, *job, times.estimate_s, times.compute_s, 0) : 0;
        front.add({times.estimate_s, price * times.estimate_s, energy_j, bytes.total}, choices);
      }
    }
  }
  result.front = front.take();
  return result;
}

}  // namespace orrery::planner
