// orrery discover: describes this machine as a cluster, or one that its own tools have described.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct DiscoverOptions {
  std::string nccl_topology, nvidia_smi, device, out;
  double port_rate_bytes_per_s = 0, pcie_rate_bytes_per_s = 0;
  bool gpus = false;
  Output output;
};

std::string foundation_text(const DeviceProfile& device, const Cluster& cluster) {
  if (device.calibrated && cluster.communication.calibrated) return "calibrated";
  const Foundation foundation = foundation_of(device);
  const std::string_view known = foundation == Foundation::fitted      ? "fitted to measurements of its kind"
                                 : foundation == Foundation::datasheet ? "from its datasheet"
                                                                       : "assumed";
  return fmt::format("{}; `orrery calibrate` measures it", known);
}

int run_discover(const DiscoverOptions& options) {
  const Output& output = options.output;
  const Cluster cluster = discover({.gpus = options.gpus,
                                    .nccl_topology = options.nccl_topology,
                                    .nvidia_smi = options.nvidia_smi,
                                    .device = options.device,
                                    .port_bytes_per_s = options.port_rate_bytes_per_s,
                                    .pcie_bytes_per_s = options.pcie_rate_bytes_per_s});
  output.print(fmt::format("{}: {}\n", cluster.name, cluster.description));
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& device = cluster.profiles[group.node.profile];
    output.print(fmt::format(
        "{} x {} ({}): {}, {} memory at {}, {} in fp32\n", group.node.devices, device.name,
        foundation_text(device, cluster), device.description, human_bytes(device.memory_bytes),
        human_rate(device.memory_bandwidth_bytes_per_s), human_flops_rate(device.peak(DType::fp32))));
    if (group.node.nic.count > 0)
      output.print(fmt::format("  {} network ports of {}\n", group.node.nic.count,
                               human_rate(group.node.nic.bandwidth_bytes_per_s)));
  }
  if (!options.out.empty()) {
    write_cluster_file(cluster, options.out);
    output.print(fmt::format("Written to {}.\n", options.out));
  }
  output.write(to_json(cluster));
  return 0;
}

}  // namespace

Command discover_command() {
  const auto options = std::make_shared<DiscoverOptions>();
  return {"discover",
          "describes this machine, or one by its tools' output, as a cluster",
          {switch_option(
               {.key = "gpus", .help = "this machine's NVIDIA GPUs (by NVML) instead of its processor cores"},
               options->gpus),
           text_option({.key = "nccl_topology",
                        .unit = "XML",
                        .help = "a node as NCCL saw it: what NCCL_TOPO_DUMP_FILE names",
                        .fallback = "this machine"},
                       options->nccl_topology),
           text_option({.key = "nvidia_smi",
                        .unit = "FILE",
                        .help = "a node by what `nvidia-smi topo -m` printed",
                        .fallback = "this machine"},
                       options->nvidia_smi),
           text_option({.key = "device",
                        .unit = "NAME",
                        .help = "the GPUs, by their catalog name, which --nvidia-smi needs",
                        .fallback = "what their PCI ids say"},
                       options->device),
           number_option({.key = "port_rate",
                          .unit = "BYTES_PER_S",
                          .help = "with --nvidia-smi: bytes/s of one network port",
                          .fallback = "the network is left out"},
                         options->port_rate_bytes_per_s, kPositive),
           number_option({.key = "pcie_rate",
                          .unit = "BYTES_PER_S",
                          .help = "with a file: bytes/s of one GPU's PCIe, each direction",
                          .fallback = "as the dump has it; else 16 lanes of the device's generation"},
                         options->pcie_rate_bytes_per_s, kPositive),
           text_option({.key = "out",
                        .unit = "CLUSTER",
                        .help = "write the description as a cluster textproto",
                        .fallback = "none written"},
                       options->out),
           options->output.setting()},
          [options] { return run_discover(*options); }};
}

}  // namespace orrery::cli
