// Fields of one row of a table that were checked to be there, by column; what is not a number reads as 0.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/csv.h"

namespace orrery::planner {

class Fields {
 public:
  Fields(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {}
  const std::string& text(std::string_view column) const { return table_.field(row_, column); }
  double real(std::string_view column) const { return std::strtod(text(column).c_str(), nullptr); }
  int count(std::string_view column) const { return std::atoi(text(column).c_str()); }
  int count(std::string_view column, int otherwise) const {
    const int value = count(column);
    return value > 0 ? value : otherwise;
  }

 private:
  const CsvTable& table_;
  const CsvRow& row_;
};

}  // namespace orrery::planner
