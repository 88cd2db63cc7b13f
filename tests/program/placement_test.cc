#include "program/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/support/small_plans.h"

using namespace orrery;

namespace {

Plan plan_of(int tp, int cp, int dp, int pp, int ep, std::array<Dimension, 5> order) {
  Choices choices;
  choices.tp = tp;
  choices.cp = cp;
  choices.dp = dp;
  choices.pp = pp;
  choices.ep = ep;
  choices.order = order;
  return test::small_plan(choices);
}

constexpr std::array<Dimension, 5> kDefault = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                                               Dimension::pp};

}  // namespace

TEST_CASE("by default tensor ranks are neighbours and stages are farthest apart") {
  // Megatron-LM's example: 16 ranks, tp 2, pp 4, dp 2.
  const Plan plan = plan_of(2, 1, 2, 4, 1, kDefault);
  CHECK(group_of(GroupKind::tensor, plan, 5).ranks == std::vector<std::int32_t>{4, 5});
  CHECK(group_of(GroupKind::data, plan, 5).ranks == std::vector<std::int32_t>{5, 7});
  CHECK(group_of(GroupKind::embedding, plan, 1).ranks == std::vector<std::int32_t>{1, 13});
  const Coordinates at = coordinates_of(plan, 14);
  CHECK(at.tp == 0);
  CHECK(at.dp == 1);
  CHECK(at.pp == 3);
}

TEST_CASE("the order says which dimension is innermost") {
  const Plan plan =
      plan_of(2, 1, 2, 2, 1, {Dimension::pp, Dimension::dp, Dimension::tp, Dimension::cp, Dimension::ep});
  CHECK(coordinates_of(plan, 1).pp == 1);
  CHECK(coordinates_of(plan, 2).dp == 1);
  CHECK(coordinates_of(plan, 4).tp == 1);
  CHECK(group_of(GroupKind::tensor, plan, 1).ranks == std::vector<std::int32_t>{1, 5});
}

