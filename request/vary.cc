#include "request/vary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "planner/evaluation/hardware.h"

namespace orrery {
namespace {

namespace whatif = planner::whatif;

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

const planner::HardwareKey* hardware_key(const std::string& key) {
  for (const planner::HardwareKey& known : planner::hardware_keys())
    if (known.key == key) return &known;
  return nullptr;
}

// A name, where the key takes one and the text starts like none of its numbers.
bool is_name(const planner::HardwareKey& key, const std::string& text) {
  return key.named != nullptr && !text.empty() &&
         std::isalpha(static_cast<unsigned char>(text.front())) != 0 && text != "inf" && text != "nan";
}

double hardware_number(const planner::HardwareKey& key, const std::string& text) {
  const auto number = read_number(text, {.least = key.least, .most = key.most});
  if (!number) {
    const std::optional<double> read = parse_scaled(text);
    throw UserError(fmt::format("`vary` {}={} is {}", key.key, text,
                                !read                             ? "no number"
                                : *read == 0 && !key.zero.empty() ? fmt::format("out of range: {}", key.zero)
                                                                  : "out of range"),
                    fmt::format("{}, a number from {} to {}", key.help, key.least, key.most));
  }
  return *number;
}

struct Prepared {
  whatif::Point point;
  std::shared_ptr<Job> job;  // the point's, before it is shared
  bool default_batch = false;
  std::vector<std::string> ignored;
  int settings_read = 0;
  std::vector<std::string> assumed;
};

Prepared prepare(Request request, const whatif::Combination& combination) {
  for (const auto& [key, value] : combination)
    if (hardware_key(key) == nullptr) set(request, key, value);
  Question question = question_of(request);
  auto job = std::make_shared<Job>(*question.job);
  for (const auto& [key, value] : combination)
    if (const planner::HardwareKey* change = hardware_key(key))
      job->cluster = is_name(*change, value)
                         ? change->named(std::move(job->cluster), value)
                         : change->changed(std::move(job->cluster), hardware_number(*change, value));
  return {{combination, job, std::move(question.pins), std::move(question.search)},
          job,
          question.default_batch,
          std::move(question.ignored),
          question.settings_read,
          std::move(question.assumed)};
}

// Whether that changed any.
bool share_default_batch(std::vector<Prepared>& all) {
  bool changed = false;
  for (const bool sequences : {false, true}) {
    const auto concerned = [&](const Prepared& one) {
      return one.default_batch && (one.job->training.seq_len > 0) == sequences;
    };
    std::int64_t batch = 0;
    for (const Prepared& one : all)
      if (concerned(one)) batch = std::max(batch, one.job->training.global_batch);
    for (Prepared& one : all)
      if (concerned(one) && std::exchange(one.job->training.global_batch, batch) != batch) changed = true;
  }
  return changed;
}

}  // namespace

whatif::Varied parse_varied(std::string_view text) {
  const auto refuse = [&](std::string_view what) {
    return UserError(fmt::format("`vary` {} {}", text, what), "expected KEY=V1,V2,…");
  };
  const auto equals = text.find('=');
  if (equals == std::string_view::npos) throw refuse("has no values");
  whatif::Varied varied;
  varied.key = Option{.key = option_key(trimmed(text.substr(0, equals)))}.name();
  if (varied.key.empty()) throw refuse("names no option");
  std::string_view rest = text.substr(equals + 1);
  const char separator = rest.find(';') != std::string_view::npos ? ';' : ',';
  for (bool more = true; more;) {
    const auto end = rest.find(separator);
    more = end != std::string_view::npos;
    std::string value = trimmed(rest.substr(0, end));
    if (value.empty()) throw refuse("has an empty value");
    if (std::find(varied.values.begin(), varied.values.end(), value) != varied.values.end())
      throw refuse(fmt::format("has {} twice", value));
    varied.values.push_back(std::move(value));
    if (more) rest.remove_prefix(end + 1);
  }
  return varied;
}

void check_varied(const std::vector<whatif::Varied>& varied) {
  Request request;
  std::vector<std::string> known;
  for (const Setting& setting : request_options(request))
    if (setting.option.varied) known.push_back(setting.option.name());
  for (const planner::HardwareKey& key : planner::hardware_keys()) known.emplace_back(key.key);
  for (const whatif::Varied& v : varied) {
    if (std::find(known.begin(), known.end(), v.key) == known.end())
      throw UserError(fmt::format("`vary` {} is unknown", v.key), suggestion(v.key, known));
    if (const planner::HardwareKey* key = hardware_key(v.key))
      for (const std::string& value : v.values)
        if (!is_name(*key, value)) hardware_number(*key, value);
  }
}

Points points_of(const Request& request, const std::vector<whatif::Varied>& varied) {
  std::vector<Prepared> all;
  for (const whatif::Combination& combination : whatif::combinations(varied)) {
    try {
      all.push_back(prepare(request, combination));
    } catch (const UserError& error) {
      if (combination.empty()) throw;
      throw UserError(fmt::format("`vary` {}: {}", whatif::describe(combination), error.what()));
    }
  }
  Points result;
  if (!all.empty()) {
    result.ignored = all.front().ignored;
    result.assumed = all.front().assumed;
    result.settings_read = all.front().settings_read;
  }
  result.shared_batch = share_default_batch(all);
  for (Prepared& one : all) result.points.push_back(std::move(one.point));
  return result;
}

}  // namespace orrery
