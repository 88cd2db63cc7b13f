#include "planner/search/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/dtype.h"
#include "base/format.h"
#include "cost/precision.h"
#include "planner/evaluation/hardware.h"
#include "planner/space/abilities.h"
#include "program/program.h"
#include "topologies/named_network.h"

namespace orrery::planner {
namespace {

constexpr double kWorthSaying = 0.005;  // of the step: what is smaller is not worth a sentence

std::vector<std::pair<std::string, double>> parts_by_size(const Breakdown& breakdown) {
  auto parts = parts_of(breakdown);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return parts;
}

// A device that may be so full leaves no room for what nobody thought of.
constexpr double kThin = 0.97;

std::string margin(const Evaluation& best) {
  if (!best.interval) return "";
  const double high = best.interval->memory_bytes.high;
  return fmt::format(", with 95% probability at most {}{}", human_bytes(high),
                     high > best.memory.capacity           ? ": it may not fit"
                     : high > kThin * best.memory.capacity ? ": a thin margin"
                                                           : "");
}

}  // namespace

std::string what_bounds(const Evaluation& best) {
  const Breakdown& breakdown = best.simulation->breakdown;
  const double total = breakdown.total();
  std::string shares;
  int named = 0;
  for (const auto& [name, seconds] : parts_by_size(breakdown)) {
    if (named == 3 || seconds < 0.01 * total) break;
    shares += fmt::format("{}{:.0f}% {}", named == 0 ? "" : ", ", 100 * seconds / total, spoken_part(name));
    ++named;
  }
  if (const double host = host_share(best); host > 0)
    shares += fmt::format(" (the host launches kernels for {:.0f}% of it: larger micro-batches cost little)",
                          100 * host);
  return fmt::format("{} takes {} a step: {}; its fullest device (stage {}) holds {} of {}{}.",
                     describe(best.plan), human_seconds(best.step_time_s()), shares, best.memory.stage,
                     human_bytes(best.memory.total), human_bytes(best.memory.capacity), margin(best));
}

namespace {

// In what two plans differ that `describe` says the same of.
std::string difference(const Choices& best, const Choices& other) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (best.overlap_grad_reduce != other.overlap_grad_reduce)
    add(other.overlap_grad_reduce ? "its reduction overlapped" : "its reduction not overlapped");
  if (best.bucket_bytes != other.bucket_bytes)
    add(other.bucket_bytes > 0 ? "buckets of " + human_bytes(other.bucket_bytes) : "the runtime's buckets");
  if (best.order != other.order) add("another order on the machine");
  if (best.stage_layers != other.stage_layers) add("another cut");
  return text;
}

std::string how_runner_up_differs(const Evaluation& best, const Evaluation& other) {
  const StepSlowdown slowdown = slowdown_against(best, other);
  const auto before = parts_of(best.simulation->breakdown);
  const auto after = parts_of(other.simulation->breakdown);
  std::size_t better = 0;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (after[i].second - before[i].second < after[better].second - before[better].second) better = i;
  const std::string name = describe(other.plan);
  std::string text = fmt::format("The runner-up, {}, ",
                                 name != describe(best.plan)
                                     ? name
                                     : "the same with " + difference(best.plan.choices, other.plan.choices));
  if (std::abs(slowdown.seconds) < 1e-4 * best.step_time_s()) return text + "takes the same time.";
  text +=
      slowdown.seconds > 0 ? fmt::format("is {} ({:.1f}%) slower", human_seconds(slowdown.seconds),
                                         100 * slowdown.seconds / best.step_time_s())
      : best.odds && other.odds
          ? fmt::format("is {} faster as predicted, but slower where the prediction errs",
                        human_seconds(-slowdown.seconds))
          : fmt::format("is {} faster, but not better by the objective", human_seconds(-slowdown.seconds));
  const double less = before[better].second - after[better].second;
  if (slowdown.part_s > 0)
    text += fmt::format(": {} more {}", human_seconds(slowdown.part_s), spoken_part(slowdown.part));
  if (less > kWorthSaying * best.step_time_s())
    text += fmt::format("{} {} less {}", slowdown.part_s > 0 ? "," : ":", human_seconds(less),
                        spoken_part(before[better].first));
  return text + ".";
}

// Plans beside the best one that a change of hardware may make the best.
constexpr std::size_t kPromising = 32;

// A plan, and by how much the closed form flatters it: it would be the best one, and is not.
struct Promising {
  Choices choices;
  double flattered = 1;
};

double least_estimate_s(Estimator& estimator, const std::vector<Promising>& plans) {
  double least = std::numeric_limits<double>::infinity();
  for (const Promising& plan : plans)
    least = std::min(least, plan.flattered * estimator.times(plan.choices).estimate_s);
  return least;
}

std::string what_would_help(const std::vector<Sensitivity>& changes) {
  std::string text;
  for (const Sensitivity& change : changes)
    text += fmt::format(
        "{}{} would save {}", text.empty() ? "" : ", ", change.change,
        change.saves < kWorthSaying ? std::string("nothing") : fmt::format("{:.1f}%", 100 * change.saves));
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + " (closed form).";
}

}  // namespace

