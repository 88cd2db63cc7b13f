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
namespace {

// Takes from `now` what no measurement says anything of: prices, power, words, hosts' names, and how many
// nodes there are.
void take_what_is_not_learned(const Cluster& now, Cluster* cluster) {
  cluster->description = now.description;
  cluster->source = now.source;
  for (std::size_t g = 0; g < cluster->groups.size() && g < now.groups.size(); ++g) {
    NodeGroup& group = cluster->groups[g];
    group.count = now.groups[g].count;
    group.node.name = now.groups[g].node.name;
    group.node.price_usd_per_device_hour = now.groups[g].node.price_usd_per_device_hour;
    group.node.host_power_w = now.groups[g].node.host_power_w;
    group.node.hosts = now.groups[g].node.hosts;
  }
  for (std::size_t d = 0; d < cluster->profiles.size() && d < now.profiles.size(); ++d) {
    DeviceProfile& device = cluster->profiles[d];
    device.description = now.profiles[d].description;
    device.source = now.profiles[d].source;
    device.idle_power_w = now.profiles[d].idle_power_w;
    device.peak_power_w = now.profiles[d].peak_power_w;
    device.price_usd_per_hour = now.profiles[d].price_usd_per_hour;
    device.price_as_of = now.profiles[d].price_as_of;
  }
}

// With nothing of that: what a profile is found by.
Cluster as_learned(Cluster cluster) {
  Cluster nothing;
  for (std::size_t g = 0; g < cluster.groups.size(); ++g) nothing.groups.push_back({{}, 1});
  nothing.profiles.resize(cluster.profiles.size());
  take_what_is_not_learned(nothing, &cluster);
  return cluster;
}

}  // namespace

std::filesystem::path site_calibration_file(const Cluster& cluster) {
  proto::Cluster message;
  to_proto(as_learned(cluster), &message);
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
  if (!std::filesystem::exists(file, code)) return cluster;
  Cluster measured = read_cluster_file(file);
  take_what_is_not_learned(cluster, &measured);
  return measured;
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
