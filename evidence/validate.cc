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

Summary summary_of(const Tallies& tallies) {
  Summary summary;
  summary.all = figures(tallies.all.rows, tallies.all.skipped);
  for (const auto& [name, tally] : tallies.sources)
    summary.sources.push_back({name, figures(tally.rows, tally.skipped), {}});
  return summary;
}

PublishedRow step_row(const CsvTable& table, const CsvRow& fields, const std::string& source, Tallies* times,
                      MemoryJudge* memory, std::vector<ExplicitRow>* explicit_rows) {
  PublishedRow judged;
  judged.file = source;
  judged.line = fields.line;
  judged.source = table.field(fields, "source");
  judged.model = table.field(fields, "model");
  judged.device = table.field(fields, "gpu");
  try {
    ExplicitRow row = read_step(table, fields);
    const planner::Evaluation evaluation = predict(row.plan);
    judged.devices = row.plan.choices.world();
    judged.runtime = row.plan.job->runtime.name;
    judged.plan = row.label;
    if (row.measured_s > 0) {
      const double predicted_s = evaluation.estimate_s;
      judged.step_s = {predicted_s, row.measured_s, (predicted_s - row.measured_s) / row.measured_s};
      times->add(source, {predicted_s, row.measured_s, row.group, row.label});
    } else {
      judged.skipped = "no step time is stated";
    }
    memory->add_step(row, evaluation.memory, &judged);
    if (explicit_rows != nullptr) explicit_rows->push_back(std::move(row));
  } catch (const Unreadable& why) {
    judged.skipped = why.why;
  } catch (const UserError& error) {
    judged.skipped = error.what();
  }
  if (!judged.skipped.empty()) times->skip(source);
  return judged;
}

}  // namespace

Published validate_published(const std::vector<std::string>& csv_files,
                             std::vector<ExplicitRow>* explicit_rows) {
  Published result;
  Tallies times;
  MemoryJudge memory;
  ThroughputJudge throughput;
  for (const std::string& file : csv_files) {
    const CsvTable table = read_csv(file);
    const std::string source = std::filesystem::path(file).stem();
    if (is_step_table(table)) {
      for (const CsvRow& fields : table.rows)
        result.rows.push_back(step_row(table, fields, source, &times, &memory, explicit_rows));
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
