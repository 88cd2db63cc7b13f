#include "evidence/validate.h"

#include <filesystem>
#include <map>

#include "base/csv.h"
#include "base/error.h"
#include "evidence/memory.h"
#include "evidence/statistics.h"
#include "evidence/steps.h"
#include "evidence/throughput.h"
#include "planner/evaluation/evaluation.h"
#include "topologies/readers/catalog.h"

namespace orrery::evidence {
namespace {

struct Tally {
  std::vector<Judged> rows;
  int skipped = 0;
  int asked = 0;              // rows with a time or a rate that count
  int refused_by_memory = 0;  // of `rows`: they ran, and are predicted not to fit

  Json json() const {
    Json json = figures(rows, skipped);
    json["asked"] = asked;
    if (asked > 0) json["answered"] = static_cast<double>(rows.size()) / asked;
    json["refused_by_memory"] = refused_by_memory;
    return json;
  }
};

struct Tallies {
  Tally all;
  std::map<std::string, Tally> sources;

  void add(const std::string& source, const Judged& row, bool fits) {
    for (Tally* tally : {&sources[source], &all}) {
      tally->rows.push_back(row);
      ++tally->asked;
      tally->refused_by_memory += fits ? 0 : 1;
    }
  }
  void skip(const std::string& source, bool asks) {
    for (Tally* tally : {&sources[source], &all}) {
      ++tally->skipped;
      tally->asked += asks ? 1 : 0;
    }
  }
};

Json to_json(const std::vector<Assumed>& assumed) {
  Json list = Json::array();
  for (const Assumed& one : assumed)
    if (one.widens > 0) list.push_back({{"what", one.what}, {"why", one.why}, {"widens", one.widens}});
  return list;
}

Json sources_json(const Tallies& tallies) {
  Json sources = Json::object();
  for (const auto& [name, tally] : tallies.sources) sources[name] = tally.json();
  return sources;
}

Json step_row(const CsvTable& table, const CsvRow& fields, const std::string& source, const Instead& instead,
              Tallies* times, MemoryJudge* memory, std::vector<ExplicitRow>* explicit_rows) {
  Json json;
  json["file"] = source;
  json["line"] = fields.line;
  json["source"] = table.field(fields, "source");
  json["model"] = table.field(fields, "model");
  json["gpu"] = table.field(fields, "gpu");
  try {
    ExplicitRow row = read_step(table, fields, instead);
    const planner::Evaluation evaluation = predict(row.plan);
    json["n_gpus"] = row.plan.choices.world();
    json["runtime"] = row.plan.job->runtime.name;
    json["plan"] = row.label;
    if (Json defaults = to_json(row.assumed); !defaults.empty()) {
      json["assumed"] = std::move(defaults);
      json["widens"] = widening(row.assumed);
    }
    if (row.measured_s > 0) {
      json["predicted_s"] = evaluation.estimate_s;
      json["measured_s"] = row.measured_s;
      json["relative_error"] = (evaluation.estimate_s - row.measured_s) / row.measured_s;
      times->add(source, {evaluation.estimate_s, row.measured_s, row.group, row.label},
                 evaluation.memory.fits());
    } else {
      json["skipped"] = "no step time is stated";
      times->skip(source, false);
    }
    memory->add_step(row, evaluation.memory, &json);
    if (explicit_rows != nullptr) explicit_rows->push_back(std::move(row));
  } catch (const Unreadable& why) {
    json["skipped"] = why.why;
    times->skip(source, why.counts && asks_for_prediction(table, fields));
  } catch (const UserError& error) {
    json["skipped"] = error.what();
    times->skip(source, asks_for_prediction(table, fields));
  }
  return json;
}

}  // namespace

Instead instead_of(const std::string& runtime, const std::string& cluster) {
  Instead instead;
  if (runtime == "default")
    instead.runtime = default_runtime(RuntimeUse::gpu);
  else if (runtime.ends_with(".textproto"))
    instead.runtime = load_runtime(runtime);
  else if (!runtime.empty())
    instead.runtime = runtime_named(runtime);
  if (!cluster.empty()) instead.cluster = load_cluster(cluster);
  return instead;
}

Json validate_published(const std::vector<std::string>& csv_files, std::vector<ExplicitRow>* explicit_rows,
                        const Instead& instead) {
  Json rows = Json::array();
  Tallies times;
  MemoryJudge memory;
  ThroughputJudge throughput;
  for (const std::string& file : csv_files) {
    const CsvTable table = read_csv(file);
    const std::string source = std::filesystem::path(file).stem();
    if (is_step_table(table)) {
      for (const CsvRow& fields : table.rows)
        rows.push_back(step_row(table, fields, source, instead, &times, &memory, explicit_rows));
    } else if (MemoryJudge::is_memory_table(table)) {
      memory.add_table(source, table, &rows);
    } else if (is_throughput_table(table)) {
      throughput.add_table(source, table, &rows, explicit_rows);
    } else {
      throw UserError(file, 1, "the header is of no table of training steps, memory or throughput",
                      "the columns of published/steps, memory or throughput");
    }
  }
  Json result;
  result["rows"] = std::move(rows);
  result["all"] = times.all.json();
  result["sources"] = sources_json(times);
  if (!memory.empty()) result["memory"] = memory.json();
  if (!throughput.empty()) result["throughput"] = throughput.json();
  return result;
}

}  // namespace orrery::evidence
