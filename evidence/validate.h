// Judges predictions by published measurements of whole training steps and of memory (docs/accuracy.md).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "evidence/row.h"

namespace orrery::evidence {

// Predicts every row of the tables. The JSON of `validate --published`:
//   rows: file, line, source, model, gpu, n_gpus, runtime, plan, predicted_s, measured_s, relative_error; or
//         `skipped`, why; rows of memory tables have predicted_bytes and measured_bytes instead; where
//         defaults that may be off were taken, `assumed` (of what, why, widens: evidence/rules.h) and
//         `widens`, of all together;
//   all, sources (by file): rows, skipped, mape, median_ape, max_ape, bias, within_10_percent, groups,
//         kendall_tau, regret {mean max}; asked (rows with a time or a rate; adapters and devices without a
//         name do not count), answered (share of these that is predicted), refused_by_memory (rows that ran
//         and are predicted not to fit);
//   memory {all, sources}: the same for memory, of rows of steps that print it and of tables of memory.
// Throws UserError for a missing or malformed file, or one whose header is of neither kind of table.
// The rows of steps and throughput that are predicted are appended to `explicit_rows` where it is given.
// `instead`: rows of steps are predicted as if they were of that runtime, on that cluster.
Json validate_published(const std::vector<std::string>& csv_files,
                        std::vector<ExplicitRow>* explicit_rows = nullptr, const Instead& instead = {});

// `runtime`: a profile of the catalog or of evidence/profiles, a file, or "default": what stands for software
// that nobody named. `cluster`: as load_cluster takes it. Empty: the rows' own. Throws UserError.
Instead instead_of(const std::string& runtime, const std::string& cluster);

}  // namespace orrery::evidence
