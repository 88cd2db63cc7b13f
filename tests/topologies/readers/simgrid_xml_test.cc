#include "topologies/readers/simgrid_xml.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "tests/support/fuzz.h"
#include "topologies/network.h"
#include "topologies/readers/simgrid_units.h"

using namespace orrery;

namespace {

std::string platform(const std::string& inside) {
  return "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
         "<platform version=\"4.1\">\n" +
         inside + "\n</platform>\n";
}

std::string cluster_tag(const std::string& radical, const std::string& more) {
  return "<zone id=\"world\" routing=\"Full\">\n<cluster id=\"bob\" prefix=\"node-\" suffix=\".org\" "
         "radical=\"" +
         radical + "\" speed=\"1Gf\" bw=\"125MBps\" lat=\"50us\" " + more + "/>\n</zone>";
}

Cluster read_platform(const std::string& xml) {
  return cluster_from_simgrid(xml, "p.xml");
}

// Three hosts on a backbone.
const std::string kStar = platform(R"(<zone id="AS0" routing="Full">
<host id="a" speed="98.095Mf,50Mf" core="2"/>
<host id="b" speed="76.296Mf"/>
<host id="c" speed="76.296Mf"/>
<link id="la" bandwidth="41.279125MBps" latency="59.904us"/>
<link id="lb" bandwidth="10MBps" latency="1ms"/>
<link id="lc" bandwidth="10MBps" latency="1ms"/>
<link id="bb" bandwidth="34MBps" latency="200us"/>
<route src="a" dst="b"><link_ctn id="la"/><link_ctn id="bb"/><link_ctn id="lb"/></route>
<route src="a" dst="c"><link_ctn id="la"/><link_ctn id="bb"/><link_ctn id="lc"/></route>
<route src="b" dst="c"><link_ctn id="lb"/><link_ctn id="bb"/><link_ctn id="lc"/></route>
</zone>)");

std::string replaced_in_platform(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("SimGrid's units") {
  const auto rate = [](std::string_view text) {
    return simgrid_number(text, SimgridUnit::bytes_per_s).value_or(-1);
  };
  CHECK(rate("125MBps") == 125e6);
  CHECK(rate("1Gbps") == 125e6);
  CHECK(rate("2KiBps") == 2048);
  CHECK(rate("10kBps") == 10e3);
  CHECK(rate("1e9") == 1e9);
  CHECK(rate("125MB") == -1);
  CHECK(rate("-1MBps") == -1);
  CHECK(rate("nan") == -1);
  CHECK(rate("") == -1);
  CHECK(rate("1e308EBps") == -1);
  CHECK(simgrid_number("50us", SimgridUnit::seconds).value_or(-1) == Approx(50e-6));
  CHECK(simgrid_number("2m", SimgridUnit::seconds) == 120.0);
  CHECK_FALSE(simgrid_number("2x", SimgridUnit::seconds));
  CHECK(simgrid_number("1.5Gf", SimgridUnit::flops_per_s) == 1.5e9);
  CHECK(simgrid_number("2flops", SimgridUnit::flops_per_s) == 2.0);
}

TEST_CASE("a flat SimGrid cluster is a star, with its backbone") {
  const Cluster flat = read_platform(platform(cluster_tag("0-99", "")));
  CHECK(flat.name == "bob");
  CHECK(flat.nodes() == 100);
  CHECK(flat.profiles[0].peak(DType::fp32) == 1e9);
  CHECK(flat.fabric.kind == FabricKind::star);
  // node-0.UP, node-1.DOWN: two links of 50 us.
  CHECK(Network(flat).route(0, 1).latency_s == Approx(100e-6));
  const Cluster backbone =
      read_platform(platform(cluster_tag("0-9,20,30-31", "bb_bw=\"2.25GBps\" bb_lat=\"500us\" core=\"4\"")));
  CHECK(backbone.nodes() == 13);
  CHECK(backbone.profiles[0].peak(DType::fp32) == 4e9);
  const Route route = Network(backbone).route(0, 12);
  CHECK(route.links.size() == 3);
  CHECK(route.links[1].bandwidth_bytes_per_s == 2.25e9);
  CHECK(route.latency_s == Approx(600e-6));
  const Cluster crossbar =
      read_platform(platform(cluster_tag("0-9", "bb_bw=\"2GBps\" bb_sharing_policy=\"FATPIPE\"")));
  CHECK(Network(crossbar).route(0, 1).links.size() == 2);
}

// 4 leaf switches of 4 hosts, 2 roots with 2 cables to each leaf: 4 links up for 4 down.
TEST_CASE("a SimGrid fat tree of two levels, with SimGrid's latencies") {
  const Cluster tree =
      read_platform(platform(cluster_tag("0-15", "topology=\"FAT_TREE\" topo_parameters=\"2;4,4;1,2;1,2\"")));
  CHECK(tree.fabric.kind == FabricKind::fat_tree);
  CHECK(tree.fabric.nodes_per_leaf == 4);
  CHECK(tree.fabric.oversubscription == 1);
  const Network network(tree);
  CHECK(network.route(0, 3).latency_s == Approx(2 * 50e-6));
  CHECK(network.route(0, 4).latency_s == Approx(4 * 50e-6));
  CHECK(network.route(0, 4).links[1].bandwidth_bytes_per_s == Approx(4 * 125e6));
  const Cluster thin =
      read_platform(platform(cluster_tag("0-15", "topology=\"FAT_TREE\" topo_parameters=\"2;4,4;1,1;1,1\"")));
  CHECK(thin.fabric.oversubscription == 4);
  CHECK(read_platform(platform(cluster_tag("0-3", "topology=\"FAT_TREE\" topo_parameters=\"1;4;1;1\"")))
            .fabric.kind == FabricKind::star);
}

TEST_CASE("a SimGrid torus and dragonfly, with SimGrid's latencies") {
  const Cluster torus =
      read_platform(platform(cluster_tag("0-11", "topology=\"TORUS\" topo_parameters=\"3,2,2\"")));
  CHECK(torus.fabric.torus == std::vector<int>{2, 2, 3});
  const Network rings(torus);
  CHECK(rings.route(0, 1).latency_s == Approx(50e-6));    // neighbours in the first dimension
  CHECK(rings.route(0, 11).latency_s == Approx(150e-6));  // one hop in each
  CHECK(rings.route(0, 11).bandwidth_bytes_per_s == 125e6);
  const Cluster dragonfly = read_platform(
      platform(cluster_tag("0-29", "topology=\"DRAGONFLY\" topo_parameters=\"3,4;1,1;5,2;2\"")));
  CHECK(dragonfly.fabric.groups == 3);
  CHECK(dragonfly.fabric.routers == 5);
  CHECK(dragonfly.fabric.global_bandwidth_bytes_per_s == 4 * 125e6);
  CHECK(dragonfly.fabric.link_bandwidth_bytes_per_s == 2 * 125e6);
  const Network flies(dragonfly);
  CHECK(flies.route(0, 1).latency_s == Approx(100e-6));  // one router: up, down
  CHECK(flies.route(0, 2).latency_s == Approx(150e-6));  // two: up, local, down
}

TEST_CASE("hosts and routes that make a star, with unlike hosts") {
  const Cluster star = read_platform(kStar);
  CHECK(star.nodes() == 3);
  CHECK(star.groups.size() == 2);
  CHECK(star.groups[1].node.hosts == std::vector<std::string>{"b", "c"});
  CHECK(star.profile_of(0).peak(DType::fp32) == Approx(2 * 98.095e6));
  CHECK(star.profile_of(2).peak(DType::fp32) == Approx(76.296e6));
  const Route route = Network(star).route(0, 1);
  CHECK(route.latency_s == Approx(59.904e-6 + 200e-6 + 1e-3));
  CHECK(route.bandwidth_bytes_per_s == 10e6);
  CHECK(route.links[1].bandwidth_bytes_per_s == 34e6);
}

TEST_CASE("two hosts on one link, and a lone host") {
  const Cluster two = read_platform(
      platform(R"(<zone id="z" routing="Full"><host id="x" speed="1Gf"/><host id="y" speed="1Gf"/>
<link id="l" bandwidth="1GBps" latency="10us"/><route src="x" dst="y"><link_ctn id="l"/></route></zone>)"));
  CHECK(two.nodes() == 2);
  CHECK(Network(two).route(0, 1).latency_s == Approx(10e-6));
  CHECK(Network(two).route(1, 0).bandwidth_bytes_per_s == 1e9);
  CHECK(
      read_platform(platform(R"(<zone id="z" routing="None"><host id="x" speed="1Gf"/></zone>)")).devices() ==
      1);
}

TEST_CASE("what a cluster cannot express is refused with its line") {
  struct Fault {
    std::string xml;
    int line;
    std::string what;
  };
  const std::vector<Fault> faults = {
      {"<a/>", 1, "no SimGrid platform"},
      {"<platform version=\"3\"/>", 1, "platform version '3'"},
      {platform(""), 3, "no hosts"},
      {platform("<zone id=\"a\"/><zone id=\"b\"/>"), 4, "beside other elements"},
      {platform(cluster_tag("0-9", "topology=\"RING\"")), 5, "topology 'RING'"},
      {platform(cluster_tag("9-0", "")), 5, "radical=\"9-0\""},
      {platform(cluster_tag("0-", "")), 5, "radical=\"0-\""},
      {platform(cluster_tag("0-99999999", "")), 5, "too many"},
      {platform(cluster_tag("0-14", "topology=\"FAT_TREE\" topo_parameters=\"2;4,4;1,2;1,2\"")), 5,
       "16 leaves for 15"},
      {platform(cluster_tag("0-7", "topology=\"FAT_TREE\" topo_parameters=\"3;2,2,2;1,1,1;1,1,1\"")), 5,
       "3 levels"},
      {platform(cluster_tag("0-7", "topology=\"FAT_TREE\" topo_parameters=\"2;4\"")), 5, "topo_parameters"},
      {platform(cluster_tag("0-7", "topology=\"TORUS\" topo_parameters=\"3,3\"")), 5, "9 places for 8"},
      {platform(cluster_tag("0-7", "topology=\"TORUS\" topo_parameters=\"8,0\"")), 5, "torus dimension '0'"},
      {platform(cluster_tag("0-119", "topology=\"DRAGONFLY\" topo_parameters=\"3,4;4,3;5,1;2\"")), 5,
       "4 chassis of 5"},
      {platform("<host id=\"h\" speed=\"fast\"/>"), 4, "speed=\"fast\""},
      {platform("<host id=\"h\" speed=\"0f\"/>"), 4, "speed=\"0f\""},
      {replaced_in_platform(kStar, "core=\"2\"", "core=\"0\""), 5, "core '0'"},
      {replaced_in_platform(kStar, "10MBps", "10MB"), 9, "bandwidth=\"10MB\""},
      {replaced_in_platform(kStar, "10MBps", "0MBps"), 9, "bandwidth of <link> is 0"},
      {replaced_in_platform(kStar, "id=\"lc\"", "id=\"lb\""), 10, "given twice"},
      {replaced_in_platform(kStar, "<host id=\"c\"", "<host id=\"b\""), 7, "given twice"},
      {replaced_in_platform(kStar, "dst=\"b\"", "dst=\"d\""), 12, "unknown host 'd'"},
      {replaced_in_platform(kStar, "<link_ctn id=\"bb\"/><link_ctn id=\"lb\"/>", "<link_ctn id=\"xx\"/>"), 12,
       "unknown link 'xx'"},
      {replaced_in_platform(kStar, "<link_ctn id=\"bb\"/><link_ctn id=\"lb\"/>", "<link_ctn id=\"lb\"/>"), 13,
       "what the others cross"},
      {replaced_in_platform(kStar, "src=\"b\" dst=\"c\"><link_ctn id=\"lb\"/>",
                            "src=\"b\" dst=\"c\"><link_ctn id=\"la\"/>"),
       14, "host 'b' leaves over 'lb' and over 'la'"},
      {replaced_in_platform(kStar, "<route src=\"b\"", "<router id=\"r\"/><route src=\"b\""), 14, "<router>"},
      {replaced_in_platform(kStar, "src=\"b\" dst=\"c\"", "src=\"b\" dst=\"b\""), 4,
       "no route from 'b' to 'c'"},
      {"<platform version=\"4.1\"><zone>", 1, "not valid XML"},
      {"<!DOCTYPE a [<!ENTITY x \"xxxx\"><!ENTITY y \"&x;&x;\">]>\n<platform version=\"4.1\">&y;</platform>",
       1, "entity"},
  };
  for (const Fault& fault : faults) {
    CAPTURE(fault.xml);
    CHECK_THROWS_WITH(
        read_platform(fault.xml),
        Catch::StartsWith("p.xml:" + std::to_string(fault.line) + ": ") && Catch::Contains(fault.what));
  }
}

TEST_CASE("damaged SimGrid files are refused, never worse") {
  CHECK(testing::survive(kStar, 2000, [](const std::string& text) { read_platform(text); }) > 500);
  const std::string tree =
      platform(cluster_tag("0-15", "topology=\"FAT_TREE\" topo_parameters=\"2;4,4;1,2;1,2\""));
  CHECK(testing::survive(tree, 1000, [](const std::string& text) { read_platform(text); }) > 200);
  const std::string fly =
      platform(cluster_tag("0-29", "topology=\"DRAGONFLY\" topo_parameters=\"3,4;1,1;5,2;2\""));
  CHECK(testing::survive(fly, 1000, [](const std::string& text) { read_platform(text); }) > 200);
}
