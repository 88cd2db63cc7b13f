// Networks by name (topologies/networks; embedded in the binary): the ports of the nodes and what they speak;
// and links inside nodes that are so much faster.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.h"
#include "topologies/device_catalog.h"

namespace orrery {

// What files call a transport: "infiniband" "roce" "tcp" "host". Throws UserError on another name.
std::string_view name_of(Transport transport);
Transport transport_from_name(std::string_view name);

std::vector<CatalogEntry> catalog_networks();  // sorted by name

// The same cluster, its nodes joined by the network of that name: ports, transport and latencies are the
// network's, the shape of the fabric stays (without rails where there are fewer ports than devices, and as a
// tree where it was a torus or a dragonfly of another network). More ports than devices are ganged: each
// device has its share as one. Throws UserError on an unknown name, naming near ones.
Cluster with_network(Cluster cluster, std::string_view name);

// The same cluster with `times` the bandwidth inside its nodes: links, host bridges, and messages between a
// host's processes.
Cluster with_intra_node_times(Cluster cluster, double times);

}  // namespace orrery
