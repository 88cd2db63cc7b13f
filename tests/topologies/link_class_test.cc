#include "topologies/link_class.h"

#include <catch2/catch.hpp>
#include <set>

#include "topologies/communication_defaults.h"
#include "topologies/device_catalog.h"
#include "topologies/readers/catalog.h"

using namespace orrery;

namespace {

bool fraction(double value) {
  return value > 0 && value <= 1;
}

}  // namespace

TEST_CASE("every library but MPI has constants with a source, and links for direct paths") {
  std::set<std::string> names;
  for (const LibraryModel& model : library_models()) {
    CAPTURE(name_of(model.library));
    CHECK(names.insert(std::string(name_of(model.library))).second);
    CHECK(library_from_name(name_of(model.library)) == model.library);
    CHECK_FALSE(model.source.empty());
    CHECK_FALSE(model.description.empty());
    CHECK(model.ring_network_s[0] > 0);
    CHECK(model.tree_network_s[0] > 0);
    if (model.tuner) {
      CHECK(fraction(model.ll_share));
      CHECK_FALSE(model.ll_most.empty());
    }
    bool for_any_generation = false;
    for (const LinkClass& link : model.links) {
      CAPTURE(link.name);
      CHECK_FALSE(link.source.empty());
      CHECK(fraction(link.link_efficiency));
      CHECK(fraction(link.p2p_efficiency));
      CHECK(link.base_s > 0);
      CHECK(link.hop_s >= 0);
      for_any_generation = for_any_generation || (!link.pcie && link.generations.empty());
    }
    CHECK(for_any_generation);
  }
  CHECK(names.size() == library_models().size());
  CHECK(library_models().size() == 8);
  CHECK_FALSE(library_from_name("gloo"));
}

TEST_CASE("every catalog device has a library by its vendor and generation") {
  for (const CatalogEntry& entry : catalog_devices()) {
    CAPTURE(entry.name);
    CHECK(default_library(catalog_device(entry.name)) != CommunicationLibrary::unknown);
  }
  const auto library = [](const char* device) { return default_library(catalog_device(device)); };
  CHECK(library("h800-sxm-80g") == CommunicationLibrary::nccl);
  CHECK(library("mi300x-192g") == CommunicationLibrary::rccl);
  CHECK(library("gaudi3-128g") == CommunicationLibrary::gaudi_hccl);
  CHECK(library("max-1550-128g") == CommunicationLibrary::oneccl);
  CHECK(library("tpu-v5p") == CommunicationLibrary::xla);
  CHECK(library("trainium2-core") == CommunicationLibrary::neuron);
  CHECK(library("ascend-910b-64g") == CommunicationLibrary::hccl);
  CHECK(library("generic-cpu") == CommunicationLibrary::mpi);
}

TEST_CASE("what is not known gets no vendor's constants, and the words for it") {
  DeviceProfile device;
  device.generation = "quantum";
  CHECK(default_library(device) == CommunicationLibrary::unknown);
  device.vendor = "amd";  // a vendor's newest generation: its library, with what is assumed of its links
  CHECK(default_library(device) == CommunicationLibrary::rccl);
  const LibraryModel& rccl = library_model(CommunicationLibrary::rccl);
  CHECK(rccl.link(false, "quantum").rests_on == Foundation::assumed);
  CHECK(rccl.link(false, "cdna3").rests_on == Foundation::datasheet);
  CHECK(library_model(CommunicationLibrary::nccl).link(false, "hopper").rests_on == Foundation::fitted);
  CHECK(library_model(CommunicationLibrary::nccl).link(false, "").rests_on == Foundation::assumed);
  for (const bool pcie : {false, true})
    CHECK(library_model(CommunicationLibrary::unknown).link(pcie, "hopper").rests_on == Foundation::assumed);
  CHECK(default_communication(CommunicationLibrary::unknown, Transport::roce)
            .source.find("no library is known") != std::string::npos);
}

TEST_CASE("a catalog cluster names its own library's constants as their source") {
  CHECK(load_cluster("mi300x-8").communication.source.find("RCCL") != std::string::npos);
  CHECK(load_cluster("dgx-h100").communication.source.find("NCCL 2.28") == 0);
}
