// How what people read is laid out: as wide as a terminal is, 80 columns where nobody looks on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/answer/lines.h"

namespace orrery::cli {

// What a user asks of all text of this process.
struct Layout {
  bool wide = false;     // tables in full, however wide
  bool verbose = false;  // the long explanations, too
};
Layout& layout();

// Of a line on stdout: the terminal's (COLUMNS, else what it says), 80 where there is none, no end under
// `wide`.
std::size_t columns();

// Colours are for terminals that know them and users who did not set NO_COLOR.
bool coloured(int file_descriptor);
std::string bold(std::string_view text);  // on stdout

struct TableStyle {
  // Columns by name, what is needed least first: left out where lines would be longer than `columns()`, and
  // named below.
  std::vector<std::string> optional = {};
  // Columns by name whose cells are cut in the middle before others are left out or go below.
  std::vector<std::string> names = {};
  bool text = false;  // the last column is text: left-aligned, broken into lines where it is long
};
// Columns padded to their widest cell; the first is left-aligned, the others right-aligned. Where a line
// would be too long all the same, the further columns stand in a table of their own below, behind the first
// again.
std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                  const TableStyle& style = {});
// Whether that needs no columns left out.
bool fits(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

}  // namespace orrery::cli
