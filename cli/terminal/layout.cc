#include "cli/terminal/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>

namespace orrery::cli {
namespace {

constexpr std::size_t kLeastColumns = 40, kMostColumns = 1000;
constexpr std::size_t kGap = 2;         // between columns
constexpr std::size_t kLeastText = 24;  // that a column of text keeps
constexpr std::size_t kLeastName = 16;  // that a column of names does

using Row = std::vector<std::string>;

std::optional<std::size_t> columns_said() {
  const char* said = std::getenv("COLUMNS");
  if (said == nullptr) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(said, &end, 10);
  if (end == said || *end != '\0' || value <= 0) return std::nullopt;
  return static_cast<std::size_t>(value);
}

std::vector<std::size_t> widths_of(const Row& head, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(head.size());
  for (std::size_t c = 0; c < head.size(); ++c) {
    widths[c] = columns_of(head[c]);
    for (const Row& row : rows) widths[c] = std::max(widths[c], columns_of(row[c]));
  }
  return widths;
}

std::size_t total(const std::vector<std::size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), std::size_t{0}) + kGap * (widths.size() - 1);
}

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What a column of names may be cut to: its heading stays.
std::size_t least_of(const std::string& heading, std::size_t width) {
  return std::min(width, std::max(kLeastName, columns_of(heading)));
}

// Cuts names, the longest first, as far as lines are too long.
void cut_names(const Row& head, const std::vector<std::string>& names, std::vector<Row>& rows) {
  std::vector<std::size_t> widths = widths_of(head, rows);
  while (total(widths) > columns()) {
    std::optional<std::size_t> widest;
    for (std::size_t c = 0; c < head.size(); ++c)
      if (is_one_of(head[c], names) && widths[c] > least_of(head[c], widths[c]) &&
          (!widest || widths[c] > widths[*widest]))
        widest = c;
    if (!widest) break;
    --widths[*widest];
  }
  for (Row& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c)
      if (is_one_of(head[c], names)) row[c] = cut_in_the_middle(row[c], widths[c]);
}

void leave_out(std::size_t column, Row& head, std::vector<Row>& rows) {
  const auto at = static_cast<std::ptrdiff_t>(column);
  head.erase(head.begin() + at);
  for (Row& row : rows) row.erase(row.begin() + at);
}

// The column of the whole table at its place among those that are left.
void put_back(std::size_t column, const Row& all_of_head, const std::vector<Row>& all, Row& head,
              std::vector<Row>& rows) {
  std::size_t at = 0;
  for (std::size_t c = 0; c < column; ++c)
    if (at < head.size() && head[at] == all_of_head[c]) ++at;
  const auto place = static_cast<std::ptrdiff_t>(at);
  head.insert(head.begin() + place, all_of_head[column]);
  for (std::size_t r = 0; r < rows.size(); ++r) rows[r].insert(rows[r].begin() + place, all[r][column]);
}

std::string line_of(const Row& row, const std::vector<std::size_t>& widths, bool text) {
  std::string line;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const std::string pad(widths[c] - std::min(widths[c], columns_of(row[c])), ' ');
    const bool left = c == 0 || (text && c + 1 == row.size());
    if (c > 0) line += std::string(kGap, ' ');
    line += left ? row[c] + pad : pad + row[c];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// The last cell in lines of `width`, under each other.
std::string lines_of(Row row, std::vector<std::size_t> widths, std::size_t width) {
  const std::string cell = wrapped(row.back(), width);
  std::string text;
  std::size_t at = 0;
  widths.back() = width;
  while (at <= cell.size()) {
    const std::size_t end = std::min(cell.find('\n', at), cell.size());
    row.back() = cell.substr(at, end - at);
    text += line_of(row, widths, true) + "\n";
    std::fill(row.begin(), row.end() - 1, std::string());
    at = end + 1;
  }
  return text;
}

// In one block, whatever its width.
std::string block(const Row& head, const std::vector<Row>& rows, bool text) {
  std::vector<std::size_t> widths = widths_of(head, rows);
  const std::size_t whole = total(widths), before = whole - widths.back();
  std::string result = bold(line_of(head, widths, text)) + "\n";
  const bool breaks = text && whole > columns() && before + kLeastText <= columns();
  for (const Row& row : rows)
    result += breaks ? lines_of(row, widths, columns() - before) : line_of(row, widths, text) + "\n";
  return result;
}

}  // namespace

