// What bounds the work that a long table of steps makes: rows of one plan are read once, and of very many
// plans some are drawn.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/csv.h"
#include "evidence/row.h"
#include "measurements/measurement.h"

namespace orrery::measurements {

// Columns that say how long a step took.
constexpr std::array<std::string_view, 4> kTimes = {"step_time_s", "tokens_per_s", "tokens_per_s_per_gpu",
                                                    "sequences_per_s"};
// Whether more of such a column is less time.
constexpr bool is_rate(std::string_view column) {
  return column != kTimes.front();
}

// Leaves the rows of at most `most` plans in the table, drawn by seed, and says how many were left out; 0:
// all.
void draw_plans(int most, CsvTable* table, Measurements* measurements);

// Rows that were read, by all that they say beside their times.
class RowsRead {
 public:
  // The row as one that was read before has it, with its own time; none where that cannot be said.
  std::optional<evidence::ExplicitRow> again(const CsvTable& table, const CsvRow& fields) const;
  void add(const CsvTable& table, const CsvRow& fields, const evidence::ExplicitRow& row);

 private:
  struct Read {
    evidence::ExplicitRow row;
    double time = 0;
  };
  std::map<std::string, Read> read_;
};

}  // namespace orrery::measurements
