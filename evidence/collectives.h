// Judges the collective cost model by published measurements: nccl-tests logs and profiles
// (docs/collectives.md).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost/collective_cost.h"
#include "evidence/statistics.h"

namespace orrery::evidence {

struct CollectiveRow {
  std::string file;  // with its ending
  int line = 0;
  std::string source, collective, device;  // as the table has them
  int devices = 0, nodes = 0;
  double size_bytes = 0;
  std::optional<Compared> seconds;
  Algorithm algorithm = Algorithm::ring;  // predicted
  Protocol protocol = Protocol::simple;   // likewise
  // Why it was not judged. What is implausible in itself is predicted all the same.
  std::string skipped;
};

struct CollectiveSource {
  std::string name;  // the file
  Figures all, above_1_mib;
};
struct PublishedCollectives {
  std::vector<CollectiveRow> rows;
  Figures all, above_1_mib;
  std::vector<CollectiveSource> sources;
  std::vector<std::pair<std::string, Figures>> machines;  // by device, nodes and collective; above 1 MiB
};

// Predicts every row of the tables on a description of the machine that the row names. Throws UserError for a
// missing or malformed file, or one whose header is of neither kind of table.
PublishedCollectives validate_published_collectives(const std::vector<std::string>& csv_files);

}  // namespace orrery::evidence
