// What connections between processors do that wires do not: acknowledgements, work for the cores, uneven
// shares.
#include "sim/network/packet_load.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/hand_programs.h"

using namespace orrery;
using namespace orrery::test;

namespace {

// Ports of 10 GB/s, of which messages reach all.
Cluster processors(int nodes) {
  Cluster cluster = round_cluster(nodes, 1);
  cluster.communication.library = CommunicationLibrary::mpi;
  cluster.communication.network_efficiency = cluster.communication.network_exchange_efficiency = 1;
  return cluster;
}

double seconds_of(const Cluster& cluster, const std::vector<ProgramBuilder>& ranks) {
  std::vector<Program> programs;
  for (const ProgramBuilder& rank : ranks) programs.push_back(rank.program());
  return run_programs(cluster, programs).step_ends_s.back();
}

double latency_s(const Cluster& cluster) {
  const Network network(cluster);
  return plan_transfer(1e9, group_shape(network, {0, 1}), cluster).latency_s;
}

}  // namespace

TEST_CASE("what acknowledges a message takes its share of the other direction") {
  Cluster cluster = processors(2);
  cluster.communication.network_exchange_efficiency = 1 / 1.2;  // a fifth of a byte for each byte
  ProgramBuilder a(0);
  ProgramBuilder b(1);
  a.exchange({{1, 10e9, 0, true, {}}});
  b.exchange({{0, 10e9, 0, false, {}}});
  CHECK(seconds_of(cluster, {a, b}) == Approx(1 + latency_s(cluster)).epsilon(1e-6));
  // Both ways at once: each direction carries 1.2 x 10 GB.
  ProgramBuilder c(0);
  ProgramBuilder d(1);
  c.exchange({{1, 10e9, 0, true, {}}, {1, 10e9, 1, false, {}}});
  d.exchange({{0, 10e9, 0, false, {}}, {0, 10e9, 1, true, {}}});
  CHECK(seconds_of(cluster, {c, d}) == Approx(1.2 + latency_s(cluster)).epsilon(1e-6));
}

TEST_CASE("cores that packets are handled on compute less meanwhile") {
  Cluster cluster = processors(2);
  cluster.shared_cores = 2;
  // 10 GB in a second: a quarter of a core at either end, a quarter of the machine's two.
  cluster.communication.network_processor_s_per_byte = 0.25 / 10e9;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1)};
  ranks[0].exchange({{1, 10e9, 0, true, {}}});
  ranks[1].exchange({{0, 10e9, 0, false, {}}});
  for (ProgramBuilder& rank : ranks) rank.compute(2);
  // A second at three quarters of the speed.
  CHECK(seconds_of(cluster, ranks) == Approx(2.25).epsilon(1e-6));
  // On two machines of one core each: a quarter of each.
  cluster.shared_cores = 0;
  cluster.groups[0].node.shared_cores = 1;
  CHECK(seconds_of(cluster, ranks) == Approx(2.25).epsilon(1e-6));
  // Where a device is no core of the host's, packets are not its business.
  cluster.groups[0].node.shared_cores = 0;
  CHECK(seconds_of(cluster, ranks) == Approx(2).epsilon(1e-6));
}

TEST_CASE("the same packets are the same work when their messages share a port") {
  Cluster cluster = processors(3);
  cluster.shared_cores = 1;
  cluster.communication.network_processor_s_per_byte = 0.1 / 10e9;
  // Two messages of 10 GB into one port: two seconds; 4 x 0.1 s of the core's time are gone.
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1), ProgramBuilder(2)};
  ranks[0].exchange({{2, 10e9, 0, true, {}}});
  ranks[1].exchange({{2, 10e9, 0, true, {}}});
  ranks[2].exchange({{0, 10e9, 0, false, {}}, {1, 10e9, 0, false, {}}});
  ranks[0].compute(3);
  CHECK(seconds_of(cluster, ranks) == Approx(3.4).epsilon(1e-6));
}

TEST_CASE("of messages that share a port the last is later than an even share makes it") {
  Cluster cluster = processors(4);
  cluster.communication.network_flow_spread = 0.5;
  std::vector<ProgramBuilder> ranks = {ProgramBuilder(0), ProgramBuilder(1), ProgramBuilder(2),
                                       ProgramBuilder(3)};
  std::vector<Transfer> sends;
  for (int peer = 1; peer < 4; ++peer) {
    sends.push_back({peer, 1e9, 0, true, {}});
    ranks[peer].exchange({{0, 1e9, 0, false, {}}});
  }
  ranks[0].exchange(sends);
  CHECK(seconds_of(cluster, ranks) ==
        Approx(0.3 * (1 + 0.5 * std::log(3)) + latency_s(cluster)).epsilon(1e-6));
  // One alone has the port to itself.
  ProgramBuilder a(0);
  ProgramBuilder b(1);
  a.send(1, 1e9, 0);
  b.receive(0, 1e9, 0);
  CHECK(seconds_of(cluster, {a, b}) == Approx(0.1 + latency_s(cluster)).epsilon(1e-6));
}
