#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/format.h"
#include "base/parallel.h"
#include "planner/evaluation/interval.h"
#include "planner/evaluation/load.h"
#include "planner/search/agenda.h"
#include "planner/search/candidates.h"
#include "planner/search/fewer_devices.h"
#include "planner/search/group_order.h"
#include "planner/search/known_recipe.h"
#include "planner/search/pareto.h"
#include "planner/search/split_search.h"
#include "planner/search/subsets.h"
#include "planner/search/systems.h"
#include "planner/search/why.h"
#include "planner/space/abilities.h"

namespace orrery::planner {
namespace {

// Simulated together. Fixed, so that what is simulated does not depend on the number of processes.
constexpr std::size_t kBatch = 4;

// No third plan joins a batch that so many passes of a micro-batch through a layer are expected of: about a
// second of each of two cores. Nor a second one of kManyActivities, nor is such a plan simulated for the
// table alone.
constexpr double kBatchPasses = 45e3;

// At least so many of the choices that were simulated are compared, and all within so much of the best.
constexpr std::size_t kContenders = 12;
constexpr double kReach = 1.25;

// At least so many plans are kept in order, for the case that the closed form errs.
constexpr int kKept = 64;

// With --pareto: plans that fit and are looked into by the closed form, and how many of their front are
// simulated.
constexpr std::int64_t kSurveyed = 100'000;
constexpr std::size_t kParetoSimulated = 48;

// Of the step: what a plan that may not fit must save to be said, and by the closed form to be simulated.
constexpr double kWorthARisk = 0.05;
constexpr double kWorthALook = 0.02;
// Of a step: less is not worth a sentence.
constexpr double kLeastSavedByTensorRanks = 0.005;

class Search {
 public:
  Search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options)
      : job_(std::move(job)), pins_(pins), options_(options), estimator_(job_), outlook_(job_) {}

