#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"
#include "planner/evaluation/interval.h"
#include "planner/evaluation/load.h"
#include "planner/search/candidates.h"
#include "planner/search/pareto.h"
#include "planner/search/subsets.h"
#include "planner/search/systems.h"
#include "planner/search/why.h"
#include "planner/space/order_choice.h"
#include "planner/space/split_choice.h"

namespace orrery::planner {
namespace {

// Simulated together. Fixed, so that what is simulated does not depend on the number of processes.
constexpr std::size_t kBatch = 4;

// No third plan joins a batch that so many passes of a micro-batch through a layer are expected of: about a
// second of each of two cores.
constexpr double kBatchPasses = 30e3;

// At least so many plans are kept in order, for the case that the closed form errs.
constexpr int kKept = 64;

// With --pareto: plans that fit and are looked into by the closed form, and how many of their front are
// simulated.
constexpr std::int64_t kSurveyed = 100'000;
constexpr std::size_t kParetoSimulated = 48;

// Alike but for details that move a step by little.
bool same_kind(const Choices& a, const Choices& b) {
  return a.tp == b.tp && a.pp == b.pp && a.dp == b.dp && a.cp == b.cp && a.ep == b.ep &&
         a.micro_batch == b.micro_batch && a.schedule == b.schedule && (a.zero == 3) == (b.zero == 3) &&
         a.sequence_parallel == b.sequence_parallel;
}

class Search {
 public:
  Search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options)
      : job_(std::move(job)), pins_(pins), options_(options), estimator_(job_) {}

  SearchResult run() {
    const auto start = std::chrono::steady_clock::now();
    candidates_ = gather(job_, pins_, options_.objective, std::max(options_.top, kKept), estimator_);
    if (candidates_.promising.empty()) throw NoAnswer(nothing_fits(job_, pins_, candidates_));
    rank();
    simulate();
    SearchResult result;
    compare_systems(result);
    find_front(result);
    result.candidates = candidates_.count;
    result.feasible = candidates_.feasible;
    result.simulated = static_cast<std::int64_t>(done_.size());
    const double best = value_of(done_.front());
    const double least = least_open_bound();
    result.proven = least >= best;
    result.gap = result.proven ? 0 : (best - least) / best;
    result.sensitivities = sensitivities(done_.front().plan, candidates_, estimator_);
    result.why = explain(done_, result.sensitivities);
    if (done_.front().plan.choices.asynchronous()) {
      result.why +=
          " A step counts as many samples as a synchronous one; how many more steps stale gradients "
          "need is not predicted.";
      if (const std::string few = few_workers(load_of(done_.front())); !few.empty()) result.why += " " + few;
    }
    if (!result.systems.empty()) result.why += " " + which_suits(result.systems, done_.front());
    done_.resize(std::min(done_.size(), static_cast<std::size_t>(options_.top)));
    result.plans = std::move(done_);
    result.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  double value_of(const Evaluation& evaluation) const {
    return objective_value(options_.objective, evaluation);
  }

  void rank() {
    for (const Candidate& candidate : candidates_.promising) order_.push_back(&candidate);
    // Equal values (memory ties) go by time; equal times stay in the order of the space.
    std::stable_sort(order_.begin(), order_.end(), [](const Candidate* a, const Candidate* b) {
      if (a->expected != b->expected) return a->expected < b->expected;
      return a->times.estimate_s < b->times.estimate_s;
    });
    // The first to be simulated are of unlike kinds, in case the closed form errs about one of them.
    std::vector<const Candidate*> first, rest;
    for (const Candidate* candidate : order_) {
      const bool fresh =
          first.size() < kBatch && std::none_of(first.begin(), first.end(), [&](const Candidate* other) {
            return same_kind(candidate->choices, other->choices);
          });
      (fresh ? first : rest).push_back(candidate);
    }
    order_ = std::move(first);
    order_.insert(order_.end(), rest.begin(), rest.end());
    // Least bound of what stands at or after each place, and of what was cut.
    open_bound_.assign(order_.size() + 1, candidates_.cut_bound);
    for (std::size_t i = order_.size(); i-- > 0;)
      open_bound_[i] = std::min(open_bound_[i + 1], order_[i]->bound);
  }

  void simulate() {
    const std::size_t wanted = std::min(order_.size(), static_cast<std::size_t>(options_.top));
    double best = std::numeric_limits<double>::infinity();
    while (next_ < order_.size()) {
      if (done_.size() >= wanted && least_open_bound() >= best) break;
      if (!done_.empty() && spent_s_ >= options_.budget_s) break;
      std::vector<const Candidate*> batch;
      double passes = 0;
      for (; next_ < order_.size() && batch.size() < kBatch; ++next_) {
        const bool hopeless = order_[next_]->bound >= best && done_.size() + batch.size() >= wanted;
        if (hopeless) continue;
        passes += sim::expected_passes({job_, order_[next_]->choices});
        if (batch.size() >= 2 && passes > kBatchPasses) break;
        batch.push_back(order_[next_]);
      }
      for (const double value : simulate(batch)) best = std::min(best, value);
      if (options_.progress) options_.progress(static_cast<int>(done_.size()), static_cast<int>(wanted));
    }
    rank_done();
  }

  // Adds them to what is done; their values by the objective.
  std::vector<double> simulate(const std::vector<const Candidate*>& batch) {
    const int jobs = options_.jobs > 0 ? options_.jobs : processors();
    sim::SimulationOptions simulation;
    simulation.keep_timeline = false;
    std::vector<Plan> plans;
    for (const Candidate* candidate : batch) {
      plans.push_back({job_, candidate->choices});
      check_plan(plans.back());
    }
    const std::vector<sim::Simulation> results = sim::simulate_all(plans, simulation, jobs);
    std::vector<double> values;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const double ep = plans[i].choices.ep;
      spent_s_ += static_cast<double>(results[i].events) / kNominalEventsPerSecond +
                  job_->cluster.devices() * kNominalSecondsPerRank + ep * ep * kNominalSecondsPerPair;
      Evaluation evaluation;
      evaluation.plan = plans[i];
      evaluation.memory = predict_memory(plans[i]);
      evaluation.estimate_s = batch[i]->times.estimate_s;
      evaluation.simulation = results[i];
      values.push_back(value_of(evaluation));
      done_.push_back(std::move(evaluation));
    }
    return values;
  }

