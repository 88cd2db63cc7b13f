#include "base/parse.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

namespace orrery {
namespace {

// The number that `text` begins with, and what follows it.
template <typename Number>
std::optional<std::pair<Number, std::string_view>> leading(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};
  return std::pair{value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// `base` to the power of the suffix's place in `suffixes`, counted from 1; 1 where it is not there.
double scale(std::string_view suffixes, char suffix, double base) {
  const auto place = suffixes.find(lower(suffix));
  return place == std::string_view::npos ? 1 : std::pow(base, static_cast<double>(place + 1));
}

}  // namespace

std::optional<std::int64_t> parse_whole(std::string_view text) {
  const auto found = leading<std::int64_t>(text);
  return found && found->second.empty() ? std::optional(found->first) : std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  const auto found = leading<double>(text);
  return found && found->second.empty() && std::isfinite(found->first) ? std::optional(found->first)
                                                                       : std::nullopt;
}

std::optional<double> parse_scaled(std::string_view text) {
  const auto found = leading<double>(text);
  if (!found || found->second.size() > 1) return {};
  double value = found->first;
  if (!found->second.empty()) {
    const double unit = scale("kmgt", lower(found->second[0]), 1000);
    if (unit == 1) return {};
    value *= unit;
  }
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<bool> parse_switch(std::string_view text) {
  if (text == "on") return true;
  if (text == "off") return false;
  return {};
}

std::optional<double> parse_bytes(std::string_view text) {
  const auto found = leading<double>(text);
  if (!found || !std::isfinite(found->first) || found->first < 0) return {};
  std::string_view suffix = found->second;
  const double unit = suffix.empty() ? 1 : scale("kmgt", suffix[0], 1024);
  if (unit > 1) {
    suffix.remove_prefix(1);
    if (suffix == "iB") suffix = {};
  }
  if (suffix == "B") suffix = {};
  constexpr double kMost = 1e24;  // a million exabytes: more is no size, and overflows in what is made of it
  const double bytes = found->first * unit;
  const bool plausible = bytes == 0 || (bytes >= 1 && bytes <= kMost);
  return suffix.empty() && plausible ? std::optional(bytes) : std::nullopt;
}

std::optional<std::int64_t> parse_count(std::string_view text, int k) {
  if (const auto whole = parse_whole(text)) return whole;
  constexpr double kMost = 1e18;
  const auto found = leading<double>(text);
  if (!found || found->second.size() > 1) return {};
  const bool plain = found->second.empty();  // 1e3
  const double unit = plain ? 1 : scale("kmgt", found->second[0], k);
  const double value = found->first * unit;
  if ((unit == 1 && !plain) || !(std::abs(value) <= kMost) || value != std::floor(value)) return {};
  return static_cast<std::int64_t>(value);
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower(c);
  return result;
}

std::optional<double> parse_amount(std::string_view text) {
  constexpr double kMost = 1e18;  // counts stay exact enough, and whole steps within 64 bits
  const auto found = leading<double>(text);
  if (!found || found->second.size() > 1) return {};
  double value = found->first;
  if (!found->second.empty()) {
    const char suffix = lower(found->second[0]);
    const double unit = scale("kmbt", suffix == 'g' ? 'b' : suffix, 1000);
    if (unit == 1) return {};
    value *= unit;
  }
  return value >= 1 && value <= kMost ? std::optional(value) : std::nullopt;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::optional<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word has begun
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (escapes) {
      ++i;
      if (text[i] == '\n') continue;  // a line that goes on
      word += text[i];
      open = true;
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      open = true;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (open) words.push_back(std::move(word));
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quote != 0) return {};
  if (open) words.push_back(std::move(word));
  return words;
}

}  // namespace orrery
