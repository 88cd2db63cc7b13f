// Patterns over the words of published tables: text that stands somewhere in a column, with numbers in it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::evidence {

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// `pattern`: text as it stands; " ?" is a space or nothing; {name} takes a whole number, {name,} a list of
// them ("0, 8, 14"), {} whatever stands within one entry of a list (no comma, no bar), as little as will do.
// The first place where it matches counts; nothing where there is none.
std::optional<std::map<std::string, std::string>> match_pattern(std::string_view pattern,
                                                                std::string_view text);

// `text` with each {name} (small letters and _) replaced by lookup(name).
std::string substitute(std::string_view text, const std::function<std::string(std::string_view)>& lookup);

}  // namespace orrery::evidence
