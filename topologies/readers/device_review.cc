#include "topologies/readers/device_review.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "topologies/device_catalog.h"
#include "topologies/link_class.h"
#include "topologies/readers/catalog.h"

namespace orrery {
namespace {

// How far beyond all of the catalog's a figure may be: a generation or two for sizes and rates; proportions
// change less (the dense rate is not the sparse one, which is twice as high).
constexpr double kFurther = 5, kFurtherInProportion = 1.5;

struct Figure {
  const char* key;
  std::function<double(const DeviceProfile&)> value;  // 0: not stated
  std::string (*words)(double);
  double further;
};

double narrow_peak(const DeviceProfile& device) {
  return std::max(device.peak_flops_per_s[static_cast<std::size_t>(DType::bf16)],
                  device.peak_flops_per_s[static_cast<std::size_t>(DType::fp16)]);
}
double fp8_peak(const DeviceProfile& device) {
  return device.peak_flops_per_s[static_cast<std::size_t>(DType::fp8)];
}
std::string plain(double number) {
  return fmt::format("{:.3g}", number);
}

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all = {
      {"peak of fp32", [](const DeviceProfile& d) { return d.peak(DType::fp32); }, human_flops_rate,
       kFurther},
      {"peak of bf16 or fp16", narrow_peak, human_flops_rate, kFurther},
      {"peak of fp8", fp8_peak, human_flops_rate, kFurther},
      {"peak of fp8 beside that of 16 bits",
       [](const DeviceProfile& d) { return narrow_peak(d) > 0 ? fp8_peak(d) / narrow_peak(d) : 0; }, plain,
       kFurtherInProportion},
      {"operations in 16 bits for each byte of memory bandwidth",
       [](const DeviceProfile& d) { return narrow_peak(d) / d.memory_bandwidth_bytes_per_s; }, plain,
       kFurtherInProportion},
      {"memory_bytes", [](const DeviceProfile& d) { return d.memory_bytes; }, human_bytes, kFurther},
      {"memory_bandwidth_bytes_per_s", [](const DeviceProfile& d) { return d.memory_bandwidth_bytes_per_s; },
       human_rate, kFurther},
      {"context_bytes", [](const DeviceProfile& d) { return d.context_bytes; }, human_bytes, kFurther},
      {"launch_overhead_s", [](const DeviceProfile& d) { return d.launch_overhead_s; }, human_seconds,
       kFurther},
      {"idle_power_w", [](const DeviceProfile& d) { return d.idle_power_w; }, plain, kFurther},
      {"peak_power_w", [](const DeviceProfile& d) { return d.peak_power_w; }, plain, kFurther},
      {"price_usd_per_hour", [](const DeviceProfile& d) { return d.price_usd_per_hour; }, plain, kFurther}};
  return all;
}

struct Span {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  void add(double value) {
    if (value <= 0) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool far_from(double value, double further) const {
    return value > 0 && most > 0 && (value < least / further || value > most * further);
  }
};

// "25.0 GB/s", "25.0 GB/s to 50.0 GB/s"
std::string span_words(const Span& span, std::string (*words)(double)) {
  return span.least == span.most ? words(span.least)
                                 : fmt::format("{} to {}", words(span.least), words(span.most));
}

std::string doubt(const std::string& what, double value, const Span& span, std::string (*words)(double),
                  const std::string& of_whom) {
  return fmt::format("{} is {}; {} have {}", what, words(value), of_whom, span_words(span, words));
}

void review_figures(const DeviceProfile& device, std::vector<std::string>& implausible) {
  if (device.kind != DeviceKind::gpu) return;
  std::vector<DeviceProfile> known;
  for (const CatalogEntry& entry : catalog_devices()) known.push_back(catalog_device(entry.name));
  for (const Figure& figure : figures()) {
    Span span;
    for (const DeviceProfile& other : known)
      if (other.kind == DeviceKind::gpu) span.add(figure.value(other));
    const double value = figure.value(device);
    if (span.far_from(value, figure.further))
      implausible.push_back(doubt(fmt::format("{}: {}", device.name, figure.key), value, span, figure.words,
                                  "devices of the catalog"));
  }
  if (device.peak_power_w > 0 && device.idle_power_w >= device.peak_power_w)
    implausible.push_back(fmt::format("{}: idle_power_w {} is no less than peak_power_w {}", device.name,
                                      device.idle_power_w, device.peak_power_w));
  if (device.context_bytes > 0.25 * device.memory_bytes)
    implausible.push_back(fmt::format("{}: context_bytes {} leaves little of the memory's {}", device.name,
                                      human_bytes(device.context_bytes), human_bytes(device.memory_bytes)));
}

// Most links of one device of a node; 0: the node does not count them.
int most_links(const NodeType& node) {
  int most = 0;
  const std::vector<int>& links = node.intra.mesh_links;
  for (std::size_t at = 0; at + static_cast<std::size_t>(node.devices) <= links.size();
       at += static_cast<std::size_t>(node.devices))
    most = std::max(most, std::accumulate(links.begin() + static_cast<std::ptrdiff_t>(at),
                                          links.begin() + static_cast<std::ptrdiff_t>(at) + node.devices, 0));
  return most;
}

bool joins_devices(IntraKind kind) {
  return kind == IntraKind::nvswitch || kind == IntraKind::nvlink_mesh;
}

// Links of a device that the catalog's nodes have, too: they are the silicon's. A board may lead out fewer of
// them, which its mesh_links say.
void review_links_of_device(const NodeType& node, const std::string& device, const std::string& where,
                            std::vector<std::string>& implausible) {
  if (!joins_devices(node.intra.kind) || !node.intra.torus.empty()) return;
  const int links = most_links(node);
  Span all, each;
  for (const CatalogEntry& entry : catalog_clusters()) {
    if (entry.name.starts_with("localhost")) continue;
    const Cluster known = load_cluster(entry.name);
    for (const NodeGroup& group : known.groups) {
      if (known.profiles[static_cast<std::size_t>(group.node.profile)].name != device ||
          !joins_devices(group.node.intra.kind))
        continue;
      all.add(group.node.intra.bandwidth_bytes_per_s);
      if (const int many = most_links(group.node); many > 0)
        each.add(group.node.intra.bandwidth_bytes_per_s / many);
    }
  }
  const std::string whose = fmt::format("the catalog's nodes of {}", device);
  const double rate = node.intra.bandwidth_bytes_per_s;
  if (links > 0 && each.most > 0) {
    if (each.far_from(rate / links, kFurtherInProportion))
      implausible.push_back(fmt::format(
          "{}.intra.bandwidth_bytes_per_s is {} for all of a device's links, {} for "
          "each of {}; {} have {} for each",
          where, human_rate(rate), human_rate(rate / links), links, whose, span_words(each, human_rate)));
  } else if (all.far_from(rate, kFurtherInProportion)) {
    implausible.push_back(doubt(where + ".intra.bandwidth_bytes_per_s", rate, all, human_rate, whose));
  }
}

void review_links(const Cluster& cluster, std::vector<std::string>& implausible) {
  Span ports, same_kind[4];
  for (const CatalogEntry& entry : catalog_clusters()) {
    if (entry.name.starts_with("localhost")) continue;
    for (const NodeGroup& group : load_cluster(entry.name).groups) {
      ports.add(group.node.nic.bandwidth_bytes_per_s);
      same_kind[static_cast<std::size_t>(group.node.intra.kind)].add(group.node.intra.bandwidth_bytes_per_s);
    }
  }
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) {
    const NodeType& node = cluster.groups[g].node;
    const std::string where = fmt::format("groups[{}].node", g);
    const Span& links = same_kind[static_cast<std::size_t>(node.intra.kind)];
    const std::size_t before = implausible.size();
    review_links_of_device(node, cluster.profiles[static_cast<std::size_t>(node.profile)].name, where,
                           implausible);
    if (const double rate = node.intra.bandwidth_bytes_per_s;
        implausible.size() == before && links.far_from(rate, kFurther))
      implausible.push_back(doubt(where + ".intra.bandwidth_bytes_per_s", rate, links, human_rate,
                                  "such links of the catalog's nodes"));
    if (const double rate = node.nic.bandwidth_bytes_per_s; ports.far_from(rate, kFurther))
      implausible.push_back(doubt(where + ".nic.bandwidth_bytes_per_s", rate, ports, human_rate,
                                  "ports of the catalog's nodes"));
    if (const double pcie = node.nic.pcie_bandwidth_bytes_per_s; pcie > 0 && pcie > 128e9 * kFurther)
      implausible.push_back(
          fmt::format("{}.nic.pcie_bandwidth_bytes_per_s is {}; sixteen lanes of PCIe 6 carry "
                      "{}",
                      where, human_rate(pcie), human_rate(128e9)));
  }
}

// What the profile does not say, and what stands in its place.
void list_assumed(const proto::DeviceProfile& said, const DeviceProfile& device,
                  std::vector<std::string>& assumed) {
  const auto add = [&](std::string text) { assumed.push_back(device.name + ": " + std::move(text)); };
  const bool gpu = device.kind == DeviceKind::gpu;
  if (!said.like().empty()) {
    add(fmt::format("whatever the file leaves out, but the price, is {}'s", said.like()));
  } else {
    const char* whose = gpu ? "typical GPUs" : "typical processors";
    if (said.matmul().empty())
      add(fmt::format("matmul: products reach the share of their peak that {} reach", whose));
    if (said.attention().empty()) add(fmt::format("attention: as on {}", whose));
    if (said.vector().empty())
      add(fmt::format("vector: what memory bounds moves {:.0f}% of memory_bandwidth_bytes_per_s",
                      100 * device.memory_efficiency));
    if (gpu && said.sustained_clock() == 0) add("sustained_clock 1: no slower when it is warm");
    if (gpu && said.launch_overhead_s() == 0)
      add("launch_overhead_s 0: kernels are launched at no cost, as in one compiled program");
    if (said.context_bytes() == 0) add("context_bytes 0: runtime and libraries keep none of the memory");
    if (gpu && said.multiprocessors() == 0) add("multiprocessors 0: products of any shape fill it evenly");
    if (said.speed_spread() == 0) add("speed_spread 0: all devices of a cluster are equally fast");
  }
  if (device.peak_power_w == 0) add("peak_power_w 0: no energy is counted");
  if (device.price_usd_per_hour == 0)
    add("price_usd_per_hour 0: no cost is counted unless the cluster states a price");
  if (said.source().empty()) add("source: the file does not say where its figures are from");
}

void list_assumed_links(const Cluster& cluster, std::vector<std::string>& assumed) {
  if (cluster.communication.library == CommunicationLibrary::mpi) return;  // measured, or of no kind of links
  const LibraryModel& model = library_model(cluster.communication.library);
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& device = cluster.profiles[static_cast<std::size_t>(group.node.profile)];
    if (device.kind != DeviceKind::gpu) continue;
    const Foundation rests_on =
        model.link(group.node.intra.kind == IntraKind::pcie, device.generation).rests_on;
    if (rests_on == Foundation::fitted || rests_on == Foundation::calibrated) continue;
    assumed.push_back(fmt::format(
        "{}: collectives inside a node are those of library '{}', links of {}: {}", device.name,
        name_of(cluster.communication.library),
        device.generation.empty() ? "no named generation" : "generation '" + device.generation + "'",
        rests_on == Foundation::datasheet ? "constants from its documentation" : "constants are assumed"));
  }
}

