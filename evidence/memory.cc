#include "evidence/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

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

void MemoryJudge::add_step(const ExplicitRow& row, const Memory& predicted, Json* json) {
  (*json)["fits"] = predicted.fits();
  if (row.measured_bytes > 0) {
    const double bytes = bytes_of(predicted, row.memory_kind);
    (*json)["predicted_bytes"] = bytes;
    (*json)["measured_bytes"] = row.measured_bytes;
    (*json)["memory_kind"] = name_of(row.memory_kind);
    (*json)["memory_error"] = bytes / row.measured_bytes - 1;
    add(row.file, row.memory_kind, {bytes, row.measured_bytes, row.group, row.label});
  }
  const auto listed = [&] {
    return Json{{"file", row.file},
                {"line", row.line},
                {"model", json->at("model")},
                {"plan", row.label},
                {"predicted_bytes", predicted.total},
                {"capacity", predicted.capacity}};
  };
  if (row.out_of_memory) {
    ++out_of_memory_;
    if (predicted.fits()) said_to_fit_.push_back(listed());
  } else if (row.measured_s > 0 || row.measured_bytes > 0) {
    ++ran_;
    if (!predicted.fits()) said_not_to_fit_.push_back(listed());
  }
}

bool MemoryJudge::is_memory_table(const CsvTable& table) {
  return is_configuration_table(table) || is_korthikanti_table(table);
}

void MemoryJudge::add_table(const std::string& source, const CsvTable& table, Json* rows) {
  const bool configuration = is_configuration_table(table);
  for (const CsvRow& fields : table.rows) {
    Json row;
    row["file"] = source;
    row["line"] = fields.line;
    row["source"] = table.field(fields, "source");
    row["model"] = table.field(fields, configuration ? "test_case" : "model");
    try {
      const MemoryRow judged =
          configuration ? read_configuration(table, fields) : read_korthikanti(table, fields);
      row["plan"] = judged.row.label;
      row["predicted_bytes"] = judged.predicted;
      row["measured_bytes"] = judged.measured;
      row["memory_kind"] = name_of(MemoryKind::allocated);
      row["memory_error"] = judged.predicted / judged.measured - 1;
      add(source, MemoryKind::allocated,
          {judged.predicted, judged.measured, judged.row.group, judged.row.label});
    } catch (const Unreadable& why) {
      row["skipped"] = why.why;
    } catch (const UserError& error) {
      row["skipped"] = error.what();
    }
    if (row.contains("skipped")) ++source_of(source).skipped;
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

}  // namespace orrery::evidence
