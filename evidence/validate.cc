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

namespace orrery::evidence {
namespace {

struct Tally {
  std::vector<Judged> rows;
  int skipped = 0;
};

struct Tallies {
  Tally all;
  std::map<std::string, Tally> sources;

  void add(const std::string& source, Judged row) {
    sources[source].rows.push_back(row);
    all.rows.push_back(std::move(row));
  }
  void skip(const std::string& source) {
    ++sources[source].skipped;
    ++all.skipped;
  }
};

Json sources_json(const Tallies& tallies) {
  Json sources = Json::object();
  for (const auto& [name, tally] : tallies.sources) sources[name] = figures(tally.rows, tally.skipped);
  return sources;
}

Json step_row(const CsvTable& table, const CsvRow& fields, const std::string& source, Tallies* times,
              MemoryJudge* memory, std::vector<ExplicitRow>* explicit_rows) {
  Json json;
  json["file"] = source;
  json["line"] = fields.line;
  json["source"] = table.field(fields, "source");
  json["model"] = table.field(fields, "model");
  json["gpu"] = table.field(fields, "gpu");
  try {
    ExplicitRow row = read_step(table, fields);
    const planner::Evaluation evaluation = predict(row.plan);
    json["n_gpus"] = row.plan.choices.world();
    json["runtime"] = row.plan.job->runtime.name;
    json["plan"] = row.label;
    if (row.measured_s > 0) {
      json["predicted_s"] = evaluation.estimate_s;
      json["measured_s"] = row.measured_s;
      json["relative_error"] = (evaluation.estimate_s - row.measured_s) / row.measured_s;
      times->add(source, {evaluation.estimate_s, row.measured_s, row.group, row.label});
    } else {
      json["skipped"] = "no step time is stated";
      times->skip(source);
    }
    memory->add_step(row, evaluation.memory, &json);
    if (explicit_rows != nullptr) explicit_rows->push_back(std::move(row));
  } catch (const Unreadable& why) {
    json["skipped"] = why.why;
    times->skip(source);
  } catch (const UserError& error) {
    json["skipped"] = error.what();
    times->skip(source);
  }
  return json;
}

}  // namespace

Json validate_published(const std::vector<std::string>& csv_files, std::vector<ExplicitRow>* explicit_rows) {
  Json rows = Json::array();
  Tallies times;
  MemoryJudge memory;
  ThroughputJudge throughput;
  for (const std::string& file : csv_files) {
    const CsvTable table = read_csv(file);
    const std::string source = std::filesystem::path(file).stem();
    if (is_step_table(table)) {
      for (const CsvRow& fields : table.rows)
        rows.push_back(step_row(table, fields, source, &times, &memory, explicit_rows));
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
  result["all"] = figures(times.all.rows, times.all.skipped);
  result["sources"] = sources_json(times);
  if (!memory.empty()) result["memory"] = memory.json();
  if (!throughput.empty()) result["throughput"] = throughput.json();
  return result;
}

}  // namespace orrery::evidence
