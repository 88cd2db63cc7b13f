#include "evidence/published_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "evidence/published_memory_tables.h"
#include "planner/evaluation/evaluation.h"

namespace orrery::planner {
namespace {

// torchtitan logs max_reserved; the BLOOM chronicles' column is of nvidia-smi (train/tr11-176B-ml/
// chronicles-prequel.md); SimuMax prints max_memory_allocated, Alpa XLA's peak of live buffers.
MemoryKind kind_of(const std::string& framework) {
  if (framework.find("torchtitan") != std::string::npos) return MemoryKind::reserved;
  if (framework.find("DeepSpeed") != std::string::npos) return MemoryKind::total;
  return MemoryKind::allocated;
}

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

}  // namespace

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::reserved:
      return "reserved";
    case MemoryKind::total:
      return "total";
    default:
      return "allocated";
  }
}

void MemoryJudge::add(const std::string& source, MemoryKind kind, const Judged& judged) {
  auto found =
      std::find_if(sources_.begin(), sources_.end(), [&](const auto& s) { return s.first == source; });
  if (found == sources_.end()) found = sources_.insert(found, {source, Source{}});
  found->second.kind = kind;
  found->second.rows.push_back(judged);
  all_.push_back(judged);
}

void MemoryJudge::add_step(const std::string& source, const std::string& framework, const PublishedStep& step,
                           Json* row) {
  const Memory predicted = predict_memory(step.plan);
  (*row)["fits"] = predicted.fits();
  if (step.measured_bytes > 0) {
    const MemoryKind kind = kind_of(framework);
    const double bytes = bytes_of(predicted, kind);
    (*row)["predicted_bytes"] = bytes;
    (*row)["measured_bytes"] = step.measured_bytes;
    (*row)["memory_kind"] = name_of(kind);
    (*row)["memory_error"] = bytes / step.measured_bytes - 1;
    add(source, kind, {bytes, step.measured_bytes, step.group, step.label});
  }
  const auto listed = [&] {
    return Json{{"file", source},
                {"line", row->at("line")},
                {"model", row->at("model")},
                {"plan", step.label},
                {"predicted_bytes", predicted.total},
                {"capacity", predicted.capacity}};
  };
  if (step.out_of_memory) {
    ++out_of_memory_;
    if (predicted.fits()) said_to_fit_.push_back(listed());
  } else if (step.measured_s > 0 || step.measured_bytes > 0) {
    ++ran_;
    bool fits = predicted.fits();
    if (!fits && !(step.recompute_stated && step.sharding_stated)) {
      // What the row leaves open may have been what saves most.
      Plan thrifty = step.plan;
      if (!step.recompute_stated) thrifty.choices.recompute = Recompute::full;
      if (!step.sharding_stated && thrifty.choices.dp * thrifty.choices.cp > 1) thrifty.choices.zero = 3;
      fits = predict_memory(thrifty).fits();
    }
    if (!fits) said_not_to_fit_.push_back(listed());
  }
}

bool MemoryJudge::is_memory_table(const CsvTable& table) {
  return is_megatron_ci_table(table) || is_korthikanti_table(table);
}

void MemoryJudge::add_table(const std::string& source, const CsvTable& table, Json* rows) {
  const bool megatron_ci = is_megatron_ci_table(table);
  for (const CsvRow& fields : table.rows) {
    Json row;
    row["file"] = source;
    row["line"] = fields.line;
    row["source"] = table.field(fields, "source");
    row["model"] = table.field(fields, megatron_ci ? "test_case" : "model");
    try {
      const MemoryRow judged =
          megatron_ci ? read_megatron_ci_row(table, fields) : read_korthikanti_row(table, fields);
      row["plan"] = judged.label;
      row["predicted_bytes"] = judged.predicted;
      row["measured_bytes"] = judged.measured;
      row["memory_kind"] = name_of(MemoryKind::allocated);
      row["memory_error"] = judged.predicted / judged.measured - 1;
      add(source, MemoryKind::allocated, {judged.predicted, judged.measured, judged.group, judged.label});
    } catch (const Unreadable& why) {
      row["skipped"] = why.why;
    } catch (const UserError& error) {
      row["skipped"] = error.what();
    }
    if (row.contains("skipped")) {
      auto found =
          std::find_if(sources_.begin(), sources_.end(), [&](const auto& s) { return s.first == source; });
      if (found == sources_.end()) found = sources_.insert(found, {source, Source{}});
      ++found->second.skipped;
    }
    rows->push_back(std::move(row));
  }
}

Json MemoryJudge::json() const {
  int skipped = 0;
  for (const auto& [name, source] : sources_) skipped += source.skipped;
  Json json;
  json["all"] = figures(all_, skipped);
  json["sources"] = Json::object();
  for (const auto& [name, source] : sources_) {
    json["sources"][name] = figures(source.rows, source.skipped);
    json["sources"][name]["kind"] = name_of(source.kind);
  }
  json["fits"] = {{"ran", ran_},
                  {"said_not_to_fit", said_not_to_fit_},
                  {"out_of_memory", out_of_memory_},
                  {"said_to_fit", said_to_fit_}};
  return json;
}

}  // namespace orrery::planner