  void rank_done() {
    std::stable_sort(done_.begin(), done_.end(), [this](const Evaluation& a, const Evaluation& b) {
      const double left = value_of(a);
      const double right = value_of(b);
      return left != right ? left < right : a.step_time_s() < b.step_time_s();
    });
  }

  // Plans that the search came by no reason to simulate, for comparison; one that turns out to be better than
  // all others ranks as such.
  void simulate_also(const std::vector<Choices>& plans) {
    std::vector<Candidate> extra;
    for (const Choices& choices : plans)
      if (evaluation_of(choices) == nullptr) extra.push_back({choices, 0, estimator_.times(choices), 0, 0});
    for (std::size_t begin = 0; begin < extra.size(); begin += kBatch) {
      std::vector<const Candidate*> batch;
      for (std::size_t i = begin; i < std::min(extra.size(), begin + kBatch); ++i) batch.push_back(&extra[i]);
      simulate(batch);
    }
    if (!extra.empty()) rank_done();
  }

  const Evaluation* evaluation_of(const Choices& choices) const {
    const auto at = std::find_if(done_.begin(), done_.end(),
                                 [&](const Evaluation& e) { return e.plan.choices == choices; });
    return at != done_.end() ? &*at : nullptr;
  }

  void compare_systems(SearchResult& result) {
    const bool other = pins_.search_sync || pins_.sync.value_or(Sync::all_reduce) != Sync::all_reduce;
    if (job_->cluster.devices() == 1 || other) return;
    result.systems = systems(job_, pins_, candidates_, estimator_);
    // Of a kind that was simulated the best by that stands for it.
    std::vector<Choices> missing;
    for (const System& system : result.systems) {
      if (system.kind == SystemKind::async_servers) continue;  // ranked only where they are searched
      const bool simulated = std::any_of(done_.begin(), done_.end(), [&](const Evaluation& e) {
        return system_kind_of(e.plan.choices) == system.kind;
      });
      if (system.choices && !system.step_time_s && !simulated) missing.push_back(*system.choices);
    }
    simulate_also(missing);
    for (System& system : result.systems) {
      if (system.kind == SystemKind::async_servers) {
        simulate_servers(system);
        continue;
      }
      double least = std::numeric_limits<double>::infinity();
      for (const Evaluation& evaluation : done_) {
        if (system_kind_of(evaluation.plan.choices) != system.kind || evaluation.step_time_s() >= least)
          continue;
        least = evaluation.step_time_s();
        system.choices = evaluation.plan.choices;
        system.step_time_s = least;
      }
    }
  }

