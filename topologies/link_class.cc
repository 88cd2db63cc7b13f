#include "topologies/link_class.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "proto/link_class.pb.h"
#include "proto/textproto.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_links();

namespace {

struct LibraryName {
  CommunicationLibrary library;
  std::string_view name;
};
constexpr std::array kLibraries = {LibraryName{CommunicationLibrary::nccl, "nccl"},
                                   LibraryName{CommunicationLibrary::mpi, "mpi"},
                                   LibraryName{CommunicationLibrary::rccl, "rccl"},
                                   LibraryName{CommunicationLibrary::hccl, "hccl"},
                                   LibraryName{CommunicationLibrary::gaudi_hccl, "gaudi-hccl"},
                                   LibraryName{CommunicationLibrary::oneccl, "oneccl"},
                                   LibraryName{CommunicationLibrary::xla, "xla"},
                                   LibraryName{CommunicationLibrary::neuron, "neuron"},
                                   LibraryName{CommunicationLibrary::unknown, "unknown"}};

constexpr std::array kFoundations = {Foundation::fitted, Foundation::datasheet, Foundation::assumed};

Foundation foundation_from(const std::string& name) {
  for (const Foundation foundation : kFoundations)
    if (name_of(foundation) == name) return foundation;
  throw InternalError(fmt::format("topologies/links rests on '{}'", name));
}

template <typename List>
std::vector<std::string> strings(const List& list) {
  return {list.begin(), list.end()};
}

bool holds(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

template <typename List>
std::array<double, 3> by_protocol(const List& list) {
  std::array<double, 3> values{};
  for (int i = 0; i < std::min(3, list.size()); ++i) values[static_cast<std::size_t>(i)] = list[i];
  return values;
}

LinkClass link_from(const proto::LinkClass& from) {
  return {.name = from.name(),
          .pcie = from.path() == "pcie",
          .generations = strings(from.generation()),
          .rests_on = foundation_from(from.rests_on()),
          .source = from.source(),
          .link_efficiency = from.link_efficiency(),
          .copy_steps = from.copy_steps(),
          .base_s = from.base_s(),
          .hop_s = from.hop_s(),
          .ll128_s = from.ll128_s(),
          .simple_s = from.simple_s(),
          .ramp_s = from.ramp_s(),
          .p2p_s = from.p2p_s(),
          .p2p_simple_s = from.p2p_simple_s(),
          .p2p_efficiency = from.p2p_efficiency(),
          .p2p_copy_steps = from.p2p_copy_steps(),
          .nvls_efficiency = from.nvls_efficiency(),
          .nvls_s = from.nvls_s(),
          .nvls_ramp_s = from.nvls_ramp_s(),
          .channels = from.channels()};
}

LibraryModel model_from(const EmbeddedFile& file) {
  proto::CollectiveLibrary from;
  parse_textproto(file.content, file.name, &from);
  const auto library = library_from_name(from.library());
  ORRERY_CHECK(library && *library != CommunicationLibrary::mpi, "topologies/links: " + from.library());
  LibraryModel to;
  to.library = *library;
  to.description = from.description();
  to.source = from.source();
  to.vendors = strings(from.vendor());
  to.generations = strings(from.generation());
  to.tuner = from.model() == "tuner";
  to.rests_on = foundation_from(from.rests_on());
  to.ring_network_s = by_protocol(from.ring_network_s());
  to.tree_network_s = by_protocol(from.tree_network_s());
  to.nvls_tree_network_s = from.nvls_tree_network_s();
  to.pat_network_s = from.pat_network_s();
  to.direct_step_s = by_protocol(from.direct_step_s());
  to.pcie_step_s = by_protocol(from.pcie_step_s());
  to.ll_share = from.ll_share();
  to.ll128_share = from.ll128_share();
  for (const proto::MostRate& most : from.ll_most())
    to.ll_most.push_back(
        {strings(most.generation()), {most.one_node(), most.two_nodes(), most.many_nodes()}});
  to.pipelined = from.pipelined();
  to.channel_bytes = from.channel_bytes();
  for (const proto::LinkClass& link : from.link()) to.links.push_back(link_from(link));
  return to;
}

std::vector<LibraryModel> read_models() {
  std::vector<LibraryModel> models;
  for (const EmbeddedFile& file : embedded_links()) models.push_back(model_from(file));
  std::sort(models.begin(), models.end(),
            [](const LibraryModel& a, const LibraryModel& b) { return a.library < b.library; });
  return models;
}

}  // namespace

std::string_view name_of(Foundation foundation) {
  switch (foundation) {
    case Foundation::calibrated:
      return "calibrated";
    case Foundation::fitted:
      return "fitted";
    case Foundation::datasheet:
      return "datasheet";
    case Foundation::assumed:
      return "assumed";
  }
  return "unknown";
}

std::string_view name_of(CommunicationLibrary library) {
  for (const LibraryName& known : kLibraries)
    if (known.library == library) return known.name;
  return "unknown";
}

std::optional<CommunicationLibrary> library_from_name(std::string_view name) {
  for (const LibraryName& known : kLibraries)
    if (known.name == name) return known.library;
  return std::nullopt;
}

const LinkClass& LibraryModel::link(bool pcie, std::string_view generation) const {
  const LinkClass* of_no_generation = nullptr;
  for (const LinkClass& link : links) {
    if (link.pcie != pcie) continue;
    if (holds(link.generations, generation)) return link;
    if (link.generations.empty()) of_no_generation = &link;
  }
  // A library with one kind of links uses them for all.
  return of_no_generation != nullptr ? *of_no_generation : links.front();
}

const std::array<double, 3>& LibraryModel::most_ll(std::string_view generation) const {
  const MostRate* of_no_generation = &ll_most.front();
  for (const MostRate& most : ll_most) {
    if (holds(most.generations, generation)) return most.bytes_per_s;
    if (most.generations.empty()) of_no_generation = &most;
  }
  return of_no_generation->bytes_per_s;
}

const std::vector<LibraryModel>& library_models() {
  static const std::vector<LibraryModel> models = read_models();
  return models;
}

const LibraryModel& library_model(CommunicationLibrary library) {
  for (const LibraryModel& model : library_models())
    if (model.library == library) return model;
  throw InternalError(fmt::format("topologies/links has no '{}'", name_of(library)));
}

std::vector<CatalogEntry> catalog_links() {
  std::vector<CatalogEntry> entries;
  for (const LibraryModel& model : library_models())
    for (const LinkClass& link : model.links)
      entries.push_back({.name = link.name,
                         .description = model.description,
                         .source = link.source,
                         .rests_on = std::string(name_of(link.rests_on))});
  return entries;
}

Foundation links_foundation(const Cluster& cluster) {
  if (cluster.communication.calibrated) return Foundation::fitted;
  if (cluster.communication.library == CommunicationLibrary::mpi) return Foundation::assumed;
  const LibraryModel& model = library_model(cluster.communication.library);
  Foundation least = Foundation::fitted;
  for (const NodeGroup& group : cluster.groups) {
    const std::string& generation = cluster.profiles[static_cast<std::size_t>(group.node.profile)].generation;
    const bool pcie = group.node.intra.kind == IntraKind::pcie;
    least = std::max(least, group.node.devices > 1 ? model.link(pcie, generation).rests_on : model.rests_on);
  }
  return least;
}

CommunicationLibrary default_library(const DeviceProfile& device) {
  if (device.kind == DeviceKind::cpu) return CommunicationLibrary::mpi;
  for (const LibraryModel& model : library_models())
    if (holds(model.generations, device.generation)) return model.library;
  for (const LibraryModel& model : library_models())
    if (holds(model.vendors, device.vendor)) return model.library;
  return CommunicationLibrary::unknown;
}

}  // namespace orrery
