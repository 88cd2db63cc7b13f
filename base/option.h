// What a user may say by a name. One record is the source of the command line and its help, of
// docs/options.md, of what `whatif` varies, of pins and of the keys of a plan's JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse.h"

namespace orrery {

struct Option {
  std::string key = {};   // "micro_batch": in JSON and in errors, which quote it: "`micro_batch` 3 …"
  std::string unit = {};  // what stands for its value: "N", "SECONDS", "on|off"; of a switch nothing
  std::string help = {};
  std::string fallback = {};  // what holds where it is not given; empty: nothing, or what `group` says
  std::string range = {};     // what an error expects: "a whole number from 1 to 1024"; empty: any text
  std::string group = {};
  std::string excludes = {};     // the key of an option that may not stand beside it
  std::string environment = {};  // the variable that is read where it is not given
  bool positional = false;
  bool required = false;
  bool many = false;      // several values behind it
  bool repeated = false;  // given several times, with one value each
  bool pinned = false;    // fixes a dimension of the search
  bool varied = false;    // `whatif` may vary it

  std::string name() const;  // "micro-batch", as people write it
  // As a command line has it: "--micro-batch", of a positional one "WORKLOAD".
  std::string flag() const;
  bool is_switch() const { return unit.empty() && !positional; }
};

// An option and where its value goes.
struct Setting {
  Option option = {};
  // False where the text (of a switch "on") is outside the option's range; may throw a UserError that says
  // more.
  std::function<bool(const std::string& text)> read = {};
};
// Throws UserError naming the option, the text and the range.
void set(const Setting& setting, const std::string& text);

// The key that a user means by "micro-batch", "--micro-batch" or "MICRO_BATCH".
std::string option_key(std::string_view name);

// `text` with the options that it quotes, "`micro_batch`", as a command line has them: "--micro-batch". Other
// quoted words stay.
std::string with_flags(std::string_view text, const std::vector<Setting>& options);

// ---- settings by kind of value, which must outlive them; each fills in `range` where it is empty ----

Setting text_option(Option option, std::string& value);
Setting texts_option(Option option, std::vector<std::string>& values);  // of an option with several values
Setting switch_option(Option option, bool& value);                      // given or not
Setting bytes_option(Option option, std::optional<double>& value);
Setting amount_option(Option option, std::optional<double>& value);  // base/parse.h

// A whole number.
struct Counts {
  std::int64_t least = 1, most = 1 << 24;  // by default of anything that a machine has
  int k = 1000;  // what a suffix k means; 1024: of tokens in a sequence and samples in a batch
};
std::optional<std::int64_t> read_count(const std::string& text, const Counts& counts);
std::string range_of(const Counts& counts);
template <typename Value>
Setting count_option(Option option, Value& value, const Counts& counts = {}) {
  if (option.range.empty()) option.range = range_of(counts);
  return {std::move(option), [&value, counts](const std::string& text) {
            const auto number = read_count(text, counts);
            if (number) value = static_cast<decltype(std::optional(value))::value_type>(*number);
            return number.has_value();
          }};
}

// A number; `open`: above `least` instead of from it.
struct Numbers {
  double least = 0;
  bool open = false;
  double most = 1e300;
};
constexpr Numbers kPositive = {0, true, 1e300};
std::optional<double> read_number(const std::string& text, const Numbers& numbers);
std::string range_of(const Numbers& numbers);
template <typename Value>
Setting number_option(Option option, Value& value, const Numbers& numbers = {}) {
  if (option.range.empty()) option.range = range_of(numbers);
  return {std::move(option), [&value, numbers](const std::string& text) {
            const auto number = read_number(text, numbers);
            if (number) value = *number;
            return number.has_value();
          }};
}

// One of an enumeration's names, in any case; `from_name` throws UserError on another.
template <typename Value, typename FromName>
Setting name_option(Option option, Value& value, FromName from_name) {
  return {std::move(option), [&value, from_name](const std::string& text) {
            value = from_name(lower_case(text));
            return true;
          }};
}

}  // namespace orrery
