#include "evidence/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "evidence/memory_tables.h"

namespace orrery::evidence {

using planner::Memory;

namespace {

double bytes_of(const Memory& memory, MemoryKind kind) {
  switch (kind) {
    case MemoryKind::reserved:
      return memory.reserved;
    case MemoryKind::total:
      return memory.total;
    default:
      return memory.allocated;
  }
}

// Logs are of jobs that we would refuse, too: interleaved stages whose number divides no number of
// micro-batches, experts sharded in groups.
bool is_sound(const Plan& plan) {
  try {
    check_plan(plan);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

MemoryJudge::Source& MemoryJudge::source_of(const std::string& name) {
  auto found = std::find_if(sources_.begin(), sources_.end(), [&](const auto& s) { return s.first == name; });
  if (found == sources_.end()) found = sources_.insert(found, {name, Source{}});
  return found->second;
}

void MemoryJudge::add(const std::string& name, MemoryKind kind, const Judged& judged) {
  source_of(name).kind = kind;
  source_of(name).rows.push_back(judged);
  all_.push_back(judged);
}

void MemoryJudge::add_step(const ExplicitRow& row, const Memory& predicted, PublishedRow* judged) {
  judged->fits = predicted.fits();
  if (row.measured_bytes > 0) {
    const bool first = row.memory_of_first_stage && row.plan.choices.pp > 1;
    const double bytes =
        bytes_of(first ? planner::predict_memory_of_stage(row.plan, 0) : predicted, row.memory_kind);
    judged->memory_bytes = {bytes, row.measured_bytes, bytes / row.measured_bytes - 1};
    judged->memory_kind = row.memory_kind;
    add(row.file, row.memory_kind, {bytes, row.measured_bytes, row.group, row.label});
  }
  const Misjudged listed = {row.file,  row.line,        judged->model,
                            row.label, predicted.total, predicted.capacity};
  if (row.out_of_memory) {
    ++found_.out_of_memory;
    if (predicted.fits()) found_.said_to_fit.push_back(listed);
  } else if (row.measured_s > 0 || row.measured_bytes > 0) {
    ++found_.ran;
    if (!predicted.fits()) found_.said_not_to_fit.push_back(listed);
  }
}

bool MemoryJudge::is_memory_table(const CsvTable& table) {
  return is_configuration_table(table) || is_korthikanti_table(table);
}

void MemoryJudge::add_table(const std::string& source, const CsvTable& table, std::vector<PublishedRow>* rows,
                            std::vector<ExplicitRow>* explicit_rows) {
  const bool configuration = is_configuration_table(table);
  for (const CsvRow& fields : table.rows) {
    PublishedRow row;
    row.file = source;
    row.line = fields.line;
    row.source = table.field(fields, "source");
    row.model = table.field(fields, configuration ? "test_case" : "model");
    try {
      MemoryRow judged = configuration ? read_configuration(table, fields) : read_korthikanti(table, fields);
      row.plan = judged.row.label;
      row.memory_bytes = {judged.predicted, judged.measured, judged.predicted / judged.measured - 1};
      add(source, MemoryKind::allocated,
          {judged.predicted, judged.measured, judged.row.group, judged.row.label});
      if (configuration && explicit_rows != nullptr && is_sound(judged.row.plan))
        explicit_rows->push_back(std::move(judged.row));
    } catch (const Unreadable& why) {
      row.skipped = why.why;
    } catch (const UserError& error) {
      row.skipped = error.what();
    }
    if (!row.skipped.empty()) ++source_of(source).skipped;
    rows->push_back(std::move(row));
  }
}

std::optional<MemorySummary> MemoryJudge::summary() const {
  if (all_.empty() && found_.ran + found_.out_of_memory == 0) return std::nullopt;
  MemorySummary summary = found_;
  int skipped = 0;
  for (const auto& [name, source] : sources_) {
    skipped += source.skipped;
    summary.figures.sources.push_back({name, figures(source.rows, source.skipped), source.kind});
  }
  summary.figures.all = figures(all_, skipped);
  return summary;
}

}  // namespace orrery::evidence
