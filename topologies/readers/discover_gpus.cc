// This machine's GPUs, from NVML. There is no nvml.h in the CUDA toolkit's runtime packages, so the few calls
// used are declared here as NVIDIA's documentation gives them, and looked up in the driver's library at run
// time.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/discover.h"
#include "topologies/readers/gpu_node.h"
#include "topologies/readers/nvidia_gpus.h"

namespace orrery {
namespace {

namespace nvml {

using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kMaxNvLinks = 18;
constexpr unsigned kNameBytes = 96;
constexpr unsigned kFeatureEnabled = 1;

struct PciInfo {  // nvmlPciInfo_t of the _v3 calls
  std::array<char, 16> bus_id_legacy;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;  // device id in the upper half, vendor in the lower
  unsigned pci_subsystem_id;
  std::array<char, 32> bus_id;
};

struct Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*pci_info)(Device, PciInfo*) = nullptr;
  int (*link_generation)(Device, unsigned*) = nullptr;
  int (*link_width)(Device, unsigned*) = nullptr;
  int (*nvlink_state)(Device, unsigned, unsigned*) = nullptr;
  int (*nvlink_remote)(Device, unsigned, PciInfo*) = nullptr;

  template <typename Function>
  bool find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
    return function != nullptr;
  }

  bool open() {
    handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle != nullptr && find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(count, "nvmlDeviceGetCount_v2") && find(by_index, "nvmlDeviceGetHandleByIndex_v2") &&
           find(name, "nvmlDeviceGetName") && find(capability, "nvmlDeviceGetCudaComputeCapability") &&
           find(pci_info, "nvmlDeviceGetPciInfo_v3") &&
           find(link_generation, "nvmlDeviceGetMaxPcieLinkGeneration") &&
           find(link_width, "nvmlDeviceGetMaxPcieLinkWidth") &&
           find(nvlink_state, "nvmlDeviceGetNvLinkState") &&
           find(nvlink_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  }
};

}  // namespace nvml

struct Gpu {
  std::string name;
  std::string device;  // of the catalog; empty: it has none
  SeenGpu seen;
  nvml::PciInfo pci{};
  double pcie_bytes_per_s = 0;
  std::vector<nvml::PciInfo> peers;  // one for each live NVLink
};

Gpu read_gpu(const nvml::Library& library, unsigned index) {
  Gpu gpu;
  nvml::Device device = nullptr;
  std::array<char, nvml::kNameBytes> name{};
  int major = 0;
  int minor = 0;
  if (library.by_index(index, &device) != nvml::kSuccess ||
      library.name(device, name.data(), nvml::kNameBytes) != nvml::kSuccess ||
      library.capability(device, &major, &minor) != nvml::kSuccess ||
      library.pci_info(device, &gpu.pci) != nvml::kSuccess)
    throw InternalError(fmt::format("NVML does not describe GPU {}", index));
  gpu.name.assign(name.data(), strnlen(name.data(), name.size()));
  gpu.seen = {.pci_id = gpu.pci.pci_device_id >> 16, .compute_capability = major * 10 + minor};
  gpu.device = device_of(gpu.seen).value_or("");
  unsigned generation = 0;
  unsigned width = 0;
  library.link_generation(device, &generation);
  library.link_width(device, &width);
  gpu.pcie_bytes_per_s = pcie_bytes_per_s(static_cast<int>(generation), static_cast<int>(width));
  for (unsigned link = 0; link < nvml::kMaxNvLinks; ++link) {
    unsigned state = 0;
    nvml::PciInfo peer{};
    if (library.nvlink_state(device, link, &state) == nvml::kSuccess && state == nvml::kFeatureEnabled) {
      library.nvlink_remote(device, link, &peer);
      gpu.peers.push_back(peer);
    }
  }
  return gpu;
}

std::vector<Gpu> read_gpus() {
  nvml::Library library;
  if (!library.open() || library.init() != nvml::kSuccess) {
    if (library.handle != nullptr) dlclose(library.handle);
    return {};
  }
  const auto close = [](nvml::Library* open) {
    open->shutdown();
    dlclose(open->handle);
  };
  const std::unique_ptr<nvml::Library, decltype(close)> closed(&library, close);
  unsigned count = 0;
  if (library.count(&count) != nvml::kSuccess) return {};
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < count; ++i) gpus.push_back(read_gpu(library, i));
  return gpus;
}

bool same_place(const nvml::PciInfo& a, const nvml::PciInfo& b) {
  return a.domain == b.domain && a.bus == b.bus && a.device == b.device;
}

