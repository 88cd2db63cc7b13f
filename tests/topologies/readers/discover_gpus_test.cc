#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/error.h"
#include "topologies/network.h"
#include "topologies/readers/discover.h"

using namespace orrery;

namespace {

// Loads the stand-in before discovery asks for the driver's library by name: the loader then gives it this
// one.
void use_fake_driver(const char* machine) {
  setenv("FAKE_NVML", machine, 1);
  REQUIRE(dlopen(FAKE_NVML_LIBRARY, RTLD_NOW | RTLD_GLOBAL) != nullptr);
}

}  // namespace

TEST_CASE("eight GPUs on switches") {
  use_fake_driver("switch");
  const auto found = discover_gpus();
  REQUIRE(found);
  CHECK(found->devices() == 8);
  CHECK(found->profiles[0].name == "h200-sxm-141g");
  const NodeType& node = found->groups[0].node;
  CHECK(node.intra.kind == IntraKind::nvswitch);
  CHECK(node.intra.bandwidth_bytes_per_s == 450e9);
  CHECK(node.nic.pcie_bandwidth_bytes_per_s == 52e9);
  CHECK(node.hosts == std::vector<std::string>{"localhost"});
}

TEST_CASE("GPUs in pairs are a mesh") {
  use_fake_driver("pairs");
  const auto found = discover_gpus();
  REQUIRE(found);
  CHECK(found->devices() == 4);
  const Network network(*found);
  CHECK(network.path_class(0, 1) == PathClass::nvlink);
  CHECK(network.route(0, 1).bandwidth_bytes_per_s == Approx(100e9));
  CHECK(network.path_class(1, 2) == PathClass::pcie);
}

TEST_CASE(
    "a GPU that the catalog has not is refused, with candidates, unless it is said what to take it for") {
  use_fake_driver("unknown");
  CHECK_THROWS_WITH(discover_gpus(), Catch::Contains("a GPU of the fake driver") &&
                                         Catch::Contains("A800 PCIe 80GB (PCI id 0x20f5)") &&
                                         Catch::Contains("`device`") && Catch::Contains("a100-pcie-80g"));
  const auto found = discover_gpus("a100-pcie-80g");
  REQUIRE(found);
  CHECK(found->profiles[0].name == "a100-pcie-80g");
  CHECK_THAT(found->description, Catch::Contains("a GPU of the fake driver is taken for a100-pcie-80g"));
}

TEST_CASE("no GPU, a driver that fails, and GPUs of two kinds") {
  use_fake_driver("none");
  CHECK_FALSE(discover_gpus());
  use_fake_driver("broken");
  CHECK_FALSE(discover_gpus());
  use_fake_driver("mixed");
  CHECK_THROWS_WITH(discover_gpus(), Catch::Contains("two kinds"));
}
