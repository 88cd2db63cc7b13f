#include "topologies/readers/nccl_xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/gpu_node.h"
#include "topologies/readers/nvidia_gpus.h"
#include "topologies/readers/xml.h"

namespace orrery {
namespace {

constexpr std::size_t kMaxGpus = 256;
constexpr std::size_t kMaxPorts = 256;

struct Place {
  std::vector<const XmlElement*> ancestors;  // from <system> down to the <pci> of the device
  int cpu = 0;
};
struct GpuElement {
  const XmlElement* element;
  const XmlElement* pci;  // may be null: C2C systems hang GPUs elsewhere
  Place place;
  int dev = 0;
};
struct Port {
  const XmlElement* element;
  Place place;
  int dev = 0;
};

class Dump {
 public:
  Dump(const XmlElement& root, std::string_view file) : file_(file) {
    if (root.name != "system")
      fail(root, fmt::format("<{}> is no NCCL topology", root.name), "expected <system>");
    walk(root, {}, nullptr);
    if (gpus_.empty()) fail(root, "the topology has no GPU", "expected <gpu> elements");
    const auto by_dev = [](const auto& a, const auto& b) { return a.dev < b.dev; };
    std::stable_sort(gpus_.begin(), gpus_.end(), by_dev);
    std::stable_sort(ports_.begin(), ports_.end(), by_dev);
  }

  Cluster cluster(const NcclFacts& facts) const {
    GpuNode node;
    read_device(facts.device, node);
    node.devices = static_cast<int>(gpus_.size());
    read_nvlinks(node);
    read_pcie(facts.pcie_bytes_per_s, node);
    read_ports(node);
    return cluster_of_gpus(node, "nccl-topology", fmt::format("NCCL topology dump {}", file_), file_);
  }

 private:
  [[noreturn]] void fail(const XmlElement& at, std::string_view what, std::string_view expected) const {
    throw UserError(file_, at.line, what, expected);
  }

  int integer(const XmlElement& at, std::string_view attribute, int otherwise) const {
    const std::string_view text = at.attribute(attribute);
    if (text.empty()) return otherwise;
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail(at, fmt::format("{}=\"{}\" of <{}>", attribute, text, at.name), "expected a whole number");
    return value;
  }

  double number(const XmlElement& at, std::string_view attribute, std::string_view text) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || !std::isfinite(value))
      fail(at, fmt::format("{}=\"{}\" of <{}>", attribute, text, at.name), "expected a number");
    return value;
  }

  unsigned hexadecimal(const XmlElement& at, std::string_view attribute) const {
    std::string_view text = at.attribute(attribute);
    if (text.substr(0, 2) == "0x") text.remove_prefix(2);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (!text.empty() && (error != std::errc() || end != text.data() + text.size()))
      fail(at, fmt::format("{}=\"{}\" of <{}>", attribute, text, at.name), "expected a hexadecimal number");
    return value;
  }

  void walk(const XmlElement& at, Place place, const XmlElement* pci) {
    if (at.name == "cpu") place.cpu = static_cast<int>(cpus_++);
    if (at.name == "cpu" && first_cpu_ == nullptr) first_cpu_ = &at;
    if (at.name == "pci") pci = &at;
    place.ancestors.push_back(&at);
    if (at.name == "gpu") {
      if (gpus_.size() >= kMaxGpus) fail(at, "too many GPUs", fmt::format("expected at most {}", kMaxGpus));
      gpus_.push_back({&at, pci, place, integer(at, "dev", static_cast<int>(gpus_.size()))});
    } else if (at.name == "net") {
      if (ports_.size() >= kMaxPorts)
        fail(at, "too many ports", fmt::format("expected at most {}", kMaxPorts));
      ports_.push_back({&at, place, integer(at, "dev", static_cast<int>(ports_.size()))});
    }
    for (const XmlElement& child : at.children) walk(child, place, pci);
  }

  SeenGpu seen(const GpuElement& gpu) const {
    return {.pci_id = gpu.pci != nullptr ? hexadecimal(*gpu.pci, "device") : 0,
            .compute_capability = integer(*gpu.element, "sm", 0)};
  }

  void read_device(const std::string& asked, GpuNode& node) const {
    std::string named;
    for (const GpuElement& gpu : gpus_) {
      const std::optional<std::string> found = device_of(seen(gpu));
      if (!found && asked.empty())
        fail(*gpu.element, unknown_gpu(seen(gpu)), "expected " + expected_device(seen(gpu)));
      if (!found) continue;
      if (!named.empty() && *found != named)
        fail(*gpu.element, fmt::format("GPUs of two kinds, {} and {}", named, *found),
             "expected one kind a node");
      named = *found;
    }
    node.device = asked.empty() ? named : asked;
    const SeenGpu first = seen(gpus_.front());
    const NvidiaGpu* taken = nvidia_gpu(node.device);
    const bool other_sm = taken != nullptr && first.compute_capability > 0 &&
                          taken->compute_capability != first.compute_capability;
    if (node.device == named && !other_sm) return;
    std::string what = named.empty() || named == node.device ? in_words(first) : named;
    if (other_sm) what += fmt::format(" with sm {}", first.compute_capability);
    node.assumed.push_back(fmt::format("the dump's {} is taken for {}", what, node.device));
  }

