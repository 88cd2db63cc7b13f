// Published rows beside their predictions, as JSON.
#include "orrery/published.h"

namespace orrery {

using namespace evidence;

namespace {

Json figures_json(const Figures& figures) {
  Json json = {{"rows", figures.rows}, {"skipped", figures.skipped}};
  if (figures.asked) {
    json["asked"] = figures.asked->rows;
    if (figures.asked->rows > 0) json["answered"] = static_cast<double>(figures.rows) / figures.asked->rows;
    json["refused_by_memory"] = figures.asked->refused_by_memory;
  }
  if (figures.rows == 0) return json;
  json["mape"] = figures.mape;
  json["median_ape"] = figures.median_ape;
  json["max_ape"] = figures.max_ape;
  json["bias"] = figures.bias;
  json["within_10_percent"] = figures.within_10_percent;
  if (figures.coverage) json["coverage"] = *figures.coverage;
  if (const auto& cells = figures.by_cell)
    json["by_cell"] = {{"cells", cells->cells},
                       {"mape", cells->mape},
                       {"median_ape", cells->median_ape},
                       {"bias", cells->bias}};
  if (const auto& jobs = figures.any_software)
    json["any_software"] = {{"groups", jobs->groups},
                            {"pairs_in_order", jobs->pairs_in_order},
                            {"regret", {{"mean", jobs->regret_mean}, {"max", jobs->regret_max}}}};
  if (const auto& groups = figures.groups) {
    json["groups"] = groups->groups;
    json["pairs_in_order"] = groups->pairs_in_order;
    json["kendall_tau"] = groups->kendall_tau;
    json["regret"] = {{"mean", groups->regret_mean}, {"max", groups->regret_max}};
  }
  return json;
}

Json sources_json(const Summary& summary) {
  Json sources = Json::object();
  for (const SourceFigures& source : summary.sources) {
    Json& json = sources[source.name] = figures_json(source.figures);
    if (source.kind) json["kind"] = name_of(*source.kind);
  }
  return sources;
}

Json misjudged_json(const std::vector<Misjudged>& rows) {
  Json list = Json::array();
  for (const Misjudged& row : rows)
    list.push_back({{"file", row.file},
                    {"line", row.line},
                    {"model", row.model},
                    {"plan", row.plan},
                    {"predicted_bytes", row.predicted_bytes},
                    {"capacity", row.capacity_bytes}});
  return list;
}

Json memory_json(const MemorySummary& memory) {
  return {{"all", figures_json(memory.figures.all)},
          {"sources", sources_json(memory.figures)},
          {"fits",
           {{"ran", memory.ran},
            {"said_not_to_fit", misjudged_json(memory.said_not_to_fit)},
            {"out_of_memory", memory.out_of_memory},
            {"said_to_fit", misjudged_json(memory.said_to_fit)}}}};
}

// Defaults that may be off, and how far.
void add_assumed(const std::vector<Assumed>& assumed, Json* json) {
  Json list = Json::array();
  for (const Assumed& one : assumed)
    if (one.widens > 0) list.push_back({{"what", one.what}, {"why", one.why}, {"widens", one.widens}});
  if (list.empty()) return;
  (*json)["assumed"] = std::move(list);
  (*json)["widens"] = widening(assumed);
}

Json row_json(const PublishedRow& row) {
  Json json = {{"file", row.file}, {"line", row.line}, {"source", row.source}, {"model", row.model}};
  if (row.device) json["gpu"] = *row.device;
  if (row.devices > 0) {
    json["n_gpus"] = row.devices;
    json["runtime"] = row.runtime;
  }
  if (!row.plan.empty()) json["plan"] = row.plan;
  if (row.step_s) {
    json["predicted_s"] = row.step_s->predicted;
    json["measured_s"] = row.step_s->measured;
    json["relative_error"] = row.step_s->error;
  }
  if (row.step_range_s) {
    json["predicted_low_s"] = row.step_range_s->low;
    json["predicted_high_s"] = row.step_range_s->high;
  }
  add_assumed(row.assumed, &json);
  if (!row.skipped.empty()) json["skipped"] = row.skipped;
  if (row.fits) json["fits"] = *row.fits;
  if (row.memory_bytes) {
    json["predicted_bytes"] = row.memory_bytes->predicted;
    json["measured_bytes"] = row.memory_bytes->measured;
    json["memory_kind"] = name_of(row.memory_kind);
    json["memory_error"] = row.memory_bytes->error;
  }
  if (row.per_s) {
    json["predicted_per_s"] = row.per_s->predicted;
    json["measured_per_s"] = row.per_s->measured;
    json["relative_error"] = row.per_s->error;
  }
  return json;
}

Json row_json(const CollectiveRow& row) {
  Json json = {
      {"file", row.file},  {"line", row.line},      {"source", row.source}, {"collective", row.collective},
      {"gpu", row.device}, {"n_gpus", row.devices}, {"n_nodes", row.nodes}, {"size_bytes", row.size_bytes}};
  if (row.seconds) {
    json["predicted_s"] = row.seconds->predicted;
    json["measured_s"] = row.seconds->measured;
    json["relative_error"] = row.seconds->error;
    json["algorithm"] = name_of(row.algorithm);
    json["protocol"] = name_of(row.protocol);
  }
  if (!row.skipped.empty()) json["skipped"] = row.skipped;
  return json;
}

template <typename Row>
Json rows_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(row_json(row));
  return list;
}

}  // namespace

Json to_json(const Published& published) {
  Json json = {{"rows", rows_json(published.rows)},
               {"all", figures_json(published.steps.all)},
               {"sources", sources_json(published.steps)}};
  if (published.memory) json["memory"] = memory_json(*published.memory);
  if (published.throughput)
    json["throughput"] = {{"all", figures_json(published.throughput->all)},
                          {"sources", sources_json(*published.throughput)}};
  return json;
}

Json to_json(const PublishedCollectives& published) {
  Json json = {{"all", figures_json(published.all)}, {"above_1_mib", figures_json(published.above_1_mib)}};
  for (const CollectiveSource& source : published.sources) {
    json["sources"][source.name] = figures_json(source.all);
    json["sources"][source.name]["above_1_mib"] = figures_json(source.above_1_mib);
  }
  for (const auto& [machine, figures] : published.machines) json["machines"][machine] = figures_json(figures);
  json["rows"] = rows_json(published.rows);
  return json;
}

}  // namespace orrery
