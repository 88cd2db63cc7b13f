#include "cost/collective_cost.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

constexpr std::array kKinds = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                               CollectiveKind::all_gather, CollectiveKind::all_to_all,
                               CollectiveKind::broadcast,  CollectiveKind::reduce,
                               CollectiveKind::gather,     CollectiveKind::scatter};
constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;
constexpr double kGiB = 1024 * kMiB;

Cluster nccl() {
  Cluster cluster;
  cluster.communication.library = CommunicationLibrary::nccl;
  return cluster;
}

Cluster mpi() {
  Cluster cluster;
  CommunicationProfile& p = cluster.communication;
  p.library = CommunicationLibrary::mpi;
  p.point_to_point_latency_s = 1e-6;
  p.point_to_point_bytes_per_s = 5e9;
  p.reduce_bytes_per_s = 4e9;
  p.network_latency_s = 30e-6;
  p.collective_overhead_s = 2e-6;
  p.eager_bytes = 4096;
  p.intra_efficiency = 0.5;
  return cluster;
}

// Nodes of NVLinked devices, each with a port of its own.
GroupShape nvlink_nodes(const std::string& generation, int nodes, int per_node) {
  GroupShape shape;
  shape.ranks = nodes * per_node;
  shape.nodes = nodes;
  shape.ranks_per_node = shape.min_ranks_per_node = per_node;
  shape.generation = generation;
  if (per_node > 1) {
    shape.intra = PathClass::nvlink;
    shape.intra_bandwidth_bytes_per_s = generation == "blackwell" ? 900e9
                                        : generation == "hopper"  ? 450e9
                                        : generation == "ampere"  ? 300e9
                                                                  : 150e9;
    shape.intra_latency_s = 0.5e-6;
  }
  shape.in_network_reduction = generation == "hopper" || generation == "blackwell";
  if (nodes > 1) {
    shape.port_bandwidth_bytes_per_s = 50e9;
    shape.inter_bandwidth_bytes_per_s = per_node * 50e9;
    shape.inter_latency_s = 3e-6;
  }
  return shape;
}

GroupShape pcie_node(int ranks) {
  GroupShape shape;
  shape.ranks = shape.ranks_per_node = shape.min_ranks_per_node = ranks;
  shape.intra = PathClass::pcie;
  shape.generation = "ada";
  shape.intra_bandwidth_bytes_per_s = 31.5e9;
  shape.intra_latency_s = 1e-6;
  if (ranks > 4) {
    shape.bridge_bandwidth_bytes_per_s = 25e9;
    shape.all_pairs_bandwidth_bytes_per_s = 25e9 * 7 / 16;
  }
  return shape;
}

GroupShape processes(int nodes, int per_node, int cores) {
  GroupShape shape;
  shape.ranks = nodes * per_node;
  shape.nodes = nodes;
  shape.ranks_per_node = shape.min_ranks_per_node = per_node;
  if (per_node > 1) {
    shape.intra = PathClass::shared_memory;
    shape.intra_bandwidth_bytes_per_s = 10e9;
  }
  shape.cores_per_node = cores;
  if (nodes > 1) {
    shape.inter_bandwidth_bytes_per_s = shape.port_bandwidth_bytes_per_s = 125e6;
    shape.inter_latency_s = 50e-6;
  }
  return shape;
}