  SearchResult run() {
    const auto start = std::chrono::steady_clock::now();
    find_candidates();
    const bool robust = options_.rank == Rank::robust &&
                        (options_.objective == Objective::step_time || options_.objective == Objective::cost);
    agenda_.emplace(candidates_,
                    robust ? [this](const Choices& choices) { return expected_factor(choices); }
                           : std::function<double(const Choices&)>(),
                    [this](const Candidate& candidate) {
                      const Bound bound = estimator_.slot_bound(candidate.choices);
                      return objective_value(ranked_by(options_.objective), *job_, bound.step_s,
                                             bound.compute_s, candidate.memory_bytes);
                    });
    recipe_ = nearest_recipe(job_, estimator_, room_.fillable);
    simulate_promising(options_.budget_s);
    if (options_.prove) prove();
    compare_systems(result_);
    if (candidates_.larger) simulate_also({candidates_.larger->choices});
    fill_table();
    find_front(result_);
    result_.candidates = candidates_.count;
    result_.feasible = candidates_.feasible;
    result_.simulated = static_cast<std::int64_t>(done_.size());
    const Evaluation nominal = done_.front();
    const double least = std::min(agenda_->least_open_bound(), value_of(nominal));
    // It may differ from the answer in how many layers are run again alone, and be no choice of its own.
    if (options_.objective == Objective::memory) result_.fastest = fastest_done();
    rank_choices(robust);
    const double best = value_of(done_.front());
    result_.proven = least >= best;
    result_.gap = result_.proven ? 0 : (best - least) / best;
    result_.sensitivities = sensitivities(done_.front().plan, candidates_, estimator_);
    tell(nominal);
    done_.resize(std::min(done_.size(), static_cast<std::size_t>(options_.top)));
    result_.plans = std::move(done_);
    result_.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  double value_of(const Evaluation& evaluation) const {
    return objective_value(ranked_by(options_.objective), evaluation);
  }

  void find_candidates() {
    Fitting fitting =
        gather_fitting(job_, pins_, options_.objective, std::max(options_.top, kKept), estimator_,
                       outlook_.spread(), options_.fit_probability, options_.progress);
    candidates_ = std::move(fitting.candidates);
    room_ = fitting.room;
  }

  const Response& response(const Choices& choices) {
    for (const auto& [known, found] : responses_)
      if (known == choices) return found;
    responses_.emplace_back(choices, outlook_.response(choices));
    return responses_.back().second;
  }
  // Beside the plan that the closed form puts first.
  double expected_factor(const Choices& choices) {
    if (!reference_) reference_ = response(choices);
    return mean_factor(response(choices), *reference_, outlook_.spread());
  }

  // Until none is left that may be better than the best, or so much is spent.
  void simulate_promising(double until_s) {
    const auto refused = [this](const Agenda::Open& open) {
      return open.bound >= least_ && (!open.compared || open.bound * open.factor >= least_expected_);
    };
    const auto hopeless = [&](Agenda::Open* open) {
      if (!refused(*open)) agenda_->tighten(open);
      return refused(*open);
    };
    while (done_.empty() || spent_s_ < until_s) {
      const std::vector<Agenda::Open*> batch = agenda_->batch(kBatch, hopeless);
      if (batch.empty()) break;
      simulate_open(batch);
    }
    rank_done();
  }

  // What is listed behind the answer, where that was found before the table was full: the answer is the same
  // however long the table is.
  void fill_table() {
    std::vector<Choices> too_long;
    while (spent_s_ < options_.budget_s) {
      std::vector<Choices> listed = too_long;
      const auto known = [&listed](const Choices& choices) {
        return std::any_of(listed.begin(), listed.end(),
                           [&](const Choices& other) { return same_choice(choices, other); });
      };
      for (const Evaluation& one : done_)
        if (!known(one.plan.choices)) listed.push_back(one.plan.choices);
      const std::size_t wanted = static_cast<std::size_t>(std::max(options_.top, 1)) + too_long.size();
      if (listed.size() >= wanted) return;
      std::vector<Agenda::Open*> batch =
          agenda_->other_choices(std::min(kBatch, wanted - listed.size()), std::move(listed));
      if (batch.empty()) return;
      std::erase_if(batch, [&](const Agenda::Open* one) {
        const bool takes_long = takes_long_to_simulate(*one);
        if (takes_long) too_long.push_back(one->candidate->choices);
        return takes_long;
      });
      if (batch.empty()) continue;
      simulate_open(batch);
      rank_done();
    }
  }

  bool takes_long_to_simulate(const Agenda::Open& one) const {
    return sim::expected_activities({job_, one.candidate->choices}) > kManyActivities;
  }

  // Of those at least the first two, further ones while they do not take long.
  void simulate_open(const std::vector<Agenda::Open*>& open) {
    std::vector<const Candidate*> together;
    double passes = 0;
    for (const Agenda::Open* one : open) {
      passes += sim::expected_passes({job_, one->candidate->choices});
      if (together.size() >= 2 && passes > kBatchPasses) break;
      if (!together.empty() && takes_long_to_simulate(*one)) break;
      together.push_back(one->candidate);
    }
    const std::vector<double> values = simulate(together);
    for (std::size_t i = 0; i < values.size(); ++i) {
      agenda_->simulated(open[i], values[i]);
      least_ = std::min(least_, values[i]);
      least_expected_ = std::min(least_expected_, values[i] * open[i]->factor);
    }
  }

  // What may still be better than the best: half of the time what is most promising, then least bound first.
  void prove() {
    simulate_promising(options_.budget_s + kProveBudget_s / 2);
    while (spent_s_ < options_.budget_s + kProveBudget_s) {
      const std::vector<Agenda::Open*> open = agenda_->least_bounds(kBatch, value_of(done_.front()));
      if (open.empty()) return;
      simulate_open(open);
      rank_done();
    }
  }

  Evaluation evaluation(const Candidate& candidate, sim::Simulation simulation) const {
    Evaluation evaluation;
    evaluation.plan = {job_, candidate.choices};
    evaluation.memory = predict_memory(evaluation.plan);
    evaluation.estimate_s = candidate.times.estimate_s;
    evaluation.simulation = std::move(simulation);
    return evaluation;
  }

  // How many plans are simulated, while `count` more are. Before the first is, how long each takes at least.
  std::function<void(int, int)> told_of(std::size_t count) {
    if (!options_.progress) return {};
    const std::size_t total = std::max(done_.size() + count, static_cast<std::size_t>(options_.top));
    const double each_s = job_->cluster.devices() * kNominalSecondsPerRank;
    const auto tell = [this, total](const std::string& what, double done) {
      options_.progress(what, static_cast<int>(done), static_cast<int>(total));
    };
    const auto begun = static_cast<double>(done_.size());
    if (done_.empty() && each_s >= 1)
      tell(fmt::format("simulating, {:.0f} s or more for each", each_s), 0);
    else
      tell("simulating", begun);
    return [tell, begun, count](int done, int of) { tell("simulating", begun + 1.0 * count * done / of); };
  }

  // Adds them to what is done; their values by the objective. The first are simulated beside the recipe.
  std::vector<double> simulate(const std::vector<const Candidate*>& batch) {
    const int jobs = options_.jobs > 0 ? options_.jobs : processors();
    sim::SimulationOptions simulation;
    simulation.keep_timeline = false;
    simulation.condense = true;
    std::vector<Plan> plans;
    for (const Candidate* candidate : batch) {
      plans.push_back({job_, candidate->choices});
      check_plan(plans.back());
    }
    const bool beside = recipe_ && !of_recipe_;
    if (beside) plans.push_back({job_, recipe_->candidate.choices});
    const std::vector<sim::Simulation> results =
        sim::simulate_all(plans, simulation, jobs, told_of(plans.size()));
    if (beside) of_recipe_ = evaluation(recipe_->candidate, results.back());
    std::vector<double> values;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const double ep = plans[i].choices.ep;
      spent_s_ += static_cast<double>(results[i].events) / kNominalEventsPerSecond +
                  (sim::may_share_links(plans[i].choices) ? kNominalSecondsPerProcess : 0) +
                  job_->cluster.devices() * kNominalSecondsPerRank + ep * ep * kNominalSecondsPerPair;
      done_.push_back(evaluation(*batch[i], results[i]));
      values.push_back(value_of(done_.back()));
    }
    return values;
  }

