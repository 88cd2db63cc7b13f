#include "topologies/readers/discover.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "topologies/network.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

// An empty data folder for one test.
class DataFolder {
 public:
  DataFolder()
      : path_(std::filesystem::temp_directory_path() / ("orrery-test-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
    setenv("ORRERY_DATA_DIR", path_.c_str(), 1);
  }
  ~DataFolder() {
    unsetenv("ORRERY_DATA_DIR");
    std::filesystem::remove_all(path_);
  }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

 private:
  std::filesystem::path path_;
};

std::string text_of_machine(const Cluster& cluster) {
  proto::Cluster message;
  to_proto(cluster, &message);
  return to_textproto(message);
}

}  // namespace

TEST_CASE("this machine is one node of its cores, sharing memory") {
  const DataFolder folder;
  const Cluster host = discover_localhost();
  const NodeType& node = host.groups[0].node;
  CHECK(host.nodes() == 1);
  CHECK(host.devices() >= 1);
  CHECK(node.shared_cores == host.devices());
  CHECK(node.intra.kind == IntraKind::shared_memory);
  CHECK(host.communication.library == CommunicationLibrary::mpi);
  CHECK(host.communication.point_to_point_bytes_per_s > 0);
  CHECK(host.profiles[0].memory_bytes * host.devices() == Approx(node.host_memory_bytes));
  // Between SSE at 0.5 GHz and two AVX-512 units at 7 GHz.
  CHECK(host.profiles[0].peak(DType::fp32) > 4e9);
  CHECK(host.profiles[0].peak(DType::fp32) < 500e9);
  CHECK_FALSE(host.profiles[0].calibrated);
  CHECK(host.source.find(machine_signature()) != std::string::npos);
}

TEST_CASE("what is discovered passes the checks of a file and is the same twice") {
  const DataFolder folder;
  const Cluster host = discover_localhost();
  CHECK(text_of_machine(rechecked(host, "localhost")) == text_of_machine(host));
  CHECK(text_of_machine(discover_localhost()) == text_of_machine(host));
  CHECK(text_of_machine(load_cluster("localhost")) == text_of_machine(host));
}

TEST_CASE("ranks may outnumber the cores and then share them and the memory") {
  const DataFolder folder;
  const Cluster host = discover_localhost();
  const int ranks = 3 * host.devices() + 1;
  const Cluster many = with_devices(host, ranks);
  CHECK(many.devices() == ranks);
  CHECK(many.groups[0].node.shared_cores == host.devices());
  CHECK(many.profiles[0].memory_bytes * ranks == Approx(host.groups[0].node.host_memory_bytes));
  CHECK(Network(many).route(0, ranks - 1).path == PathClass::shared_memory);
}

TEST_CASE("a calibration of this machine is used, another machine's is not, a damaged one is refused") {
  const DataFolder folder;
  Cluster calibrated = discover_localhost();
  calibrated.profiles[0].calibrated = true;
  calibrated.profiles[0].memory_bandwidth_bytes_per_s = 12.5e9;
  calibrated.communication.calibrated = true;
  write_file_atomically(localhost_calibration_file(), text_of_machine(calibrated));
  CHECK(discover_localhost().profiles[0].calibrated);
  CHECK(discover_localhost().profiles[0].memory_bandwidth_bytes_per_s == 12.5e9);
  CHECK_FALSE(discover_uncalibrated_localhost().profiles[0].calibrated);

  calibrated.source = "machine: Zilog Z80, 1 cores";
  write_file_atomically(localhost_calibration_file(), text_of_machine(calibrated));
  CHECK_FALSE(discover_localhost().profiles[0].calibrated);
  CHECK(discover_localhost().description.find("another machine") != std::string::npos);

  write_file_atomically(localhost_calibration_file(), "name: \"localhost\"\ngroups { cuont: 1 }\n");
  CHECK_THROWS_WITH(discover_localhost(), Catch::Contains("localhost.textproto:2: "));
  CHECK_FALSE(discover_uncalibrated_localhost().groups.empty());
}
