#include "measurements/log_lines.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/csv.h"
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

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

// Behind as many digits; 0: there are others, or `at` is.
std::size_t behind_digits(std::string_view text, std::size_t at, std::size_t count) {
  return at != 0 && digits_at(text, at) == count ? at + count : 0;
}
// Behind "12:34:56", with or without what is less than a second, and a zone; 0: there is none. Positions are
// behind a first character, so that none is 0.
std::size_t behind_clock(std::string_view text, std::size_t at) {
  for (int i = 0; i < 3; ++i) {
    if (i > 0 && (at == 0 || at >= text.size() || text[at] != ':')) return 0;
    at = behind_digits(text, at + (i > 0 ? 1 : 0), 2);
  }
  if (at == 0) return 0;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) at += 1 + digits_at(text, at + 1);
  if (at < text.size() && text[at] == 'Z') return at + 1;
  if (at < text.size() && (text[at] == '+' || text[at] == '-') && digits_at(text, at + 1) >= 2) {
    at += 1 + digits_at(text, at + 1);
    if (at < text.size() && text[at] == ':') at += 1 + digits_at(text, at + 1);
  }
  return at;
}
// Behind "2026-01-11"; 0: there is none.
std::size_t behind_date(std::string_view text, std::size_t at) {
  at = behind_digits(text, at, 4);
  for (int i = 0; i < 2; ++i) {
    if (at == 0 || at >= text.size() || (text[at] != '-' && text[at] != '/')) return 0;
    at = behind_digits(text, at + 1, 2);
  }
  return at;
}

// Behind a time that begins a line, "2026-01-11T20:13:40.123Z ", "[2026-01-11 20:13:40,000] ", "20:13:40 ",
// or the system's log's "Jan 11 20:13:40 node-1 job[42]: "; 0: there is none.
std::size_t behind_time(std::string_view line) {
  // One character stands before, so that no position is 0.
  constexpr std::size_t kMostTimeBytes = 100;
  if (line.size() < 9 || !(is_digit(line[0]) || line[0] == '[' || line[3] == ' ')) return 0;
  const std::string text = " " + std::string(line.substr(0, kMostTimeBytes));
  const bool bracket = text.size() > 1 && text[1] == '[';
  std::size_t at = bracket ? 2 : 1;
  if (text.size() > 5 && is_letter(text[1]) && is_letter(text[2]) && is_letter(text[3]) && text[4] == ' ') {
    at = text.find_first_not_of(' ', 5);
    const std::size_t digits = at == std::string::npos ? 0 : digits_at(text, at);
    if (digits == 0 || digits > 2 || text.substr(at + digits, 1) != " ") return 0;
    at = behind_clock(text, at + digits + 1);
    // The host, and the program with its number.
    const std::size_t end = at == 0 ? std::string::npos : text.find(": ", at);
    const bool said = end != std::string::npos && text[end - 1] == ']' &&
                      std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                 text.begin() + static_cast<std::ptrdiff_t>(end), ' ') == 2;
    if (said) return end + 1;
  } else {
    const std::size_t date = behind_date(text, at);
    if (date != 0 && (date >= text.size() || (text[date] != 'T' && text[date] != ' '))) return 0;
    at = behind_clock(text, date != 0 ? date + 1 : at);
    if (at != 0 && bracket && (at >= text.size() || text[at++] != ']')) return 0;
  }
  return at != 0 && at < text.size() && text[at] == ' ' ? at : 0;
}

