#include "base/option.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"

namespace orrery {
namespace {

// Nothing that is asked for lies beyond, in whatever unit: 1e308 overflows in the next product, and 1e-308 as
// a divisor. (A range is told without them: who meets them has typed something else.)
constexpr double kLeastNumber = 1e-30, kMostNumber = 1e30;

// "on" and "off" of "on|off": what an option's unit lists, where that is all there is; else nothing.
std::vector<std::string> words_of(const Option& option) {
  std::vector<std::string> words = split(option.unit, '|');
  const auto plain = [](const std::string& word) {
    return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
  };
  if (words.size() < 2 || !std::all_of(words.begin(), words.end(), plain)) words.clear();
  return words;
}

}  // namespace

std::string Option::name() const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Option::flag() const {
  if (!positional) return "--" + name();
  std::string upper = key;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

void set(const Setting& setting, const std::string& text) {
  const Option& option = setting.option;
  // A word in any case; what is none of them is refused here, unless the option knows more than it lists.
  const std::vector<std::string> words = words_of(option);
  const bool listed = std::find(words.begin(), words.end(), lower_case(text)) != words.end();
  if (words.empty() || listed) {
    if (setting.read(listed ? lower_case(text) : text)) return;
  } else {
    bool read = false;
    try {
      read = setting.read(text);
    } catch (const UserError&) {  // said below, with the nearest word
    }
    if (read) return;
    throw UserError(fmt::format("`{}` {} is unknown", option.key, text.empty() ? "''" : text),
                    suggestion(text, words));
  }
  throw UserError(fmt::format("`{}` {}", option.key, text.empty() ? "''" : text),
                  option.range.empty() ? "" : "expected " + option.range);
}

std::string option_key(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string key(name);
  for (char& c : key) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

std::string with_flags(std::string_view text, const std::vector<Setting>& options) {
  std::string result;
  while (!text.empty()) {
    const auto open = text.find('`');
    const auto close = open == std::string_view::npos ? open : text.find('`', open + 1);
    if (close == std::string_view::npos) return result.append(text);
    result += text.substr(0, open);
    const std::string_view word = text.substr(open + 1, close - open - 1);
    const auto named = std::find_if(options.begin(), options.end(),
                                    [&](const Setting& setting) { return setting.option.key == word; });
    if (named != options.end())
      result += named->option.flag();
    else
      result.append(text.substr(open, close - open + 1));
    text.remove_prefix(close + 1);
  }
  return result;
}

Setting text_option(Option option, std::string& value) {
  return {std::move(option), [&value](const std::string& text) {
            value = text;
            return true;
          }};
}

Setting texts_option(Option option, std::vector<std::string>& values) {
  return {std::move(option), [&values](const std::string& text) {
            values.push_back(text);
            return true;
          }};
}

Setting switch_option(Option option, bool& value) {
  return {std::move(option), [&value](const std::string& text) {
            const auto on = parse_switch(text);
            if (on) value = *on;
            return on.has_value();
          }};
}

Setting bytes_option(Option option, std::optional<double>& value) {
  if (option.range.empty()) option.range = "a number of bytes from 0, with K, M, G or T in powers of 1024";
  return {std::move(option), [&value](const std::string& text) {
            const auto bytes = parse_bytes(text);
            if (bytes) value = bytes;
            return bytes.has_value();
          }};
}

Setting amount_option(Option option, std::optional<double>& value) {
  if (option.range.empty()) option.range = "a number from 1 to 1e18, with k, M, B or T: 15T, 300e9";
  return {std::move(option), [&value](const std::string& text) {
            const auto amount = parse_amount(text);
            if (amount) value = amount;
            return amount.has_value();
          }};
}

std::optional<std::int64_t> read_count(const std::string& text, const Counts& counts) {
  const auto number = parse_count(text, counts.k);
  return number && *number >= counts.least && *number <= counts.most ? number : std::nullopt;
}

std::string range_of(const Counts& counts) {
  if (counts.most == std::numeric_limits<std::int64_t>::max())
    return fmt::format("a whole number from {}", counts.least);
  return fmt::format("a whole number from {} to {}", counts.least, counts.most);
}

std::optional<double> read_number(const std::string& text, const Numbers& numbers) {
  const auto number = parse_scaled(text);
  if (!number || *number > std::min(numbers.most, kMostNumber)) return {};
  if (*number != 0 && std::abs(*number) < kLeastNumber) return {};
  return *number > numbers.least || (!numbers.open && *number == numbers.least) ? number : std::nullopt;
}

std::string range_of(const Numbers& numbers) {
  std::string text = fmt::format("a number {} {:g}", numbers.open ? "above" : "from", numbers.least);
  if (numbers.most < kMostNumber) text += fmt::format(" up to {:g}", numbers.most);
  return text;
}

}  // namespace orrery
