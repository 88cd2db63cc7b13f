// The search: enumerate, cut by memory, order by the closed form, simulate the best, rank.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/evaluation/evaluation.h"
#include "planner/search/system_kind.h"
#include "planner/space/pins.h"
#include "topologies/power.h"

namespace orrery::planner {

// memory: the least step time of what takes at most kMemoryMargin more than the least memory of all. The last
// per cent of memory may cost a multiple of the step.
enum class Objective { step_time, cost, energy, memory };
constexpr double kMemoryMargin = 0.05;
// What the best plan has least of: expected regret over what is not known, or the objective as predicted.
// Energy and memory are ranked as predicted.
enum class Rank { robust, nominal };

// Told now and then how much is done, and of what: "listing plans" (how many is not known then: 0 of 0),
// "looking at plans", "simulating".
using SearchProgress = std::function<void(std::string_view what, int done, int total)>;

struct SearchOptions {
  Objective objective = Objective::step_time;
  Rank rank = Rank::robust;
  double fit_probability = 0.95;  // with which a searched plan fits in memory
  int top = 10;                   // plans to report
  int jobs = 0;                   // processes; 0: the processors of this machine
  // Simulated work after which no further batch is started; the answer then says its gap. In seconds of a
  // nominal core (kNominalEventsPerSecond), not of the clock, so that the answer is the same on every
  // machine.
  double budget_s = 0.8;
  // Then simulate what has the least bounds, until nothing is left below the best or kProveBudget_s are
  // spent.
  bool prove = false;
  // Look for the whole front of step time, cost, energy and memory (pareto.h), not only at what may be best.
  bool pareto = false;
  // Look for what is told beside the answer, too: what the alike parts of a machine of heterogeneous devices
  // do by themselves, fewer devices where all divide badly, a faster plan that may not fit.
  bool subsets = true;
  SearchProgress progress;  // may be empty
};
constexpr double kProveBudget_s = 6;  // beyond budget_s, in the same seconds
// Activities that one core simulates in a second (SimGrid 3.32 with lazily started activities: 500,000 to
// 680,000 were measured).
constexpr double kNominalEventsPerSecond = 500e3;
// Plans of which so many are expected are simulated alone, and only where the answer needs it (six
// seconds, 1.2 GB).
constexpr double kManyActivities = 3e6;
// What a process of its own costs (a fork, pages copied, SimGrid's engine), where links may be shared.
constexpr double kNominalSecondsPerProcess = 5e-3;
// What folding and laying out cost for each rank of the cluster (measured at 16,384 ranks: 0.3 s).
constexpr double kNominalSecondsPerRank = 20e-6;
// And for each pair of an all-to-all (measured with experts on 256 ranks: 0.3 s).
constexpr double kNominalSecondsPerPair = 5e-6;

// A part of a machine of heterogeneous devices by itself (subsets.h), for comparison.
struct Subset {
  Cluster cluster;
  std::optional<Evaluation> best;  // the search's best plan on it; none where none can be had
  std::string refusal;             // why there is none
};

// What a change of hardware would save of the best plan's step, by the closed form: the least of the most
// promising plans' estimates on the changed machine against the best plan's on this one. Where a plan's
// estimate is below the best plan's already here, the closed form flatters it, and its estimates are scaled
// up to the best plan's.
struct Sensitivity {
  std::string key;     // "inter_node_bandwidth_x2" "intra_node_bandwidth_x2" "memory_plus_10_percent"
  std::string change;  // for people
  double saves = 0;    // fraction of the step
};

// The nearest plan that people are known to run, beside the answer.
struct KnownRecipe {
  std::string name, source;
  Evaluation evaluation;  // simulated
  std::string why;        // what it costs beside the answer, and for what; whether it fits
};

struct SearchResult {
  std::vector<Evaluation> plans;  // best first, at most `top` choices (agenda.h), each simulated
  int compared = 0;               // choices that `odds` are among
  // The plan that is best as predicted, where that is not the first of `plans`.
  std::optional<Evaluation> nominal;
  std::string why_not_nominal;  // one sentence, also of `why`
  // With the memory objective: the fastest plan that was simulated, whatever its memory, where that is not
  // the first of `plans`. The one that the closed form puts first is among them.
  std::optional<Evaluation> fastest;
  std::string price_of_memory;  // what the answer's memory costs in time; also of `why`
  std::optional<KnownRecipe> known_recipe;
  std::vector<std::string> warnings;  // of the first plan: memory, what the runtime cannot run
  std::int64_t candidates = 0;        // plans with distinct Programs
  std::int64_t feasible = 0;          // that fit in memory
  std::int64_t simulated = 0;
  bool proven = false;  // best under this model: no candidate's lower bound is below the best simulated
  double gap = 0;       // (best - least lower bound of the rest) / best; 0 when proven
  double search_s = 0;
  std::vector<Sensitivity> sensitivities;
  std::string why;  // three sentences, from numbers, and one on the kinds of systems
  std::vector<System>
      systems;  // the best plan of each kind; empty where one device or a pin of `sync` leaves one
  std::vector<Subset> subsets;  // of heterogeneous devices: what each alike part does alone
  // A part of the devices on which a step takes no longer (fewer_devices.h), and the sentence that says so.
  std::optional<Subset> fewer;
  std::string why_fewer;
  // A plan that is faster, and fits with less than the wanted probability; the sentence that says so, also of
  // `why`.
  std::optional<Evaluation> unsure;
  std::string why_unsure;
  // With the software's tensor overlap turned on, which the search leaves as it is (planner/hints): a plan
  // that is faster than all of these, and the sentence that says so, also of `why`.
  std::optional<Evaluation> tensor_overlap;
  std::string why_tensor_overlap;
  // Where replicas are all that software has for such a model: what tensor ranks would save, or that nothing
  // fits without them; also of `why`.
  std::string beyond_replicas;
  // Where the plans' cluster lists its groups of nodes in another order than the file: the sentence that says
  // so (group_order.h), also of `why`.
  std::string group_order;
  // The front of what was simulated, by rising step time: no simulated plan is better in one of step time,
  // cost, energy and memory and no worse in the others.
  std::vector<Evaluation> pareto;
  // With SearchOptions::pareto: how many plans the front was chosen from by the closed form, how many of
  // those were on its front, how many of these were simulated, and the least step time that a plan of a
  // layout not looked into may have (infinity: all were).
  std::int64_t pareto_looked_into = 0, pareto_front = 0, pareto_simulated = 0;
  double pareto_beyond_s = 0;
};

// Throws NoAnswer when no plan fits (what is short, by how much, the nearest change that would fit) and
// UserError when the pins contradict each other or the job.
SearchResult search(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options);

std::string_view name_of(Rank rank);            // "robust" "nominal"
std::string_view name_of(Objective objective);  // "step-time" "cost" "energy" "memory"
// What the objective counts, of one step: seconds, USD, joules, bytes. `compute_s`: the devices' mean busy
// time. Throws UserError where the cluster states no price or no power.
double objective_value(Objective objective, const Job& job, double step_s, double compute_s,
                       double memory_bytes);
// Of a simulated plan.
double objective_value(Objective objective, const Evaluation& evaluation);
// Of the result's parts of a machine the one with the best plan by itself; null where none has one.
const Subset* best_subset(const SearchResult& result, Objective objective);

// USD a second of the whole cluster; 0 where it states no price of some node.
double usd_per_s(const Cluster& cluster);

}  // namespace orrery::planner
