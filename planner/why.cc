#include "planner/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/format.h"

namespace orrery::planner {
namespace {

constexpr double kWorthSaying = 0.005;  // of the step: what is smaller is not worth a sentence

std::string_view spoken(std::string_view part) {
  if (part == "compute") return "compute";
  if (part == "recompute") return "recomputation";
  if (part == "tensor_comm") return "tensor-parallel communication";
  if (part == "data_comm") return "gradient and parameter communication";
  if (part == "pipeline_comm") return "pipeline transfers";
  if (part == "expert_comm") return "expert all-to-all";
  if (part == "context_comm") return "context-parallel communication";
  if (part == "bubble") return "pipeline bubble";
  if (part == "optimizer") return "the optimizer";
  if (part == "input") return "input";
  return "other work";
}

std::vector<std::pair<std::string, double>> parts_by_size(const Breakdown& breakdown) {
  auto parts = parts_of(breakdown);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return parts;
}

std::string what_bounds(const Evaluation& best) {
  const Breakdown& breakdown = best.simulation->breakdown;
  const double total = breakdown.total();
  std::string shares;
  int named = 0;
  for (const auto& [name, seconds] : parts_by_size(breakdown)) {
    if (named == 3 || seconds < 0.01 * total) break;
    shares += fmt::format("{}{:.0f}% {}", named == 0 ? "" : ", ", 100 * seconds / total, spoken(name));
    ++named;
  }
  return fmt::format("{} takes {} a step: {}; its fullest device (stage {}) holds {} of {}.",
                     describe(best.plan), human_seconds(best.step_time_s()), shares, best.memory.stage,
                     human_bytes(best.memory.total), human_bytes(best.memory.capacity));
}

std::string what_runner_up_loses(const Evaluation& best, const Evaluation& other) {
  const double lost = other.step_time_s() - best.step_time_s();
  const auto before = parts_of(best.simulation->breakdown);
  const auto after = parts_of(other.simulation->breakdown);
  std::size_t worst = 0, better = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double change = after[i].second - before[i].second;
    if (change > after[worst].second - before[worst].second) worst = i;
    if (change < after[better].second - before[better].second) better = i;
  }
  std::string text = fmt::format("The runner-up, {}, ", describe(other.plan));
  if (std::abs(lost) < 1e-4 * best.step_time_s()) return text + "takes as long.";
  text += lost > 0 ? fmt::format("loses {} ({:.1f}%)", human_seconds(lost), 100 * lost / best.step_time_s())
                   : fmt::format("is {} faster, but not better by the objective", human_seconds(-lost));
  const double more = after[worst].second - before[worst].second;
  const double less = before[better].second - after[better].second;
  if (more > 0) text += fmt::format(": {} more {}", human_seconds(more), spoken(before[worst].first));
  if (less > kWorthSaying * best.step_time_s())
    text +=
        fmt::format("{} {} less {}", more > 0 ? "," : ":", human_seconds(less), spoken(before[better].first));
  return text + ".";
}

// Share of the step that a change of hardware would save, by the closed form of the same plan.
double saved(const Plan& plan, double estimate_s, const Cluster& changed) {
  auto job = std::make_shared<Job>(*plan.job);
  job->cluster = changed;
  return 1 - Estimator(job).times(plan.choices).estimate_s / estimate_s;
}

std::string what_would_help(const Evaluation& best, const Candidates& candidates, Estimator& estimator) {
  const Cluster& cluster = best.plan.job->cluster;
  const double estimate_s = estimator.times(best.plan.choices).estimate_s;
  std::vector<std::pair<double, std::string>> options;
  if (cluster.nodes() > 1) {
    Cluster wider = cluster;
    for (NodeGroup& group : wider.groups) group.node.nic.bandwidth_bytes_per_s *= 2;
    options.emplace_back(saved(best.plan, estimate_s, wider), "twice the bandwidth between nodes");
  }
  {
    Cluster wider = cluster;
    for (NodeGroup& group : wider.groups) {
      group.node.intra.bandwidth_bytes_per_s *= 2;
      group.node.intra.bridge_bandwidth_bytes_per_s *= 2;
    }
    wider.communication.point_to_point_bytes_per_s *= 2;
    options.emplace_back(saved(best.plan, estimate_s, wider), "twice the bandwidth inside a node");
  }
  {
    // The fastest plan that 10% more memory would let in, by the closed form both.
    const double gain = candidates.nearly ? 1 - candidates.nearly->times.estimate_s / estimate_s : 0;
    options.emplace_back(gain, gain > 0
                                   ? fmt::format("10% more memory ({})",
                                                 describe(Plan{best.plan.job, candidates.nearly->choices}))
                                   : std::string("10% more memory"));
  }
  std::stable_sort(options.begin(), options.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [share, what] : options)
    text += fmt::format("{}{} would save {}", text.empty() ? "" : ", ", what,
                        share < kWorthSaying ? std::string("nothing") : fmt::format("{:.1f}%", 100 * share));
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + " (closed form).";
}

}  // namespace

std::string explain(const std::vector<Evaluation>& ranked, const Candidates& candidates,
                    Estimator& estimator) {
  // The next plan of another kind: one that only recomputes a layer more says little.
  const auto other = std::find_if(ranked.begin() + 1, ranked.end(), [&](const Evaluation& evaluation) {
    const Choices& a = ranked.front().plan.choices;
    const Choices& b = evaluation.plan.choices;
    return std::tie(a.tp, a.pp, a.dp, a.cp, a.ep) != std::tie(b.tp, b.pp, b.dp, b.cp, b.ep) ||
           a.schedule != b.schedule || a.micro_batch != b.micro_batch;
  });
  const Evaluation* runner_up = other != ranked.end() ? &*other : ranked.size() > 1 ? &ranked[1] : nullptr;
  std::string text = what_bounds(ranked.front());
  text += runner_up != nullptr ? " " + what_runner_up_loses(ranked[0], *runner_up)
                               : " No other plan was simulated.";
  return text + " " + what_would_help(ranked.front(), candidates, estimator);
}

}  // namespace orrery::planner
