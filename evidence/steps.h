// Tables of training steps (published/steps): from a row to the plan that was run. What words mean, and why:
// evidence/data/steps.textproto.
#pragma once

#include <vector>

#include "base/csv.h"
#include "evidence/fields.h"
#include "evidence/row.h"

namespace orrery::evidence {

bool is_step_table(const CsvTable& table);
// Throws Unreadable (fields.h), or UserError where the plan is refused.
ExplicitRow read_step(const CsvTable& table, const CsvRow& fields, const Instead& instead = {});

// Whether the row has a time or a rate: FLOP/s count as one where it has a model and a batch as well.
bool asks_for_prediction(const CsvTable& table, const CsvRow& fields);

// Seconds of a step of `batch` samples as the row has them, with what had to be taken to hold; 0: it has
// neither a time nor a rate.
double measured_seconds(const Fields& row, const proto::Reading& reading, const Job& job, double batch,
                        std::vector<Assumed>* assumed);
// What follows from the row's other columns: the length of sequences, the global batch.
void complete_columns(Fields* row);

}  // namespace orrery::evidence
