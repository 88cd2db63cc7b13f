// A driver's library for machines without one: four A100 of which 0-1 and 2-3 are joined by four NVLinks
// each, or, with FAKE_NVML=switch, eight H200 with eighteen NVLinks to switches; "mixed": two kinds;
// "unknown": A100 that the catalog has not; "none": no GPU.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

std::string mode() {
  const char* value = std::getenv("FAKE_NVML");
  return value == nullptr ? "" : value;
}
std::size_t index_of(void* device) {
  return reinterpret_cast<std::size_t>(device) - 1;
}
PciInfo pci_of(std::size_t index) {
  PciInfo info{};
  info.bus = static_cast<unsigned>(0x10 + index);
  const bool hopper = mode() == "switch" || (mode() == "mixed" && index == 1);
  info.pci_device_id = mode() == "unknown" ? 0x20f510deU : hopper ? 0x233510deU : 0x20b210deU;
  return info;
}

}  // namespace

extern "C" {
int nvmlInit_v2() {
  return mode() == "broken" ? 9 : 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = mode() == "none" ? 0 : mode() == "switch" ? 8 : 4;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned length) {
  std::snprintf(name, length, "a GPU of the fake driver");
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = mode() == "switch" ? 9 : 8;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  *info = pci_of(index_of(device));
  return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
  *generation = mode() == "switch" ? 5 : 4;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* width) {
  *width = 16;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* state) {
  *state = mode() == "switch" || link < 4 ? 1 : 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* info) {
  *info = {};
  if (mode() == "switch") {
    info->bus = 0xc0;
  } else {
    *info = pci_of(index_of(device) ^ 1U);
  }
  return 0;
}
}