Layout& layout() {
  static Layout given;
  return given;
}

std::size_t columns() {
  if (layout().wide) return std::numeric_limits<std::size_t>::max();
  if (isatty(STDOUT_FILENO) != 1) return kUsualColumns;
  winsize size{};
  std::size_t told = kUsualColumns;
  if (const auto said = columns_said())
    told = *said;
  else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    told = size.ws_col;
  return std::clamp(told, kLeastColumns, kMostColumns);
}

bool coloured(int file_descriptor) {
  const char* none = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(file_descriptor) == 1 && (none == nullptr || *none == '\0') && term != nullptr &&
         std::string_view(term) != "dumb" && *term != '\0';
}

std::string bold(std::string_view text) {
  return coloured(STDOUT_FILENO) ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

bool fits(const Row& head, const std::vector<Row>& rows) {
  return total(widths_of(head, rows)) <= columns();
}

std::string table(const Row& all_of_head, const std::vector<Row>& all, const TableStyle& style) {
  Row head = all_of_head;
  std::vector<Row> rows = all;
  std::vector<std::string> left_out;
  const auto too_wide = [&] {
    std::vector<std::size_t> widths = widths_of(head, rows);
    for (std::size_t c = 0; c < head.size(); ++c)
      if (is_one_of(head[c], style.names)) widths[c] = least_of(head[c], widths[c]);
    if (style.text) widths.back() = std::min(widths.back(), kLeastText);
    return total(widths) > columns();
  };
  if (too_wide()) {
    // Without all that is optional, then what is needed most of it, as far as there is room.
    for (std::size_t c = head.size(); c-- > 1;)
      if (is_one_of(head[c], style.optional)) leave_out(c, head, rows);
    for (auto name = style.optional.rbegin(); name != style.optional.rend(); ++name) {
      const auto at = std::find(all_of_head.begin(), all_of_head.end(), *name);
      if (at == all_of_head.end()) continue;
      Row with = head;
      std::vector<Row> rows_with = rows;
      std::swap(head, with);
      std::swap(rows, rows_with);
      put_back(static_cast<std::size_t>(at - all_of_head.begin()), all_of_head, all, head, rows);
      if (!too_wide()) continue;
      std::swap(head, with);
      std::swap(rows, rows_with);
      left_out.push_back(*name);
    }
  }
  cut_names(head, style.names, rows);
  std::string result;
  while (too_wide() && head.size() > 2) {
    // As many columns as fit, then the others behind the first.
    const std::vector<std::size_t> widths = widths_of(head, rows);
    std::size_t count = 1, width = widths[0];
    while (count < head.size() && width + kGap + widths[count] <= columns()) width += kGap + widths[count++];
    count = std::max<std::size_t>(count, 2);
    if (count >= head.size()) break;
    const auto cut = static_cast<std::ptrdiff_t>(count);
    const auto first = [&](const Row& row) { return Row(row.begin(), row.begin() + cut); };
    const auto rest = [&](const Row& row) {
      Row others = {row[0]};
      others.insert(others.end(), row.begin() + cut, row.end());
      return others;
    };
    std::vector<Row> shown, further;
    for (const Row& row : rows) {
      shown.push_back(first(row));
      further.push_back(rest(row));
    }
    result += block(first(head), shown, false) + "\n";
    head = rest(head);
    rows = std::move(further);
  }
  result += block(head, rows, style.text);
  if (left_out.empty()) return result;
  std::vector<std::string> named;  // in the order in which they would stand
  for (const std::string& name : all_of_head)
    if (std::find(left_out.begin(), left_out.end(), name) != left_out.end()) named.push_back(name);
  return result + wrapped(fmt::format("(--wide also shows {})", fmt::join(named, ", ")), columns()) + "\n";
}

}  // namespace orrery::cli