// Behind one such tag; 0: there is none.
std::size_t behind_tag(std::string_view line) {
  constexpr std::size_t kMostTagBytes = 128, kMostRankDigits = 7;
  if (line.empty()) return 0;
  if (const std::size_t time = behind_time(line); time != 0) return time;
  if (line.front() == '[') {
    const std::size_t end = line.substr(0, kMostTagBytes).find(']');
    if (end == std::string_view::npos) return 0;
    const std::string_view inside = line.substr(1, end - 1), rest = line.substr(end + 1);
    if (inside.find_first_of(" \t") == std::string_view::npos)
      for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stddiag>:"})
        if (rest.starts_with(stream)) return end + 1 + stream.size();
    if (inside.starts_with("pod/") && rest.starts_with(' ')) return end + 2;
    // mpiexec's rank.
    if (!inside.empty() && inside.size() <= kMostRankDigits && digits_at(inside, 0) == inside.size() &&
        rest.starts_with(' '))
      return end + 2;
    // A role of torchrun is a name, and its local rank.
    const std::size_t name = inside.find_first_of("0123456789");
    const bool role = name != std::string_view::npos && name > 0 &&
                      name + digits_at(inside, name) == inside.size() &&
                      inside.find_first_of(" \t:/") == std::string_view::npos;
    return role && rest.starts_with(':') ? end + 2 : 0;
  }
  if (line.front() == '(') {
    const std::size_t end = line.substr(0, kMostTagBytes).find(") ");
    return end != std::string_view::npos && line.substr(0, end).find("pid=") != std::string_view::npos
               ? end + 2
               : 0;
  }
  if (const std::size_t bar = line.substr(0, kMostTagBytes).find('|');
      bar != std::string_view::npos && bar > 1 && line[bar - 1] == ' ' &&
      (bar + 1 == line.size() || line[bar + 1] == ' ')) {
    const std::string_view name = line.substr(0, line.find_first_of(" |"));
    const bool container =
        is_letter(name.empty() ? ' ' : name.front()) &&
        name.find_first_of("0123456789") != std::string_view::npos &&
        line.substr(name.size(), bar - name.size()).find_first_not_of(' ') == std::string_view::npos;
    if (container) return std::min(bar + 2, line.size());
  }
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos || begin >= kMostRankDigits) return 0;
  const std::size_t digits = digits_at(line, begin);
  if (digits == 0 || digits > kMostRankDigits || !line.substr(begin + digits).starts_with(": ")) return 0;
  return begin + digits + 2;
}

// Behind a host's name as pdsh writes it, "node-1: ", which any name of a setting may look like; 0: there is
// none.
std::size_t behind_host(std::string_view line) {
  constexpr std::size_t kMostNameBytes = 64;
  std::size_t end = 0;
  bool told = false;
  while (end < line.size() && end < kMostNameBytes) {
    const char c = line[end];
    if (!is_digit(c) && !is_letter(c) && c != '-' && c != '.') break;
    told = told || !is_letter(c);
    ++end;
  }
  return end > 0 && told && is_letter(line.front()) && line.substr(end).starts_with(':') &&
                 (end + 1 == line.size() || line[end + 1] == ' ')
             ? std::min(end + 2, line.size())
             : 0;
}

// Whether most lines of a log begin with a host's name.
bool names_hosts(std::string_view text) {
  constexpr int kEnough = 10000;
  int lines = 0, named = 0;
  while (!text.empty() && lines < kEnough) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0 && text.front() != '\r') {
      ++lines;
      if (behind_host(text.substr(0, end)) > 0) ++named;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines > 1 && 2 * named > lines;
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
  constexpr int kMostTags = 4;  // a collector's time, srun's, torchrun's
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
    const std::size_t end = line.find_first_not_of("[?0123456789;", i + 1);
    if (end == std::string_view::npos) break;
    i = end;
  }
  return plain;
}

LogLines::LogLines(std::string_view text) {
  text = without_byte_order_mark(text);
  const bool hosts = names_hosts(text);
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find('\x1b') != std::string_view::npos) line = plain_.emplace_back(without_colours(line));
    if (hosts) line.remove_prefix(behind_host(line));
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t stop = std::min(line.find('\r', begin), line.size());
      lines_.push_back({number, without_rank(line.substr(begin, stop - begin))});
      begin = stop + 1;
    }
  }
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
