#include "evidence/published.h"

#include <filesystem>
#include <map>

#include "base/csv.h"
#include "base/error.h"
#include "evidence/published_memory.h"
#include "evidence/published_rows.h"
#include "evidence/published_statistics.h"
#include "evidence/published_throughput.h"
#include "planner/evaluation/evaluation.h"

namespace orrery::planner {
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
              MemoryJudge* memory) {
  Json row;
  row["file"] = source;
  row["line"] = fields.line;
  row["source"] = table.field(fields, "source");
  row["model"] = table.field(fields, "model");
  row["gpu"] = table.field(fields, "gpu");
  try {
    const PublishedStep step = read_published_step(table, fields);
    row["n_gpus"] = step.plan.choices.world();
    row["runtime"] = step.plan.job->runtime.name;
    row["plan"] = step.label;
    if (step.measured_s > 0) {
      const double predicted = estimate_step_seconds(step.plan);
      row["predicted_s"] = predicted;
      row["measured_s"] = step.measured_s;
      row["relative_error"] = (predicted - step.measured_s) / step.measured_s;
      times->add(source, {predicted, step.measured_s, step.group, step.label});
    } else {
      row["skipped"] = "no step time is stated";
      times->skip(source);
    }
    memory->add_step(source, table.field(fields, "framework"), step, &row);
  } catch (const Unreadable& why) {
    row["skipped"] = why.why;
    times->skip(source);
  } catch (const UserError& error) {
    row["skipped"] = error.what();
    times->skip(source);
  }
  return row;
}

}  // namespace

Json validate_published(const std::vector<std::string>& csv_files) {
  Json rows = Json::array();
  Tallies times;
  MemoryJudge memory;
  ThroughputJudge throughput;
  for (const std::string& file : csv_files) {
    const CsvTable table = read_csv(file);
    const std::string source = std::filesystem::path(file).stem();
    if (table.column("step_time_s") >= 0 && table.column("n_layers") >= 0) {
      for (const CsvRow& fields : table.rows)
        rows.push_back(step_row(table, fields, source, &times, &memory));
    } else if (MemoryJudge::is_memory_table(table)) {
      memory.add_table(source, table, &rows);
    } else if (ThroughputJudge::is_throughput_table(table)) {
      throughput.add_table(source, table, &rows);
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

}  // namespace orrery::planner
