// Clusters: descriptions, other programs' of a machine, device profiles; and numbers with units.
#include <limits>
#include <optional>

#include "base/parse.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/target.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/device_review.h"
#include "topologies/readers/nccl_xml.h"
#include "topologies/readers/nvidia_smi.h"
#include "topologies/readers/simgrid_units.h"
#include "topologies/readers/simgrid_xml.h"

namespace orrery::fuzz {
namespace {

// Whatever becomes a cluster can be written, and read again.
void check_cluster(const Cluster& cluster) {
  possible(cluster.devices() > 0 && !cluster.groups.empty(), "a cluster of nothing");
  proto::Cluster message;
  to_proto(cluster, &message);
  accepted_again([&] { cluster_from_text(to_textproto(message), "written"); });
}

bool cluster(std::string_view bytes) {
  return sound_or_refused([&] { return cluster_from_text(bytes, "fuzz"); }, check_cluster);
}
std::vector<std::string> cluster_seeds() {
  return joined(folder_of("topologies/catalog", ".textproto"),
                folder_of("tests/data/clusters", ".textproto"));
}

bool nccl_topology(std::string_view bytes) {
  return sound_or_refused([&] { return cluster_from_nccl_topology(bytes, "fuzz"); }, check_cluster);
}
std::vector<std::string> nccl_topology_seeds() {
  return {own_seed("nccl_hopper.xml"), own_seed("nccl_pcie.xml")};
}

bool nvidia_smi(std::string_view bytes) {
  return sound_or_refused(
      [&] {
        return cluster_from_nvidia_smi(bytes, "fuzz", {.device = "a100-sxm-80g", .port_bytes_per_s = 25e9});
      },
      check_cluster);
}
std::vector<std::string> nvidia_smi_seeds() {
  return {own_seed("smi_nvswitch.txt"), own_seed("smi_mesh.txt"), own_seed("smi_pcie.txt")};
}

bool simgrid(std::string_view bytes) {
  return sound_or_refused([&] { return cluster_from_simgrid(bytes, "fuzz"); }, check_cluster);
}
std::vector<std::string> simgrid_seeds() {
  return {own_seed("simgrid_star.xml"), own_seed("simgrid_fat_tree.xml"), own_seed("simgrid_torus.xml"),
          own_seed("simgrid_dragonfly.xml")};
}

bool device(std::string_view bytes) {
  return sound_or_refused([&] { return review_devices(std::string(bytes), "fuzz"); },
                          [](const DeviceReview& review) {
                            possible(!review.reviewed.empty(), "a review of nothing");
                            check_cluster(review.cluster);
                          });
}
std::vector<std::string> device_seeds() {
  return joined(folder_of("topologies/devices", ".textproto"), {device_template()});
}

// All ways in which a number is written; true where it is one.
bool number(std::string_view bytes) {
  bool any = false;
  const auto one = [&](const std::optional<double>& value, double least) {
    any = any || value.has_value();
    possible(!value || (std::isfinite(*value) && *value >= least), "an impossible number");
  };
  one(parse_number(bytes), std::numeric_limits<double>::lowest());
  one(parse_scaled(bytes), std::numeric_limits<double>::lowest());
  one(parse_bytes(bytes), 0);
  one(parse_amount(bytes), 1);
  for (const SimgridUnit unit : {SimgridUnit::bytes_per_s, SimgridUnit::seconds, SimgridUnit::flops_per_s})
    one(simgrid_number(bytes, unit), 0);
  for (const int k : {1000, 1024}) any = parse_count(bytes, k).has_value() || any;
  if (const auto words = shell_words(bytes))
    possible(words->size() <= bytes.size() + 1, "words out of nothing");
  return any;
}
std::vector<std::string> number_seeds() {
  return {"1k",
          "2.5G",
          "-3e5",
          "8KiB",
          "15T",
          "125MBps",
          "50us",
          "1Gf",
          "9223372036854775807",
          "1e308",
          "a 'b c' \"d\\\"\""};
}

}  // namespace

std::vector<Target> clusters() {
  return {{"cluster", cluster, cluster_seeds, 1000},    {"nccl_topology", nccl_topology, nccl_topology_seeds},
          {"nvidia_smi", nvidia_smi, nvidia_smi_seeds}, {"simgrid", simgrid, simgrid_seeds},
          {"device", device, device_seeds, 1000},       {"number", number, number_seeds, 2000}};
}

}  // namespace orrery::fuzz