StepSlowdown slowdown_against(const Evaluation& best, const Evaluation& other) {
  const auto before = parts_of(best.simulation->breakdown);
  const auto after = parts_of(other.simulation->breakdown);
  StepSlowdown slowdown{other.step_time_s() - best.step_time_s(), before.front().first, 0};
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double more = after[i].second - before[i].second;
    if (more <= slowdown.part_s) continue;
    slowdown.part = before[i].first;
    slowdown.part_s = more;
  }
  return slowdown;
}

std::vector<Sensitivity> sensitivities(const Plan& best, const Candidates& candidates, Estimator& estimator) {
  const Cluster& cluster = best.job->cluster;
  const double now_s = estimator.times(best.choices).estimate_s;
  std::vector<Promising> plans = {{best.choices}};
  for (std::size_t i = 0; i < std::min(kPromising, candidates.promising.size()); ++i) {
    const Candidate& other = candidates.promising[i];
    plans.push_back({other.choices, std::max(1.0, now_s / other.times.estimate_s)});
  }
  std::vector<Sensitivity> changes;
  const auto add = [&](const char* key, const char* change, const Cluster& changed) {
    auto job = std::make_shared<Job>(*best.job);
    job->cluster = changed;
    Estimator on_it(job);
    changes.push_back({key, change, 1 - least_estimate_s(on_it, plans) / now_s});
  };
  if (cluster.nodes() > 1)
    add("inter_node_bandwidth_x2", "twice the bandwidth between nodes", with_network_times(cluster, 2));
  add("intra_node_bandwidth_x2", "twice the bandwidth inside a node", with_intra_node_times(cluster, 2));
  // The fastest plan that 10% more memory would let in.
  Sensitivity memory{"memory_plus_10_percent", "10% more memory", 0};
  if (candidates.almost_fits) memory.saves = 1 - candidates.almost_fits->times.estimate_s / now_s;
  if (memory.saves > 0)
    memory.change += fmt::format(" ({})", describe(Plan{best.job, candidates.almost_fits->choices}));
  changes.push_back(std::move(memory));
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Sensitivity& a, const Sensitivity& b) { return a.saves > b.saves; });
  return changes;
}

std::string explain(const std::vector<Evaluation>& ranked, const std::vector<Sensitivity>& changes) {
  // The next plan of another kind: one that only recomputes a layer more says little.
  const auto other = std::find_if(ranked.begin() + 1, ranked.end(), [&](const Evaluation& evaluation) {
    const Choices& a = ranked.front().plan.choices;
    const Choices& b = evaluation.plan.choices;
    return std::tie(a.tp, a.pp, a.dp, a.cp, a.ep) != std::tie(b.tp, b.pp, b.dp, b.cp, b.ep) ||
           a.schedule != b.schedule || a.micro_batch != b.micro_batch;
  });
  const Evaluation* runner_up = other != ranked.end() ? &*other : ranked.size() > 1 ? &ranked[1] : nullptr;
  std::string text = what_bounds(ranked.front());
  text += runner_up != nullptr ? " " + how_runner_up_differs(ranked[0], *runner_up)
                               : " No other choice was simulated.";
  return text + " " + what_would_help(changes);
}

std::string why_not_nominal(const Evaluation& best, const Evaluation& nominal, int compared) {
  const double saves = best.step_time_s() - nominal.step_time_s();
  std::string text = fmt::format("As predicted {} is {} ({:.1f}%) faster", describe(nominal.plan),
                                 human_seconds(saves), 100 * saves / best.step_time_s());
  if (best.odds && nominal.odds)
    text += fmt::format(
        ", but over what is uncertain it is expected to be {} slower than the fastest of the {} choices "
        "compared, "
        "the answer only {}",
        human_seconds(nominal.odds->regret_s), compared, human_seconds(best.odds->regret_s));
  return text + ".";
}

std::string price_of_memory(const Evaluation& best, const std::optional<Evaluation>& fastest,
                            double least_bytes) {
  const std::string text = fmt::format("It is the fastest plan found within {:.0f}% of the least memory ({})",
                                       100 * kMemoryMargin, human_bytes(least_bytes));
  if (!fastest) return text + ", and of all.";
  return text + fmt::format(". With {} a step takes {} ({}): the answer takes {:.3g} times as long.",
                            human_bytes(fastest->memory.total), human_seconds(fastest->step_time_s()),
                            describe(fastest->plan), best.step_time_s() / fastest->step_time_s());
}

