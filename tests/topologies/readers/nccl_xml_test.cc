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

std::string all_replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
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
  CHECK(node.nic.pcie_bandwidth_bytes_per_s ==
        52e9);  // of sixteen lanes of the fifth generation, as dgx-h200
  CHECK_THAT(cluster.description, !Catch::Contains("taken for") && !Catch::Contains("carries"));
  CHECK(with_nodes(cluster, 4).devices() == 32);
}

TEST_CASE("GPUs are those of their PCI ids, whatever others share their compute capability") {
  const std::vector<std::pair<std::string, std::string>> known = {
      {"0x2329", "h20-sxm-96g"},      {"0x27b8", "l4-24g"},       {"0x20b7", "a30-24g"},
      {"0x2342", "gh200-96g"},        {"0x2348", "gh200-144g"},   {"0x233b", "h200-nvl-141g"},
      {"0x2324", "h800-sxm-80g"},     {"0x20f3", "a800-sxm-80g"}, {"0x2235", "a40-48g"},
      {"0x2236", "a10-24g"},          {"0x2204", "rtx-3090-24g"}, {"0x2b85", "rtx-5090-32g"},
      {"0x2bb1", "rtx-pro-6000-96g"}, {"0x31c2", "gb300-288g"},   {"0x1e07", "rtx-2080-ti-11g"}};
  for (const auto& [id, device] : known) {
    CAPTURE(id);
    CHECK(read_dump(all_replaced(dump(2), "0x2335", id)).profiles[0].name == device);
  }
}

TEST_CASE("what the dump's GPUs are can be said, and the description says so") {
  const std::string unknown = all_replaced(dump(2), "0x2335", "0x2339");
  const Cluster cluster = cluster_from_nccl_topology(unknown, "topo.xml", {.device = "h100-sxm-80g"});
  CHECK(cluster.profiles[0].name == "h100-sxm-80g");
  CHECK_THAT(cluster.description,
             Catch::Contains("H100 SXM5 94GB (PCI id 0x2339) is taken for h100-sxm-80g"));
  const Cluster other = cluster_from_nccl_topology(dump(2), "topo.xml", {.device = "l4-24g"});
  CHECK_THAT(other.description, Catch::Contains("h200-sxm-141g with sm 90 is taken for l4-24g"));
  CHECK_THAT(cluster_from_nccl_topology(dump(2), "topo.xml", {.device = "h200-sxm-141g"}).description,
             !Catch::Contains("taken for"));
  // A PCI id and a compute capability that contradict each other.
  CHECK_THAT(read_dump(all_replaced(dump(2), "sm=\"90\"", "sm=\"80\"")).description,
             Catch::Contains("GPU of PCI id 0x2335 with sm 80 is taken for h200-sxm-141g"));
  CHECK_THROWS_WITH(cluster_from_nccl_topology(kPcieDump, "topo.xml", {.device = "h300"}),
                    Catch::Contains("unknown device 'h300'"));
}

TEST_CASE("PCIe links of unknown speed are of the third generation, and the description says so") {
  for (const char* said : {"Unknown speed", "", "Unknown"}) {
    const Cluster cluster = read_dump(all_replaced(dump(8), "32.0 GT/s PCIe", said));
    CHECK(cluster.groups[0].node.nic.pcie_bandwidth_bytes_per_s == 13e9);
    CHECK_THAT(cluster.description,
               Catch::Contains("PCIe 3.0, as NCCL does") &&
                   Catch::Contains("a port of 50.0 GB/s gets what PCIe carries, 13.0 GB/s"));
  }
  // 255 lanes are what the kernel says of a slot that it does not know.
  CHECK(read_dump(all_replaced(dump(8), "link_width=\"16\"", "link_width=\"255\""))
            .groups[0]
            .node.nic.pcie_bandwidth_bytes_per_s == 52e9);
  const Cluster stated = cluster_from_nccl_topology(all_replaced(dump(8), "32.0 GT/s PCIe", "Unknown speed"),
                                                    "topo.xml", {.pcie_bytes_per_s = 50e9});
  CHECK(stated.groups[0].node.nic.pcie_bandwidth_bytes_per_s == 50e9);
  CHECK_THAT(stated.description, !Catch::Contains("PCIe"));
}

TEST_CASE("a PCIe node: bridges by processor, the slowest slot, NCCL's interconnect") {
  const Cluster cluster = read_dump(kPcieDump);
  const NodeType& node = cluster.groups[0].node;
  CHECK(cluster.profiles[0].name == "rtx-4090");
  CHECK(node.intra.kind == IntraKind::pcie);
  CHECK(node.intra.bandwidth_bytes_per_s == 13e9);
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
       "no PCI id says which GPU of compute capability 3.0 it is (expected `device`"},
      {replaced_in_dump(kPcieDump, "0x2684", "0x20f5"), 3,
       "the catalog has no A800 PCIe 80GB (PCI id 0x20f5)"},
      {replaced_in_dump(kPcieDump, "0x2684", "0xffff"), 3,
       "no GPU of PCI id 0xffff (expected `device`, to say which to take it for; of compute capability 8.9 "
       "there are "
       "l4-24g, l40-48g, l40s, rtx-4090, rtx-6000-ada-48g)"},
      {replaced_in_dump(kPcieDump, "device=\"0x2684\" ", ""), 3,
       "no PCI id says which GPU of compute capability 8.9 it is"},
      {replaced_in_dump(kPcieDump, "link_width=\"16\"", "link_width=\"wide\""), 3, "link_width"},
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
