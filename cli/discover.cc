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

struct Options {
  std::string nccl_topology, nvidia_smi, device, out;
  double port_rate_bytes_per_s = 0;
  bool gpus = false;
  Output output;
};

int run(const Options& options) {
  const Output& output = options.output;
  const Cluster cluster = discover({.gpus = options.gpus,
                                    .nccl_topology = options.nccl_topology,
                                    .nvidia_smi = options.nvidia_smi,
                                    .device = options.device,
                                    .port_bytes_per_s = options.port_rate_bytes_per_s});
  output.print(fmt::format("{}: {}\n", cluster.name, cluster.description));
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& device = cluster.profiles[group.node.profile];
    output.print(fmt::format(
        "{} x {} ({}): {}, {} memory at {}, {} in fp32\n", group.node.devices, device.name,
        device.calibrated ? "calibrated" : "not calibrated: `orrery calibrate` measures it",
        device.description, human_bytes(device.memory_bytes), human_rate(device.memory_bandwidth_bytes_per_s),
        human_flops_rate(device.peak(DType::fp32))));
    if (group.node.nic.count > 0)
      output.print(fmt::format("  {} network ports of {}\n", group.node.nic.count,
                               human_rate(group.node.nic.bandwidth_bytes_per_s)));
  }
  if (!options.out.empty()) {
    write_cluster_file(cluster, options.out);
    output.print(fmt::format("written to {}\n", options.out));
  }
  output.write(to_json(cluster));
  return 0;
}

}  // namespace

void add_discover(CLI::App& app, Action& action) {
  auto* verb =
      app.add_subcommand("discover", "describes this machine, or one by its tools' output, as a cluster");
  const auto options = std::make_shared<Options>();
  verb->add_flag("--gpus", options->gpus,
                 "this machine's NVIDIA GPUs (by NVML) instead of its processor cores");
  verb->add_option("--nccl-topology", options->nccl_topology,
                   "a node as NCCL saw it: what NCCL_TOPO_DUMP_FILE names (default: this machine)")
      ->type_name("XML");
  verb->add_option("--nvidia-smi", options->nvidia_smi,
                   "a node by what `nvidia-smi topo -m` printed (default: this machine)")
      ->type_name("FILE");
  verb->add_option("--device", options->device, "with --nvidia-smi: the GPUs, by their catalog name")
      ->type_name("NAME");
  verb->add_option("--port-rate", options->port_rate_bytes_per_s,
                   "with --nvidia-smi: bytes/s of one network port (default: the network is left out)")
      ->check(positive_number().description(""))
      ->type_name("BYTES_PER_S");
  verb->add_option("--out", options->out,
                   "write the description as a cluster textproto (default: none written)")
      ->type_name("CLUSTER");
  options->output.add_option(*verb);
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
