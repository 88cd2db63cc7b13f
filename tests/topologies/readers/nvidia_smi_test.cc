#include "topologies/readers/nvidia_smi.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/support/fuzz.h"
#include "topologies/network.h"

using namespace orrery;

namespace {

const std::string kNvswitch =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tNV12\tNV12\tPIX\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tNV12\tNV12\tPIX\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU2\tNV12\tNV12\t X \tNV12\tSYS\tPIX\t32-63,96-127\t1\t\tN/A\n"
    "GPU3\tNV12\tNV12\tNV12\t X \tSYS\tPIX\t32-63,96-127\t1\t\tN/A\n"
    "NIC0\tPIX\tPIX\tSYS\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  "
    "NIC1: mlx5_1\n";

const std::string kDgx1 = R"(        GPU0  GPU1  GPU2  GPU3  mlx5_0  CPU Affinity
GPU0     X    NV1   NV1   NV2   PIX     0-19
GPU1    NV1    X    NV2   NV1   PIX     0-19
GPU2    NV1   NV2    X    NV2   PHB     0-19
GPU3    NV2   NV1   NV2    X    PHB     0-19
mlx5_0  PIX   PIX   PHB   PHB    X
)";

const std::string kPcieTopology = R"(        GPU0  GPU1  GPU2  GPU3  CPU Affinity
GPU0     X    PIX   SYS   SYS   0-15
GPU1    PIX    X    SYS   SYS   0-15
GPU2    SYS   SYS    X    NODE  16-31
GPU3    SYS   SYS   NODE   X    16-31
)";

Cluster read_topology(const std::string& text, const std::string& device, double port = 0) {
  return cluster_from_nvidia_smi(text, "topo.txt", {.device = device, .port_bytes_per_s = port});
}

