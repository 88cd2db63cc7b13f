#include "measurements/table_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "evidence/words/fields.h"

namespace orrery::measurements {
namespace {

bool is_timed(std::string_view column) {
  return std::find(kTimes.begin(), kTimes.end(), column) != kTimes.end();
}

std::string said_beside_times(const CsvTable& table, const CsvRow& row) {
  std::string said;
  for (std::size_t i = 0; i < row.fields.size() && i < table.columns.size(); ++i)
    if (!is_timed(table.columns[i])) said += row.fields[i] + '\n';
  return said;
}

// The one column that has the row's time; empty where there are several, or a trace has it.
std::string_view only_time(const CsvTable& table, const CsvRow& row) {
  std::string_view only;
  for (const std::string_view column : kTimes) {
    if (table.field(row, column).empty()) continue;
    if (!only.empty()) return {};
    only = column;
  }
  return table.field(row, "trace").empty() ? only : std::string_view();
}

std::string key_of(const CsvTable& table, const CsvRow& row, std::string_view column) {
  return fmt::format("{}\n{}", column, said_beside_times(table, row));
}

}  // namespace

void draw_plans(int most, CsvTable* table, Measurements* measurements) {
  if (most <= 0) return;
  std::map<std::string, std::size_t> numbers;
  std::vector<std::size_t> plan_of;
  for (const CsvRow& row : table->rows)
    plan_of.push_back(numbers.try_emplace(said_beside_times(*table, row), numbers.size()).first->second);
  const auto kept = static_cast<std::size_t>(most);
  if (numbers.size() <= kept) return;
  std::vector<std::size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), 0);
  const CounterRandom random(3, order.size());
  for (std::size_t i = 0; i < kept; ++i) std::swap(order[i], order[i + random.bits(i) % (order.size() - i)]);
  const std::set<std::size_t> drawn(order.begin(), order.begin() + most);
  std::vector<CsvRow> rows;
  const CsvRow* first = nullptr;
  for (std::size_t i = 0; i < plan_of.size(); ++i) {
    if (drawn.contains(plan_of[i]))
      rows.push_back(table->rows[i]);
    else if (first == nullptr)
      first = &table->rows[i];
  }
  measurements->ignored.push_back(
      {table->file, first->line,
       fmt::format("of {} plans of the table {} were drawn by seed, which say what all would", order.size(),
                   most),
       static_cast<int>(table->rows.size() - rows.size())});
  table->rows = std::move(rows);
}

std::optional<evidence::ExplicitRow> RowsRead::again(const CsvTable& table, const CsvRow& fields) const {
  const std::string_view column = only_time(table, fields);
  if (column.empty()) return std::nullopt;
  const auto found = read_.find(key_of(table, fields, column));
  const double time = evidence::Fields(table, fields).real(std::string(column));
  if (found == read_.end() || time <= 0) return std::nullopt;
  evidence::ExplicitRow row = found->second.row;
  row.line = fields.line;
  row.measured_s *= is_rate(column) ? found->second.time / time : time / found->second.time;
  return row;
}

void RowsRead::add(const CsvTable& table, const CsvRow& fields, const evidence::ExplicitRow& row) {
  const std::string_view column = only_time(table, fields);
  if (column.empty()) return;
  const double time = evidence::Fields(table, fields).real(std::string(column));
  if (time > 0) read_.try_emplace(key_of(table, fields, column), Read{row, time});
}

}  // namespace orrery::measurements
