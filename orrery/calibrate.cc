#include "orrery/calibrate.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/site_calibration.h"

namespace orrery {

SiteCalibrated calibrate_from(const CalibrateRequest& request) {
  const Cluster cluster = load_cluster(request.cluster);
  if (cluster.calibration)
    throw UserError(request.cluster, 0, "is calibrated already", "the cluster as it was before");
  if (cluster.groups.size() != 1)
    throw UserError(request.cluster, 0, "has several kinds of nodes",
                    "one: files do not say which was measured");
  SiteCalibrated result;
  result.cluster = cluster.name;
  result.measured = measurements::read(request.files, {cluster, request.runtime});
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

}  // namespace orrery
