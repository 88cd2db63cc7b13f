#include <algorithm>
#include <cmath>

#include "orrery/json.h"

namespace orrery {
namespace {

using measurements::kCoveredDeviations;

Json to_json(const measurements::HeldOut& held_out) {
  return {{"rows", held_out.rows},
          {"mape_before", held_out.mape_before},
          {"mape_after", held_out.mape_after},
          {"coverage", held_out.coverage}};
}

Json to_json(const measurements::Learned& learned) {
  return {{"name", learned.name},
          {"before", 1.0},
          {"before_low", std::exp(-kCoveredDeviations * learned.sd_before)},
          {"before_high", std::exp(kCoveredDeviations * learned.sd_before)},
          {"source_before", learned.source_before},
          {"after", std::exp(learned.mean)},
          {"low", std::exp(learned.mean - kCoveredDeviations * learned.sd)},
          {"high", std::exp(learned.mean + kCoveredDeviations * learned.sd)},
          {"source", learned.source}};
}

Json to_json(const measurements::Departure& departure) {
  return {{"collective", name_of(departure.kind)},
          {"nodes", departure.nodes},
          {"devices_per_node", departure.devices_per_node},
          {"algorithm", departure.algorithm},
          {"protocol", departure.protocol},
          {"least_bytes", departure.least_bytes},
          {"most_bytes", departure.most_bytes},
          {"times_as_predicted", departure.times}};
}

Json to_json(const measurements::RankTrace& trace) {
  Json kernels = Json::object();
  for (std::size_t i = 0; i < measurements::kKernelClasses; ++i)
    kernels[std::string(name_of(static_cast<measurements::KernelClass>(i)))] = {
        {"kernels", trace.kernels[i].kernels}, {"seconds", trace.kernels[i].seconds}};
  return {{"file", trace.file},         {"device", trace.device},       {"rank", trace.rank},
          {"world", trace.world},       {"steps_s", trace.steps_s},     {"kernels", kernels},
          {"window_s", trace.window_s}, {"compute_s", trace.compute_s}, {"collective_s", trace.collective_s},
          {"both_s", trace.both_s},     {"idle_s", trace.idle_s},       {"launch_s", trace.launch_s}};
}

}  // namespace

Json to_json(const SiteCalibrated& result) {
  Json json = {{"cluster", result.cluster}, {"file", result.file}, {"runtime", result.calibrated.runtime}};
  Json files = Json::array(), ignored = Json::array(), factors = Json::array(), departures = Json::array();
  for (const auto& file : result.measured.files)
    files.push_back({{"file", file.file},
                     {"kind", file.kind},
                     {"steps", file.steps},
                     {"collectives", file.collectives},
                     {"products", file.products}});
  for (const auto& one : result.measured.ignored)
    ignored.push_back({{"file", one.file}, {"line", one.line}, {"why", one.why}, {"rows", one.rows}});
  for (const auto& learned : result.calibrated.factors) factors.push_back(to_json(learned));
  for (const auto& departure : result.calibrated.departures) departures.push_back(to_json(departure));
  json.update({{"files", files}, {"factors", factors}});
  // Of steps where there are some: what plans are made of.
  const auto& steps = result.calibrated.steps;
  const auto& collectives = result.calibrated.collectives;
  json["held_out"] = to_json(steps ? *steps : collectives.value_or(measurements::HeldOut{}));
  if (collectives) json["held_out_collectives"] = to_json(*collectives);
  if (result.calibrated.products) json["held_out_products"] = to_json(*result.calibrated.products);
  Json traces = Json::array();
  for (const auto& trace : result.measured.traces) traces.push_back(to_json(trace));
  json.update({{"departures", departures}, {"ignored", ignored}, {"traces", traces}});
  return json;
}

}  // namespace orrery
