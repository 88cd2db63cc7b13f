// Judges predictions by published measurements of whole training steps and of memory (docs/accuracy.md).
#pragma once

#include <string>
#include <vector>

#include "evidence/published.h"

namespace orrery::evidence {

// Predicts every row of the tables. Throws UserError for a missing or malformed file, or one whose header is
// of neither kind of table. Rows of steps, throughput and memory that are predicted and are plans are
// appended to `explicit_rows` where it is given. `instead`: rows of steps are predicted as if they were of
// that runtime, on that cluster. `ranges`: with the interval of each row's step, which take some 6 ms a row
// of one core.
Published validate_published(const std::vector<std::string>& csv_files,
                             std::vector<ExplicitRow>* explicit_rows = nullptr, const Instead& instead = {},
                             bool ranges = false);

// `runtime`: a profile of the catalog or of evidence/profiles, a file, or "default": what stands for software
// that nobody named. `cluster`: as load_cluster takes it. Empty: the rows' own. Throws UserError.
Instead instead_of(const std::string& runtime, const std::string& cluster);

}  // namespace orrery::evidence