  // One plan of each choice, with its odds among them and among what was not simulated; the best first.
  void rank_choices(bool robust) {
    std::vector<Evaluation> choices;
    for (Evaluation& one : done_) {
      const auto known = [&](const Evaluation& other) {
        return same_choice(one.plan.choices, other.plan.choices);
      };
      if (std::none_of(choices.begin(), choices.end(), known)) choices.push_back(std::move(one));
    }
    done_ = std::move(choices);
    if (options_.objective == Objective::memory) list_by_memory();
    std::vector<Contender> contenders;
    std::vector<std::optional<Odds>*> of;
    const double reach = kReach * done_.front().step_time_s();
    for (Evaluation& one : done_) {
      if (contenders.size() >= kContenders && one.step_time_s() > reach) continue;
      contenders.push_back({one.plan.choices, one.step_time_s(), response(one.plan.choices)});
      of.push_back(&one.odds);
    }
    for (const Agenda::Open& open : agenda_->all())
      if (open.compared && !open.simulated)
        contenders.push_back({open.candidate->choices, open.estimate_s(), response(open.candidate->choices)});
    const std::vector<Odds> odds = odds_of(contenders, outlook_.spread());
    for (std::size_t i = 0; i < of.size(); ++i) *of[i] = odds[i];
    result_.compared = static_cast<int>(contenders.size());
    if (robust) rank_by_regret();
    for (std::vector<Evaluation>* some : {&done_, &result_.pareto})
      for (Evaluation& one : *some) add_interval(&outlook_, response(one.plan.choices), &one);
  }

  // Behind the answer those that take more; what takes a little less is slower.
  void list_by_memory() {
    const double least_bytes = done_.front().memory.total;
    std::erase_if(done_, [&](const Evaluation& one) { return one.memory.total < least_bytes; });
    std::stable_sort(done_.begin() + 1, done_.end(), [](const Evaluation& a, const Evaluation& b) {
      return a.memory.total < b.memory.total;
    });
  }

  // What differs between the regrets of plans that take equally long is the luck of the draws: they have the
  // least of theirs, and stay in the order of rank_done().
  void rank_by_regret() {
    std::map<double, double> least;  // by grain of the step
    for (const Evaluation& one : done_)
      if (one.odds) {
        const auto [at, fresh] = least.try_emplace(grain_of(one.step_time_s()), one.odds->regret_s);
        if (!fresh) at->second = std::min(at->second, one.odds->regret_s);
      }
    for (Evaluation& one : done_)
      if (one.odds) one.odds->regret_s = least.at(grain_of(one.step_time_s()));
    std::stable_sort(done_.begin(), done_.end(), [](const Evaluation& a, const Evaluation& b) {
      if (a.odds.has_value() != b.odds.has_value()) return a.odds.has_value();
      return a.odds && a.odds->regret_s < b.odds->regret_s;
    });
  }

