// The errors that are committed are the errors that this tree has.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "planner/published.h"
#include "planner/published_report.h"
#include "tests/support/published.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

namespace fs = std::filesystem;

std::vector<std::vector<std::string>> cells(const std::string& page) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    std::vector<std::string> row;
    std::istringstream fields(line.substr(2));
    for (std::string field; std::getline(fields, field, '|');) {
      field.erase(0, field.find_first_not_of(' '));
      field.erase(field.find_last_not_of(' ') + 1);
      row.push_back(field);
    }
    rows.push_back(row);
  }
  return rows;
}

// Counts and names are equal; figures are within ten units of their last digit (percentages: 0.1 point) or
// 0.1%.
bool agree(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a);
  const double y = std::strtod(b.c_str(), &end_b);
  if (*end_a != 0 || *end_b != 0 || a.empty() || b.empty()) return false;
  const auto point = std::max(a.find('.') + 1, b.find('.') + 1);  // 0: a count
  if (point == 0) return false;
  const std::string& longer = a.find('.') == std::string::npos ? b : a;
  const double units = std::pow(10, 1 - static_cast<double>(longer.size() - longer.find('.') - 1));
  return std::abs(x - y) <= std::max(units * (1 + 1e-9), 1e-3 * std::abs(y));
}

}  // namespace

TEST_CASE("tests/golden/published.md is what validate --published prints, to 0.1 point") {
  const fs::path folder = test::published("steps");
  if (folder.empty()) {
    WARN("skipped: no published tables here (ORRERY_PUBLISHED)");
    return;
  }
  const std::vector<std::string> files = test::published_tables(folder, "steps");
  const auto now = cells(published_markdown(validate_published(files)));
  const auto kept = cells(read_file((fs::path(ORRERY_SOURCE_DIR) / "tests/golden/published.md").string()));
  REQUIRE(now.size() == kept.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    INFO("row " << i << ": " << now[i].front() << " (kept: " << kept[i].front() << ")");
    REQUIRE(now[i].size() == kept[i].size());
    for (std::size_t j = 0; j < now[i].size(); ++j) {
      INFO("column " << j << ": now " << now[i][j] << ", kept " << kept[i][j]);
      CHECK(agree(now[i][j], kept[i][j]));
    }
  }
}