  void read_nvlinks(GpuNode& node) const {
    std::map<std::string, int, std::less<>> by_bus;
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      if (gpus_[g].pci != nullptr)
        by_bus[std::string(gpus_[g].pci->attribute("busid"))] = static_cast<int>(g);
    }
    const auto devices = static_cast<int>(gpus_.size());
    std::vector<int> mesh(static_cast<std::size_t>(devices) * devices, 0);
    int fewest = std::numeric_limits<int>::max();
    for (int g = 0; g < devices; ++g) {
      int to_switch = 0;
      for (const XmlElement& link : gpus_[g].element->children) {
        if (link.name != "nvlink") continue;
        const int count = integer(link, "count", 1);
        if (count < 0 || count > 1000)
          fail(link, fmt::format("count=\"{}\" of <nvlink>", count), "expected from 0 to 1000");
        const unsigned kind = hexadecimal(link, "tclass");
        const auto peer = by_bus.find(link.attribute("target"));
        if (kind == 0x068000) {
          to_switch += count;
        } else if (peer != by_bus.end() && peer->second != g) {
          mesh[static_cast<std::size_t>(g) * devices + peer->second] += count;
        }
      }
      fewest = std::min(fewest, to_switch);
    }
    node.switch_links = fewest;
    node.mesh_links = agreed_links(std::move(mesh), devices);
  }

  struct PcieLink {
    int generation = 0, lanes = 0;  // 0: the dump does not say
  };
  // "32.0 GT/s PCIe"; "Unknown speed" and nothing at all where a virtual machine hides the slot.
  PcieLink pcie_link(const XmlElement& pci) const {
    const std::string_view speed = pci.attribute("link_speed");
    double gts = 0;
    std::from_chars(speed.data(), speed.data() + speed.size(), gts);
    PcieLink link{.generation = 0, .lanes = integer(pci, "link_width", 0)};
    if (gts > 0 && std::isfinite(gts))
      link.generation = gts >= 64 ? 6 : gts >= 32 ? 5 : gts >= 16 ? 4 : gts >= 8 ? 3 : gts >= 5 ? 2 : 1;
    return link;
  }

  // Links of which the dump says nothing are of the third generation, as NCCL takes them.
  void read_pcie(double stated_bytes_per_s, GpuNode& node) const {
    double slowest = 0;
    bool unknown = false;
    for (const GpuElement& gpu : gpus_) {
      node.host_bridge.push_back(gpu.place.cpu);
      for (const XmlElement* above : gpu.place.ancestors) {
        if (above->name != "pci") continue;
        const PcieLink link = pcie_link(*above);
        const double rate = pcie_bytes_per_s(link.generation, link.lanes);
        unknown = unknown || link.generation == 0;
        if (slowest == 0 || rate < slowest) slowest = rate;
      }
    }
    if (slowest == 0) {
      slowest = pcie_bytes_per_s(0, 0);
      unknown = true;
    }
    node.pcie_bytes_per_s = stated_bytes_per_s > 0 ? stated_bytes_per_s : slowest;
    if (unknown && stated_bytes_per_s == 0)
      node.assumed.push_back(
          "the dump does not say the speed of all PCIe links: these are taken for PCIe 3.0, as NCCL does");
    node.bridge_bytes_per_s = interconnect_bytes_per_s();
  }

  // NCCL's constants for the interconnect of two processors (src/graph/topo.h).
  double interconnect_bytes_per_s() const {
    if (first_cpu_ == nullptr) return 10e9;
    const std::string_view arch = first_cpu_->attribute("arch");
    if (arch == "arm64") return 6e9;
    if (arch == "ppc64") return 32e9;
    if (first_cpu_->attribute("vendor") == "AuthenticAMD") return 16e9;
    switch (integer(*first_cpu_, "modelid", 0)) {
      case 79:  // Broadwell
        return 6e9;
      case 143:  // Sapphire Rapids
        return 22e9;
      case 207:  // Emerald Rapids
        return 40e9;
      default:  // Skylake and others
        return 10e9;
    }
  }

  void read_ports(GpuNode& node) const {
    if (ports_.empty()) return;
    node.direct = true;
    node.infiniband = true;
    for (const Port& port : ports_) {
      double speed = 10'000;  // Mb/s: NCCL's own where a dump says nothing
      if (!port.element->attribute("speed").empty())
        speed = number(*port.element, "speed", port.element->attribute("speed"));
      if (speed <= 0) speed = 10'000;
      const double rate = speed * 1e6 / 8;
      if (node.port_bytes_per_s != 0 && node.port_bytes_per_s != rate)
        fail(*port.element, "network ports of two speeds", "expected one speed a node");
      node.port_bytes_per_s = rate;
      if (integer(*port.element, "gdr", 0) == 0) node.direct = false;
      if (port.element->attribute("name").substr(0, 3) != "mlx") node.infiniband = false;
    }
    for (const GpuElement& gpu : gpus_) {
      std::vector<int> distances;
      for (const Port& port : ports_) {
        const auto& a = gpu.place.ancestors;
        const auto& b = port.place.ancestors;
        std::size_t shared = 0;
        while (shared < std::min(a.size(), b.size()) && a[shared] == b[shared]) ++shared;
        distances.push_back(kMaxXmlDepth - static_cast<int>(shared));
      }
      node.distance.push_back(std::move(distances));
    }
  }

  std::string_view file_;
  const XmlElement* first_cpu_ = nullptr;
  std::size_t cpus_ = 0;
  std::vector<GpuElement> gpus_;
  std::vector<Port> ports_;
};

}  // namespace

Cluster cluster_from_nccl_topology(std::string_view xml, std::string_view file, const NcclFacts& facts) {
  const XmlElement root = parse_xml(xml, file);
  return Dump(root, file).cluster(facts);
}

}  // namespace orrery