  void tell(const Evaluation& nominal) {
    const Evaluation& best = done_.front();
    result_.why = explain(done_, result_.sensitivities);
    if (!same_choice(nominal.plan.choices, best.plan.choices)) {
      for (const Evaluation& one : done_)
        if (same_choice(one.plan.choices, nominal.plan.choices)) result_.nominal = one;
      result_.why_not_nominal = why_not_nominal(best, *result_.nominal, result_.compared);
      result_.why += " " + result_.why_not_nominal;
    }
    if (options_.objective == Objective::memory) tell_price_of_memory();
    if (of_recipe_) {
      for (const Evaluation& one : done_)
        if (same_choice(one.plan.choices, of_recipe_->plan.choices)) of_recipe_->odds = one.odds;
      add_interval(&outlook_, response(of_recipe_->plan.choices), &*of_recipe_);
      result_.known_recipe = KnownRecipe{recipe_->name, recipe_->source, *of_recipe_,
                                         beside_recipe(best, *of_recipe_, recipe_->name)};
      result_.why += " " + result_.known_recipe->why;
    }
    result_.warnings = warnings_about(best, options_.fit_probability, pins_.any_runtime);
    if (best.plan.choices.asynchronous()) {
      result_.why +=
          " A step has as many samples as a synchronous one. How many more steps stale gradients "
          "need is not predicted.";
      if (const std::string few = few_workers(load_of(best)); !few.empty()) result_.why += " " + few;
    }
    look_at_unsure();
    if (!result_.systems.empty()) result_.why += " " + which_suits(result_.systems, best);
  }

  // A plan that is predicted to fit, less surely than was asked for, and saves much: the fastest by the
  // closed form, or what people run.
  void look_at_unsure() {
    const bool timed = options_.objective == Objective::step_time || options_.objective == Objective::cost;
    if (!options_.subsets || !timed) return;
    const Evaluation& best = done_.front();
    std::optional<Evaluation> unsure;
    if (of_recipe_ && of_recipe_->memory.fits() && !room_.holds(of_recipe_->memory)) unsure = of_recipe_;
    const double flattered = best.step_time_s() / best.estimate_s;
    if (const auto& other = candidates_.unsure;
        other && other->times.estimate_s * flattered < (1 - kWorthALook) * best.step_time_s()) {
      sim::SimulationOptions simulation;
      simulation.keep_timeline = false;
      simulation.condense = true;
      Evaluation simulated = evaluation(*other, sim::simulate({job_, other->choices}, simulation));
      if (!unsure || simulated.step_time_s() < unsure->step_time_s()) unsure = std::move(simulated);
    }
    if (!unsure || unsure->step_time_s() > (1 - kWorthARisk) * best.step_time_s()) return;
    add_interval(&outlook_, response(unsure->plan.choices), &*unsure);
    result_.why_unsure = faster_but_unsure(best, *unsure);
    result_.why += " " + result_.why_unsure;
    result_.unsure = std::move(unsure);
  }

  const Evaluation& fastest_done() const {
    return *std::min_element(done_.begin(), done_.end(), [](const Evaluation& a, const Evaluation& b) {
      return a.step_time_s() < b.step_time_s();
    });
  }

  void tell_price_of_memory() {
    const Evaluation& best = done_.front();
    if (result_.fastest->step_time_s() < best.step_time_s())
      add_interval(&outlook_, response(result_.fastest->plan.choices), &*result_.fastest);
    else
      result_.fastest.reset();
    result_.price_of_memory = price_of_memory(best, result_.fastest, room_.bytes / (1 + kMemoryMargin));
    result_.why += " " + result_.price_of_memory;
  }

