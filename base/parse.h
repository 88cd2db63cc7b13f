// Numbers, lists and words as people write them. Nothing: the text is no such thing, as a whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

std::optional<std::int64_t> parse_whole(std::string_view text);
std::optional<double> parse_number(std::string_view text);  // finite
// The same with an optional suffix k, M, G, T (decimal): "10k", "2.5G".
std::optional<double> parse_scaled(std::string_view text);
std::optional<bool> parse_switch(std::string_view text);  // "on" or "off"
// A whole number, with an optional suffix k, M, G, T in powers of `k`, 1000 or 1024: "8k", "1.5M", "1e3".
std::optional<std::int64_t> parse_count(std::string_view text, int k);
std::string lower_case(std::string_view text);  // of ASCII
// From 0, with an optional suffix K, M, G, T (binary, "KiB" and "B" too).
std::optional<double> parse_bytes(std::string_view text);
// A number of things from 1 to 1e18 with an optional suffix k, M, B (or G), T (SI): "15T", "300e9".
std::optional<double> parse_amount(std::string_view text);

// What stands between the separators; one empty part where there is nothing.
std::vector<std::string> split(std::string_view text, char separator = ',');
// The words of a shell's argument list: spaces part them, quotes and backslashes keep what they hold
// together. None where a quotation does not end.
std::optional<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace orrery
