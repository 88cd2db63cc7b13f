#include "topologies/readers/site_calibration.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/file.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/cluster_file.h"

using namespace orrery;

TEST_CASE(
    "a calibration is kept by what makes a cluster fast, not by prices, words or how many nodes there are") {
  const TemporaryFolder folder;
  REQUIRE(setenv("ORRERY_DATA_DIR", folder.path().c_str(), 1) == 0);
  const Cluster cluster = load_cluster("dgx-h100");
  const std::filesystem::path file = site_calibration_file(cluster);
  std::filesystem::create_directories(file.parent_path());
  Cluster measured = cluster;
  measured.calibration.emplace();
  measured.calibration->source = "1 step";
  measured.groups[0].node.nic.bandwidth_bytes_per_s /= 2;
  write_cluster_file(measured, file.string());

  Cluster edited = cluster;
  edited.description = "ours";
  edited.source = "a contract";
  edited.groups[0].count += 3;
  edited.groups[0].node.price_usd_per_device_hour = 1.25;
  edited.groups[0].node.host_power_w += 100;
  edited.profiles[0].price_usd_per_hour = 1.5;
  edited.profiles[0].price_as_of = "yesterday";
  edited.profiles[0].peak_power_w += 50;
  CHECK(site_calibration_file(edited) == file);
  const Cluster found = with_site_calibration(edited);
  REQUIRE(found.calibration);
  CHECK(found.calibration->source == "1 step");
  CHECK(found.groups[0].node.nic.bandwidth_bytes_per_s == measured.groups[0].node.nic.bandwidth_bytes_per_s);
  CHECK(found.groups[0].node.price_usd_per_device_hour == 1.25);
  CHECK(found.groups[0].count == edited.groups[0].count);
  CHECK(found.description == "ours");
  CHECK(found.profiles[0].peak_power_w == edited.profiles[0].peak_power_w);

  Cluster other = cluster;
  other.groups[0].node.nic.bandwidth_bytes_per_s *= 2;
  CHECK(site_calibration_file(other) != file);
  CHECK_FALSE(with_site_calibration(other).calibration);
  other = cluster;
  other.profiles[0].memory_bandwidth_bytes_per_s *= 1.1;
  CHECK(site_calibration_file(other) != file);
  unsetenv("ORRERY_DATA_DIR");
}
