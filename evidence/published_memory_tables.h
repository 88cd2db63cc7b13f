// Rows of the tables of published/memory: Megatron-LM's test configurations with their peak of allocated
// bytes, and the memory of Korthikanti et al., arXiv 2205.05198.
#pragma once

#include <string>

#include "base/csv.h"

namespace orrery::planner {

struct MemoryRow {
  double predicted = 0;
  double measured = 0;  // bytes; or percent, both
  std::string group, label;
};

bool is_megatron_ci_table(const CsvTable& table);
bool is_korthikanti_table(const CsvTable& table);
// Throw Unreadable (published_rows.h), or UserError where the plan is refused.
MemoryRow read_megatron_ci_row(const CsvTable& table, const CsvRow& fields);
MemoryRow read_korthikanti_row(const CsvTable& table, const CsvRow& fields);

}  // namespace orrery::planner
