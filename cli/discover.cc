// orrery discover: describes this machine as a cluster, or one that its own tools have described.
#include "topologies/readers/discover.h"

#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/nccl_xml.h"
#include "topologies/readers/nvidia_smi.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string nccl_topology, nvidia_smi, device, out;
  double port_rate_bytes_per_s = 0;
  bool gpus = false;
  Output output;
};

Cluster discovered(const Options& options) {
  const int asked =
      !options.nccl_topology.empty() + !options.nvidia_smi.empty() + static_cast<int>(options.gpus);
  if (asked > 1)
    throw UserError("several machines to describe", "one of --nccl-topology, --nvidia-smi and --gpus");
  if (options.nvidia_smi.empty() && (!options.device.empty() || options.port_rate_bytes_per_s > 0))
    throw UserError("--device and --port-rate say what nvidia-smi's matrix does not",
                    "with --nvidia-smi FILE");
  if (!options.nccl_topology.empty())
    return cluster_from_nccl_topology(read_file(options.nccl_topology), options.nccl_topology);
  if (!options.nvidia_smi.empty()) {
    if (options.device.empty())
      throw UserError("--nvidia-smi: the matrix does not name the GPUs", "--device NAME (`orrery catalog`)");
    return cluster_from_nvidia_smi(
        read_file(options.nvidia_smi), options.nvidia_smi,
        {.device = options.device, .port_bytes_per_s = options.port_rate_bytes_per_s});
  }
  return options.gpus ? load_cluster("localhost-gpu") : discover_localhost();
}

int run(const Options& options) {
  const Output& output = options.output;
  const Cluster cluster = discovered(options);
  Json groups = Json::array();
  output.print(fmt::format("{}: {}\n", cluster.name, cluster.description));
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& device = cluster.profiles[group.node.profile];
    groups.push_back({{"nodes", group.count},
                      {"devices", group.node.devices},
                      {"device", device.name},
                      {"profile", device.calibrated ? "calibrated" : "datasheet"},
                      {"profile_source", device.source},
                      {"memory_bytes", device.memory_bytes},
                      {"network_ports", group.node.nic.count},
                      {"memory_bandwidth_bytes_per_s", device.memory_bandwidth_bytes_per_s},
                      {"peak_fp32_flops_per_s", device.peak(DType::fp32)}});
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
  output.write({{"name", cluster.name},
                {"description", cluster.description},
                {"source", cluster.source},
                {"nodes", cluster.nodes()},
                {"devices", cluster.devices()},
                {"groups", groups}});
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
