// Judges memory predictions by published peaks: the memory column of tables of training steps, and the tables
// of published/memory. docs/accuracy.md lists the rules.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/csv.h"
#include "evidence/published.h"

namespace orrery::evidence {

class MemoryJudge {
 public:
  // A row of a table of steps, with a memory figure or without: whether it ran is judged as well. Fills
  // in what `judged` has of memory.
  void add_step(const ExplicitRow& row, const planner::Memory& predicted, PublishedRow* judged);
  // Whole tables. Appends to `rows`; rows that a plan expresses go to `explicit_rows` where it is given.
  static bool is_memory_table(const CsvTable& table);
  void add_table(const std::string& source, const CsvTable& table, std::vector<PublishedRow>* rows,
                 std::vector<ExplicitRow>* explicit_rows);

  // None where there were no rows of memory.
  std::optional<MemorySummary> summary() const;

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
  MemorySummary found_;  // but for the figures
};

}  // namespace orrery::evidence
