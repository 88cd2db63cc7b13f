// One row of a table: its columns, and what was found out about it under further names.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "base/csv.h"

namespace orrery::evidence {

class Fields {
 public:
  Fields(const CsvTable& table, const CsvRow& row) : table_(&table), row_(&row) {}

  // From now on `column` says `text`.
  void set(const std::string& column, std::string text) { said_[column] = std::move(text); }

  const std::string& text(std::string_view column) const {
    const auto said = said_.find(column);
    return said != said_.end() ? said->second : table_->field(*row_, column);
  }
  bool stated(std::string_view column) const { return !text(column).empty(); }
  // 0 where the column is empty or no number.
  double real(std::string_view column) const {
    const std::string& text = this->text(column);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return end != text.c_str() && std::isfinite(value) ? value : 0;
  }
  // Of no more than an int holds, far beyond any count.
  int count(std::string_view column) const {
    constexpr double kMost = 1 << 30;
    return static_cast<int>(std::lround(std::clamp(real(column), -kMost, kMost)));
  }
  int count(std::string_view column, int otherwise) const {
    const int value = count(column);
    return value > 0 ? value : otherwise;
  }
  int line() const { return row_->line; }
  const std::string& file() const { return table_->file; }

 private:
  const CsvTable* table_;
  const CsvRow* row_;
  std::map<std::string, std::string, std::less<>> said_;
};

// Why a row cannot be predicted.
struct Unreadable {
  std::string why;
  bool counts = true;  // it is among the rows that ask for a prediction
};

}  // namespace orrery::evidence
