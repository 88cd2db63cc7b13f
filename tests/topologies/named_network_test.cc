#include "topologies/named_network.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "topologies/network.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

TEST_CASE("a transport is read by the name that it is written with") {
  for (const Transport transport : {Transport::infiniband, Transport::roce, Transport::tcp, Transport::host})
    CHECK(transport_from_name(name_of(transport)) == transport);
  CHECK_THROWS_AS(transport_from_name("token ring"), UserError);
}

TEST_CASE("every named network has a source and joins nodes of any kind soundly") {
  for (const CatalogEntry& entry : catalog_networks()) {
    CAPTURE(entry.name);
    CHECK_FALSE(entry.source.empty());
    CHECK(entry.rests_on == "datasheet");
    for (const char* name : {"dgx-h100", "v100-ib100", "pcie-4090", "tpu-v5p-8x8x8", "mi300x-8"}) {
      const Cluster cluster = with_network(with_nodes(load_cluster(name), 40), entry.name);
      CHECK(rechecked(cluster, "here").nodes() == 40);
      CHECK(Network(cluster).route(0, cluster.devices() - 1).bandwidth_bytes_per_s > 0);
    }
  }
}

TEST_CASE("a named network brings ports, transport and what its transport leaves of the rate") {
  const Cluster ours = with_nodes(load_cluster("dgx-h100"), 4);
  const Cluster slow = with_network(ours, "eth100");
  CHECK(slow.groups[0].node.nic.count == 1);
  CHECK(slow.groups[0].node.nic.bandwidth_bytes_per_s == 12.5e9);
  CHECK_FALSE(slow.groups[0].node.nic.direct);
  CHECK(slow.fabric.transport == Transport::tcp);
  CHECK(slow.fabric.kind == FabricKind::fat_tree);  // one port has no rails
  CHECK(slow.communication.network_efficiency < ours.communication.network_efficiency);
  const Cluster same = with_network(ours, "ib-ndr");
  CHECK(same.fabric.kind == FabricKind::rail_fat_tree);
  CHECK(same.groups[0].node.nic.bandwidth_bytes_per_s == ours.groups[0].node.nic.bandwidth_bytes_per_s);
  // Thirty-two ports of 100 Gb/s for eight devices are eight of 400.
  const Cluster ganged = with_network(ours, "efa-v2");
  CHECK(ganged.groups[0].node.nic.count == 8);
  CHECK(ganged.groups[0].node.nic.bandwidth_bytes_per_s == Approx(50e9));
  CHECK_THROWS_WITH(with_network(ours, "ib-ndx"), Catch::Contains("'ib-ndr'"));
}
