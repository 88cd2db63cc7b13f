// orrery discover: describes this machine as a cluster.
#include "topologies/discover.h"

#include <fmt/format.h>

#include <memory>

#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "topologies/cluster_file.h"

namespace orrery::cli {
namespace {

int run(const std::string& out, const Output& output) {
  const Cluster cluster = discover_localhost();
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
                      {"memory_bandwidth_bytes_per_s", device.memory_bandwidth_bytes_per_s},
                      {"peak_fp32_flops_per_s", device.peak(DType::fp32)}});
    output.print(fmt::format(
        "{} x {} ({}): {}, {} memory at {}, {} in fp32\n", group.node.devices, device.name,
        device.calibrated ? "calibrated" : "not calibrated: `orrery calibrate` measures it",
        device.description, human_bytes(device.memory_bytes), human_rate(device.memory_bandwidth_bytes_per_s),
        human_flops_rate(device.peak(DType::fp32))));
  }
  if (!out.empty()) {
    write_cluster_file(cluster, out);
    output.print(fmt::format("written to {}\n", out));
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
  auto* verb = app.add_subcommand("discover", "describes this machine as a cluster");
  const auto output = std::make_shared<Output>();
  const auto out = std::make_shared<std::string>();
  verb->add_option("--out", *out, "write the description as a cluster textproto (default: none written)")
      ->type_name("CLUSTER");
  output->add_option(*verb);
  verb->callback([&action, output, out] { action = [output, out] { return run(*out, *output); }; });
}

}  // namespace orrery::cli
