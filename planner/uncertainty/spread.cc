#include "planner/uncertainty/spread.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "base/embedded.h"
#include "base/error.h"
#include "planner/uncertainty/site.h"
#include "proto/spread.pb.h"
#include "proto/textproto.h"
#include "topologies/device_catalog.h"
#include "topologies/link_class.h"

namespace orrery {
const std::vector<EmbeddedFile>& embedded_spread();
}

namespace orrery::planner {
namespace {

const proto::Spreads& spreads() {
  static const proto::Spreads read = [] {
    proto::Spreads message;
    for (const EmbeddedFile& file : embedded_spread())
      merge_textproto(file.content, "planner/uncertainty/" + std::string(file.name) + ".textproto", &message);
    return message;
  }();
  return read;
}

template <typename Members>
double sd_of(const Members& members, std::string_view name, double unknown) {
  for (const auto& member : members)
    if (member.name() == name) return member.sd();
  return unknown;
}

// Whom evidence names: software, devices or networks.
std::set<std::string, std::less<>> names_of(Level level) {
  std::set<std::string, std::less<>> names;
  for (const proto::FactorSpread& factor : spreads().factor())
    if (level_of(factor_from_name(factor.factor())) == level)
      for (const auto& member : factor.member()) names.insert(member.name());
  return names;
}

bool known(Level level, std::string_view name) {
  static const std::array all = {names_of(Level::framework), names_of(Level::device),
                                 names_of(Level::network)};
  return all.at(static_cast<std::size_t>(level)).contains(name);
}

// Whether evidence names a device of that vendor.
bool known_vendor(const std::string& vendor) {
  static const std::set<std::string> vendors = [] {
    std::set<std::string> found;
    for (const std::string& name : names_of(Level::device))
      if (is_catalog_device(name)) found.insert(catalog_device(name).vendor);
    return found;
  }();
  return vendors.contains(vendor);
}

// `orrery calibrate` measures devices and network of one machine together; the catalog's profiles are fitted
// to what others measured of devices of this kind.
Foundation foundation_of(const DeviceProfile& device, const Cluster& cluster) {
  if (device.calibrated && cluster.communication.calibrated) return Foundation::calibrated;
  return orrery::foundation_of(device);
}

bool unmeasured(Foundation foundation) {
  return foundation == Foundation::datasheet || foundation == Foundation::assumed;
}

// The population's spread is that of devices with fitted products or clocks: of others more is not known.
void widen_for_unmeasured(const DeviceProfile& device, const Cluster& cluster, Spread* spread) {
  if (!unmeasured(spread->rests_on.device)) return;
  const double of_vendor = known_vendor(device.vendor) ? 0 : spreads().unknown_vendor_sd();
  double& clock = spread->factor[static_cast<std::size_t>(Factor::clock)];
  clock = std::hypot(clock, spreads().unmeasured_device_sd(), of_vendor);
  const auto has_links = [](const NodeGroup& group) { return group.node.devices > 1; };
  if (std::none_of(cluster.groups.begin(), cluster.groups.end(), has_links)) return;
  if (cluster.communication.calibrated || !unmeasured(links_foundation(cluster))) return;
  double& intra = spread->factor[static_cast<std::size_t>(Factor::intra)];
  intra = std::max(intra, spreads().unmeasured_links_sd());
}

// What was measured on the cluster itself leaves less unknown.
void narrow(const SiteCalibration& calibration, const Job& job, Spread* spread) {
  const Covariance covariance = covariance_in(calibration, job, spread->factor);
  for (std::size_t f = 0; f < kFactors; ++f) spread->factor[f] = std::sqrt(std::max(0.0, covariance[f][f]));
  spread->directions = directions_of(covariance);
  if (calibration.collectives > 0) spread->rests_on.network = Foundation::calibrated;
  if (calibration.steps == 0) return;
  spread->site = 0;  // among the effects
  const bool known_model = calibration.at(model_effect(job.workload)) >= 0;
  spread->own = std::hypot(calibration.own_sd, calibration.alike_sd, known_model ? 0 : spreads().model_sd());
  spread->rests_on.device = Foundation::calibrated;
  if (calibration.runtime == job.runtime.name) spread->rests_on.runtime = Foundation::calibrated;
}

}  // namespace

Foundation network_foundation(const Cluster& cluster) {
  if (cluster.communication.calibrated || (cluster.calibration && cluster.calibration->collectives > 0))
    return Foundation::calibrated;
  const Foundation links = links_foundation(cluster);
  if (cluster.nodes() == 1 || known(Level::network, network_class(cluster))) return links;
  return std::max(links, Foundation::datasheet);
}

Spread spread_of(const Job& job) {
  const Cluster& cluster = job.cluster;
  // The least known of heterogeneous devices.
  const DeviceProfile* device = nullptr;
  Foundation of_device = Foundation::calibrated;
  for (const NodeGroup& group : cluster.groups) {
    const DeviceProfile& profile = cluster.profiles[static_cast<std::size_t>(group.node.profile)];
    const Foundation own = foundation_of(profile, cluster);
    if (device == nullptr || own > of_device) device = &profile, of_device = own;
  }
  ORRERY_CHECK(device != nullptr, "a cluster without devices");
  const std::string_view network = network_class(cluster);
  const std::array<std::string_view, kLevels> names = {job.runtime.name, device->name, network};

  Spread spread;
  spread.rests_on.runtime =
      known(Level::framework, job.runtime.name) ? Foundation::fitted : Foundation::assumed;
  spread.rests_on.device = of_device;
  spread.rests_on.network = network_foundation(cluster);
  const proto::Spreads& all = spreads();
  if (spread.rests_on.device == Foundation::calibrated) {
    // Measured under Orrery's own executor: whatever its software does is in the figures.
    spread.rests_on.runtime = Foundation::calibrated;
    spread.own = all.calibrated_sd();
    spread.memory = all.calibrated_memory_sd();
  } else {
    spread.site = all.site_sd();
    spread.own = std::hypot(all.model_sd(), all.row_sd());
    spread.memory = sd_of(all.memory(), job.runtime.name, all.memory_unknown_sd());
  }
  for (const proto::FactorSpread& factor : all.factor()) {
    const Factor of = factor_from_name(factor.factor());
    const Level level = level_of(of);
    const bool measured = level == Level::network ? cluster.communication.calibrated
                                                  : spread.rests_on.device == Foundation::calibrated;
    const std::string_view name =
        of == Factor::intra ? intra_class(cluster) : names[static_cast<std::size_t>(level)];
    spread.factor[static_cast<std::size_t>(of)] =
        measured ? 0 : sd_of(factor.member(), name, factor.unknown_sd());
  }
  widen_for_unmeasured(*device, cluster, &spread);
  for (std::size_t f = 0; f < kFactors; ++f) spread.directions[f].log_time[f] = spread.factor[f];
  if (cluster.calibration) narrow(*cluster.calibration, job, &spread);
  return spread;
}

}  // namespace orrery::planner
