#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/answer/answer.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/terminal/progress.h"
#include "orrery/orrery.h"

namespace orrery::cli {
namespace {

struct Answer {
  std::string verb;
  Json json = {};  // what was written; null: nothing
};
Answer& answer() {
  static Answer given;
  return given;
}

void deliver(const std::string& file, const Json& json) {
  // A file of somebody else's may name a column in bytes that are no UTF-8.
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (file != "-") return write_file_atomically(file, text);
  write_to_stdout(text);
}

void check_finite(const Json& value, const std::string& path) {
  if (value.is_number_float())
    ORRERY_CHECK(std::isfinite(value.get<double>()), "result " + path + " is not finite");
  if (value.is_object())
    for (const auto& [key, item] : value.items()) check_finite(item, fmt::format("{}.{}", path, key));
  if (value.is_array())
    for (const auto& item : value) check_finite(item, path + "[]");
}

}  // namespace

void begin_answer(std::string_view verb) {
  answer() = {std::string(verb)};
}

void end_answer(const std::string& json, std::string_view why_not) {
  Json& given = answer().json;
  if (json.empty() || (given.is_null() && why_not.empty())) return;
  if (given.is_null()) given = answer_head(answer().verb, version());
  if (!why_not.empty()) given["why_not"] = why_not;
  if (json == "-" || !why_not.empty()) deliver(json, given);
}

Setting Output::setting() {
  return text_option({.key = "json",
                      .unit = "FILE|-",
                      .help = "write the result as one JSON object to FILE; - for stdout, which then holds "
                              "nothing else; `orrery schema` explains its fields",
                      .group = std::string(kOutputGroup)},
                     json_);
}

void Output::print(std::string_view text) const {
  print_as_is(wrapped(text, columns()));
}

void Output::print_as_is(std::string_view text) const {
  end_progress();
  if (json_ != "-") write_to_stdout(text);
}

void Output::print_more(std::string_view text) const {
  if (layout().verbose) print(text);
}

void Output::about(const Json& question) const {
  if (json_.empty()) return;
  answer().json = answer_head(answer().verb, version());
  answer().json.update(question);
}

void Output::write(const Json& result) const {
  end_progress();
  if (json_.empty()) return;
  check_finite(result, "");
  Json json = answer_head(answer().verb, version());
  json.update(result);
  if (json_ != "-") deliver(json_, json);
  answer().json = std::move(json);
}

void check_outputs(std::initializer_list<std::string> files) {
  std::vector<std::filesystem::path> seen;
  for (const std::string& file : files) {
    check_writable(file);
    const bool special =
        std::filesystem::exists(file) && !std::filesystem::is_regular_file(file);  // /dev/null
    if (file.empty() || file == "-" || special) continue;
    const std::filesystem::path place = std::filesystem::weakly_canonical(std::filesystem::absolute(file));
    if (std::find(seen.begin(), seen.end(), place) != seen.end())
      throw UserError(file, 0, "two outputs would be written to it", "expected a file for each");
    seen.push_back(place);
  }
}

std::vector<Setting> layout_settings() {
  return {switch_option({.key = "wide",
                         .help = "show all columns of tables, and do not wrap lines",
                         .fallback = "80 columns, or the terminal's",
                         .group = std::string(kOutputGroup)},
                        layout().wide),
          switch_option({.key = "verbose",
                         .help = "show the long explanations, too",
                         .fallback = "only the answer",
                         .group = std::string(kOutputGroup)},
                        layout().verbose)};
}

}  // namespace orrery::cli
