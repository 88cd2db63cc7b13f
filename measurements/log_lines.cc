#include "measurements/log_lines.h"

#include <cmath>

#include "base/parse.h"
#include "base/statistics.h"

namespace orrery::measurements {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
std::size_t digits_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

// Behind one such tag; 0: there is none.
std::size_t behind_tag(std::string_view line) {
  constexpr std::size_t kMostTagBytes = 64, kMostRankDigits = 7;
  if (line.starts_with('[')) {
    const std::size_t end = line.substr(0, kMostTagBytes).find(']');
    if (end == std::string_view::npos) return 0;
    const std::string_view inside = line.substr(1, end - 1), rest = line.substr(end + 1);
    if (inside.find_first_not_of("0123456789,") == std::string_view::npos)
      for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stddiag>:"})
        if (rest.starts_with(stream)) return end + 1 + stream.size();
    // A role of torchrun is a name, and its local rank.
    const std::size_t name = inside.find_first_of("0123456789");
    const bool role = name != std::string_view::npos && name > 0 &&
                      name + digits_at(inside, name) == inside.size() &&
                      inside.find_first_of(" \t:/") == std::string_view::npos;
    return role && rest.starts_with(':') ? end + 2 : 0;
  }
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos || begin >= kMostRankDigits) return 0;
  const std::size_t digits = digits_at(line, begin);
  if (digits == 0 || digits > kMostRankDigits || !line.substr(begin + digits).starts_with(": ")) return 0;
  return begin + digits + 2;
}

}  // namespace

std::string without_grouping(std::string_view text) {
  std::string plain(text.substr(0, digits_at(text, 0)));
  if (plain.empty() || plain.size() > 3) return std::string(text);
  std::size_t at = plain.size();
  while (at < text.size() && text[at] == ',') {
    if (digits_at(text, at + 1) != 3) return std::string(text);
    plain += text.substr(at + 1, 3);
    at += 4;
  }
  const std::string_view rest = text.substr(at);
  if (!rest.empty() && !(rest.front() == '.' && digits_at(rest, 1) == rest.size() - 1))
    return std::string(text);
  return plain.append(rest);
}

std::string_view without_rank(std::string_view line) {
  constexpr int kMostTags = 3;  // srun's before torchrun's
  for (int i = 0; i < kMostTags; ++i) {
    const std::size_t behind = behind_tag(line);
    if (behind == 0) break;
    line.remove_prefix(behind);
  }
  return line;
}

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

bool counts_anew(const std::vector<LoggedStep>& steps, std::int64_t number) {
  return !steps.empty() && number >= 0 && number < steps.back().number;
}

std::vector<LoggedStep> steady(const std::vector<LoggedStep>& steps) {
  std::vector<LoggedStep> found;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const bool first = steps[i].number >= 0 && steps[i].number == steps.front().number;
    if (!first && steps[i].value > 0 && std::isfinite(steps[i].value)) found.push_back(steps[i]);
  }
  return found;
}

double spread_of_median(const std::vector<double>& seconds) {
  if (seconds.size() < 2) return 0;
  std::vector<double> squares;
  const double middle = median(seconds);
  for (const double one : seconds) squares.push_back(std::pow(std::log(one / middle), 2));
  return std::sqrt(mean(squares) / static_cast<double>(seconds.size()));
}

}  // namespace orrery::measurements
