#include "orrery/calibrate.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"
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

}  // namespace orrery