struct Case {
  std::string name;
  GroupShape shape;
  Cluster cluster;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string generation : {"volta", "ampere", "hopper", "blackwell"}) {
    for (const int nodes : {1, 2, 3, 16}) {
      for (const int per_node : {1, 2, 3, 7, 8}) {
        if (nodes * per_node > 1) {
          all.push_back({generation + " " + std::to_string(nodes) + "x" + std::to_string(per_node),
                         nvlink_nodes(generation, nodes, per_node), nccl()});
        }
      }
    }
  }
  for (const int ranks : {2, 3, 4, 8}) {
    all.push_back({"pcie " + std::to_string(ranks), pcie_node(ranks), nccl()});
  }
  for (const CommunicationLibrary library :
       {CommunicationLibrary::rccl, CommunicationLibrary::hccl, CommunicationLibrary::gaudi_hccl,
        CommunicationLibrary::oneccl, CommunicationLibrary::xla, CommunicationLibrary::neuron,
        CommunicationLibrary::unknown}) {
    for (const int nodes : {1, 3, 16}) {
      for (const int per_node : {1, 8}) {
        if (nodes * per_node == 1) continue;
        Cluster cluster;
        cluster.communication.library = library;
        GroupShape shape = nvlink_nodes("cdna3", nodes, per_node);
        if (per_node > 1)
          shape.all_pairs_bandwidth_bytes_per_s = shape.to_one_bandwidth_bytes_per_s =
              shape.intra_bandwidth_bytes_per_s;
        all.push_back(
            {std::string(name_of(library)) + " " + std::to_string(nodes) + "x" + std::to_string(per_node),
             shape, cluster});
      }
    }
  }
  for (const int nodes : {1, 2, 5}) {
    for (const int ranks : {1, 2, 3, 8}) {
      if (nodes * ranks > 1) {
        all.push_back({"mpi " + std::to_string(nodes) + "x" + std::to_string(ranks),
                       processes(nodes, ranks, 2), mpi()});
      }
    }
  }
  return all;
}

double seconds(CollectiveKind kind, double bytes, const GroupShape& shape, const Cluster& cluster) {
  return plan_collective(kind, bytes, shape, cluster).seconds(bytes);
}

std::vector<int> hybrid_cube_mesh() {
  return load_cluster("dgx-v100-32g").groups.front().node.intra.mesh_links;
}

}  // namespace

TEST_CASE("collectives: one rank takes no time, whatever the collective and the library") {
  for (const CollectiveKind kind : kKinds) {
    CHECK(seconds(kind, kGiB, GroupShape{}, nccl()) == 0);
    CHECK(seconds(kind, 0, GroupShape{}, mpi()) == 0);
  }
  CHECK(plan_transfer(kGiB, GroupShape{}, nccl()).seconds(kGiB) == 0);
}

TEST_CASE("collectives: every time is finite and positive, from no bytes to 8 GiB, on any group") {
  for (const Case& c : cases()) {
    for (const CollectiveKind kind : kKinds) {
      for (const double bytes : {0.0, 1.0, kKiB, 7 * kKiB, kMiB, 100 * kMiB, 8 * kGiB}) {
        INFO(c.name << " " << name_of(kind) << " " << bytes);
        const CollectivePlan plan = plan_collective(kind, bytes, c.shape, c.cluster);
        REQUIRE(std::isfinite(plan.seconds(bytes)));
        REQUIRE(plan.seconds(bytes) > 0);
        REQUIRE(plan.latency_s > 0);
        REQUIRE(plan.bandwidth_bytes_per_s > 0);
        REQUIRE(plan.wire_bytes_per_edge > 0);
      }
    }
    const CollectivePlan transfer = plan_transfer(kMiB, c.shape, c.cluster);
    REQUIRE(std::isfinite(transfer.seconds(kMiB)));
    REQUIRE(transfer.seconds(kMiB) > 0);
  }
}

TEST_CASE("collectives: nothing beats the bandwidth that its links have") {
  for (const Case& c : cases()) {
    if (c.cluster.communication.library == CommunicationLibrary::mpi) continue;
    const GroupShape& s = c.shape;
    const double n = s.ranks;
    const double nodes = s.nodes;
    for (double bytes = kKiB; bytes <= 8 * kGiB; bytes *= 2) {
      INFO(c.name << " " << bytes);
      const double all_reduce = seconds(CollectiveKind::all_reduce, bytes, s, c.cluster);
      const double all_gather = seconds(CollectiveKind::all_gather, bytes, s, c.cluster);
      const double all_to_all = seconds(CollectiveKind::all_to_all, bytes, s, c.cluster);
      if (s.ranks_per_node > 1 && nodes == 1) {
        const double link = s.intra_bandwidth_bytes_per_s;
        // With a switch that reduces, a device need only send its bytes once.
        REQUIRE(all_reduce >= (s.in_network_reduction ? 1 : 2 * (n - 1) / n) * bytes / link);
        REQUIRE(all_gather >= (n - 1) / n * bytes / link);
        REQUIRE(all_to_all >= (n - 1) / n * bytes / link);
      }
      if (nodes > 1) {
        const double ports = s.inter_bandwidth_bytes_per_s;
        REQUIRE(all_reduce >= 2 * (nodes - 1) / nodes * bytes / ports);
        REQUIRE(all_gather >= (nodes - 1) / nodes * bytes / ports);
        REQUIRE(all_to_all >= s.ranks_per_node * (nodes - 1) / nodes * bytes / ports);
        REQUIRE(plan_transfer(bytes, s, c.cluster).seconds(bytes) >= bytes / s.port_bandwidth_bytes_per_s);
      }
    }
  }
}