bool describes_cluster(const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t word = text.find_first_not_of(" \t", at);
    if (word != std::string::npos && text.compare(word, 6, "groups") == 0) return true;
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) return false;
    at = end + 1;
  }
  return false;
}

}  // namespace

DeviceReview review_devices(const std::string& text, const std::string& file) {
  proto::Cluster message;
  DeviceReview review;
  if (describes_cluster(text)) {
    parse_textproto(text, file, &message);
    review.cluster = cluster_from_proto(message, file, text);
    review_links(review.cluster, review.implausible);
  } else {
    proto::DeviceProfile* device = message.add_devices();
    parse_textproto(text, file, device);
    device_profile_from_proto(*device, file, text);
    message.set_name(device->name());
    proto::NodeGroup* group = message.add_groups();
    group->set_count(1);
    group->mutable_node()->set_device(device->name());
    group->mutable_node()->set_devices(1);
    review.cluster = cluster_from_proto(message, file, "");
  }
  for (const proto::DeviceProfile& said : message.devices()) {
    const auto at = std::find_if(review.cluster.profiles.begin(), review.cluster.profiles.end(),
                                 [&](const DeviceProfile& profile) { return profile.name == said.name(); });
    ORRERY_CHECK(at != review.cluster.profiles.end(), "a device of the file is not in its cluster");
    review.reviewed.push_back(at->name);
    review_figures(*at, review.implausible);
    list_assumed(said, *at, review.assumed);
  }
  list_assumed_links(review.cluster, review.assumed);
  return review;
}

