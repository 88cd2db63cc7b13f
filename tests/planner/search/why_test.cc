#include "planner/search/why.h"

#include <catch2/catch.hpp>

#include "planner/closed_form/estimator.h"
#include "planner/search/candidates.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

double saved_by(const std::vector<Sensitivity>& changes, const std::string& key) {
  for (const Sensitivity& change : changes)
    if (change.key == key) return change.saves;
  FAIL("no " << key);
  return 0;
}

TEST_CASE("what a change of hardware saves is of the best plan, whatever the closed form thinks of another") {
  const auto job = test::make_job("llama2-7b", "dgx-a100", 8, 64, 2048, "megatron-core");
  Estimator estimator(job);
  Plan best{job, {}};
  best.choices.dp = 8;
  best.choices.zero = 3;
  best.choices.recompute = Recompute::full;
  Choices other = best.choices;  // which the simulation must have found slower than it looks
  other.recompute_layers = 4;
  Choices larger = best.choices;
  larger.recompute_layers = 16;
  const double now_s = estimator.times(best.choices).estimate_s;
  const double larger_s = estimator.times(larger).estimate_s;
  REQUIRE(estimator.times(other).estimate_s < larger_s);

  Candidates candidates;
  const auto alone = sensitivities(best, candidates, estimator);
  candidates.promising.push_back({other, 0, estimator.times(other), 0, 0});
  candidates.almost_fits = Candidate{larger, 0, estimator.times(larger), 0, 0};
  const auto beside = sensitivities(best, candidates, estimator);
  CHECK(saved_by(beside, "memory_plus_10_percent") == Approx(1 - larger_s / now_s));
  CHECK(saved_by(beside, "memory_plus_10_percent") > 0.05);
  CHECK(saved_by(alone, "intra_node_bandwidth_x2") >= 0);
  CHECK(saved_by(beside, "intra_node_bandwidth_x2") >= saved_by(alone, "intra_node_bandwidth_x2"));
  // Nothing of what the closed form thinks that the other plan saves as it is.
  const double flattered = 1 - estimator.times(other).estimate_s / now_s;
  CHECK(saved_by(beside, "intra_node_bandwidth_x2") < 0.5 * flattered);
}

}  // namespace
}  // namespace orrery::planner
