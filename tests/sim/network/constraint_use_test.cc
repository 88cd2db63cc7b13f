#include "sim/network/constraint_use.h"

#include <algorithm>
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

TEST_CASE("weights are small integers, at most a hundredth above what they stand for") {
  FlowSystem flows;
  const int link = flows.add_link(1).first;
  flows.set_capacity(link, 1000);
  const std::vector<double> weights = {4, 157, 33.3};
  for (std::size_t p = 0; p < weights.size(); ++p)
    flows.add_flow(flows.add_pattern({{link, weights[p], weights[p]}}, static_cast<int>(p)), 1e6);
  flows.reduce();
  const Constraint& constraint = flows.constraints().front();
  const double scale = constraint.capacity_bytes_per_s / 1000;
  int largest = 0;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    CHECK(constraint.weights[p].second >= weights[p] * scale * (1 - 1e-6));
    CHECK(constraint.weights[p].second <= weights[p] * scale * 1.01 + 1e-9);
    largest = std::max(largest, constraint.weights[p].second);
  }
  CHECK(largest < 157);
  flows.reduce(/*keep_all=*/true);
  CHECK(flows.constraints().front().weights[1].second == 1570);  // 40, 1570 and 333 are exact
}

TEST_CASE("a constraint that another one implies is left out, and only that") {
  FlowSystem flows;
  std::vector<int> links;
  for (LinkId id = 1; id <= 4; ++id) links.push_back(flows.add_link(id).first);
  // Link 0 carries what link 1 does at most, with room for twice as much; link 2 carries another flow, too;
  // link 3 is link 2 once more, twice as wide with twice the weights.
  for (const int link : links) flows.set_capacity(link, link == links[1] || link == links[2] ? 100 : 200);
  const auto flow = [&](std::vector<LinkWeight> loads, int queue) {
    flows.add_flow(flows.add_pattern(std::move(loads), queue), 1e6);
  };
  flow({{links[0], 1, 1}, {links[1], 1, 1}, {links[2], 2, 2}, {links[3], 4, 4}}, 0);
  flow({{links[0], 1, 1}, {links[1], 3, 3}, {links[2], 1, 1}, {links[3], 2, 2}}, 1);
  flow({{links[2], 1, 1}, {links[3], 2, 2}}, 2);
  flows.reduce();
  REQUIRE(flows.constraints().size() == 2);
  CHECK(flows.constraints_of(0).size() == 2);
  CHECK(flows.constraints_of(1).size() == 2);
  CHECK(flows.constraints_of(2).size() == 1);
  flows.reduce(/*keep_all=*/true);
  CHECK(flows.constraints().size() == 4);
}

}  // namespace
}  // namespace orrery::sim