std::string device_template() {
  return R"(# proto-file: proto/device_profile.proto
# proto-message: orrery.proto.DeviceProfile
# Fill in what the datasheet says; then `orrery device FILE`. In a cluster file this stands inside `devices { … }`.
name: "my-accelerator"
source: ""  # "the vendor's datasheet, document and date"
kind: "gpu"  # an accelerator of whatever kind; "cpu": a core
vendor: ""  # nvidia amd intel google amazon huawei: whose collective library; left out, it is `unknown`
# generation: "cdna3"  # whose links' constants (`orrery catalog` lists the links)
# like: "h100-sxm-80g"  # a device of the catalog with the same silicon: whatever is left out here is that one's
peak { dtype: "fp32" flops_per_s: 0 }  # dense rates: half of what is printed "with sparsity"
peak { dtype: "bf16" flops_per_s: 0 }  # fp32 accumulation. fp16, tf32, fp8, fp4, int8: a line each where it has them
memory_bytes: 0  # as its tool prints it (80 GB: 85e9 or what nvidia-smi and the like show)
memory_bandwidth_bytes_per_s: 0  # 3.35 TB/s: 3.35e12
multiprocessors: 0  # SMs, compute units, cores; 0 where there are none
idle_power_w: 0  # 0: no energy is counted
peak_power_w: 0
price_usd_per_hour: 0  # 0: no cost is counted
# Not in datasheets; these are typical of GPUs.
context_bytes: 1.5e9  # what driver and libraries keep of the memory
launch_overhead_s: 5e-6  # of one kernel; 0 where a step is one compiled program
sustained_clock: 0.95
)";
}

}  // namespace orrery
