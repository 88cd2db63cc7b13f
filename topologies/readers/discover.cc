#include "topologies/readers/discover.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "topologies/communication_defaults.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/cluster_file.h"

namespace orrery {
namespace {

// What MPI ranks of one host reach over shared memory before anything is measured.
constexpr double kSharedMemoryBytesPerS = 5e9;
constexpr double kSharedMemoryLatencyS = 1e-6;
constexpr double kDefaultClockHz = 3e9;

struct Processor {
  std::string model = "unknown processor";
  std::string flags;  // with a blank at both ends
  double clock_hz = 0;
};

struct Machine {
  int cores = 1;
  double memory_bytes = 0;
};

// What stands behind the first "key : " of /proc/cpuinfo.
std::string cpuinfo_value(const std::string& cpuinfo, std::string_view key) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find_first_not_of(" \t", key.size()) != colon) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return {};
}

double number_or_zero(const std::string& text) {
  const double value = std::strtod(text.c_str(), nullptr);
  return value > 0 && value < 1e18 ? value : 0;
}

// The highest clock the kernel names, else the one in the model's name, else that of the moment rounded to
// 100 MHz (a moment's clock would make two discoveries differ), else 3 GHz.
double clock_of(const std::string& model, const std::string& cpuinfo) {
  const double khz = number_or_zero(first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"));
  if (khz > 0) return khz * 1e3;
  if (const std::size_t at = model.find("@ "); at != std::string::npos) {
    if (const double ghz = number_or_zero(model.substr(at + 2)); ghz > 0.1 && ghz < 20) return ghz * 1e9;
  }
  const double mhz = number_or_zero(cpuinfo_value(cpuinfo, "cpu MHz"));
  return mhz > 100 && mhz < 20'000 ? std::max(1.0, std::floor(mhz / 100 + 0.5)) * 1e8 : kDefaultClockHz;
}

Processor processor() {
  std::ostringstream content;
  content << std::ifstream("/proc/cpuinfo").rdbuf();
  const std::string cpuinfo = content.str();
  Processor result;
  for (const char* key : {"model name", "Model", "cpu"}) {
    if (std::string value = cpuinfo_value(cpuinfo, key); !value.empty()) {
      result.model = std::move(value);
      break;
    }
  }
  result.flags = " " + cpuinfo_value(cpuinfo, "flags") + cpuinfo_value(cpuinfo, "Features") + " ";
  result.clock_hz = clock_of(result.model, cpuinfo);
  return result;
}

// fp32 operations of one core a cycle: 2 (multiply and add) x lanes x units. AVX-512: two 16-lane units, as
// Xeons since Skylake have (client parts have one); AVX2 with FMA: two of 8; NEON: two of 4; else SSE: one
// multiply and one add of 4.
double flops_per_cycle(const Processor& cpu) {
  const auto has = [&](std::string_view flag) {
    return cpu.flags.find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  if (has("avx512f")) return 2 * 16 * 2;
  if (has("fma") && has("avx2")) return 2 * 8 * 2;
  if (has("asimd")) return 2 * 4 * 2;
  return 2 * 4;
}

Machine machine() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw InternalError("hwloc cannot be initialised");
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(raw,
                                                                                    &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) throw InternalError("hwloc cannot read this machine's topology");
  Machine result;
  const int cores = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE);
  const int threads = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PU);
  result.cores = std::clamp(cores > 0 ? cores : threads, 1, kMaxDevicesPerNode);
  result.memory_bytes = static_cast<double>(hwloc_get_root_obj(raw)->total_memory);
  // A container's limit, where it is lower than the machine's memory ("max" reads as zero: none).
  const double limit = number_or_zero(first_line("/sys/fs/cgroup/memory.max"));
  if (limit > 0) result.memory_bytes = std::min(result.memory_bytes, limit);
  if (!(result.memory_bytes > 0)) throw InternalError("hwloc does not know this machine's memory");
  return result;
}

std::string signature_of(const Processor& cpu, int cores) {
  return fmt::format("machine: {}, {} cores", cpu.model, cores);
}

}  // namespace

std::filesystem::path localhost_calibration_file() {
  return user_data_folder() / "localhost.textproto";
}

std::string machine_signature() {
  return signature_of(processor(), machine().cores);
}

Cluster discover_uncalibrated_localhost() {
  const Processor cpu = processor();
  const Machine host = machine();
  DeviceProfile core = catalog_device("generic-cpu");
  core.description = fmt::format("one core of {}", cpu.model);
  core.source = fmt::format("{}; generic-cpu scaled: {:.3g} GHz x {} fp32 operations a cycle",
                            signature_of(cpu, host.cores), cpu.clock_hz / 1e9, flops_per_cycle(cpu));
  core.peak_flops_per_s[static_cast<std::size_t>(DType::fp32)] = cpu.clock_hz * flops_per_cycle(cpu);
  core.memory_bytes = host.memory_bytes / host.cores;
  core.context_bytes = std::min(core.context_bytes, core.memory_bytes / 4);

  Cluster cluster;
  cluster.name = "localhost";
  cluster.description = fmt::format("this machine: {}, {} cores", cpu.model, host.cores);
  cluster.source = fmt::format("discovered; {}", signature_of(cpu, host.cores));
  cluster.fabric.transport = Transport::host;
  cluster.communication = default_communication(CommunicationLibrary::mpi, Transport::host);
  cluster.profiles.push_back(std::move(core));
  NodeType node;
  node.name = "localhost";
  node.devices = host.cores;
  node.intra.kind = IntraKind::shared_memory;
  node.intra.bandwidth_bytes_per_s = kSharedMemoryBytesPerS;
  node.intra.latency_s = kSharedMemoryLatencyS;
  node.shared_cores = host.cores;
  node.host_memory_bytes = host.memory_bytes;
  node.hosts = {"localhost"};
  cluster.groups.push_back({std::move(node), 1});
  return cluster;
}

Cluster discover_localhost() {
  const std::filesystem::path file = localhost_calibration_file();
  Cluster found = discover_uncalibrated_localhost();
  std::error_code code;
  if (!std::filesystem::exists(file, code)) return found;
  Cluster calibrated = read_cluster_file(file);
  const std::string signature = machine_signature();
  if (calibrated.source.find(signature) == std::string::npos) {
    found.description += fmt::format(" (not calibrated: {} is of another machine)", file.string());
    return found;
  }
  return calibrated;
}

}  // namespace orrery
