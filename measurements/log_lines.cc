#include "measurements/log_lines.h"

#include <cmath>

#include "base/parse.h"
#include "base/statistics.h"

namespace orrery::measurements {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string_view word_behind(std::string_view line, std::string_view label) {
  const std::size_t at = line.find(label);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = trimmed(line.substr(at + label.size()));
  return rest.substr(0, rest.find_first_of(" ,|)}]\"'"));
}

std::optional<double> number_behind(std::string_view line, std::string_view label) {
  return parse_number(word_behind(line, label));
}

std::string without_colours(std::string_view line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain += line[i];
      continue;
    }
    // ESC [ numbers letter
    const std::size_t end = line.find_first_not_of("[0123456789;", i + 1);
    if (end == std::string_view::npos) break;
    i = end;
  }
  return plain;
}

double spread_of_median(const std::vector<double>& seconds) {
  if (seconds.size() < 2) return 0;
  std::vector<double> squares;
  const double middle = median(seconds);
  for (const double one : seconds) squares.push_back(std::pow(std::log(one / middle), 2));
  return std::sqrt(mean(squares) / static_cast<double>(seconds.size()));
}

}  // namespace orrery::measurements
