// Judges predictions by published measurements of whole training steps and of memory (docs/accuracy.md).
#pragma once

#include <string>
#include <vector>

#include "evidence/published.h"

namespace orrery::evidence {

// Predicts every row of the tables. Throws UserError for a missing or malformed file, or one whose header is
// of neither kind of table. Rows of steps, throughput and memory that are predicted and are plans are
// appended to `explicit_rows` where it is given.
Published validate_published(const std::vector<std::string>& csv_files,
                             std::vector<ExplicitRow>* explicit_rows = nullptr);

}  // namespace orrery::evidence