  // Every worker with every server: the work grows with the square of the devices.
  void simulate_servers(System& system) const {
    constexpr int kSimulatedDevices = 8;
    if (!system.choices || system.choices->dp > kSimulatedDevices) return;
    sim::SimulationOptions simulation;
    simulation.keep_timeline = false;
    system.step_time_s = sim::simulate({job_, *system.choices}, simulation).step_time_s;
  }

  void find_front(SearchResult& result) {
    if (options_.pareto) {
      const Survey seen = survey(job_, pins_, estimator_, kSurveyed);
      result.pareto_looked_into = seen.looked_into;
      result.pareto_front = static_cast<std::int64_t>(seen.front.size());
      result.pareto_beyond_s = seen.beyond_s;
      // Evenly over the front where it is long, both ends included.
      std::vector<Choices> chosen;
      const std::size_t count = std::min(seen.front.size(), kParetoSimulated);
      result.pareto_simulated = static_cast<std::int64_t>(count);
      for (std::size_t i = 0; i < count; ++i)
        chosen.push_back(seen.front[count == 1 ? 0 : i * (seen.front.size() - 1) / (count - 1)]);
      simulate_also(chosen);
    }
    std::vector<Figures> figures;
    for (const Evaluation& evaluation : done_) figures.push_back(figures_of(evaluation));
    for (const std::size_t i : pareto_front(figures)) result.pareto.push_back(done_[i]);
  }

  double least_open_bound() const { return open_bound_[next_]; }

  std::shared_ptr<const Job> job_;
  const Pins& pins_;
  const SearchOptions& options_;
  Estimator estimator_;
  Candidates candidates_;
  std::vector<const Candidate*> order_;
  std::vector<double> open_bound_;
  std::size_t next_ = 0;
  double spent_s_ = 0;  // simulating, of a nominal core
  std::vector<Evaluation> done_;
};

std::string compared_to_subsets(const SearchResult& result, Objective objective) {
  const Evaluation& all = result.plans.front();
  const Subset* best = nullptr;
  std::string text;
  for (const Subset& subset : result.subsets) {
    text += text.empty() ? "" : ", ";
    if (!subset.best) {
      text += fmt::format("none on {}", subset.cluster.name);
      continue;
    }
    text += fmt::format("{} on {} ({} devices)", human_seconds(subset.best->step_time_s()),
                        subset.cluster.name, subset.cluster.devices());
    if (best == nullptr || objective_value(objective, *subset.best) < objective_value(objective, *best->best))
      best = &subset;
  }
  const int devices = all.plan.job->cluster.devices();
  if (best == nullptr) return fmt::format("No alike part of the machine can do it alone ({}).", text);
  const double whole = objective_value(objective, all);
  const double alone = objective_value(objective, *best->best);
  if (whole < alone)
    return fmt::format(
        "All {} devices together beat the best alike part by {:.1f}% of {} (the best plans: {}).", devices,
        100 * (1 - whole / alone), name_of(objective), text);
  return fmt::format(
      "Nothing found that uses all {} devices beats {} alone by {} (the best plans: {}): leave the others "
      "out.",
      devices, best->cluster.name, name_of(objective), text);
}

}  // namespace

SearchResult search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options) {
  job = with_order(with_splits(job, pins), pins);
  SearchResult result = Search(job, pins, options).run();
  add_intervals(job, {result.plans, result.pareto});
  if (!options.subsets) return result;
  for (Cluster& alone : homogeneous_subsets(job->cluster)) {
    auto part = std::make_shared<Job>(*job);
    part->cluster = alone;
    SearchOptions quick = options;
    quick.top = 1;
    quick.pareto = false;
    Subset subset{std::move(alone), {}, ""};
    try {
      subset.best = Search(part, pins, quick).run().plans.front();
    } catch (const NoAnswer& answer) {
      subset.refusal = answer.what();
    } catch (const UserError& error) {
      subset.refusal = error.what();
    }
    result.subsets.push_back(std::move(subset));
  }
  if (!result.subsets.empty()) result.why += " " + compared_to_subsets(result, options.objective);
  return result;
}

}  // namespace orrery::planner
