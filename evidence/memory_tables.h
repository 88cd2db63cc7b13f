// Rows of the tables of published/memory: test configurations with their peak of allocated bytes, and the
// memory of Korthikanti et al., arXiv 2205.05198. What words mean, and why: evidence/data/memory.textproto.
#pragma once

#include "base/csv.h"
#include "evidence/row.h"

namespace orrery::evidence {

struct MemoryRow {
  ExplicitRow row;
  double predicted = 0;
  double measured = 0;  // bytes; or percent, both
};

bool is_configuration_table(const CsvTable& table);
bool is_korthikanti_table(const CsvTable& table);
// Throw Unreadable (fields.h), or UserError where the plan is refused.
MemoryRow read_configuration(const CsvTable& table, const CsvRow& fields);
MemoryRow read_korthikanti(const CsvTable& table, const CsvRow& fields);

}  // namespace orrery::evidence
