// orrery calibrate: measures this machine's devices and links.
#include <memory>

#include "base/error.h"
#include "cli/executor.h"
#include "cli/verbs.h"
#include "topologies/catalog.h"
#include "topologies/cluster_file.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string cluster, host, out, json, mpi, mpirun_args;
};

// A cluster's file: one of its hosts' cores and memory first, unless they are known, then a rank on each node
// for the links.
int calibrate_cluster(const Options& options) {
  if (options.out.empty())
    throw UserError("calibrate CLUSTER does not say where to", "--out FILE, for the calibrated cluster");
  if (under_launcher())
    throw UserError("calibrate CLUSTER starts its ranks itself", "outside mpirun and srun");
  const Cluster cluster = load_cluster(options.cluster);
  if (cluster.groups.size() != 1 || cluster.communication.library != CommunicationLibrary::mpi)
    throw UserError(options.cluster, 0, "only clusters of processors of one type of node are calibrated",
                    "one group, library: \"mpi\"");
  const NodeType& node = cluster.groups.front().node;
  const MpiLibrary mpi = parse_mpi(options.mpi);
  const TemporaryFolder folder;
  const std::string host = options.host.empty() ? folder.path() + "/host.textproto" : options.host;
  const std::string described = folder.path() + "/cluster.textproto";
  write_cluster_file(cluster, described);
  Placement placement = placement_of(cluster, cluster.nodes() * node.devices, options.mpirun_args);
  const std::vector<std::string> all = placement.hosts;
  const int cores = std::max(2, cluster.shared_cores > 0 ? cluster.shared_cores : node.devices);
  if (!all.empty()) placement.hosts.assign(static_cast<std::size_t>(cores), all.front());
  if (options.host.empty()) {
    if (const int code = launch_executor(mpi, cores, {"calibrate", "--out", host}, placement); code != 0)
      return code;
  } else {
    load_cluster(options.host);  // says what is wrong with it once
  }
  placement.hosts.clear();
  for (std::size_t rank = 0; rank < all.size(); rank += static_cast<std::size_t>(node.devices))
    placement.hosts.push_back(all[rank]);
  return launch_executor(mpi, cluster.nodes(),
                         {"calibrate-network", described, "--host", host, "--out", options.out}, placement);
}

int run(const Options& options) {
  if (!options.cluster.empty()) return calibrate_cluster(options);
  if (!options.host.empty())
    throw UserError("--host without a CLUSTER", "calibrate CLUSTER --host FILE --out FILE");
  std::vector<std::string> arguments = {"calibrate"};
  if (!options.out.empty()) arguments.insert(arguments.end(), {"--out", options.out});
  if (!options.json.empty()) arguments.insert(arguments.end(), {"--json", options.json});
  const int ranks = std::max(2, usable_cores());  // links want two ends
  return launch_executor(parse_mpi(options.mpi), ranks, arguments);
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("calibrate", "measures this machine's devices and links");
  const auto options = std::make_shared<Options>();
  verb->add_option("CLUSTER", options->cluster,
                   "a cluster's file whose hosts and links are measured (default: this machine alone)");
  verb->add_option(
          "--host", options->host,
          "with CLUSTER: a calibrated file of one of its hosts, or of a cluster of such hosts; only links "
          "are measured (default: the first host is measured too)")
      ->type_name("FILE");
  verb->add_option(
          "--out", options->out,
          "where to write the profile (default: the user's data folder, where plans on localhost find it)")
      ->type_name("PROFILE");
  add_mpi_option(*verb, options->mpi);
  add_mpirun_args_option(*verb, options->mpirun_args);
  verb->add_option("--json", options->json, "write the result as one JSON object to FILE; - for stdout")
      ->type_name("FILE|-");
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
