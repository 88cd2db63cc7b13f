// One strategy on so many devices: its plan, and what a step of it comes to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/strategy.h"
#include "planner/closed_form/figures.h"
#include "program/plan.h"

namespace orrery::comparison {

// What all strategies have in common.
struct Base {
  std::shared_ptr<const Job> job;  // on all devices
  std::optional<int> micro_batch;  // none: the largest that fits
  std::optional<Recompute> recompute;
  ModuleSet recompute_modules = 0;  // with selective
  int jobs = 0;                     // simulations at a time; 0: one a processor

  std::int64_t samples_each() const { return job->training.global_batch / job->cluster.devices(); }
};

// The base's job on the first `devices` devices, with as many samples for each. Throws UserError where these
// are neither whole nodes nor devices of one.
std::shared_ptr<Job> job_on(const Base& base, int devices);

enum class FoundBy : std::uint8_t { simulation, closed_form };
std::string_view name_of(FoundBy found);

// What a rank does in a step in which all workers train a global batch: these add up to the step.
struct RankTimes {
  double compute_s = 0;  // its device computes
  double exposed_s = 0;  // it computes nothing and its own communication goes on
  double waiting_s = 0;  // it computes nothing and waits for others
  double other_s = 0;    // inputs, launches, what the software adds
};

// What Horovod's autotuning settles on, and what it takes until it has.
struct Tuning {
  double bucket_bytes = 0;
  double cycle_s = 0;
  int group = 0;           // in which gradients are summed first; 0: in none
  std::int64_t steps = 0;  // until it has settled
  double extra_s = 0;      // that these take at least beyond as many settled ones
};

struct Way {
  int devices = 0;
  std::string refusal;  // why there is none; then the rest says nothing
  std::optional<Plan> plan;
  std::optional<Tuning> tuning;  // where settings are tuned
  planner::Memory memory;
  FoundBy found_by = FoundBy::simulation;
  double step_s = 0;  // in which the workers train as many samples as the global batch has
  double samples_per_s = 0;
  double efficiency = 0;          // of so many times one device alone
  std::vector<RankTimes> ranks;   // by rank
  std::vector<double> compute_s;  // by rank: of a step of its own
  double average_s = 0;           // Rendezvous::periodic: of one average
  double wire_bytes = 0;          // that a device sends in a step, mean

  bool possible() const { return refusal.empty(); }
  // Beyond the slowest rank's computation.
  double exchange_s() const;
  double mean_of(double RankTimes::*part) const;
  int worst_rank() const;  // that waits longest
};

// Each of the pairs of strategy and job, simulated `base.jobs` at a time; in order.
struct Asked {
  const Strategy* strategy = nullptr;
  std::shared_ptr<const Job> job;
};
std::vector<Way> ways_of(const Base& base, const std::vector<Asked>& asked);

// ---- parts, for tests ----

// Bytes that one member of a collective of `members` sends, in the mean.
double sent_bytes(CollectiveKind kind, double bytes, int members);
// A step whose work a master hands to the workers, one after another: those who wait for all begin with the
// last of them; the others are held back by the queue alone.
double handed_step_s(Rendezvous rendezvous, double step_s, int workers, double dispatch_s);
// What is ready when a cycle ends goes in one message, up to the threshold: its bytes, in the mean.
double joined_bytes(double gradient_bytes, double backward_s, double cycle_s, double threshold_bytes);

}  // namespace orrery::comparison