// NVLinks that end at another GPU are a mesh; all others end at switches.
void count_nvlinks(const std::vector<Gpu>& gpus, GpuNode& node) {
  const auto devices = static_cast<int>(gpus.size());
  std::vector<int> mesh(static_cast<std::size_t>(devices) * devices, 0);
  int fewest = static_cast<int>(nvml::kMaxNvLinks);
  for (int g = 0; g < devices; ++g) {
    int to_switch = 0;
    for (const nvml::PciInfo& peer : gpus[g].peers) {
      const auto other =
          std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return same_place(gpu.pci, peer); });
      if (other == gpus.end()) {
        ++to_switch;
      } else if (other - gpus.begin() != g) {
        ++mesh[static_cast<std::size_t>(g) * devices + (other - gpus.begin())];
      }
    }
    fewest = std::min(fewest, to_switch);
  }
  node.switch_links = fewest;
  node.mesh_links = agreed_links(std::move(mesh), devices);
}

int numa_node(const std::filesystem::path& device) {
  const std::string line = first_line(device / "numa_node");
  return line.empty() ? -1 : std::atoi(line.c_str());
}

std::filesystem::path pci_folder(const nvml::PciInfo& pci) {
  return fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

// How many folders of the two devices' places below /sys/devices are the same: more is nearer.
int shared_path(const std::filesystem::path& a, const std::filesystem::path& b) {
  int shared = 0;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end() && *i == *j; ++i, ++j) ++shared;
  return shared;
}

// Active InfiniBand (or RoCE) ports, by name; "200 Gb/sec (4X HDR)" is their rate.
void read_ports(const std::vector<Gpu>& gpus, GpuNode& node) {
  namespace fs = std::filesystem;
  std::error_code code;
  std::vector<fs::path> adapters;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", code))
    adapters.push_back(entry.path());
  std::sort(adapters.begin(), adapters.end());
  std::vector<fs::path> ports;
  for (const fs::path& adapter : adapters) {
    if (first_line(adapter / "ports/1/state").find("ACTIVE") == std::string::npos) continue;
    const double rate = std::strtod(first_line(adapter / "ports/1/rate").c_str(), nullptr) * 1e9 / 8;
    if (!(rate > 0)) continue;
    if (rate > node.port_bytes_per_s) {  // slower ones are for storage and management
      node.port_bytes_per_s = rate;
      ports.clear();
      node.infiniband = first_line(adapter / "ports/1/link_layer") == "InfiniBand";
    }
    if (rate == node.port_bytes_per_s) ports.push_back(fs::weakly_canonical(adapter / "device", code));
  }
  node.direct = fs::exists("/sys/module/nvidia_peermem", code) || fs::exists("/sys/module/nv_peer_mem", code);
  for (const Gpu& gpu : gpus) {
    std::vector<int> distances;
    const fs::path place = fs::weakly_canonical(pci_folder(gpu.pci), code);
    for (const fs::path& port : ports) distances.push_back(-shared_path(place, port));
    node.distance.push_back(std::move(distances));
  }
}

}  // namespace

std::optional<Cluster> discover_gpus(const std::string& device) {
  const std::vector<Gpu> gpus = read_gpus();
  if (gpus.empty()) return std::nullopt;
  GpuNode node;
  node.device = device.empty() ? gpus[0].device : device;
  if (node.device.empty())
    throw UserError(fmt::format("GPU 0 is {}: {}", gpus[0].name, unknown_gpu(gpus[0].seen)),
                    "expected `orrery discover` with `gpus` and " + expected_device(gpus[0].seen));
  if (node.device != gpus[0].device)
    node.assumed.push_back(fmt::format("{} is taken for {}", gpus[0].name, node.device));
  node.devices = static_cast<int>(gpus.size());
  node.pcie_bytes_per_s = gpus[0].pcie_bytes_per_s;
  node.bridge_bytes_per_s = 10e9;  // NCCL's constant for two Intel processors since Skylake
  for (const Gpu& gpu : gpus) {
    if (gpu.device != gpus[0].device || (gpu.device.empty() && gpu.seen.pci_id != gpus[0].seen.pci_id))
      throw UserError(fmt::format("this machine has GPUs of two kinds, {} and {}", gpus[0].name, gpu.name),
                      "expected one kind: write a cluster file");
    node.host_bridge.push_back(numa_node(pci_folder(gpu.pci)));
  }
  count_nvlinks(gpus, node);
  read_ports(gpus, node);
  Cluster cluster =
      cluster_of_gpus(node, "localhost-gpu", fmt::format("discovered by NVML: {}", gpus[0].name), "NVML");
  cluster.groups[0].node.hosts = {"localhost"};
  return cluster;
}

}  // namespace orrery
