// Where a verb's result goes: one JSON object to --json, text for people to stdout, progress to a terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace orrery::cli {

class Output {
 public:
  void add_option(CLI::App& verb);  // --json
  // Text for people; swallowed under `--json -`, where stdout belongs to the JSON.
  void print(std::string_view text) const;
  // Throws InternalError when a number is not finite: JSON has no NaN, and a NaN here is a defect of ours.
  void write(const Json& result) const;
  const std::string& file() const { return json_; }  // empty: none; "-": stdout

 private:
  std::string json_;
};

// Throws UserError where `file` cannot be written, so far as that can be told without doing so. Empty and "-"
// can.
void check_writable(const std::string& file);

// Columns padded to their widest cell; the first is left-aligned, the others right-aligned.
std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

// A bar on stderr while it is a terminal, nothing otherwise. `total` 0 ends and clears it.
void show_progress(std::string_view what, int done, int total);

// A number of bytes with an optional suffix K, M, G, T (binary, "KiB" too). Throws UserError naming `option`.
double parse_bytes(std::string_view text, std::string_view option);

// A number of things from 1 with an optional suffix k, M, B (or G), T (SI): "15T", "300e9". Throws UserError
// naming `option`.
double parse_amount(std::string_view text, std::string_view option);

// For options that take a finite number above (or from) zero: rates, ratios, seconds.
CLI::Validator positive_number();
CLI::Validator non_negative_number();

}  // namespace orrery::cli