TEST_CASE("collectives: more bytes never take less time") {
  for (const Case& c : cases()) {
    for (const CollectiveKind kind : kKinds) {
      double last = 0;
      // An odd factor, so that the sizes meet the tables between their entries.
      for (double bytes = 0; bytes <= 8 * kGiB; bytes = bytes == 0 ? 64 : bytes * 1.07) {
        INFO(c.name << " " << name_of(kind) << " " << bytes);
        const double now = seconds(kind, bytes, c.shape, c.cluster);
        REQUIRE(now >= last * (1 - 1e-12));
        last = now;
      }
    }
  }
}

TEST_CASE("collectives: faster links never slow a collective, longer ones never speed it up") {
  const CounterRandom random(20261121, 1);
  std::uint64_t draw = 0;
  for (const Case& c : cases()) {
    for (const CollectiveKind kind : kKinds) {
      for (int i = 0; i < 8; ++i) {
        const double bytes = std::exp2(10 + 23 * random.uniform(draw++));
        const double factor = 1 + 3 * random.uniform(draw++);
        INFO(c.name << " " << name_of(kind) << " " << bytes << " x" << factor);
        const double now = seconds(kind, bytes, c.shape, c.cluster);
        GroupShape intra = c.shape;
        intra.intra_bandwidth_bytes_per_s *= factor;
        REQUIRE(seconds(kind, bytes, intra, c.cluster) <= now * (1 + 1e-12));
        GroupShape inter = c.shape;
        inter.inter_bandwidth_bytes_per_s *= factor;
        inter.port_bandwidth_bytes_per_s *= factor;
        REQUIRE(seconds(kind, bytes, inter, c.cluster) <= now * (1 + 1e-12));
        GroupShape longer = c.shape;
        longer.intra_latency_s *= 10 * factor;
        longer.inter_latency_s *= factor;
        REQUIRE(seconds(kind, bytes, longer, c.cluster) >= now * (1 - 1e-12));
      }
    }
  }
}

TEST_CASE("collectives: small all-reduces on H100 take what nccl-tests shows") {
  // Published nccl-tests: 1 KiB on 2, 4, 8 H100: 6, 9.5, 15.6 us.
  for (const auto& [ranks, microseconds] : {std::pair{2, 6.0}, {4, 9.5}, {8, 15.6}}) {
    const double predicted =
        seconds(CollectiveKind::all_reduce, kKiB, nvlink_nodes("hopper", 1, ranks), nccl());
    INFO(ranks << " ranks: " << predicted * 1e6 << " us");
    CHECK(predicted * 1e6 == Approx(microseconds).epsilon(0.15));
  }
}

TEST_CASE("collectives: NVSwitch nodes reach the bus bandwidth that nccl-tests shows") {
  // Published nccl-tests: GB/s of bus bandwidth, 8 devices, the longest messages.
  const auto bus = [](const std::string& generation) {
    const double bytes = 8 * kGiB;
    return bytes / seconds(CollectiveKind::all_reduce, bytes, nvlink_nodes(generation, 1, 8), nccl()) *
           bus_factor(CollectiveKind::all_reduce, 8) / 1e9;
  };
  CHECK(bus("ampere") == Approx(230).epsilon(0.05));
  CHECK(bus("hopper") == Approx(478).epsilon(0.05));
  CHECK(bus("volta") == Approx(131).epsilon(0.05));
}

