// The platform file, loaded by SimGrid itself.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "handover/export.h"
#include "sim/processes/isolate.h"
#include "sim/zones/zone_platform.h"
#include "topologies/network.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

std::string platform_of(const Cluster& cluster) {
  auto job = std::make_shared<Job>();
  job->cluster = cluster;
  Plan plan;
  plan.job = job;
  const auto files = export_plan(plan, export_target_from_name("simgrid"));
  REQUIRE(files.size() == 1);
  CHECK(files[0].name == "platform.xml");
  return files[0].content;
}

// SimGrid's hosts and the latency and rate of the routes of device 0 and of the last are ours.
void check_loaded(const Cluster& cluster) {
  const auto file =
      std::filesystem::temp_directory_path() / ("orrery-" + std::to_string(::getpid()) + "-platform.xml");
  write_file_atomically(file, platform_of(cluster));
  const int devices = cluster.devices();
  const auto bytes = sim::run_isolated([&] {
    sim::ZonePlatform platform(cluster, file.string());
    std::vector<double> values{static_cast<double>(platform.hosts())};
    for (const int source : {0, devices - 1}) {
      for (int to = 0; to < devices; ++to) {
        if (to == source) continue;
        const auto route = platform.route(source, to);
        values.push_back(route.latency_s);
        values.push_back(route.bandwidth_bytes_per_s);
      }
    }
    values.push_back(platform.run({{0, devices - 1, 20e6}})[0]);
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  });
  std::filesystem::remove(file);
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  const Network network(cluster);
  CHECK(values.front() == devices);
  std::size_t at = 1;
  for (const int source : {0, devices - 1}) {
    for (int to = 0; to < devices; ++to) {
      if (to == source) continue;
      INFO("device " << source << " to " << to);
      const Route route = network.route(source, to);
      CHECK(values[at++] == Approx(route.latency_s).epsilon(1e-9).margin(1e-15));
      CHECK(values[at++] == Approx(route.bandwidth_bytes_per_s).epsilon(1e-9));
    }
  }
  const Route route = network.route(0, devices - 1);
  CHECK(values.back() == Approx(route.latency_s + 20e6 / route.bandwidth_bytes_per_s).epsilon(0.01));
}

}  // namespace

TEST_CASE("SimGrid loads the platform of a node and of a fabric") {
  check_loaded(with_nodes(load_cluster("dgx-v100"), 1));
  check_loaded(with_nodes(load_cluster("dgx-a100"), 3));
  check_loaded(with_nodes(load_cluster("pcie-4090"), 2));
  Cluster cluster = with_nodes(load_cluster("v100-ib100"), 12);
  check_loaded(cluster);
  cluster.fabric.kind = FabricKind::fat_tree;
  cluster.fabric.nodes_per_leaf = 4;
  cluster.fabric.oversubscription = 4;
  check_loaded(cluster);
  cluster.fabric.kind = FabricKind::torus;
  cluster.fabric.torus = {2, 3, 2};
  check_loaded(cluster);
  cluster.fabric.kind = FabricKind::dragonfly;
  cluster.fabric.groups = 3;
  cluster.fabric.routers = 2;
  cluster.fabric.nodes_per_router = 2;
  cluster.fabric.global_bandwidth_bytes_per_s = 5e9;
  check_loaded(cluster);
}

TEST_CASE("the platform of 1,024 devices stays below 5 MB, and what is too large is refused") {
  Cluster cluster = with_nodes(load_cluster("a100-eth100"), 128);
  CHECK(platform_of(cluster).size() < 5'000'000);
  cluster = with_nodes(load_cluster("a100-eth100"), 513);
  CHECK_THROWS_AS(platform_of(cluster), UserError);
}
