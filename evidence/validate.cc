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

  Figures figures() const {
    Figures figures = evidence::figures(rows, skipped);
    figures.asked = Asked{asked, refused_by_memory};
    return figures;
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

Summary summary_of(const Tallies& tallies) {
  Summary summary;
  summary.all = tallies.all.figures();
  for (const auto& [name, tally] : tallies.sources) summary.sources.push_back({name, tally.figures(), {}});
  return summary;
}

PublishedRow step_row(const CsvTable& table, const CsvRow& fields, const std::string& source,
                      const Instead& instead, Tallies* times, MemoryJudge* memory,
                      std::vector<ExplicitRow>* explicit_rows) {
  PublishedRow judged;
  judged.file = source;
  judged.line = fields.line;
  judged.source = table.field(fields, "source");
  judged.model = table.field(fields, "model");
  judged.device = table.field(fields, "gpu");
  try {
    ExplicitRow row = read_step(table, fields, instead);
    const planner::Evaluation evaluation = predict(row.plan);
    judged.devices = row.plan.choices.world();
    judged.runtime = row.plan.job->runtime.name;
    judged.plan = row.label;
    judged.assumed = row.assumed;
    if (row.measured_s > 0) {
      const double predicted_s = evaluation.estimate_s;
      judged.step_s = {predicted_s, row.measured_s, (predicted_s - row.measured_s) / row.measured_s};
      times->add(source, {predicted_s, row.measured_s, row.group, row.label}, evaluation.memory.fits());
    } else {
      judged.skipped = "no step time is stated";
      times->skip(source, false);
    }
    memory->add_step(row, evaluation.memory, &judged);
    if (explicit_rows != nullptr) explicit_rows->push_back(std::move(row));
  } catch (const Unreadable& why) {
    judged.skipped = why.why;
    times->skip(source, why.counts && asks_for_prediction(table, fields));
  } catch (const UserError& error) {
    judged.skipped = error.what();
    times->skip(source, asks_for_prediction(table, fields));
  }
  return judged;
}

}  // namespace

Instead instead_of(const std::string& runtime, const std::string& cluster) {
  Instead instead;
  if (runtime == "default")
    instead.runtime = default_runtime(true);
  else if (runtime.ends_with(".textproto"))
    instead.runtime = load_runtime(runtime);
  else if (!runtime.empty())
    instead.runtime = runtime_named(runtime);
  if (!cluster.empty()) instead.cluster = load_cluster(cluster);
  return instead;
}

Published validate_published(const std::vector<std::string>& csv_files,
                             std::vector<ExplicitRow>* explicit_rows, const Instead& instead) {
  Published result;
  Tallies times;
  MemoryJudge memory;
  ThroughputJudge throughput;
  for (const std::string& file : csv_files) {
    const CsvTable table = read_csv(file);
    const std::string source = std::filesystem::path(file).stem();
    if (is_step_table(table)) {
      for (const CsvRow& fields : table.rows)
        result.rows.push_back(step_row(table, fields, source, instead, &times, &memory, explicit_rows));
    } else if (MemoryJudge::is_memory_table(table)) {
      memory.add_table(source, table, &result.rows, explicit_rows);
    } else if (is_throughput_table(table)) {
      throughput.add_table(source, table, &result.rows, explicit_rows);
    } else {
      throw UserError(file, 1, "the header is of no table of training steps, memory or throughput",
                      "the columns of published/steps, memory or throughput");
    }
  }
  result.steps = summary_of(times);
  result.memory = memory.summary();
  result.throughput = throughput.summary();
  return result;
}

}  // namespace orrery::evidence
