// Tables of data-parallel throughput (published/throughput: MLPerf, NVIDIA's DeepLearningExamples, papers):
// from a row to the plan that was run, and predictions judged by it. What words mean, and why:
// evidence/data/throughput.textproto.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/csv.h"
#include "evidence/published.h"

namespace orrery::evidence {

bool is_throughput_table(const CsvTable& table);
// Throws Unreadable (fields.h), or UserError where the plan is refused.
ExplicitRow read_throughput(const CsvTable& table, const CsvRow& fields);
// Samples a second, or percent of so many times one device's rate.
double predicted_throughput(const ExplicitRow& row);

class ThroughputJudge {
 public:
  // Appends to `rows`. What was read goes to `explicit_rows` where it is given.
  void add_table(const std::string& source, const CsvTable& table, std::vector<PublishedRow>* rows,
                 std::vector<ExplicitRow>* explicit_rows);

  std::optional<Summary> summary() const;  // none where there were no such tables

 private:
  struct Source {
    std::string name;
    std::vector<Judged> rows;
    int skipped = 0;
  };
  std::vector<Source> sources_;
};

}  // namespace orrery::evidence
