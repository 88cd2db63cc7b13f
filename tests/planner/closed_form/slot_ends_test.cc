#include "planner/closed_form/slot_ends.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"
#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "program/schedule.h"
#include "sim/simulator.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

// The schedule's slots one by one.
std::vector<double> by_slots(Schedule schedule, const std::vector<StageSlot>& stages, int micro_batches) {
  Choices c;
  c.pp = static_cast<int>(stages.size());
  c.schedule = schedule;
  std::vector<double> hops;
  for (const StageSlot& stage : stages) hops.push_back(stage.hop);
  const SlotOrder order(c, micro_batches);
  std::vector<double> ends(order.results()), free_s(stages.size(), 0), end_s = free_s;
  for (const OrderedSlot& at : order.slots()) {
    const auto s = static_cast<std::size_t>(at.stage);
    const double begin = std::max(free_s[s], ready_s(at, ends, hops));
    const bool forward = at.slot.kind == SlotKind::forward;
    if (at.slot.kind == SlotKind::backward_weight) {
      free_s[s] += stages[s].weight;
      continue;
    }
    end_s[s] = begin + (forward ? stages[s].forward : stages[s].backward);
    ends[static_cast<std::size_t>(at.result)] = end_s[s];
    free_s[s] = begin + (forward ? stages[s].forward_busy : stages[s].backward_busy);
  }
  for (std::size_t s = 0; s < stages.size(); ++s) end_s[s] = std::max(end_s[s], free_s[s]);
  return end_s;
}

TEST_CASE("1F1B and zero-bubble in closed form are their slots laid one by one") {
  const CounterRandom random(3, 0);
  std::uint64_t at = 0;
  const auto some = [&](double most) { return most * static_cast<double>(random.bits(at++) % 1000) / 1000; };
  for (int pp = 2; pp <= 9; ++pp)
    for (const bool weights_wait : {false, true}) {
      std::vector<StageSlot> stages;
      for (int stage = 0; stage < pp; ++stage) {
        const double forward = 0.5 + some(1), backward = 1 + some(1);
        const double weight = weights_wait ? some(1) : 0;
        stages.push_back({forward, forward - some(0.1), backward, backward - some(0.1), weight,
                          stage + 1 < pp ? some(0.3) : 0});
      }
      const Schedule schedule = weights_wait ? Schedule::zero_bubble : Schedule::one_f_one_b;
      for (const int m : {1, 2, pp - 1, pp, pp + 1, 2 * pp, 3 * pp, 5 * pp, 12 * pp}) {
        if (m < 1) continue;
        INFO("pp " << pp << ", " << m << " micro-batches, weights wait: " << weights_wait);
        const std::vector<double> laid = one_f_one_b_ends(stages, m, weights_wait);
        const std::vector<double> slots = by_slots(schedule, stages, m);
        REQUIRE(laid.size() == slots.size());
        for (std::size_t s = 0; s < slots.size(); ++s)
          CHECK(laid[s] == Approx(slots[s]).epsilon(m <= 3 * pp ? 1e-12 : 0.02));
      }
    }
}

TEST_CASE("estimates of short pipelines are near their simulations") {
  struct Case {
    const char* workload;
    const char* cluster;
    int devices, tp, pp;
    double worst;
  };
  sim::SimulationOptions options;
  options.keep_timeline = false;
  for (const Case& one : {Case{"llama2-7b", "dgx-h100", 16, 1, 16, 0.04},
                          {"llama2-7b", "dgx-h100", 8, 1, 8, 0.04},
                          {"llama2-7b", "a100-eth100", 16, 1, 16, 0.06},
                          {"llama3-70b", "dgx-h100", 32, 8, 4, 0.06},
                          {"gpt2-xl", "dgx-a100", 8, 1, 8, 0.06}})
    for (const int rounds : {1, 2})
      for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zero_bubble}) {
        const auto job = test::make_job(one.workload, one.cluster, one.devices, rounds * one.pp, 2048);
        Choices c;
        c.tp = one.tp;
        c.sequence_parallel = one.tp > 1;
        c.pp = one.pp;
        c.dp = 1;
        c.schedule = schedule;
        const Plan plan{job, c};
        const double simulated_s = sim::simulate(plan, options).step_time_s;
        INFO(one.workload << " on " << one.cluster << ": " << describe(plan) << ", simulated "
                          << simulated_s);
        CHECK(Estimator(job).times(c).estimate_s == Approx(simulated_s).epsilon(one.worst));
      }
}

TEST_CASE("estimates of interleaved pipelines are near their simulations, however many chunks a stage has") {
  sim::SimulationOptions options;
  options.keep_timeline = false;
  const auto job = test::make_job("mixtral-8x7b", "a100-eth100", 64, 64, 4096, "typical");
  Choices c;
  c.tp = 4;
  c.sequence_parallel = true;
  c.pp = 8;
  c.dp = 2;
  c.ep = 8;
  c.zero = 1;
  c.schedule = Schedule::interleaved;
  for (const int chunks : {2, 4}) {
    c.interleave = chunks;
    const Plan plan{job, c};
    const double simulated_s = sim::simulate(plan, options).step_time_s;
    INFO(describe(plan) << ", simulated " << simulated_s);
    CHECK(Estimator(job).times(c).estimate_s == Approx(simulated_s).epsilon(0.09));
  }
}

}  // namespace
}  // namespace orrery::planner
