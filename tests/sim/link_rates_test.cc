// What links carry over time, where it is known.
#include "sim/link_rates.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/support/hand_programs.h"
#include "tests/support/small_plans.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::test;

namespace {

std::size_t place_of(const sim::LinkRates& rates, const std::string& kind) {
  const auto at = std::find(rates.kinds.begin(), rates.kinds.end(), kind);
  REQUIRE(at != rates.kinds.end());
  return static_cast<std::size_t>(at - rates.kinds.begin());
}

double most(const sim::LinkRates& rates, const std::string& kind) {
  double highest = 0;
  for (const auto& sample : rates.samples)
    highest = std::max(highest, sample.bytes_per_s[place_of(rates, kind)]);
  return highest;
}

// The integral of a kind's rate.
double bytes_in_all(const sim::LinkRates& rates, const std::string& kind) {
  double bytes = 0;
  for (std::size_t i = 0; i + 1 < rates.samples.size(); ++i)
    bytes += rates.samples[i].bytes_per_s[place_of(rates, kind)] *
             (rates.samples[i + 1].at_s - rates.samples[i].at_s);
  return bytes;
}

sim::LinkRates rates_of(const Cluster& cluster, const std::vector<Program>& programs) {
  const Network network(cluster);
  const sim::Scenario scenario = scenario_of_programs(network, programs);
  const sim::Trace trace = sim::trace_from_bytes(
      sim::run_isolated([&] { return sim::to_bytes(sim::interpret(scenario, 1, true)); }));
  return sim::link_rates(scenario.flows, trace.moved);
}

}  // namespace

TEST_CASE("two transfers that share a port carry what the port does, and nothing once they have arrived") {
  const Cluster cluster = round_cluster(2, 2);  // one port of 10 GB/s a node
  constexpr double kBytes = 20e9;
  std::vector<ProgramBuilder> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.emplace_back(rank);
  ranks[1].compute(1);  // nothing is under way meanwhile
  for (const int from : {0, 1}) {
    ranks[static_cast<std::size_t>(from)].send(from + 2, kBytes, 0);
    ranks[static_cast<std::size_t>(from) + 2].receive(from, kBytes, 0);
  }
  std::vector<Program> programs;
  for (const ProgramBuilder& rank : ranks) programs.push_back(rank.program());
  const sim::LinkRates rates = rates_of(cluster, programs);
  // Out of one port and into the other.
  CHECK(most(rates, "network ports") == Approx(2 * 10e9).epsilon(0.1));
  CHECK(most(rates, "network ports") <= 2 * 10e9 * (1 + 1e-6));
  CHECK(bytes_in_all(rates, "network ports") == Approx(2 * 2 * kBytes));
  for (const double rate : rates.samples.back().bytes_per_s) CHECK(rate == 0);
  for (std::size_t i = 1; i < rates.samples.size(); ++i)
    CHECK(rates.samples[i - 1].at_s < rates.samples[i].at_s);
}

TEST_CASE("a simulation's links carry over time what they carry in all, folded or not") {
  const Cluster cluster = with_nodes(load_cluster("dgx-a100"), 2);
  SmallModel model;
  model.hidden = 1024;
  model.heads = 8;
  model.seq_len = 2048;
  const auto job = small_job(model, 32);
  job->cluster = cluster;
  job->training.precision = DType::bf16;
  Choices choices;
  choices.tp = choices.pp = 2;
  choices.dp = 4;
  for (const bool fold : {true, false}) {
    sim::SimulationOptions options;
    options.fold = fold;
    options.links = 1 << 20;
    const sim::Simulation s = sim::simulate({job, choices}, options);
    std::map<std::string, double> bytes;
    for (const sim::LinkLoad& link : s.links)
      bytes[link.name.find(".nic") != std::string::npos       ? "network ports"
            : link.name.find(".pcie") != std::string::npos    ? "PCIe"
            : link.name.find(".uplink") != std::string::npos  ? "uplinks"
            : link.name.find(".storage") != std::string::npos ? "storage"
                                                              : "device ports"] += link.bytes;
    REQUIRE(s.link_rates.kinds.size() == bytes.size());
    for (const auto& [kind, in_all] : bytes) CHECK(bytes_in_all(s.link_rates, kind) == Approx(in_all));
    options.keep_timeline = false;
    CHECK(sim::simulate({job, choices}, options).link_rates.samples.empty());
  }
}