TEST_CASE("collectives: the tuner's rules decide which algorithm and protocol are possible") {
  const GroupShape h100 = nvlink_nodes("hopper", 1, 8);
  CHECK(plan_collective(CollectiveKind::all_reduce, kKiB, h100, nccl()).protocol == Protocol::ll);
  CHECK(plan_collective(CollectiveKind::all_reduce, kGiB, h100, nccl()).algorithm == Algorithm::nvls);
  CHECK(plan_collective(CollectiveKind::all_gather, kGiB, h100, nccl()).algorithm == Algorithm::ring);
  // Four devices: measured to stay on the ring.
  CHECK(plan_collective(CollectiveKind::all_reduce, kGiB, nvlink_nodes("hopper", 1, 4), nccl()).algorithm ==
        Algorithm::ring);
  for (double bytes = kKiB; bytes < kGiB; bytes *= 2) {
    CHECK(plan_collective(CollectiveKind::all_reduce, bytes, pcie_node(8), nccl()).protocol !=
          Protocol::ll128);
  }
  // One device a node: parallel aggregated trees serve small gathers, many nodes' small reductions trees.
  CHECK(plan_collective(CollectiveKind::all_reduce, kKiB, nvlink_nodes("ampere", 16, 8), nccl()).algorithm ==
        Algorithm::tree);
}

TEST_CASE("collectives: a forced algorithm is taken, or refused where it cannot run") {
  const Algorithm ring = Algorithm::ring;
  const Algorithm nvls = Algorithm::nvls;
  const GroupShape h100 = nvlink_nodes("hopper", 1, 8);
  const CollectivePlan forced = plan_collective(CollectiveKind::all_reduce, kGiB, h100, nccl(), &ring);
  CHECK(forced.algorithm == Algorithm::ring);
  CHECK(forced.seconds(kGiB) >= seconds(CollectiveKind::all_reduce, kGiB, h100, nccl()));
  CHECK_THROWS_AS(
      plan_collective(CollectiveKind::all_reduce, kGiB, nvlink_nodes("ampere", 1, 8), nccl(), &nvls),
      UserError);
  CHECK_THROWS_AS(plan_collective(CollectiveKind::all_reduce, kGiB, processes(1, 2, 2), mpi(), &nvls),
                  UserError);
}

TEST_CASE("collectives: MPI takes the formulas of docs/collectives.md") {
  const Cluster cluster = mpi();
  const GroupShape two = processes(1, 2, 2);
  // Two ranks, 8 bytes: the call's overhead and one exchange.
  const CollectivePlan small = plan_collective(CollectiveKind::all_reduce, 8, two, cluster);
  CHECK(small.algorithm == Algorithm::recursive_doubling);
  CHECK(small.protocol == Protocol::mpi_eager);
  CHECK(small.latency_s == Approx(2e-6 + 1e-6));
  // Four ranks on four cores, 4 MiB on the ring: 6 messages of 1 MiB at 5 GB/s x 0.5, 3 parts reduced at 4
  // GB/s.
  const Algorithm ring = Algorithm::ring;
  CHECK(plan_collective(CollectiveKind::all_reduce, 4 * kMiB, processes(1, 4, 4), cluster, &ring)
            .seconds(4 * kMiB) == Approx(2e-6 + 6 * (1e-6 + kMiB / 2.5e9) + 3 * kMiB / 4e9));
  // Two nodes of two ranks, all-to-all: two messages of a part at a time leave through 125 MB/s.
  CHECK(seconds(CollectiveKind::all_to_all, 4 * kMiB, processes(2, 2, 2), cluster) ==
        Approx(2e-6 + 3 * (50e-6 + 2 * kMiB / 125e6)));
  // Ranks that share a core take turns.
  CHECK(seconds(CollectiveKind::all_reduce, kGiB, processes(1, 4, 2), cluster) >
        seconds(CollectiveKind::all_reduce, kGiB, processes(1, 4, 4), cluster));
}

TEST_CASE("over a network MPI asks before long messages, and both ways at once are slower than one") {
  Cluster cluster = mpi();
  CommunicationProfile& p = cluster.communication;
  p.network_efficiency = 0.95;
  p.network_exchange_efficiency = 0.9;
  p.network_eager_bytes = 65536;
  const GroupShape two = processes(2, 1, 0);  // 125 MB/s, 50 us of switches: more than the profile's 30 us
  CHECK(plan_transfer(65536, two, cluster).seconds(65536) == Approx(50e-6 + 65536 / (0.95 * 125e6)));
  CHECK(plan_transfer(1e6, two, cluster).seconds(1e6) == Approx(3 * 50e-6 + 1e6 / (0.95 * 125e6)));
  // Over TCP the receiver has said that it is there before.
  cluster.fabric.transport = Transport::tcp;
  CHECK(plan_transfer(1e6, two, cluster).seconds(1e6) == Approx(50e-6 + 1e6 / (0.95 * 125e6)));
  cluster.fabric.transport = Transport::infiniband;
  // A ring of two: two rounds, each of half a megabyte both ways, and a reduction of one half.
  const Algorithm ring = Algorithm::ring;
  CHECK(plan_collective(CollectiveKind::all_reduce, 1e6, two, cluster, &ring).seconds(1e6) ==
        Approx(2e-6 + 2 * (150e-6 + 0.5e6 / (0.9 * 125e6)) + 0.5e6 / 4e9));
}

