// Judges predictions by published measurements of whole training steps and of memory (docs/accuracy.md).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "evidence/row.h"

namespace orrery::evidence {

// Predicts every row of the tables. The JSON of `validate --published`:
//   rows: file, line, source, model, gpu, n_gpus, runtime, plan, predicted_s, measured_s, relative_error; or
//         `skipped`, why; rows of memory tables have predicted_bytes and measured_bytes instead;
//   all, sources (by file): rows, skipped, mape, median_ape, max_ape, bias, within_10_percent, groups,
//         kendall_tau, regret {mean max};
//   memory {all, sources}: the same for memory, of rows of steps that print it and of tables of memory.
// Throws UserError for a missing or malformed file, or one whose header is of neither kind of table.
// The rows of steps and throughput that are predicted are appended to `explicit_rows` where it is given.
Json validate_published(const std::vector<std::string>& csv_files,
                        std::vector<ExplicitRow>* explicit_rows = nullptr);

}  // namespace orrery::evidence