std::string replaced_in_topology(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("equal NV12 between all A100 is an NVSwitch, and each GPU takes its PIX adapter") {
  const Cluster cluster = read_topology(kNvswitch, "a100-sxm-80g", 25e9);
  const NodeType& node = cluster.groups[0].node;
  CHECK(cluster.devices() == 4);
  CHECK(node.intra.kind == IntraKind::nvswitch);
  CHECK(node.intra.bandwidth_bytes_per_s == 300e9);
  CHECK(node.nic.of_device == std::vector<int>{0, 0, 1, 1});
  CHECK(read_topology(kNvswitch, "a100-sxm-80g").groups[0].node.nic.count == 0);
}

TEST_CASE("unequal NV# are direct links") {
  const Cluster cluster = read_topology(kDgx1, "v100-sxm2-16g", 12.5e9);
  CHECK(cluster.groups[0].node.intra.kind == IntraKind::nvlink_mesh);
  CHECK(Network(cluster).route(0, 1).bandwidth_bytes_per_s == Approx(25e9));
  CHECK(Network(cluster).route(0, 3).bandwidth_bytes_per_s == Approx(50e9));
  // NV4 between all of four A100 is not their twelve links to a switch.
  std::string direct = kNvswitch;
  while (direct.find("NV12") != std::string::npos) direct = replaced_in_topology(direct, "NV12", "NV4");
  CHECK(read_topology(direct, "a100-sxm-80g").groups[0].node.intra.kind == IntraKind::nvlink_mesh);
}

TEST_CASE("no NVLink is PCIe, with bridges parted by SYS") {
  const Cluster cluster = read_topology(kPcieTopology, "rtx-4090");
  CHECK(cluster.groups[0].node.intra.kind == IntraKind::pcie);
  CHECK(cluster.groups[0].node.intra.devices_per_bridge == 2);
}

TEST_CASE("a GPU has the PCIe of its generation unless it is stated, and the description says which") {
  const auto node = [](const std::string& device, double port, double pcie = 0) {
    return cluster_from_nvidia_smi(kNvswitch, "topo.txt",
                                   {.device = device, .port_bytes_per_s = port, .pcie_bytes_per_s = pcie});
  };
  for (const auto& [device, rate] : std::vector<std::pair<std::string, double>>{{"v100-sxm2-16g", 13e9},
                                                                                {"a100-sxm-80g", 26e9},
                                                                                {"h100-sxm-80g", 52e9},
                                                                                {"gb200-186g", 52e9},
                                                                                {"b300-sxm-288g", 104e9}})
    CHECK(node(device, 12e9).groups[0].node.nic.pcie_bandwidth_bytes_per_s == rate);
  CHECK_THAT(node("h100-sxm-80g", 50e9).description,
             Catch::Contains("assumed to have PCIe 5.0 x16 (52.0 GB/s)") && !Catch::Contains("carries"));
  const Cluster stated = node("h100-sxm-80g", 50e9, 24e9);
  CHECK(stated.groups[0].node.nic.pcie_bandwidth_bytes_per_s == 24e9);
  CHECK_THAT(stated.description, Catch::Contains("a port of 50.0 GB/s gets what PCIe carries, 24.0 GB/s"));
  CHECK_THROWS_WITH(node("mi300x-192g", 0), Catch::Contains("one of NVIDIA's"));
}

TEST_CASE("NVLinks have the rate of their generation") {
  // Pairs of A40 on bridges of four links: the datasheet's 112.5 GB/s both ways.
  const auto of_pair = [](const std::string& links, const std::string& device) {
    std::string text = kPcieTopology;
    while (text.find("PIX") != std::string::npos) text = replaced_in_topology(text, "PIX", links);
    while (text.find("NODE") != std::string::npos) text = replaced_in_topology(text, "NODE", links);
    return Network(read_topology(text, device)).route(0, 1).bandwidth_bytes_per_s;
  };
  CHECK(of_pair("NV4", "a40-48g") == Approx(56.25e9));
  CHECK(of_pair("NV4", "rtx-3090-24g") == Approx(56.25e9));
  CHECK(of_pair("NV4", "a30-24g") == Approx(100e9));
  CHECK(of_pair("NV2", "rtx-2080-ti-11g") == Approx(50e9));
  CHECK(of_pair("NV12", "h100-pcie-80g") == Approx(300e9));
}

TEST_CASE("H800 and A800 have eight NVLinks to their switches, and bridges between cards are none") {
  std::string eight = kNvswitch;
  while (eight.find("NV12") != std::string::npos) eight = replaced_in_topology(eight, "NV12", "NV8");
  for (const char* device : {"h800-sxm-80g", "a800-sxm-80g"}) {
    const IntraNode intra = read_topology(eight, device).groups[0].node.intra;
    CHECK(intra.kind == IntraKind::nvswitch);
    CHECK(intra.bandwidth_bytes_per_s == 200e9);
  }
  const std::string pair = "        GPU0  GPU1\nGPU0     X    NV12\nGPU1    NV12   X\n";
  CHECK(read_topology(pair, "h100-pcie-80g").groups[0].node.intra.kind == IntraKind::nvlink_mesh);
  CHECK(read_topology(pair, "a100-sxm-80g").groups[0].node.intra.kind == IntraKind::nvswitch);
}

TEST_CASE("bad matrices are refused with their line") {
  struct Fault {
    std::string text;
    int line;
    std::string what;
  };
  const std::vector<Fault> faults = {
      {"hello\n", 1, "no matrix"},
      {replaced_in_topology(kPcieTopology, "GPU1    PIX", "GPU9    PIX"), 3, "a row 'GPU9'"},
      {replaced_in_topology(kPcieTopology, "GPU3    SYS   SYS   NODE   X    16-31\n", ""), 4,
       "3 rows for 4 columns"},
      {replaced_in_topology(kPcieTopology, "PIX    X    SYS   SYS   0-15", "PIX    X"), 3, "2 cells"},
      {replaced_in_topology(kPcieTopology, "PIX    X    SYS", "FOO    X    SYS"), 2, "disagree"},
      {replaced_in_topology(replaced_in_topology(kPcieTopology, "PIX", "FOO"), "PIX", "FOO"), 2,
       "unknown cell 'FOO'"},
      {replaced_in_topology(replaced_in_topology(kPcieTopology, "PIX", "NV0"), "PIX", "NV0"), 2,
       "unknown cell 'NV0'"},
      {replaced_in_topology(kPcieTopology, " X    PIX", "SYS   PIX"), 2, "X on the diagonal"},
  };
  for (const Fault& fault : faults) {
    CAPTURE(fault.what);
    CHECK_THROWS_WITH(
        read_topology(fault.text, "rtx-4090"),
        Catch::StartsWith("topo.txt:" + std::to_string(fault.line) + ": ") && Catch::Contains(fault.what));
  }
  CHECK_THROWS_WITH(read_topology(kPcieTopology, "rtx-9999"), Catch::Contains("unknown device 'rtx-9999'"));
}

TEST_CASE("damaged matrices are refused, never worse") {
  CHECK(testing::survive(kNvswitch, 2000,
                         [](const std::string& text) { read_topology(text, "a100-sxm-80g", 25e9); }) > 300);
  CHECK(testing::survive(kPcieTopology, 1000,
                         [](const std::string& text) { read_topology(text, "rtx-4090"); }) > 100);
}
