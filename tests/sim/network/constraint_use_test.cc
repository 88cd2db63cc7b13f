#include "sim/network/constraint_use.h"

#include <catch2/catch.hpp>

namespace orrery::sim {
namespace {

// Flows 0 and 1 over link 0, flows 1 and 2 over link 1, each able to fill it.
FlowSystem three_flows() {
  FlowSystem flows;
  const int first = flows.add_link(1).first;
  const int second = flows.add_link(2).first;
  flows.set_capacity(first, 100);
  flows.set_capacity(second, 100);
  flows.add_flow(flows.add_pattern({{first, 1, 1}}, 0), 100);
  flows.add_flow(flows.add_pattern({{first, 1, 1}, {second, 1, 1}}, 1), 100);
  flows.add_flow(flows.add_pattern({{second, 1, 1}}, 2), 100);
  flows.reduce();
  return flows;
}

TEST_CASE("a transfer is alone until another loads one of its links") {
  const FlowSystem flows = three_flows();
  ConstraintUse use(flows);
  std::vector<int> disturbed;
  CHECK(use.begin(10, 0, disturbed));
  CHECK(use.begin(12, 2, disturbed));
  CHECK(disturbed.empty());
  CHECK_FALSE(use.begin(11, 1, disturbed));
  CHECK(disturbed == std::vector<int>{10, 12});
  // Who was disturbed is not alone again, whoever leaves; who comes then is not either.
  use.end(11, 1);
  disturbed.clear();
  CHECK_FALSE(use.begin(13, 0, disturbed));
  CHECK(disturbed.empty());
  use.end(10, 0);
  use.end(13, 0);
  CHECK(use.begin(14, 0, disturbed));
  use.end(12, 2);
  CHECK_FALSE(use.begin(15, 1, disturbed));
  CHECK(disturbed == std::vector<int>{14});
}

// The ring of a data group over eight ports beside an all-to-all of experts on 256 ranks.
TEST_CASE("a light flow beside one 2,000 times as heavy keeps its weight") {
  FlowSystem flows;
  const int link = flows.add_link(1).first;
  flows.set_capacity(link, 100);
  flows.add_flow(flows.add_pattern({{link, 0.125, 0.125}}, 0), 1e6);
  flows.add_flow(flows.add_pattern({{link, 248, 248}}, 1), 1e6);
  flows.reduce();
  CHECK(flows.lone_rate(0) == 800);
  REQUIRE(flows.constraints().size() == 1);
  const Constraint& constraint = flows.constraints().front();
  CHECK(constraint.capacity_bytes_per_s == 800);
  CHECK(constraint.weights == std::vector<std::pair<int, int>>{{0, 1}, {1, 1984}});
}

}  // namespace
}  // namespace orrery::sim
