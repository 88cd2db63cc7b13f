// The machines that published tables name: evidence/data/machines.textproto.
#pragma once

#include <string>

#include "topologies/cluster.h"

namespace orrery::proto {
class DeviceLink;
class PublishedDevice;
class Reading;
}  // namespace orrery::proto

namespace orrery::evidence {

// The first whose word stands in what a table calls the device; null where there is none.
const proto::PublishedDevice* find_device(const std::string& words);
// By its name; throws InternalError where there is none.
const proto::DeviceLink& find_link(const std::string& name);

// The catalog's cluster of a table's device, with the device that the table means. Throws
// Unreadable(`lacking` and the words) where no catalog cluster is like it.
Cluster cluster_with_device(const std::string& words, const std::string& lacking);
// Ports are dealt to the devices of a node evenly, neighbours first.
void deal_ports(NodeType* node);
// Every pair of devices of a node of an NVLink mesh is joined by so many links.
void join_alike(NodeType* node, int links);
Transport transport_from(const std::string& name);

// The machine of a training step: `devices` of nodes of `per_node` (0: the catalog's), joined as `network`
// says (else as the catalog's). Throws Unreadable.
Cluster step_machine(const std::string& device, int devices, int per_node, const std::string& network);
// The machine of a data-parallel measurement: as many nodes of `per_node` as there must be, with the ports
// that the reading has.
Cluster throughput_machine(const std::string& device, int devices, int per_node,
                           const proto::Reading& reading);

}  // namespace orrery::evidence
