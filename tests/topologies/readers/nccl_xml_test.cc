#include "topologies/readers/nccl_xml.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/support/fuzz.h"
#include "topologies/network.h"

using namespace orrery;

namespace {

// One PCIe switch with a GPU and a port: the shape of a real dump of an 8-GPU Hopper node.
std::string gpu_and_port(int index, const std::string& device = "0x2335") {
  return fmt::format(
      R"(    <pci busid="0000:{0}6:00.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:{0}8:00.0" class="0x030200" vendor="0x10de" device="{1}" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="{0}" sm="90" rank="{0}" gdr="1">
          <nvlink target="0000:07:00.0" count="5" tclass="0x068000"/>
          <nvlink target="0000:06:00.0" count="5" tclass="0x068000"/>
          <nvlink target="0000:05:00.0" count="4" tclass="0x068000"/>
          <nvlink target="0000:08:00.0" count="4" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:{0}9:00.0" class="0x020000" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_{0}" dev="{0}" speed="400000" port="1" latency="0.000000" guid="0xa87cb10003e1a258" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
)",
      index, device);
}

std::string dump(int gpus) {
  std::string text = "<system version=\"1\">\n";
  for (int cpu = 0; cpu < 2; ++cpu) {
    text += fmt::format(
        "  <cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n",
        cpu);
    for (int g = cpu * gpus / 2; g < (cpu + 1) * gpus / 2; ++g) text += gpu_and_port(g);
    text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

// Four GPUs without NVLink: two a processor, one port on the first.
const std::string kPcieDump = R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:01:00.0" class="0x030000" vendor="0x10de" device="0x2684" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="89"/></pci>
    <pci busid="0000:02:00.0" class="0x030000" vendor="0x10de" device="0x2684" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="89"/></pci>
    <nic><net name="eth0" dev="0" speed="25000" port="0" gdr="0"/></nic>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:81:00.0" class="0x030000" vendor="0x10de" device="0x2684" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="2" sm="89"/></pci>
    <pci busid="0000:82:00.0" class="0x030000" vendor="0x10de" device="0x2684" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="3" sm="89"/></pci>
  </cpu>
</system>
)";

Cluster read_dump(const std::string& xml) {
  return cluster_from_nccl_topology(xml, "topo.xml");
}

std::string replaced_in_dump(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("an NVSwitch node with a port beside each GPU") {
  const Cluster cluster = read_dump(dump(8));
  const NodeType& node = cluster.groups[0].node;
  CHECK(cluster.devices() == 8);
  CHECK(cluster.profiles[0].name == "h200-sxm-141g");  // 10de:2335
  CHECK(node.intra.kind == IntraKind::nvswitch);
  CHECK(node.intra.bandwidth_bytes_per_s == 18 * 25e9);
  CHECK(node.nic.count == 8);
  CHECK(node.nic.bandwidth_bytes_per_s == 50e9);
  CHECK(node.nic.direct);
  CHECK(node.nic.of_device == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(node.nic.pcie_bandwidth_bytes_per_s == 48e9);  // 16 x 240 / 80
  CHECK(with_nodes(cluster, 4).devices() == 32);
}

TEST_CASE("a device that the catalog has not is taken by its compute capability") {
  CHECK(read_dump(replaced_in_dump(replaced_in_dump(dump(2), "0x2335", "0x2339"), "0x2335", "0x2339"))
            .profiles[0]
            .name == "h100-sxm-80g");
}

TEST_CASE("a PCIe node: bridges by processor, the slowest slot, NCCL's interconnect") {
  const Cluster cluster = read_dump(kPcieDump);
  const NodeType& node = cluster.groups[0].node;
  CHECK(cluster.profiles[0].name == "rtx-4090");
  CHECK(node.intra.kind == IntraKind::pcie);
  CHECK(node.intra.bandwidth_bytes_per_s == 12e9);
  CHECK(node.intra.devices_per_bridge == 2);
  CHECK(node.intra.bridge_bandwidth_bytes_per_s == 16e9);
  CHECK(node.nic.bandwidth_bytes_per_s == Approx(3.125e9));
  CHECK_FALSE(node.nic.direct);
  CHECK(cluster.fabric.transport == Transport::tcp);
  CHECK(Network(cluster).route(0, 3).links.size() == 4);
}

TEST_CASE("NVLinks between GPUs are a mesh") {
  std::string text = kPcieDump;
  text = replaced_in_dump(
      text, "<gpu dev=\"0\" sm=\"89\"/>",
      "<gpu dev=\"0\" sm=\"89\"><nvlink target=\"0000:02:00.0\" count=\"4\" tclass=\"0x030200\"/></gpu>");
  text = replaced_in_dump(
      text, "<gpu dev=\"1\" sm=\"89\"/>",
      "<gpu dev=\"1\" sm=\"89\"><nvlink target=\"0000:01:00.0\" count=\"4\" tclass=\"0x030200\"/></gpu>");
  const Cluster cluster = read_dump(text);
  const Network network(cluster);
  CHECK(network.path_class(0, 1) == PathClass::nvlink);
  CHECK(network.path_class(0, 2) == PathClass::pcie);
}

TEST_CASE("bad NCCL dumps are refused with their line") {
  struct Fault {
    std::string xml;
    int line;
    std::string what;
  };
  const std::vector<Fault> faults = {
      {"<graphs version=\"1\"/>", 1, "no NCCL topology"},
      {"<system version=\"1\"/>", 1, "no GPU"},
      {replaced_in_dump(kPcieDump, "dev=\"1\"", "dev=\"one\""), 4, "dev=\"one\""},
      {replaced_in_dump(kPcieDump, "0x2684", "0x20b2"), 4, "two kinds, a100-sxm-80g and rtx-4090"},
      {replaced_in_dump(replaced_in_dump(kPcieDump, "0x2684", "0x0000"), "sm=\"89\"", "sm=\"30\""), 3,
       "compute capability 30"},
      {replaced_in_dump(kPcieDump, "\"16.0 GT/s", "\"fast"), 3, "link_speed"},
      {replaced_in_dump(kPcieDump, "\"25000\"", "\"much\""), 5, "speed=\"much\""},
      {replaced_in_dump(dump(2), "speed=\"400000\"", "speed=\"200000\""), 31, "two speeds"},
      {replaced_in_dump(dump(2), "count=\"5\"", "count=\"-5\""), 6, "count=\"-5\""},
      {replaced_in_dump(dump(2), "tclass=\"0x068000\"", "tclass=\"switch\""), 6, "hexadecimal"},
      {dump(8).substr(0, 2000), 33, "not valid XML"},
  };
  for (const Fault& fault : faults) {
    CAPTURE(fault.what);
    CHECK_THROWS_WITH(
        read_dump(fault.xml),
        Catch::StartsWith("topo.xml:" + std::to_string(fault.line) + ": ") && Catch::Contains(fault.what));
  }
}

TEST_CASE("XML deeper than any machine is refused") {
  std::string deep = "<system>";
  for (int i = 0; i < 100'000; ++i) deep += "<pci>";
  CHECK_THROWS_WITH(read_dump(deep), Catch::Contains("nested too deeply"));
}

TEST_CASE("damaged NCCL dumps are refused, never worse") {
  CHECK(testing::survive(dump(4), 2000, [](const std::string& text) { read_dump(text); }) > 300);
  CHECK(testing::survive(kPcieDump, 2000, [](const std::string& text) { read_dump(text); }) > 300);
}