TEST_CASE("ranks and coordinates are each other's inverse in every order") {
  std::array<Dimension, 5> order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                                    Dimension::pp};
  std::sort(order.begin(), order.end());
  do {
    const Plan plan = plan_of(2, 2, 3, 2, 3, order);
    for (int rank = 0; rank < plan.choices.world(); ++rank) {
      const Coordinates at = coordinates_of(plan, rank);
      CHECK(rank_of(plan, at) == rank);
      CHECK(at.ep < 3);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("groups partition the world and agree on their members") {
  std::array<Dimension, 5> order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                                    Dimension::pp};
  std::sort(order.begin(), order.end());
  do {
    Plan plan = plan_of(2, 2, 4, 2, 4, order);
    plan.choices.zero = 1;
    plan.choices.shard_group = 4;
    const auto check = [&](GroupKind kind, std::size_t size) {
      for (int rank = 0; rank < plan.choices.world(); ++rank) {
        const Group group = group_of(kind, plan, rank);
        REQUIRE(group.ranks.size() == size);
        CHECK(std::set<std::int32_t>(group.ranks.begin(), group.ranks.end()).size() == size);
        CHECK(std::count(group.ranks.begin(), group.ranks.end(), rank) == 1);
        for (const std::int32_t other : group.ranks) CHECK(group_of(kind, plan, other).ranks == group.ranks);
      }
    };
    check(GroupKind::tensor, 2);
    check(GroupKind::data, 8);
    check(GroupKind::context, 2);
    check(GroupKind::expert, 4);
    check(GroupKind::expert_data, 2);
    check(GroupKind::shard, 4);
    check(GroupKind::replicate, 2);
    check(GroupKind::embedding, 2);
    // An expert group holds every expert part once.
    for (int rank = 0; rank < plan.choices.world(); ++rank) {
      std::set<int> parts;
      for (const std::int32_t other : group_of(GroupKind::expert, plan, rank).ranks)
        parts.insert(coordinates_of(plan, other).ep);
      CHECK(parts.size() == 4);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE(
    "with sequence parallelism experts are spread over tensor ranks too, as Megatron-Core spreads them") {
  Plan plan = plan_of(2, 1, 4, 1, 8, kDefault);
  plan.choices.sequence_parallel = true;
  CHECK(expert_ranks(plan.choices) == 8);
  CHECK(group_of(GroupKind::expert, plan, 5).ranks == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(group_of(GroupKind::expert_data, plan, 5).ranks == std::vector<std::int32_t>{5});
  plan.choices.ep = 4;  // neighbours, two tensor groups of them
  CHECK(group_of(GroupKind::expert, plan, 5).ranks == std::vector<std::int32_t>{4, 5, 6, 7});
  CHECK(coordinates_of(plan, 5).ep == 1);
  CHECK(group_of(GroupKind::expert_data, plan, 5).ranks == std::vector<std::int32_t>{1, 5});
  plan.choices.sequence_parallel = false;  // both ranks of a tensor group see all tokens
  CHECK(expert_ranks(plan.choices) == 4);
  CHECK(group_of(GroupKind::expert, plan, 5).ranks == std::vector<std::int32_t>{1, 3, 5, 7});
  CHECK(group_of(GroupKind::expert_data, plan, 5).ranks == std::vector<std::int32_t>{5});
}

TEST_CASE("neighbours among the tensor ranks share experts, as Megatron-Core places them") {
  Plan plan = plan_of(4, 1, 4, 1, 2, kDefault);
  plan.choices.sequence_parallel = true;
  plan.choices.etp = 2;  // two parts of a tensor group see tokens of their own: 8 places for experts
  CHECK(expert_ranks(plan.choices) == 8);
  CHECK(group_of(GroupKind::expert_tensor, plan, 6).ranks == std::vector<std::int32_t>{6, 7});
  CHECK(group_of(GroupKind::expert, plan, 6).ranks == std::vector<std::int32_t>{4, 6});
  CHECK(group_of(GroupKind::expert_data, plan, 6).ranks == std::vector<std::int32_t>{2, 6, 10, 14});
  plan.choices.etp = 4;  // the whole tensor group
  CHECK(expert_ranks(plan.choices) == 4);
  CHECK(group_of(GroupKind::expert_tensor, plan, 6).ranks == std::vector<std::int32_t>{4, 5, 6, 7});
  CHECK(group_of(GroupKind::expert, plan, 6).ranks == std::vector<std::int32_t>{2, 6});
  CHECK(group_of(GroupKind::expert_data, plan, 6).ranks == std::vector<std::int32_t>{6, 14});
  plan.choices.etp = 2;
  plan.choices.sequence_parallel = false;  // both parts do the same
  CHECK(group_of(GroupKind::expert_tensor, plan, 6).ranks == std::vector<std::int32_t>{6, 7});
  CHECK(group_of(GroupKind::expert, plan, 6).ranks == std::vector<std::int32_t>{2, 6});
  CHECK(group_of(GroupKind::expert_data, plan, 6).ranks == std::vector<std::int32_t>{6, 14});
}

TEST_CASE("groups of shared experts partition the world in every order") {
  std::array<Dimension, 5> order = kDefault;
  std::sort(order.begin(), order.end());
  do {
    for (const bool sequence_parallel : {false, true}) {
      Plan plan = plan_of(4, 2, 2, 2, 4, order);
      plan.choices.sequence_parallel = sequence_parallel;
      plan.choices.etp = 2;
      const std::size_t places = sequence_parallel ? 8 : 4;
      for (int rank = 0; rank < plan.choices.world(); ++rank) {
        const Group shared = group_of(GroupKind::expert_tensor, plan, rank);
        const Group exchanged = group_of(GroupKind::expert, plan, rank);
        const Group reduced = group_of(GroupKind::expert_data, plan, rank);
        REQUIRE(shared.ranks.size() == 2);
        REQUIRE(exchanged.ranks.size() == 4);
        REQUIRE(reduced.ranks.size() == places / 4);
        for (const std::int32_t other : shared.ranks) {
          CHECK(group_of(GroupKind::expert_tensor, plan, other).ranks == shared.ranks);
          CHECK(coordinates_of(plan, other).ep == coordinates_of(plan, rank).ep);
        }
        std::set<int> parts;
        for (const std::int32_t other : exchanged.ranks) {
          CHECK(group_of(GroupKind::expert, plan, other).ranks == exchanged.ranks);
          CHECK(coordinates_of(plan, other).tp % 2 == coordinates_of(plan, rank).tp % 2);
          parts.insert(coordinates_of(plan, other).ep);
        }
        CHECK(parts.size() == 4);
        for (const std::int32_t other : reduced.ranks) {
          CHECK(group_of(GroupKind::expert_data, plan, other).ranks == reduced.ranks);
          CHECK(coordinates_of(plan, other).tp % 2 == coordinates_of(plan, rank).tp % 2);
        }
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("one rank is in groups of its own") {
  const Plan plan = plan_of(1, 1, 1, 1, 1, kDefault);
  CHECK(group_of(GroupKind::tensor, plan, 0).ranks == std::vector<std::int32_t>{0});
  CHECK(group_of(GroupKind::data, plan, 0).ranks == std::vector<std::int32_t>{0});
  CHECK(group_of(GroupKind::embedding, plan, 0).ranks == std::vector<std::int32_t>{0});
}

TEST_CASE("ranks beyond the devices share them round robin") {
  const Plan plan = plan_of(1, 1, 4, 1, 1, kDefault);  // on one core
  CHECK(device_of(plan, 0) == 0);
  CHECK(device_of(plan, 3) == 0);
}
