// Judges memory predictions by published peaks: the memory column of tables of training steps, and the tables
// of published/memory. docs/accuracy.md lists the rules.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/csv.h"
#include "base/json.h"
#include "evidence/row.h"
#include "evidence/statistics.h"

namespace orrery::evidence {

class MemoryJudge {
 public:
  // A row of a table of steps, with a memory figure or without: whether it ran is judged as well. Adds
  // predicted_bytes, measured_bytes, memory_kind, memory_error, fits to `json`.
  void add_step(const ExplicitRow& row, const planner::Memory& predicted, Json* json);
  // Whole tables. Appends to `rows`.
  static bool is_memory_table(const CsvTable& table);
  void add_table(const std::string& source, const CsvTable& table, Json* rows);

  bool empty() const { return all_.empty() && ran_ + out_of_memory_ == 0; }
  // The block `memory`: all, sources (by file; kind says what is counted), fits {ran,
  // said_not_to_fit, out_of_memory, said_to_fit: the latter two of rows}.
  Json json() const;

 private:
  struct Source {
    std::vector<Judged> rows;
    int skipped = 0;
    MemoryKind kind = MemoryKind::allocated;
  };
  Source& source_of(const std::string& name);
  void add(const std::string& name, MemoryKind kind, const Judged& judged);

  std::vector<Judged> all_;
  std::vector<std::pair<std::string, Source>> sources_;
  int ran_ = 0, out_of_memory_ = 0;
  Json said_not_to_fit_ = Json::array(), said_to_fit_ = Json::array();
};

}  // namespace orrery::evidence
