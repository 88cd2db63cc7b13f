// Judges predictions by published throughput of data-parallel training: the tables of published/throughput
// (MLPerf, NVIDIA's DeepLearningExamples, papers). docs/accuracy.md lists the rules.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/csv.h"
#include "base/json.h"
#include "evidence/published_statistics.h"

namespace orrery::planner {

class ThroughputJudge {
 public:
  static bool is_throughput_table(const CsvTable& table);
  // Appends to `rows`: predicted_per_s and measured_per_s (samples; or the figure that the row has: percent,
  // FLOP/s), relative_error; or `skipped`.
  void add_table(const std::string& source, const CsvTable& table, Json* rows);

  bool empty() const { return sources_.empty(); }
  Json json() const;  // all, sources (by file)

 private:
  struct Source {
    std::string name;
    std::vector<Judged> rows;
    int skipped = 0;
  };
  std::vector<Source> sources_;
};

}  // namespace orrery::planner
