// Tables with a header row, separated by commas (RFC 4180: quoted fields, doubled quotes, line breaks in
// quotes).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct CsvRow {
  int line = 0;  // 1-based, of its first character
  std::vector<std::string> fields;
};

struct CsvTable {
  std::string file;
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;  // each with as many fields as there are columns

  int column(std::string_view name) const;  // -1: there is none
  // Empty where there is no such column.
  const std::string& field(const CsvRow& row, std::string_view name) const;
};

// Without the mark that some editors and spreadsheets begin a file of UTF-8 with.
std::string_view without_byte_order_mark(std::string_view text);
// Throws UserError with file:line on an unclosed quote, a row with another number of fields than the header,
// or no header.
CsvTable parse_csv(std::string_view text, std::string_view file, char separator = ',');
CsvTable read_csv(const std::filesystem::path& path);
// One record with its line break; fields that need quotes get them.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace orrery