TEST_CASE("collectives: measured message times replace latency and rate") {
  Cluster cluster = mpi();
  cluster.communication.message_times = {
      {1024, 2e-6, 3e-6}, {kMiB, 100e-6, 150e-6}, {4 * kMiB, 90e-6, 900e-6}};
  const GroupShape two = processes(1, 2, 2);
  CHECK(plan_transfer(8, two, cluster).seconds(8) == Approx(2e-6));
  CHECK(plan_transfer(kMiB, two, cluster).seconds(kMiB) == Approx(100e-6));
  // A measurement that fell is not believed; beyond the last point its rate goes on.
  CHECK(plan_transfer(4 * kMiB, two, cluster).seconds(4 * kMiB) == Approx(100e-6));
  CHECK(plan_transfer(40 * kMiB, two, cluster).seconds(40 * kMiB) == Approx(1000e-6));
  // All-gather of 2 MiB on two ranks: one exchange of 1 MiB.
  CHECK(seconds(CollectiveKind::all_gather, 2 * kMiB, two, cluster) == Approx(2e-6 + 150e-6));
}

TEST_CASE("collectives: bus factors are nccl-tests'") {
  CHECK(bus_factor(CollectiveKind::all_reduce, 4) == Approx(1.5));
  CHECK(bus_factor(CollectiveKind::all_gather, 4) == Approx(0.75));
  CHECK(bus_factor(CollectiveKind::all_to_all, 4) == Approx(0.75));
  CHECK(bus_factor(CollectiveKind::broadcast, 4) == 1);
  CHECK(bus_factor(CollectiveKind::all_reduce, 1) == 1);
}

TEST_CASE("collectives: names are read as they are written") {
  for (int i = 0; i <= static_cast<int>(Algorithm::binomial); ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    CHECK(algorithm_from_name(name_of(algorithm)) == algorithm);
  }
  CHECK_THROWS_WITH(algorithm_from_name("rign"), Catch::Contains("ring"));
}

TEST_CASE("mesh rings: DGX-1V's hybrid cube mesh has three rings that use every link") {
  std::vector<int> mesh = hybrid_cube_mesh();
  CHECK(mesh_ring_links(mesh, 8, {0, 1, 2, 3, 4, 5, 6, 7}) == 6);
  for (const auto& ring : mesh_rings(mesh, 8, {0, 1, 2, 3, 4, 5, 6, 7})) {
    REQUIRE(ring.size() == 8);
    for (std::size_t i = 0; i < 8; ++i) {
      int& links = mesh[ring[i] * 8 + ring[(i + 1) % 8]];
      CHECK(links > 0);
      --links;
      mesh[ring[(i + 1) % 8] * 8 + ring[i]] = links;
    }
  }
  // Every one of the 24 links is on one of the three rings.
  CHECK(std::accumulate(mesh.begin(), mesh.end(), 0) == 0);
}

TEST_CASE("mesh rings: parts of the mesh have what their links give") {
  const std::vector<int> mesh = hybrid_cube_mesh();
  CHECK(mesh_ring_links(mesh, 8, {0, 1, 2, 3}) == 4);
  CHECK(mesh_ring_links(mesh, 8, {0, 3}) == 2);
  CHECK(mesh_ring_links(mesh, 8, {0, 1}) == 1);
  CHECK(mesh_ring_links(mesh, 8, {0, 7}) == 0);
  CHECK(mesh_ring_links(mesh, 8, {0, 1, 4, 7}) == 0);
  CHECK(mesh_ring_links(mesh, 8, {0}) == 0);
}
