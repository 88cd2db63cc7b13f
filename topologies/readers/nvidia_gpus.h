// What tools say of NVIDIA's GPUs in numbers (PCI ids, compute capabilities, links), and what that means.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// What a device of the catalog has that its profile does not say.
struct NvidiaGpu {
  std::string_view device;  // of the catalog
  int compute_capability;   // 90: 9.0
  int pcie_generation;      // of its way to a network port, sixteen lanes
  int switch_links;         // NVLinks where it stands among switches; 0: it never does
};
// Null: none of NVIDIA's, or none of the catalog's.
const NvidiaGpu* nvidia_gpu(std::string_view device);

// One NVLink, each direction, by the datasheets.
double nvlink_bytes_per_s(int compute_capability);
// What lanes carry of data, as the catalog's nodes have it. 0 and what nobody has: as NCCL, the third
// generation and sixteen lanes.
double pcie_bytes_per_s(int generation, int lanes);
// "PCIe 5.0 x16 (52 GB/s)"
std::string pcie_in_words(int generation, int lanes);

// A GPU as a tool names it: 0 where it does not.
struct SeenGpu {
  unsigned pci_id = 0;  // of vendor 0x10de
  int compute_capability = 0;
};
// The catalog's device with this PCI id. What has none is not guessed: two GPUs of one compute capability may
// differ in everything.
std::optional<std::string> device_of(const SeenGpu& gpu);
// "A800 PCIe 80GB (PCI id 0x20f5)", "GPU of PCI id 0x20ff", "GPU of compute capability 8.0"
std::string in_words(const SeenGpu& gpu);
// Of a GPU that device_of() does not know, for errors: what is wrong, and `device` with candidates by compute
// capability.
std::string unknown_gpu(const SeenGpu& gpu);
std::string expected_device(const SeenGpu& gpu);

}  // namespace orrery
