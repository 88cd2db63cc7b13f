#include "orrery/calibrate.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "orrery/validate.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/site_calibration.h"

namespace orrery {

namespace {

// Of one table: more say no more of a dozen factors, and each takes some 20 ms.
constexpr int kMostPlans = 200;

// launch(ranks, arguments, placement): of a part; the first that fails ends it. `last` is added to the
// second.
template <typename Launch>
int measure_hosts(const HostsRequest& request, const std::vector<std::string>& last, Launch launch) {
  if (request.out.empty())
    throw UserError("calibrate CLUSTER does not say where to", "`out` FILE, for the calibrated cluster");
  if (under_launcher())
    throw UserError("calibrate CLUSTER starts its ranks itself", "outside mpirun and srun");
  check_writable(request.out);
  const Cluster cluster = load_cluster(request.cluster);
  if (cluster.groups.size() != 1 || cluster.communication.library != CommunicationLibrary::mpi)
    throw UserError(request.cluster, 0, "only clusters of processors of one type of node are calibrated",
                    "one group, library: \"mpi\"");
  const NodeType& node = cluster.groups.front().node;
  const TemporaryFolder folder;
  const std::string host = request.host.empty() ? folder.path() + "/host.textproto" : request.host;
  const std::string described = folder.path() + "/cluster.textproto";
  write_cluster_file(cluster, described);
  Placement placement = placement_of(cluster, cluster.nodes() * node.devices);
  placement.mpirun_args = request.mpirun_args;
  const std::vector<std::string> all = placement.hosts;
  if (request.host.empty()) {
    const int cores = std::max(2, cluster.shared_cores > 0 ? cluster.shared_cores : node.devices);
    if (!all.empty()) placement.hosts.assign(static_cast<std::size_t>(cores), all.front());
    const int code = launch(cores, {"calibrate", "--out", host}, placement);
    if (code != 0) return code;
  } else {
    load_cluster(request.host);  // says what is wrong with it once
  }
  placement.hosts.clear();
  for (std::size_t rank = 0; rank < all.size(); rank += static_cast<std::size_t>(node.devices))
    placement.hosts.push_back(all[rank]);
  std::vector<std::string> arguments = {"calibrate-network", described, "--host", host, "--out", request.out};
  arguments.insert(arguments.end(), last.begin(), last.end());
  return launch(cluster.nodes(), arguments, placement);
}

}  // namespace

SiteCalibrated calibrate_from(const CalibrateRequest& request) {
  const Cluster cluster = load_cluster(request.cluster);
  if (cluster.calibration)
    throw UserError(request.cluster, 0, "is calibrated already", "the cluster as it was before");
  if (cluster.groups.size() != 1)
    throw UserError(request.cluster, 0, "has several kinds of nodes",
                    "one: files do not say which was measured");
  check_writable(request.out);
  SiteCalibrated result;
  result.cluster = cluster.name;
  result.measured = measurements::read(request.files, {cluster, request.runtime, nullptr, kMostPlans});
  result.calibrated = measurements::calibrate(cluster, result.measured);
  const std::filesystem::path file =
      request.out.empty() ? site_calibration_file(cluster) : std::filesystem::path(request.out);
  if (request.out.empty()) {
    std::error_code error;
    std::filesystem::create_directories(file.parent_path(), error);
    if (error)
      throw UserError(file.parent_path().string() + ": " + error.message(), "a folder that can be written");
  }
  write_cluster_file(result.calibrated.cluster, file.string());
  result.file = file.string();
  return result;
}

MachineCalibrated calibrate_machine(MpiLibrary mpi, const std::string& out) {
  const TemporaryFolder folder;
  const std::string report = folder.path() + "/calibrate.json";
  std::vector<std::string> arguments = {"calibrate", "--json", report};
  if (!out.empty()) arguments.insert(arguments.end(), {"--out", out});
  MachineCalibrated result;
  const int ranks = std::max(2, usable_cores());  // links want two ends
  result.exit_code = launch_executor_beside(mpi, ranks, arguments, {}, &result.said);
  if (result.exit_code == 0) result.report = read_json(report);
  return result;
}

MachineCalibrated calibrate_hosts(MpiLibrary mpi, const HostsRequest& request) {
  const TemporaryFolder folder;
  const std::string report = folder.path() + "/calibrate.json";
  MachineCalibrated result;
  result.exit_code =
      measure_hosts(request, {"--json", report},
                    [&](int ranks, const std::vector<std::string>& arguments, const Placement& placement) {
                      return launch_executor_beside(mpi, ranks, arguments, placement, &result.said);
                    });
  if (result.exit_code == 0) result.report = read_json(report);
  return result;
}

int calibrate_hosts_aloud(MpiLibrary mpi, const HostsRequest& request, const std::string& json) {
  std::vector<std::string> last;
  if (!json.empty()) last = {"--json", json};
  return measure_hosts(request, last,
                       [&](int ranks, const std::vector<std::string>& arguments, const Placement& placement) {
                         // What of a host is not what --json asks for.
                         return json == "-" && arguments.front() == "calibrate"
                                    ? launch_executor_beside(mpi, ranks, arguments, placement)
                                    : launch_executor(mpi, ranks, arguments, placement);
                       });
}

}  // namespace orrery
