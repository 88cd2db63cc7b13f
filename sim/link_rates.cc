#include "sim/link_rates.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/scenario/scenario.h"
#include "topologies/link_id.h"

namespace orrery::sim {
namespace {

std::string kind_of(LinkId link) {
  return link > kStorageReadLink ? std::string(name_of(parts_of(link).kind)) : "storage";
}

}  // namespace

LinkRates link_rates(const FlowSystem& flows, const std::vector<Moved>& moved) {
  LinkRates rates;
  std::map<std::string, std::size_t> places;
  // By pattern: bytes that cross links of each kind, per byte of a transfer.
  std::vector<std::map<std::size_t, double>> crossed(flows.patterns().size());
  std::vector<bool> known(crossed.size());
  const auto crossed_by = [&](const Moved& one) -> const std::map<std::size_t, double>& {
    const auto pattern = static_cast<std::size_t>(flows.flows()[static_cast<std::size_t>(one.flow)].pattern);
    if (!known[pattern]) {
      known[pattern] = true;
      for (const LinkWeight& load : flows.patterns()[pattern].loads) {
        const auto [at, added] = places.try_emplace(kind_of(flows.id_of(load.link)), rates.kinds.size());
        if (added) rates.kinds.push_back(at->first);
        crossed[pattern][at->second] += load.bytes;
      }
    }
    return crossed[pattern];
  };
  std::map<double, std::map<std::size_t, double>> changes;  // by time and kind
  for (const Moved& one : moved) {
    if (one.end_s <= one.begin_s) continue;  // on links that nothing bounds
    const double rate = one.bytes / (one.end_s - one.begin_s);
    for (const auto& [kind, bytes] : crossed_by(one)) {
      changes[one.begin_s][kind] += rate * bytes;
      changes[one.end_s][kind] -= rate * bytes;
    }
  }
  std::vector<double> now(rates.kinds.size(), 0), most(now);
  for (const auto& [at_s, by_kind] : changes) {
    for (const auto& [kind, change] : by_kind) {
      most[kind] = std::max(most[kind], now[kind] + change);
      now[kind] += change;
      if (now[kind] < most[kind] * 1e-9) now[kind] = 0;  // what is left of rounding
    }
    rates.samples.push_back({at_s, now});
  }
  return rates;
}

}  // namespace orrery::sim
