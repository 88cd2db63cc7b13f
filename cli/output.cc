#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace orrery::cli {
namespace {

void check_finite(const Json& value, const std::string& path) {
  if (value.is_number_float())
    ORRERY_CHECK(std::isfinite(value.get<double>()), "result " + path + " is not finite");
  if (value.is_object())
    for (const auto& [key, item] : value.items()) check_finite(item, fmt::format("{}.{}", path, key));
  if (value.is_array())
    for (const auto& item : value) check_finite(item, path + "[]");
}

// Cells hold a few non-ASCII characters (×, µ): columns, not bytes, are what a terminal aligns.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

CLI::Validator number_check(std::string name, bool zero_allowed) {
  return CLI::Validator(
      [zero_allowed](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool parsed = !text.empty() && *end == '\0';
        if (parsed && std::isfinite(value) && (value > 0 || (zero_allowed && value == 0))) return {};
        return fmt::format("{} is not a finite number {} 0", text, zero_allowed ? "from" : "above");
      },
      std::move(name));
}

}  // namespace

void Output::add_option(CLI::App& verb) {
  verb.add_option("--json", json_,
                  "write the result as one JSON object to FILE; - for stdout, which then holds nothing else")
      ->type_name("FILE|-");
}

void Output::print(std::string_view text) const {
  if (json_ != "-") std::fwrite(text.data(), 1, text.size(), stdout);
}

void Output::write(const Json& result) const {
  if (json_.empty()) return;
  check_finite(result, "");
  const std::string text = result.dump(2) + "\n";
  if (json_ != "-") return write_file_atomically(json_, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void check_writable(const std::string& file) {
  namespace fs = std::filesystem;
  if (file.empty() || file == "-") return;
  std::error_code code;
  const bool special = fs::exists(file, code) && !fs::is_regular_file(file, code);  // written in place
  const fs::path place = special ? fs::path(file) : fs::absolute(file).parent_path();
  errno = fs::is_directory(file, code) ? EISDIR : 0;
  if (errno != 0 || access(place.c_str(), W_OK) != 0)
    throw UserError(file, 0, std::string("cannot be written: ") + std::strerror(errno),
                    "expected a writable place");
}

std::string table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> width(head.size());
  for (std::size_t c = 0; c < head.size(); ++c) {
    width[c] = columns_of(head[c]);
    for (const auto& row : rows) width[c] = std::max(width[c], columns_of(row[c]));
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string pad(width[c] - columns_of(row[c]), ' ');
      line += c == 0 ? row[c] + pad : "  " + pad + row[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(head);
  for (const auto& row : rows) add(row);
  return text;
}

void show_progress(std::string_view what, int done, int total) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (!terminal) return;
  if (total == 0) {
    fmt::print(stderr, "\r\033[K");
  } else {
    constexpr int kWidth = 30;
    const int filled = std::clamp(done * kWidth / total, 0, kWidth);
    fmt::print(stderr, "\r{} [{}{}] {}/{}\033[K", what, std::string(filled, '#'),
               std::string(kWidth - filled, ' '), done, total);
  }
  std::fflush(stderr);
}

double parse_bytes(std::string_view text, std::string_view option) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  std::string_view suffix(end);
  double unit = 1;
  if (!suffix.empty()) {
    constexpr std::string_view kUnits = "KMGT";
    const auto power = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(suffix[0]))));
    if (power != std::string_view::npos) {
      unit = std::pow(1024.0, static_cast<double>(power + 1));
      suffix.remove_prefix(1);
      if (suffix == "iB" || suffix == "B") suffix = {};
    } else if (suffix == "B") {
      suffix = {};
    }
  }
  if (end == copy.c_str() || !suffix.empty() || !std::isfinite(value) || value < 0)
    throw UserError(fmt::format("{} {} is not a number of bytes", option, text),
                    "expected a number from 0 with an optional K, M, G or T (binary)");
  return value * unit;
}

double parse_amount(std::string_view text, std::string_view option) {
  const std::string copy(text);
  char* end = nullptr;
  double value = std::strtod(copy.c_str(), &end);
  const std::string_view suffix(end);
  constexpr std::string_view kUnits = "kmbt";
  if (suffix.size() == 1) {
    const char unit = static_cast<char>(std::tolower(static_cast<unsigned char>(suffix[0])));
    const auto power = kUnits.find(unit == 'g' ? 'b' : unit);
    value = power != std::string_view::npos ? value * std::pow(1000.0, static_cast<double>(power + 1)) : 0;
  }
  constexpr double kMost = 1e18;  // counts stay exact enough, and whole steps within 64 bits
  if (end == copy.c_str() || suffix.size() > 1 || !(value >= 1 && value <= kMost))
    throw UserError(fmt::format("{} {} is no number of things to train on", option, text),
                    "expected a number from 1 to 1e18 with an optional k, M, B or T: 15T, 300e9");
  return value;
}

CLI::Validator positive_number() {
  return number_check("NUMBER>0", false);
}

CLI::Validator non_negative_number() {
  return number_check("NUMBER>=0", true);
}

}  // namespace orrery::cli
