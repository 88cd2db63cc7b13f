#include "evidence/validate.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "base/csv.h"
#include "base/error.h"
#include "base/parallel.h"
#include "evidence/memory.h"
#include "evidence/statistics.h"
#include "evidence/steps.h"
#include "evidence/throughput.h"
#include "planner/evaluation/evaluation.h"
#include "planner/uncertainty/outlook.h"
#include "topologies/readers/catalog.h"

namespace orrery::evidence {
namespace {

constexpr std::string_view kColumns =
    "the columns step_time_s and n_layers or model_file, with model, hidden, n_heads, n_kv_heads, "
    "ffn_hidden, vocab, "
    "seq_len_tokens, "
    "gpu, n_gpus, precision, tp, pp, vp_interleave, cp, ep, gbs_sequences, mbs_sequences, act_recompute, "
    "tokens_per_s, "
    "mem_per_gpu_gb (docs/measurements.md); of memory test_case and mem_max_allocated_bytes, or model, "
    "quantity, "
    "value and unit; of throughput benchmark and epoch_derived_images_per_s, model_path and throughput, or "
    "gpu_and_network and metric";

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

// A row that was predicted, until all have been.
struct Predicted {
  std::size_t row = 0;  // in Published::rows
  Judged judged;
  bool fits = false;
  Plan plan;
};

// What was assumed of the row is uncertain beside what is of the plan.
planner::Range range_of(const Plan& plan, double predicted_s, double widens) {
  planner::Outlook outlook(plan.job);
  planner::Spread spread = outlook.spread();
  spread.own = std::hypot(spread.own, widens);
  const planner::Range factors = planner::step_range(outlook.response(plan.choices), spread);
  return {factors.low * predicted_s, factors.high * predicted_s};
}

void add_ranges(std::vector<Predicted>* predicted, std::vector<PublishedRow>* rows) {
  for_each_in_parallel(static_cast<int>(predicted->size()), processors(), [&](int i) {
    Predicted& one = (*predicted)[static_cast<std::size_t>(i)];
    PublishedRow& row = (*rows)[one.row];
    row.step_range_s = range_of(one.plan, one.judged.predicted, widening(row.assumed));
    one.judged.low = row.step_range_s->low;
    one.judged.high = row.step_range_s->high;
  });
}

PublishedRow step_row(const CsvTable& table, const CsvRow& fields, const std::string& source,
                      const Instead& instead, Tallies* times, std::vector<Predicted>* predicted,
                      MemoryJudge* memory, std::vector<ExplicitRow>* explicit_rows) {
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
      Judged one{predicted_s, row.measured_s, row.group, row.label, cell_of(source, judged.model, row.plan)};
      one.job = job_key_of(row.plan);
      one.software = judged.runtime;
      predicted->push_back({0, std::move(one), evaluation.memory.fits(), row.plan});
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
    instead.runtime = default_runtime(RuntimeUse::gpu);
  else if (runtime.ends_with(".textproto"))
    instead.runtime = load_runtime(runtime);
  else if (!runtime.empty())
    instead.runtime = runtime_named(runtime);
  if (!cluster.empty()) instead.cluster = load_cluster(cluster);
  return instead;
}

Published validate_published(const std::vector<std::string>& csv_files,
                             std::vector<ExplicitRow>* explicit_rows, const Instead& instead, bool ranges) {
  Published result;
  Tallies times;
  std::vector<Predicted> predicted;
  MemoryJudge memory;
  ThroughputJudge throughput;
  for (const std::string& file : csv_files) {
    const CsvTable table = read_csv(file);
    const std::string source = std::filesystem::path(file).stem();
    if (is_step_table(table)) {
      for (const CsvRow& fields : table.rows) {
        const std::size_t before = predicted.size();
        result.rows.push_back(
            step_row(table, fields, source, instead, &times, &predicted, &memory, explicit_rows));
        if (predicted.size() > before) predicted.back().row = result.rows.size() - 1;
      }
    } else if (MemoryJudge::is_memory_table(table)) {
      memory.add_table(source, table, &result.rows, explicit_rows);
    } else if (is_throughput_table(table)) {
      throughput.add_table(source, table, &result.rows, explicit_rows);
    } else {
      throw UserError(file, 1, "the header is of no table of training steps, memory or throughput",
                      std::string(kColumns));
    }
  }
  if (ranges) add_ranges(&predicted, &result.rows);
  for (const Predicted& one : predicted) times.add(result.rows[one.row].file, one.judged, one.fits);
  result.steps = summary_of(times);
  result.memory = memory.summary();
  result.throughput = throughput.summary();
  return result;
}

}  // namespace orrery::evidence
