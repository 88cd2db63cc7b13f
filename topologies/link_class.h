// Collective libraries and the kinds of links that they know: the constants of their cost models, as data
// (topologies/links; embedded in the binary). proto/link_class.proto says what each field means and its unit.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.h"
#include "topologies/device_catalog.h"

namespace orrery {

// What figures rest on, the best first: measured on this very machine, fitted to what others measured, or
// read in a datasheet.
enum class Foundation { calibrated, fitted, datasheet, assumed };
std::string_view name_of(Foundation foundation);

struct LinkClass {
  std::string name;
  bool pcie = false;  // else direct links
  std::vector<std::string> generations;
  Foundation rests_on = Foundation::assumed;
  std::string source;
  double link_efficiency = 0, copy_steps = 0;
  double base_s = 0, hop_s = 0, ll128_s = 0, simple_s = 0, ramp_s = 0;
  double p2p_s = 0, p2p_simple_s = 0, p2p_efficiency = 0, p2p_copy_steps = 0;
  double nvls_efficiency = 0, nvls_s = 0, nvls_ramp_s = 0;
  int channels = 0;  // of a communicator whose members share a node
};

struct MostRate {
  std::vector<std::string> generations;
  std::array<double, 3> bytes_per_s{};  // on one, two and more nodes
};

struct LibraryModel {
  CommunicationLibrary library = CommunicationLibrary::unknown;
  std::string description, source;
  std::vector<std::string> vendors, generations;  // of devices that use it by default
  bool tuner = false;                             // else hierarchical
  Foundation rests_on = Foundation::assumed;
  std::array<double, 3> ring_network_s{}, tree_network_s{};  // by protocol; hierarchical: the first
  double nvls_tree_network_s = 0, pat_network_s = 0;
  std::array<double, 3> direct_step_s{}, pcie_step_s{};
  double ll_share = 0, ll128_share = 0;
  std::vector<MostRate> ll_most;
  bool pipelined = false;
  double channel_bytes = 0;  // of device memory, of a channel and each neighbour on the node
  std::vector<LinkClass> links;

  const LinkClass& link(bool pcie, std::string_view generation) const;
  // Of the LL protocol; the array of MostRate.
  const std::array<double, 3>& most_ll(std::string_view generation) const;
};

// Of every library but MPI, whose constants are a cluster's own. The order is that of the enumeration.
const std::vector<LibraryModel>& library_models();
const LibraryModel& library_model(CommunicationLibrary library);

// What a profile's figures rest on, the one answer to it: fitted where its products were measured (its own or
// those of the device that it is `like`) or training steps have set its training_speed; of processors
// assumed; else a datasheet.
Foundation foundation_of(const DeviceProfile& device);

// Every kind of links, by library; where its constants are from and what they rest on.
std::vector<CatalogEntry> catalog_links();

// What the figures of a cluster's links rest on, of its least known nodes: the class of the links inside a
// node, or of the network where a node has one device. MPI's: fitted where they were calibrated, else
// assumed.
Foundation links_foundation(const Cluster& cluster);

// What devices of this vendor and generation use where nothing is said: by the generation, else by the
// vendor, else `unknown`. Processors (DeviceKind::cpu): MPI.
CommunicationLibrary default_library(const DeviceProfile& device);

}  // namespace orrery
