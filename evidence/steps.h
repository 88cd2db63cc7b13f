// Tables of training steps (published/steps): from a row to the plan that was run. What words mean, and why:
// evidence/data/steps.textproto.
#pragma once

#include "base/csv.h"
#include "evidence/row.h"

namespace orrery::evidence {

bool is_step_table(const CsvTable& table);
// Throws Unreadable (fields.h), or UserError where the plan is refused.
ExplicitRow read_step(const CsvTable& table, const CsvRow& fields, const Instead& instead = {});

// Whether the row has a time or a rate: FLOP/s count as one where it has a model and a batch as well.
bool asks_for_prediction(const CsvTable& table, const CsvRow& fields);

}  // namespace orrery::evidence
