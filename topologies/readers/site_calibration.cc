#include "topologies/readers/site_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <system_error>

#include "base/file.h"
#include "base/hash.h"
#include "proto/cluster.pb.h"
#include "proto/textproto.h"
#include "topologies/readers/cluster_file.h"
#include "topologies/readers/discover.h"

namespace orrery {

std::filesystem::path site_calibration_file(const Cluster& cluster) {
  proto::Cluster message;
  to_proto(cluster, &message);
  std::string name = cluster.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '_';
  return user_data_folder() / "clusters" /
         fmt::format("{}-{:016x}.textproto", name.substr(0, 64), fnv_of(to_textproto(message)));
}

Cluster with_site_calibration(Cluster cluster) {
  if (cluster.calibration) return cluster;
  const std::filesystem::path file = site_calibration_file(cluster);
  std::error_code code;
  return std::filesystem::exists(file, code) ? read_cluster_file(file) : cluster;
}

std::int64_t last_calibration() {
  std::int64_t last = std::numeric_limits<std::int64_t>::min();  // the file clock counts from the year 2174
  // A folder changes with each file that is put into it or taken from it.
  for (const std::filesystem::path& path : {user_data_folder() / "clusters", localhost_calibration_file()}) {
    std::error_code code;
    const auto time = std::filesystem::last_write_time(path, code);
    if (!code) last = std::max<std::int64_t>(last, time.time_since_epoch().count());
  }
  return last;
}

}  // namespace orrery
