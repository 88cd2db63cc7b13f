// Strategies as plans.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "compare/strategy.h"
#include "compare/way.h"
#include "sim/simulator.h"

namespace orrery::comparison {

double gradient_bytes(const Plan& plan);  // of one replica
// Requests of a worker in a step, in the mean: a push and a pull of every bucket to each server but its own.
double calls_of(const Plan& plan);

class PlanMaker {
 public:
  explicit PlanMaker(const Base& base) : base_(base) {}
  // `tuning`: what that takes, where the strategy tunes its settings. Throws UserError where the strategy
  // does not run on the job's cluster.
  Plan plan_of(const Strategy& strategy, std::shared_ptr<const Job> job,
               std::optional<Tuning>* tuning = nullptr);
  // One healthy device alone with its share of the batch.
  const sim::Simulation& alone();
  double samples_per_s_alone();

 private:
  // `group`: in which gradients are summed first; 0: as the strategy has it.
  Plan plan_as(const Strategy& strategy, const Mechanics& mechanics, const Job& job, int group);
  Plan tuned(const Strategy& strategy, const Job& job, const std::vector<int>& groups,
             std::optional<Tuning>* tuning);
  void join_in_cycles(const Mechanics& mechanics, Plan* plan, RuntimeProfile* runtime);
  int micro_batch_of(const Plan& plan) const;

  const Base& base_;
  std::optional<sim::Simulation> alone_;
};

}  // namespace orrery::comparison
