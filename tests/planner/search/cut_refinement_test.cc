// Cuts of pipelines: by what layers take, and no slower than their neighbours.
#include "planner/search/cut_refinement.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "planner/search/candidates.h"
#include "planner/search/search.h"
#include "planner/space/balance.h"
#include "planner/uncertainty/outlook.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

std::shared_ptr<Job> frozen(const char* model, const char* cluster, int devices, std::int64_t batch,
                            int layers, int rank = 0) {
  auto job = make_job(model, cluster, devices, batch, 4096);
  FineTuning tuning;
  tuning.frozen_layers = layers;
  tuning.rank = rank;
  if (tuning.any()) fine_tune(job->workload, tuning);
  return job;
}

Pins in_stages(int pp, Schedule schedule, int interleave = 1) {
  Pins pins;
  pins.any_runtime = true;
  pins.tp = 1;
  pins.cp = 1;
  pins.pp = pp;
  pins.schedule = schedule;
  if (interleave > 1) pins.interleave = interleave;
  return pins;
}

// The first by the closed form of all that fit.
Candidate first_of(const std::shared_ptr<Job>& job, const Pins& pins) {
  Estimator estimator(job);
  return gather_fitting(job, pins, Objective::step_time, 1, estimator, Outlook(job).spread(), 0.95)
      .candidates.promising.front();
}

// Against its own even cut and all cuts that move one layer of it, and against the even cut's best plan.
void check_cut(const std::shared_ptr<Job>& job, Pins pins) {
  const Candidate found = first_of(job, pins);
  const std::vector<int> layers = layers_by_part({job, found.choices});
  const double least = found.times.estimate_s * (1 - kCutWorth);
  INFO(fmt::format("{}, {} frozen layers, {}: {}", job->workload.name, job->workload.frozen_layers,
                   name_of(*pins.schedule), fmt::join(layers, ",")));
  Estimator estimator(job);
  const auto estimate = [&](const std::vector<int>& cut) {
    Choices choices = found.choices;
    choices.stage_layers = cut;
    return predict_memory({job, choices}).fits() ? estimator.times(choices).estimate_s : 2 * least;
  };
  if (layers.size() <= static_cast<std::size_t>(job->workload.layers))
    CHECK(estimate(even_cut(*job, static_cast<int>(layers.size()))) >= least);
  for (std::size_t from = 0; from < layers.size(); ++from)
    for (std::size_t to = 0; to < layers.size(); ++to) {
      std::vector<int> moved = layers;
      --moved[from];
      ++moved[to];
      const bool end = from == 0 || from == layers.size() - 1;
      if (from != to && moved[from] >= (end ? 0 : 1)) CHECK(estimate(moved) >= least);
    }
  if (layers.size() > static_cast<std::size_t>(job->workload.layers)) return;  // no even cut
  pins.stage_layers = even_cut(*job, static_cast<int>(layers.size()));
  CHECK(first_of(job, pins).times.estimate_s >= least);
}

}  // namespace

TEST_CASE("the cut that is taken of a frozen model is no slower than the even one and its neighbours") {
  const auto most = frozen("llama3-8b", "dgx-h200", 16, 64, 24);
  check_cut(most, in_stages(4, Schedule::one_f_one_b));
  check_cut(most, in_stages(4, Schedule::gpipe));
  check_cut(most, in_stages(4, Schedule::zero_bubble));
  check_cut(most, in_stages(4, Schedule::interleaved, 2));
  check_cut(most, in_stages(2, Schedule::interleaved, 17));  // 34 chunks, the ends without layers
  check_cut(frozen("llama3-8b", "dgx-h200", 16, 64, 10, 8), in_stages(8, Schedule::one_f_one_b));
  check_cut(frozen("gpt2-xl", "v100-ib100", 16, 64, 40), in_stages(8, Schedule::one_f_one_b));
  check_cut(frozen("llama3-8b", "dgx-h200", 16, 64, 0), in_stages(8, Schedule::one_f_one_b));
}

TEST_CASE("a model with most layers frozen is not cut as if all took the same") {
  const auto job = frozen("llama3-8b", "dgx-h200", 16, 64, 24);
  Pins pins = in_stages(4, Schedule::one_f_one_b);
  const double found_s = first_of(job, pins).times.estimate_s;
  pins.stage_layers = {8, 8, 8, 8};
  CHECK(first_of(job, pins).times.estimate_s > 1.3 * found_s);
}

TEST_CASE("chunks of layers that take different times are cut by them") {
  const auto job = frozen("llama3-8b", "dgx-h200", 16, 64, 24);
  Pins pins = in_stages(2, Schedule::interleaved, 2);
  const double found_s = first_of(job, pins).times.estimate_s;
  pins.stage_layers = {8, 8, 8, 8};
  CHECK(first_of(job, pins).times.estimate_s > 1.1 * found_s);
}

TEST_CASE("another cut is simulated before the budget is spent on buckets") {
  Pins pins = in_stages(2, Schedule::one_f_one_b);
  pins.tp = 2;
  pins.micro_batch = 2;
  pins.zero = 1;
  pins.recompute = Recompute::full;
  pins.recompute_layers = 0;
  SearchOptions options;
  options.rank = Rank::nominal;
  for (const int batch : {128, 256}) {
    const auto job = make_job("llama3-8b", "dgx-h200", 16, batch, 4096, "typical");
    Pins uneven = pins;
    uneven.stage_layers = {17, 15};
    INFO("batch " << batch);
    CHECK(planner::search(job, pins, options).plans.front().step_time_s() <=
          planner::search(job, uneven, options).plans.front().step_time_s() * 1.001);
  }
}

}  // namespace orrery::planner
