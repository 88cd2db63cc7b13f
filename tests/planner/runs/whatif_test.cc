#include "planner/runs/whatif.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "base/csv.h"
#include "base/error.h"
#include "planner/evaluation/hardware.h"
#include "tests/support/jobs.h"
#include "topologies/named_network.h"
#include "topologies/network.h"

namespace orrery::planner::whatif {
namespace {

using test::make_job;

Pins narrow() {
  Pins pins;
  pins.zero = 1;
  pins.recompute = Recompute::none;
  pins.recompute_layers = 0;
  return pins;
}

Point point_of(std::shared_ptr<const Job> job, const Pins& pins = narrow()) {
  return {{}, std::move(job), pins, {}};
}

Point with_hardware(const Point& point, const std::string& name, double number) {
  for (const HardwareKey& key : hardware_keys()) {
    if (key.key != name) continue;
    auto job = std::make_shared<Job>(*point.job);
    job->cluster = key.changed(job->cluster, number);
    return {{{name, std::to_string(number)}}, job, point.pins, point.options};
  }
  FAIL("no " << name);
  return point;
}

Total total(double time_s, std::optional<double> cost_usd) {
  return {1, time_s, 1, cost_usd, {}};
}

TEST_CASE("combinations multiply, the first key slowest, up to a thousand") {
  const auto all = combinations({{"nodes", {"1", "2"}}, {"tp", {"4", "8", "16"}}});
  REQUIRE(all.size() == 6);
  CHECK(describe(all[0]) == "nodes=1, tp=4");
  CHECK(describe(all[2]) == "nodes=1, tp=16");
  CHECK(describe(all[3]) == "nodes=2, tp=4");
  CHECK(combinations({}) == std::vector<Combination>{{}});
  std::vector<std::string> many(kMostPoints);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = std::to_string(i);
  CHECK(combinations({{"a", many}}).size() == kMostPoints);
  CHECK_THROWS_AS(combinations({{"a", many}, {"b", {"1", "2"}}}), UserError);
  CHECK_THROWS_AS(combinations({{"a", {"1"}}, {"a", {"2"}}}), UserError);
}

TEST_CASE("points that differ in their devices' price alone are searched once") {
  const auto job = make_job("gpt2", "dgx-a100", 8, 32, 1024);
  int searches = 0;
  std::vector<Point> points;
  for (const auto& [price, vary] : {std::pair(1.0, Combination{{"price", "1"}, {"tp", "1"}}),
                                    {3.0, {{"price", "3"}, {"tp", "1"}}},
                                    {3.0, {{"price", "3"}, {"tp", "2"}}},
                                    {3.0, {{"tp", "1"}}}}) {
    auto priced = std::make_shared<Job>(*job);
    priced->cluster = with_price(priced->cluster, price);
    Point point = point_of(priced);
    point.vary = vary;
    point.pins.tp = vary.back().second == "2" ? 2 : 1;
    point.options.progress = [&searches](std::string_view what, int, int) {
      searches += what == "listing plans" ? 1 : 0;
    };
    points.push_back(std::move(point));
  }
  const std::vector<Answer> answers = plan_points(points, 1);
  CHECK(searches == 3);  // the last says no price, and is a question of its own
  REQUIRE(answers[1].best);
  CHECK(answers[1].best->evaluation.plan.choices == answers[0].best->evaluation.plan.choices);
  CHECK(answers[1].best->evaluation.step_time_s() == answers[0].best->evaluation.step_time_s());
  CHECK(answers[2].best->evaluation.plan.choices.tp == 2);
  // What a search of its own says of the price.
  const Answer alone = plan_points({points[1]}, 1).front();
  CHECK(alone.best->evaluation.step_time_s() == answers[1].best->evaluation.step_time_s());
  CHECK(alone.best->gap == answers[1].best->gap);
  CHECK(usd_per_s(answers[1].best->evaluation.plan.job->cluster) ==
        usd_per_s(alone.best->evaluation.plan.job->cluster));
}

TEST_CASE("a total is of whole steps, at the devices' price") {
  const auto job = make_job("gpt2", "dgx-a100", 8, 8, 1024);  // 8,192 tokens a step
  job->cluster = with_price(job->cluster, 2.5);
  const Total tokens = total_of(*job, 0.5, 1000, {true, 1e6, true});
  CHECK(tokens.steps == 123);
  CHECK(tokens.time_s == 61.5);
  CHECK(tokens.device_hours == Approx(8 * 61.5 / 3600));
  CHECK(*tokens.cost_usd == Approx(2.5 * tokens.device_hours));
  CHECK(*tokens.energy_j == 123'000);
  CHECK(total_of(*job, 0.5, 1000, {false, 16, true}).steps == 2);
  CHECK(total_of(*job, 0.5, 1000, {false, 17, true}).steps == 3);
  CHECK(total_of(*job, 0.5, 1000, {true, 1e9, false}).steps == 1e9 / 8192);  // nothing asked: not rounded

  job->cluster.profiles[0].peak_power_w = 0;
  job->cluster = with_price(job->cluster, 0);
  job->cluster.profiles[0].price_usd_per_hour = 0;
  const Total unknown = total_of(*job, 0.5, 1000, {true, 1e6, true});
  CHECK_FALSE(unknown.cost_usd);
  CHECK_FALSE(unknown.energy_j);
}

TEST_CASE("cheapest and fastest meet what is asked, and the front needs not") {
  const std::vector<std::optional<Total>> totals = {total(100, 50), total(60, 70),  total(60, 60),
                                                    std::nullopt,   total(30, 200), total(20, std::nullopt)};
  const Selection free = select_points(totals, {});
  CHECK(free.cheapest == 0u);
  CHECK(free.fastest == 5u);
  CHECK(free.front == std::vector<std::size_t>{4, 2, 0});
  const Selection late = select_points(totals, {80, {}});
  CHECK(late.cheapest == 2u);
  CHECK(late.fastest == 5u);
  const Selection poor = select_points(totals, {{}, 100});  // what has no known cost meets no budget
  CHECK(poor.cheapest == 0u);
  CHECK(poor.fastest == 2u);  // as fast as the dearer one
  CHECK(poor.front == free.front);
  const Selection none = select_points(totals, {25, 100});
  CHECK_FALSE(none.cheapest);
  CHECK_FALSE(none.fastest);
  CHECK(none.front == free.front);
}

TEST_CASE("of random totals the cheapest and the fastest meet every limit, and nothing betters the front") {
  std::mt19937 random(7);
  const auto number = [&] { return static_cast<double>(1 + random() % 20); };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::optional<Total>> totals(1 + random() % 8);
    for (auto& each : totals)
      if (random() % 5 > 0) each = total(number(), number());
    Limits limits;
    if (random() % 2 == 0) limits.deadline_s = number();
    if (random() % 2 == 0) limits.budget_usd = number();
    const Selection selection = select_points(totals, limits);
    const auto betters = [](const Total& a, const Total& b) {
      return a.time_s <= b.time_s && *a.cost_usd <= *b.cost_usd &&
             (a.time_s < b.time_s || *a.cost_usd < *b.cost_usd);
    };
    std::size_t meeting = 0;
    for (std::size_t i = 0; i < totals.size(); ++i) {
      if (!totals[i]) continue;
      const bool in_front =
          std::find(selection.front.begin(), selection.front.end(), i) != selection.front.end();
      const bool bettered = std::any_of(totals.begin(), totals.end(), [&](const auto& other) {
        return other && betters(*other, *totals[i]);
      });
      const bool repeated =
          std::any_of(totals.begin(), totals.begin() + static_cast<int>(i), [&](const auto& other) {
            return other && other->time_s == totals[i]->time_s && *other->cost_usd == *totals[i]->cost_usd;
          });
      CHECK(in_front == (!bettered && !repeated));
      if (!meets(*totals[i], limits)) continue;
      ++meeting;
      CHECK(totals[*selection.fastest]->time_s <= totals[i]->time_s);
      CHECK(*totals[*selection.cheapest]->cost_usd <= *totals[i]->cost_usd);
    }
    REQUIRE(selection.fastest.has_value() == (meeting > 0));
    REQUIRE(selection.cheapest.has_value() == (meeting > 0));
    if (meeting == 0) continue;
    for (const std::size_t chosen : {*selection.fastest, *selection.cheapest}) {
      CHECK(totals[chosen]->time_s <= limits.deadline_s.value_or(1e9));
      CHECK(*totals[chosen]->cost_usd <= limits.budget_usd.value_or(1e9));
    }
  }
}

TEST_CASE("without prices there is no cheapest, and the fastest is the front") {
  const Selection selection = select_points({total(100, {}), total(60, {})}, {});
  CHECK_FALSE(selection.cheapest);
  CHECK(selection.fastest == 1u);
  CHECK(selection.front == std::vector<std::size_t>{1});
  const Selection nothing = select_points({std::nullopt}, {});
  CHECK_FALSE(nothing.fastest);
  CHECK(nothing.front.empty());
}

TEST_CASE("the nearest miss is the one with the least share too much, and says it") {
  const double day = 86400;
  const std::vector<std::optional<Total>> totals = {total(90 * day, 1e6), std::nullopt,
                                                    total(33 * day, 5.5e6)};
  const Limits limits{30 * day, 5e6};
  CHECK(nearest(totals, limits) == 2u);
  CHECK(miss_of(*totals[2], limits) ==
        "takes 33.0 days, 3.00 days (10.0%) too long and costs 5,500,000 USD, 500,000 USD (10.0%) too much");
  CHECK(miss_of(*totals[0], limits) == "takes 90.0 days, 60.0 days too long, 3.00 times the deadline");
  CHECK(miss_of(total(day, {}), limits) == "has no price");
  CHECK_FALSE(nearest({std::nullopt}, limits));
}

TEST_CASE("numbers are readable without an exponent") {
  CHECK(readable(0) == "0");
  CHECK(readable(0.012345) == "0.0123");
  CHECK(readable(1.5) == "1.50");
  CHECK(readable(33.24) == "33.2");
  CHECK(readable(999) == "999");
  CHECK(readable(1000) == "1,000");
  CHECK(readable(123456) == "123,456");
  CHECK(readable(-1400685.4) == "-1,400,685");
}

void check_same(const Evaluation& a, const Evaluation& b) {
  CHECK(a.plan.choices == b.plan.choices);
  CHECK(a.memory.total == b.memory.total);
  CHECK(a.estimate_s == b.estimate_s);
  CHECK(a.step_time_s() == b.step_time_s());
  CHECK(a.simulation->events == b.simulation->events);
  CHECK(a.simulation->busy_s == b.simulation->busy_s);
  CHECK(parts_of(a.simulation->breakdown) == parts_of(b.simulation->breakdown));
}

TEST_CASE("a point's plan is the plain search's, however many run side by side") {
  Pins images = narrow();
  images.pp = 1;
  const std::vector<Point> points = {point_of(make_job("gpt2", "dgx-a100", 4, 8, 128)),
                                     point_of(make_job("gpt2", "v100-ib100", 4, 8, 128)),
                                     point_of(make_job("resnet50", "v100-ib100", 2, 32, 0), images)};
  const auto alone = plan_points(points, 1);
  const auto beside = plan_points(points, 3);
  REQUIRE(alone.size() == points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const SearchResult plain = search(points[i].job, points[i].pins, points[i].options);
    const Evaluation& best = plain.plans.front();
    REQUIRE(alone[i].best);
    check_same(alone[i].best->evaluation, best);
    check_same(beside[i].best->evaluation, best);
    CHECK(alone[i].best->words() == planner::describe(best.plan));
    CHECK(alone[i].best->energy_j() == best.simulation->energy_j);
    CHECK(alone[i].best->candidates == plain.candidates);
    CHECK(alone[i].best->proven == plain.proven);
    CHECK(alone[i].best->gap == plain.gap);
  }
}

TEST_CASE("a point without a plan says why, and the others go on") {
  Pins eight = narrow();
  eight.dp = 8;
  std::vector<Point> points = {point_of(make_job("gpt2", "dgx-a100", 8, 7, 128), eight),
                               point_of(make_job("gpt3-175b", "dgx-a100", 8, 8, 2048), eight),
                               point_of(make_job("gpt2", "dgx-a100", 8, 8, 128), eight)};
  const auto answers = plan_points(points, 2);
  CHECK_FALSE(answers[0].best);
  CHECK(answers[0].contradiction);
  CHECK_THAT(answers[0].refusal, Catch::Contains("batch of 7"));
  CHECK_FALSE(answers[1].best);
  CHECK_FALSE(answers[1].contradiction);
  CHECK_THAT(answers[1].refusal, Catch::Contains("fits in memory"));
  CHECK(answers[2].best);

  const Result result = plan_points({{"point", {"a", "b", "c"}}}, points, {true, 1e9, true}, {}, 2);
  CHECK_FALSE(result.totals[0]);
  CHECK(result.selection.fastest == 2u);
  CHECK(*result.efficiency[2] == 1);
  points.resize(1);
  CHECK_THROWS_AS(plan_points({}, points, {true, 1e9, true}, {}, 1), UserError);
}

TEST_CASE("tokens need sequences, and a budget a price") {
  const std::vector<Point> images = {point_of(make_job("resnet50", "v100-ib100", 2, 32, 0))};
  CHECK_THROWS_WITH(plan_points({}, images, {true, 1e9, true}, {}, 1), Catch::Contains("`samples`"));
  const std::vector<Point> unpriced = {point_of(make_job("gpt2", "pcie-4090", 2, 4, 128))};
  CHECK_THROWS_WITH(plan_points({}, unpriced, {true, 1e9, true}, {{}, 1e6}, 1), Catch::Contains("price"));
  CHECK_THROWS_AS(plan_points({}, {}, {}, {}, 1), UserError);
}

// Of searches that simulated whatever could be best: there the laws of the cost model are the answer's, too.
TEST_CASE("better hardware never takes longer where the best is proven") {
  Pins plain = narrow();
  plain.bucket_bytes = 64e6;
  plain.overlap_grad_reduce = true;
  plain.pp = 1;
  for (const auto& [cluster, devices] : {std::pair{"v100-ib100", 4}, {"dgx-a100", 4}, {"a100-eth100", 16}}) {
    Point now = point_of(make_job("gpt2", cluster, devices, 16, 256), plain);
    now.options.top = 1;
    now.options.rank = Rank::nominal;
    now.options.budget_s = 1e9;
    std::vector<Point> points = {now};
    for (const char* key : {"network", "intra-node", "device-memory", "device-speed"})
      for (const double times : {2.0, 4.0}) points.push_back(with_hardware(now, key, times));
    const auto answers = plan_points(points, 2);
    for (std::size_t i = 0; i < points.size(); ++i) {
      INFO(cluster << " " << describe(points[i].vary));
      REQUIRE(answers[i].best);
      CHECK(answers[i].best->proven);
      const std::size_t before = i % 2 == 0 && i > 0 ? i - 1 : 0;
      CHECK(answers[i].best->evaluation.step_time_s() <= answers[before].best->evaluation.step_time_s());
    }
    CHECK(answers.back().best->evaluation.step_time_s() < answers.front().best->evaluation.step_time_s());
  }
}

TEST_CASE("a price changes the cost and not the plan") {
  const Point now = point_of(make_job("gpt2", "dgx-a100", 4, 8, 128));
  const std::vector<Point> points = {with_hardware(now, "price", 1), with_hardware(now, "price", 3)};
  const Result result = plan_points({{"price", {"1", "3"}}}, points, {true, 1e9, true}, {}, 2);
  check_same(result.answers[0].best->evaluation, result.answers[1].best->evaluation);
  CHECK(3 * *result.totals[0]->cost_usd == Approx(*result.totals[1]->cost_usd));
  CHECK(*result.totals[0]->cost_usd == Approx(result.totals[0]->device_hours));
  CHECK(result.efficiency == std::vector<std::optional<double>>{1, 1});
}

TEST_CASE("wider hardware is wider where it says so and as it was elsewhere") {
  for (const char* name : {"dgx-a100", "v100-ib100", "dgx-v100", "gb200-nvl72"}) {
    const Cluster cluster = with_nodes(load_cluster(name), 2);
    const int far = cluster.devices() - 1;
    const auto rate = [&](const Cluster& of, int device) {
      return Network(of).route(0, device).bandwidth_bytes_per_s;
    };
    INFO(name);
    const Cluster network = with_network_times(cluster, 2);
    CHECK(rate(network, far) == Approx(2 * rate(cluster, far)));
    if (cluster.groups[0].node.devices == 1) continue;
    CHECK(rate(network, 1) == rate(cluster, 1));
    const Cluster intra = with_intra_node_times(cluster, 2);
    CHECK(rate(intra, 1) == Approx(2 * rate(cluster, 1)));
    CHECK(rate(intra, far) == rate(cluster, far));
  }
}

TEST_CASE("a network's own links are as much wider as its ports") {
  Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  cluster.fabric.kind = FabricKind::star;
  cluster.fabric.link_bandwidth_bytes_per_s = 5e9;  // the switch's
  const Cluster wider = with_network_times(cluster, 3);
  CHECK(Network(cluster).route(0, 8).bandwidth_bytes_per_s == 5e9);
  CHECK(Network(wider).route(0, 8).bandwidth_bytes_per_s == 15e9);
}

TEST_CASE("measured messages inside a node take less by their bytes and as long by their latency") {
  Cluster cluster = load_cluster("dgx-a100");
  cluster.communication.point_to_point_latency_s = 1e-6;
  cluster.communication.message_times = {{8, 1e-6, 0.5e-6}, {1e6, 101e-6, 201e-6}};
  const auto times = with_intra_node_times(cluster, 4).communication.message_times;
  CHECK(times[0].one_way_s == 1e-6);
  CHECK(times[0].exchange_s == 0.5e-6);
  CHECK(times[1].one_way_s == Approx(26e-6));
  CHECK(times[1].exchange_s == Approx(51e-6));
}

TEST_CASE("the CSV has a row a point and reads as it was written") {
  const Point now = point_of(make_job("gpt2", "dgx-a100", 4, 8, 128));
  std::vector<Point> points = {with_hardware(now, "network", 1), with_hardware(now, "network", 2)};
  const Result result = plan_points({{"network", {"1", "2"}}}, points, {true, 1e9, true}, {}, 2);
  const CsvTable table = parse_csv(to_csv(result), "points.csv");
  REQUIRE(table.rows.size() == 2);
  CHECK(table.field(table.rows[0], "plan") == result.answers[0].best->words());
  CHECK(std::stod(table.field(table.rows[1], "time_to_train_s")) == result.totals[1]->time_s);
  CHECK(table.field(table.rows[0], "fastest") == "1");
  CHECK(table.field(table.rows[0], "refusal").empty());
  CHECK(to_csv(result) == to_csv(plan_points({{"network", {"1", "2"}}}, points, {true, 1e9, true}, {}, 1)));
}

}  // namespace
}  // namespace orrery::planner::whatif
