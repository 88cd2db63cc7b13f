// The machines that published tables name: evidence/data/machines.textproto.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evidence/words/rules.h"
#include "topologies/cluster.h"

namespace orrery::proto {
class DeviceLink;
class PublishedDevice;
}  // namespace orrery::proto

namespace orrery::evidence {

constexpr double kBytesPerGigabit = 1e9 / 8;

// Whether `words`, which a table or a driver calls a device, mean `name`: each part of the name ("A100 PCIe":
// a100, pcie) stands in them, whatever the case, the order and what stands between ("NVIDIA A100-PCIE-40GB"),
// but not within a longer number or word (B200 in GB200, A10 in A100). A count before it ("8xA100") says
// nothing.
bool means_device(std::string_view words, std::string_view name);
// The first that a table's words mean; null where there is none.
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

// The machine of a training step, as the columns of its row have it.
struct StepMachine {
  std::string device;
  int devices = 0;
  int per_node = 0;     // 0: the catalog's
  std::string network;  // empty: the catalog's
};
// A device that is not known becomes the nearest that is, and nodes are as large as the number of devices
// takes: what was taken to hold is added to `assumed`. Throws Unreadable where no device is named.
Cluster step_machine(const StepMachine& stated, std::vector<Assumed>* assumed);
// So many devices of the first kind of node of `cluster`.
Cluster as_many(Cluster cluster, int devices, std::vector<Assumed>* assumed);
// The machine of a data-parallel measurement: as many nodes of `per_node` as there must be, with the ports
// that the reading has.
Cluster throughput_machine(const std::string& device, int devices, int per_node,
                           const proto::Reading& reading);

}  // namespace orrery::evidence