  void rank_done() {
    std::stable_sort(done_.begin(), done_.end(), [this](const Evaluation& a, const Evaluation& b) {
      const auto key = [this](const Evaluation& one) {
        const double beyond = one.memory.total > room_.bytes ? one.memory.total : 0;
        return std::make_tuple(grain_of(beyond), grain_of(value_of(one)), grain_of(one.step_time_s()),
                               -one.plan.choices.micro_batch);
      };
      return key(a) < key(b);
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
    result.systems = systems(job_, pins_, candidates_, estimator_, room_.fillable);
    // Of a kind the best by simulation stands for it: that of its best estimate is among them, unless one
    // that was simulated is no slower than that.
    std::vector<Choices> missing;
    for (const System& system : result.systems) {
      if (system.kind == SystemKind::async_servers) continue;  // ranked only where they are searched
      if (!system.choices || system.step_time_s) continue;
      const double estimate_s = estimator_.times(*system.choices).estimate_s;
      const bool simulated = std::any_of(done_.begin(), done_.end(), [&](const Evaluation& e) {
        return system_kind_of(e.plan.choices) == system.kind && e.step_time_s() <= estimate_s;
      });
      if (!simulated) missing.push_back(*system.choices);
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

  // Every worker with every server: the work grows with the square of the devices, and with all
  // micro-batches. Where it is most of an answer's time (2 s of CPU for Llama 3 8B on eight devices) the
  // bound is enough, unless it leaves the servers a lead.
  void simulate_servers(System& system) const {
    constexpr int kSimulatedDevices = 8;
    constexpr double kQuickPasses = 1e3;  // of all workers: some tenths of a second
    constexpr double kLead = 0.98;
    if (!system.choices || system.choices->dp > kSimulatedDevices) return;
    const double passes = sim::expected_passes({job_, *system.choices});
    if (passes > kBatchPasses) return;
    const bool leads = system.bound_s < kLead * done_.front().step_time_s();
    if (!leads && passes * system.choices->dp > kQuickPasses) return;
    sim::SimulationOptions simulation;
    simulation.keep_timeline = false;
    system.step_time_s = sim::simulate({job_, *system.choices}, simulation).step_time_s;
  }

  void find_front(SearchResult& result) {
    if (options_.pareto) {
      const Survey seen = survey(job_, pins_, estimator_, kSurveyed, room_.fillable);
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

  std::shared_ptr<const Job> job_;
  const Pins& pins_;
  const SearchOptions& options_;
  Estimator estimator_;
  Outlook outlook_;
  Candidates candidates_;
  Room room_;  // that the candidates were gathered with
  std::optional<Agenda> agenda_;
  std::optional<RecipePlan> recipe_;
  std::optional<Evaluation> of_recipe_;
  std::optional<Response> reference_;
  std::deque<std::pair<Choices, Response>> responses_;
  SearchResult result_;
  double spent_s_ = 0;  // simulating, of a nominal core
  // Of what the agenda had simulated: the least value, and the least by what is expected of its factors.
  double least_ = std::numeric_limits<double>::infinity(), least_expected_ = least_;
  std::vector<Evaluation> done_;
};

// What is proven holds of plans whose operators are split another way, too.
void heed_other_splits(const SplitJob& split, Objective objective, SearchResult* result) {
  result->candidates += split.others;
  const double best = objective_value(ranked_by(objective), result->plans.front());
  if (split.others_bound >= best) return;
  result->proven = false;
  result->gap = std::max(result->gap, 1 - split.others_bound / best);
}

std::string compared_to_subsets(const SearchResult& result, Objective objective) {
  const Evaluation& all = result.plans.front();
  const Subset* best = best_subset(result, objective);
  std::string text;
  for (const Subset& subset : result.subsets) {
    text += text.empty() ? "" : ", ";
    if (!subset.best) {
      text += fmt::format("none on {}", subset.cluster.name);
      continue;
    }
    text += fmt::format("{} on {} ({})", human_seconds(subset.best->step_time_s()), subset.cluster.name,
                        counted(subset.cluster.devices(), "device"));
  }
  const int devices = all.plan.job->cluster.devices();
  std::string what(name_of(objective));
  std::replace(what.begin(), what.end(), '-', ' ');
  if (best == nullptr) return fmt::format("No group of equal nodes can train it alone ({}).", text);
  const double whole = objective_value(objective, all);
  const double alone = objective_value(objective, *best->best);
  if (whole < alone)
    return fmt::format(
        "All {} devices together need {:.1f}% less {} than the best group of equal nodes (the best plans: "
        "{}).",
        devices, 100 * (1 - whole / alone), what, text);
  return fmt::format(
      "No plan on all {} devices was found that beats {} alone by {} (the best plans: {}): leave the other "
      "devices out.",
      devices, best->cluster.name, what, text);
}

}  // namespace

const Subset* best_subset(const SearchResult& result, Objective objective) {
  const Subset* best = nullptr;
  for (const Subset& subset : result.subsets)
    if (subset.best && (best == nullptr ||
                        objective_value(objective, *subset.best) < objective_value(objective, *best->best)))
      best = &subset;
  return best;
}

namespace {

SearchResult searched(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options) {
  const Cluster file = job->cluster;
  const SplitJob split = with_best_splits(job, pins, options);
  job = with_group_order(split.job, pins, options);
  SearchResult result = Search(job, pins, options).run();
  heed_other_splits(split, options.objective, &result);
  result.group_order = moved_groups(file, job->cluster);
  if (!result.group_order.empty()) result.why += " " + result.group_order;
  if (!options.subsets) return result;
  const auto on_part = [&](Cluster&& alone) {
    auto part = std::make_shared<Job>(*job);
    part->cluster = alone;
    SearchOptions quick = options;
    quick.top = 1;
    quick.pareto = false;
    quick.subsets = false;
    Subset subset{std::move(alone), {}, ""};
    try {
      subset.best = Search(part, pins, quick).run().plans.front();
    } catch (const NoAnswer& answer) {
      subset.refusal = answer.what();
    } catch (const UserError& error) {
      subset.refusal = error.what();
    }
    return subset;
  };
  for (Cluster& alone : homogeneous_subsets(job->cluster))
    result.subsets.push_back(on_part(std::move(alone)));
  if (auto part = fewer_devices(*job, pins); part && options.objective == Objective::step_time) {
    Subset fewer = on_part(std::move(*part));
    if (fewer.best) result.why_fewer = why_fewer(result.plans.front(), *fewer.best);
    if (!result.why_fewer.empty()) {
      result.fewer = std::move(fewer);
      result.why += " " + result.why_fewer;
    }
  }
  if (!result.subsets.empty()) result.why += " " + compared_to_subsets(result, options.objective);
  return result;
}

// Software that trains general graphs splits the batch alone, whoever plans one without naming a runtime.
bool is_for_replicas(const Job& job) {
  return job.runtime.default_for == "gpu-graphs";
}

// Nothing that such software runs can be had: then what is planned of language models.
SearchResult beyond_replicas(const std::shared_ptr<const Job>& job, const Pins& pins,
                             const SearchOptions& options) {
  const auto any = std::make_shared<Job>(*job);
  any->runtime.abilities = default_runtime(RuntimeUse::gpu).abilities;
  SearchResult result = searched(any, pins, options);
  const Choices& best = result.plans.front().plan.choices;
  const auto unable = why_cannot_run(job->runtime, job->workload, best);
  if (!unable) return result;
  result.beyond_replicas =
      fmt::format("{}, but data parallelism alone cannot be had here{}.", *unable,
                  best.tp > 1 ? ": only Orrery's own executor splits operators of such a model" : "");
  result.why += " " + result.beyond_replicas;
  return result;
}

std::string saved_by_tensor_ranks(const Evaluation& best, const Plan& split) {
  const double split_s = evaluate(split).step_time_s();
  const double saved = 1 - split_s / best.step_time_s();
  if (saved < kLeastSavedByTensorRanks) return "";
  return fmt::format(
      "{} would take {}, {:.1f}% less, but only Orrery's own executor splits operators of such a model: pin "
      "`tp` {} to plan it.",
      describe(split), human_seconds(split_s), 100 * saved, split.choices.tp);
}

}  // namespace

SearchResult search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options) {
  if (!is_for_replicas(*job) || pins.any_runtime || pins.tp.value_or(1) > 1)
    return searched(job, pins, options);
  SearchResult result;
  try {
    result = searched(job, pins, options);
  } catch (const NoAnswer&) {
    return beyond_replicas(job, pins, options);
  } catch (const UserError&) {  // fewer samples than devices, say
    const std::exception_ptr refusal = std::current_exception();
    try {
      return beyond_replicas(job, pins, options);
    } catch (const std::exception&) {
      std::rethrow_exception(refusal);
    }
  }
  if (pins.tp || options.objective != Objective::step_time) return result;
  if (const auto split = best_with_tensor_ranks(job, pins, options))
    result.beyond_replicas = saved_by_tensor_ranks(result.plans.front(), *split);
  if (!result.beyond_replicas.empty()) result.why += " " + result.beyond_replicas;
  return result;
}

}  // namespace orrery::planner
