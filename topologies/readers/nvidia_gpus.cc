#include "topologies/readers/nvidia_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.h"

namespace orrery {
namespace {

// Compute capabilities: NVIDIA's list of CUDA GPUs. PCIe and NVLinks: datasheets. A800 and H800 have eight
// NVLinks. Cards are joined by bridges, never by switches.
constexpr std::array<NvidiaGpu, 47> kNvidiaGpus = {{
    {"k80-gk210-12g", 37, 3, 0},
    {"p100-pcie-16g", 60, 3, 0},
    {"p100-sxm2-16g", 60, 3, 0},
    {"gtx-1080-ti-11g", 61, 3, 0},
    {"v100-pcie-16g", 70, 3, 0},
    {"v100-pcie-32g", 70, 3, 0},
    {"v100-sxm2-16g", 70, 3, 6},
    {"v100-sxm2-32g", 70, 3, 6},
    {"t4", 75, 3, 0},
    {"quadro-rtx-8000-48g", 75, 3, 0},
    {"rtx-2080-8g", 75, 3, 0},
    {"rtx-2080-ti-11g", 75, 3, 0},
    {"titan-rtx-24g", 75, 3, 0},
    {"a100-pcie-40g", 80, 4, 0},
    {"a100-pcie-80g", 80, 4, 0},
    {"a100-sxm-40g", 80, 4, 12},
    {"a100-sxm-80g", 80, 4, 12},
    {"a30-24g", 80, 4, 0},
    {"a800-sxm-80g", 80, 4, 8},
    {"a10-24g", 86, 4, 0},
    {"a10g-24g", 86, 4, 0},
    {"a40-48g", 86, 4, 0},
    {"rtx-3090-24g", 86, 4, 0},
    {"rtx-3080-10g", 86, 4, 0},
    {"rtx-a5000-24g", 86, 4, 0},
    {"rtx-a6000-48g", 86, 4, 0},
    {"l4-24g", 89, 4, 0},
    {"l40-48g", 89, 4, 0},
    {"l40s", 89, 4, 0},
    {"rtx-4090", 89, 4, 0},
    {"rtx-6000-ada-48g", 89, 4, 0},
    {"gh200-144g", 90, 5, 18},
    {"gh200-96g", 90, 5, 18},
    {"h100-nvl-94g", 90, 5, 0},
    {"h100-pcie-80g", 90, 5, 0},
    {"h100-sxm-80g", 90, 5, 18},
    {"h100-sxm-96g-500w", 90, 5, 18},
    {"h20-sxm-96g", 90, 5, 18},
    {"h200-nvl-141g", 90, 5, 0},
    {"h200-sxm-141g", 90, 5, 18},
    {"h800-sxm-80g", 90, 5, 8},
    {"b200-sxm-180g", 100, 5, 18},
    {"gb200-186g", 100, 5, 18},
    {"b300-sxm-288g", 103, 6, 18},
    {"gb300-288g", 103, 6, 18},
    {"rtx-5090-32g", 120, 5, 0},
    {"rtx-pro-6000-96g", 120, 5, 0},
}};

struct PciId {
  unsigned id;
  std::string_view device;
};
// pci.ids, vendor 10de.
constexpr std::array<PciId, 53> kPciIds = {{
    {0x102d, "k80-gk210-12g"},
    {0x15f8, "p100-pcie-16g"},
    {0x15f9, "p100-sxm2-16g"},
    {0x1b06, "gtx-1080-ti-11g"},
    {0x1db1, "v100-sxm2-16g"},
    {0x1db4, "v100-pcie-16g"},
    {0x1db5, "v100-sxm2-32g"},
    {0x1db6, "v100-pcie-32g"},
    {0x1df5, "v100-sxm2-16g"},
    {0x1e02, "titan-rtx-24g"},
    {0x1e04, "rtx-2080-ti-11g"},
    {0x1e07, "rtx-2080-ti-11g"},
    {0x1e78, "quadro-rtx-8000-48g"},
    {0x1e82, "rtx-2080-8g"},
    {0x1e87, "rtx-2080-8g"},
    {0x1eb8, "t4"},
    {0x20b0, "a100-sxm-40g"},
    {0x20b1, "a100-pcie-40g"},
    {0x20b2, "a100-sxm-80g"},
    {0x20b5, "a100-pcie-80g"},
    {0x20b7, "a30-24g"},
    {0x20f1, "a100-pcie-40g"},
    {0x20f3, "a800-sxm-80g"},
    {0x2204, "rtx-3090-24g"},
    {0x2206, "rtx-3080-10g"},
    {0x2216, "rtx-3080-10g"},
    {0x2230, "rtx-a6000-48g"},
    {0x2231, "rtx-a5000-24g"},
    {0x2235, "a40-48g"},
    {0x2236, "a10-24g"},
    {0x2237, "a10g-24g"},
    {0x2321, "h100-nvl-94g"},
    {0x2324, "h800-sxm-80g"},
    {0x2329, "h20-sxm-96g"},
    {0x2330, "h100-sxm-80g"},
    {0x2331, "h100-pcie-80g"},
    {0x2335, "h200-sxm-141g"},
    {0x233b, "h200-nvl-141g"},
    {0x2342, "gh200-96g"},
    {0x2348, "gh200-144g"},
    {0x2684, "rtx-4090"},
    {0x26b1, "rtx-6000-ada-48g"},
    {0x26b5, "l40-48g"},
    {0x26b9, "l40s"},
    {0x27b8, "l4-24g"},
    {0x2901, "b200-sxm-180g"},
    {0x2941, "gb200-186g"},
    {0x2b85, "rtx-5090-32g"},
    {0x2bb1, "rtx-pro-6000-96g"},
    {0x2bb5, "rtx-pro-6000-96g"},
    {0x3182, "b300-sxm-288g"},
    {0x31c2, "gb300-288g"},
    {0x31c3, "gb300-288g"},
}};
// Of the same list: products that the catalog has not, by their names.
constexpr std::array<PciId, 25> kOtherProducts = {{
    {0x15f7, "P100 PCIe 12GB"},
    {0x1d81, "TITAN V"},
    {0x1db8, "V100 SXM3 32GB"},
    {0x1df6, "V100S PCIe 32GB"},
    {0x1e30, "Quadro RTX 6000 or 8000"},
    {0x20b3, "A100 SXM 64GB"},
    {0x20bd, "A800 SXM4 40GB"},
    {0x20f5, "A800 PCIe 80GB"},
    {0x20f6, "A800 PCIe 40GB"},
    {0x2203, "RTX 3090 Ti"},
    {0x2322, "H800 PCIe"},
    {0x2328, "H20B"},
    {0x232c, "H20 HBM3e"},
    {0x2337, "H100 SXM5 64GB"},
    {0x2338, "H100 SXM5 96GB"},
    {0x2339, "H100 SXM5 94GB"},
    {0x233a, "H800 94GB"},
    {0x233d, "H100 96GB"},
    {0x25b6, "A2 or A16"},
    {0x2685, "RTX 4090 D"},
    {0x26b7, "L20"},
    {0x26ba, "L20"},
    {0x2909, "B200 168GB"},
    {0x2b87, "RTX 5090 D"},
    {0x2bb4, "RTX PRO 6000 Max-Q"},
}};

struct LinkRate {
  int from_compute_capability;
  double bytes_per_s;
};
// Datasheets, both ways: P100 160 GB/s with four links, V100 300 with six, A100 600 with twelve, A40 and RTX
// 3090 112.5 with four, H100 900 with eighteen, B200 1800 with eighteen. (NCCL's src/graph/topo.h has what
// protocols leave of each: 18, 20, 20, 12, 20.6 and 40.1 GB/s.)
constexpr std::array<LinkRate, 7> kLinkRates = {
    {{60, 20e9}, {70, 25e9}, {80, 25e9}, {86, 14.0625e9}, {87, 25e9}, {90, 25e9}, {100, 50e9}}};

constexpr int kMostGenerations = 7, kMostLanes = 32;
// Of one lane of the first generation: as much of what it signals as the catalog's nodes have of theirs, 13
// GB/s for sixteen lanes of the third generation to 104 for those of the sixth.
constexpr double kFirstLane = 13e9 / 16 / 4;

// What nobody says is the third generation with sixteen lanes.
int generation_or_third(int generation) {
  return generation < 1 || generation > kMostGenerations ? 3 : generation;
}
int lanes_or_sixteen(int lanes) {
  return lanes < 1 || lanes > kMostLanes ? 16 : lanes;
}

std::string capability_words(int compute_capability) {
  return fmt::format("compute capability {}.{}", compute_capability / 10, compute_capability % 10);
}

template <std::size_t N>
std::string_view name_of_id(const std::array<PciId, N>& known, unsigned id) {
  const auto at = std::find_if(known.begin(), known.end(), [&](const PciId& one) { return one.id == id; });
  return at == known.end() ? std::string_view() : at->device;
}

}  // namespace

const NvidiaGpu* nvidia_gpu(std::string_view device) {
  const auto at = std::find_if(kNvidiaGpus.begin(), kNvidiaGpus.end(),
                               [&](const NvidiaGpu& gpu) { return gpu.device == device; });
  return at == kNvidiaGpus.end() ? nullptr : &*at;
}

double nvlink_bytes_per_s(int compute_capability) {
  double rate = kLinkRates[0].bytes_per_s;
  for (const LinkRate& from : kLinkRates)
    if (compute_capability >= from.from_compute_capability) rate = from.bytes_per_s;
  return rate;
}

double pcie_bytes_per_s(int generation, int lanes) {
  return kFirstLane * std::ldexp(lanes_or_sixteen(lanes), generation_or_third(generation) - 1);
}

std::string pcie_in_words(int generation, int lanes) {
  return fmt::format("PCIe {}.0 x{} ({})", generation_or_third(generation), lanes_or_sixteen(lanes),
                     human_rate(pcie_bytes_per_s(generation, lanes)));
}

std::optional<std::string> device_of(const SeenGpu& gpu) {
  const std::string_view device = name_of_id(kPciIds, gpu.pci_id);
  return device.empty() ? std::nullopt : std::optional<std::string>(device);
}

std::string in_words(const SeenGpu& gpu) {
  if (gpu.pci_id != 0) {
    const std::string_view product = name_of_id(kOtherProducts, gpu.pci_id);
    return product.empty() ? fmt::format("GPU of PCI id 0x{:04x}", gpu.pci_id)
                           : fmt::format("{} (PCI id 0x{:04x})", product, gpu.pci_id);
  }
  if (gpu.compute_capability > 0) return "GPU of " + capability_words(gpu.compute_capability);
  return "GPU without a PCI id";
}

std::string unknown_gpu(const SeenGpu& gpu) {
  if (gpu.pci_id != 0) return "the catalog has no " + in_words(gpu);
  return gpu.compute_capability > 0 ? fmt::format("no PCI id says which {} it is", in_words(gpu))
                                    : "no PCI id says which GPU it is";
}

std::string expected_device(const SeenGpu& gpu) {
  std::string near;
  for (const NvidiaGpu& known : kNvidiaGpus)
    if (known.compute_capability == gpu.compute_capability)
      near += (near.empty() ? "" : ", ") + std::string(known.device);
  if (near.empty()) return "`device`, to say which of `orrery catalog` to take it for";
  return fmt::format("`device`, to say which to take it for; of {} there are {}",
                     capability_words(gpu.compute_capability), near);
}

}  // namespace orrery
