// Where a verb's result goes: one JSON object to --json, text for people to stdout, progress to a terminal.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/option.h"
#include "cli/terminal/layout.h"

namespace orrery::cli {

// A process gives one answer, to one verb: it begins here, before anything is written, and ends with whether
// it was "no". Until then a JSON object for stdout waits, so that the refusal's reason can join it.
void begin_answer(std::string_view verb);
// `json`: what --json was given; empty: nothing.
void end_answer(const std::string& json, std::string_view why_not = {});

constexpr std::string_view kOutputGroup = "Output";  // of options that say what is printed how

class Output {
 public:
  Setting setting();  // --json
  // Text for people, in lines of at most columns(); swallowed under `--json -`, where stdout belongs to the
  // JSON.
  void print(std::string_view text) const;
  // The same as it is: other programs read it.
  void print_as_is(std::string_view text) const;
  // The same as print(), where --verbose asks for it.
  void print_more(std::string_view text) const;
  // With the head that all answers have (base/answer/answer.h). Throws InternalError when a number is not
  // finite: JSON has no NaN, and a NaN here is a defect of ours.
  void write(const Json& result) const;
  // What is known of the question before the answer: it stands in the JSON of a "no", too.
  void about(const Json& question) const;
  const std::string& file() const { return json_; }  // empty: none; "-": stdout

 private:
  std::string json_;
};

// That each of them can be written (check_writable), and that no two are one. Empty: not asked for; "-": the
// standard output.
void check_outputs(std::initializer_list<std::string> files);

// --wide and --verbose, of layout().
std::vector<Setting> layout_settings();

}  // namespace orrery::cli
