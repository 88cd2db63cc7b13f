// Judges the collective cost model by published measurements: nccl-tests logs and profiles
// (docs/collectives.md).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace orrery::evidence {

// Predicts every row of the tables on a description of the machine that the row names. The result is the
// JSON of `validate --published-collectives`:
//   rows: file, line, source, collective, gpu, n_gpus, n_nodes, size_bytes, and either predicted_s,
//         measured_s, relative_error, algorithm, protocol or `skipped` (why; what is implausible in itself
//         is predicted all the same and stays out of the statistics);
//   all, above_1_mib, sources (by file), machines (by GPU, nodes and collective):
//         rows, skipped, mape, median_ape, max_ape, bias, within_10_percent.
// Throws UserError for a missing or malformed file, or one whose header is of neither kind of table.
Json validate_published_collectives(const std::vector<std::string>& csv_files);

}  // namespace orrery::evidence
