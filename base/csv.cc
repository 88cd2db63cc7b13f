#include "base/csv.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace orrery {
namespace {

// Reads one record that starts at `at`; moves `at` behind its line break and counts lines.
CsvRow read_record(std::string_view text, std::size_t& at, int& line, std::string_view file, char separator) {
  CsvRow row;
  row.line = line;
  std::string field;
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (at + 1 < text.size() && text[at + 1] == '"') {
        field += '"';
        ++at;
      } else {
        quoted = false;
      }
    } else if (c == '"' && field.empty()) {
      quoted = true;
    } else if (c == separator) {
      row.fields.push_back(std::move(field));
      field.clear();
    } else if (c == '\n') {
      ++at;
      break;
    } else if (c != '\r') {
      field += c;
    }
  }
  if (quoted) throw UserError(file, row.line, "a quoted field is never closed", "a closing \"");
  row.fields.push_back(std::move(field));
  return row;
}

}  // namespace

int CsvTable::column(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  return found == columns.end() ? -1 : static_cast<int>(found - columns.begin());
}

const std::string& CsvTable::field(const CsvRow& row, std::string_view name) const {
  static const std::string empty;
  const int index = column(name);
  return index < 0 ? empty : row.fields[static_cast<std::size_t>(index)];
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark("\xEF\xBB\xBF");
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

CsvTable parse_csv(std::string_view text, std::string_view file, char separator) {
  CsvTable table;
  table.file = file;
  std::size_t at = 0;
  int line = 1;
  text = without_byte_order_mark(text);
  table.columns = read_record(text, at, line, file, separator).fields;
  if (table.columns.size() == 1 && table.columns[0].empty()) {
    throw UserError(file, 1, "the table is empty", "a header row of column names");
  }
  while (at < text.size()) {
    CsvRow row = read_record(text, at, line, file, separator);
    if (row.fields.size() == 1 && row.fields[0].empty()) continue;
    if (row.fields.size() != table.columns.size()) {
      throw UserError(file, row.line, "the row has " + std::to_string(row.fields.size()) + " fields",
                      std::to_string(table.columns.size()) + " as in the header");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

CsvTable read_csv(const std::filesystem::path& path) {
  return parse_csv(read_file(path), path.string());
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != &fields.front()) line += ',';
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      line += field;
      continue;
    }
    line += '"';
    for (const char c : field) line += c == '"' ? std::string(2, c) : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

}  // namespace orrery