std::string faster_but_unsure(const Evaluation& best, const Evaluation& unsure) {
  const double fits = std::floor(100 * unsure.interval->fit_probability) / 100;
  return fmt::format(
      "{} is {:.1f}% faster ({} a step), but fits with {:.0f}% probability: `fit_probability` {:.2f} "
      "searches "
      "such plans.",
      describe(unsure.plan), 100 * (1 - unsure.step_time_s() / best.step_time_s()),
      human_seconds(unsure.step_time_s()), 100 * fits, fits);
}

std::string beside_recipe(const Evaluation& best, const Evaluation& recipe, const std::string& name) {
  if (best.plan.choices == recipe.plan.choices)
    return fmt::format("It is a plan that people run ({}).", name);
  const StepSlowdown slowdown = slowdown_against(best, recipe);
  std::string text = fmt::format("The nearest plan that people run ({}), {}, ", name, describe(recipe.plan));
  if (std::abs(slowdown.seconds) < kWorthSaying * best.step_time_s())
    text += "takes the same time";
  else
    text += fmt::format("takes {} ({:.1f}%) {}", human_seconds(std::abs(slowdown.seconds)),
                        100 * std::abs(slowdown.seconds) / best.step_time_s(),
                        slowdown.seconds > 0 ? "more" : "less");
  if (slowdown.seconds > 0 && slowdown.part_s > 0)
    text += fmt::format(": {} more {}", human_seconds(slowdown.part_s), spoken_part(slowdown.part));
  if (!recipe.memory.fits())
    text += fmt::format("; a device is {} too small for it",
                        human_bytes(recipe.memory.needed - recipe.memory.capacity));
  else if (recipe.interval)
    text += fmt::format("; it fits with {:.0f}% probability", 100 * recipe.interval->fit_probability);
  return text + ".";
}

std::vector<std::string> warnings_about(const Plan& plan) {
  const Job& job = *plan.job;
  std::vector<std::string> found = without_units(job);
  if (const double factor = plan.choices.capacity_factor; factor > 0 && factor < 1)
    found.push_back(
        fmt::format("a capacity factor of {} drops at least {:.4g}% of the tokens that the "
                    "router sends to experts",
                    factor, 100 * (1 - factor)));
  const auto& model = job.workload.transformer;
  if (model && model->moe && model->gated_ffn && job.runtime.fused_experts &&
      job.training.precision != DType::fp8 && is_narrow(job.training.precision))
    found.push_back(
        fmt::format("{} fuses experts' activations with their products in fp8 alone: in {} they run operator "
                    "by operator, and fp8 may be faster",
                    job.runtime.name, name_of(job.training.precision)));
  const int tokens = job.training.seq_len;
  // Ten times what anybody is known to train on in a step.
  constexpr double kMostTokens = 1e9;
  const std::int64_t batch = job.training.global_batch;
  if (model && static_cast<double>(batch) * tokens > kMostTokens)
    found.push_back(fmt::format(
        "a step trains on {} sequences, which is {} tokens: `global_batch` counts sequences; {} of them "
        "are {} tokens",
        with_commas(batch), human_count(static_cast<double>(batch) * tokens),
        with_commas(std::max<std::int64_t>(1, batch / tokens)),
        with_commas(std::max<std::int64_t>(1, batch / tokens) * tokens)));
  if (model && !model->has_positions_for(tokens))
    found.push_back(
        fmt::format("{} has {} learned positions: sequences of {} tokens need a longer table of them, which "
                    "is not counted",
                    job.workload.name, with_commas(model->max_positions), with_commas(tokens)));
  return found;
}

std::vector<std::string> warnings_about(const Evaluation& best, double fit_probability, bool any_runtime) {
  std::vector<std::string> found;
  if (best.interval && best.interval->fit_probability < fit_probability * (1 - 1e-9))
    found.push_back(
        fmt::format("{} fits in memory with {:.0f}% probability, not {:.0f}%: it takes {} of {}, and "
                    "no plan of this question is much more likely to fit",
                    describe(best.plan), 100 * best.interval->fit_probability, 100 * fit_probability,
                    human_bytes(best.memory.total), human_bytes(best.memory.capacity)));
  for (std::string& warning : warnings_about(best.plan)) found.push_back(std::move(warning));
  const auto unable = why_cannot_run(best.plan.job->runtime, best.plan.job->workload, best.plan.choices);
  if (unable && !any_runtime)
    found.push_back(fmt::format("{}, so this runtime cannot run the plan of the answer", *unable));
  return found;
}

}  // namespace orrery::planner
