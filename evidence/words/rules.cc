#include "evidence/words/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "base/embedded.h"
#include "base/error.h"
#include "evidence/words/pattern.h"
#include "proto/evidence.pb.h"
#include "proto/textproto.h"

namespace orrery {
const std::vector<EmbeddedFile>& embedded_evidence();
}

namespace orrery::evidence {
namespace {

template <typename Message>
Message read_data(std::string_view name) {
  for (const EmbeddedFile& entry : embedded_evidence()) {
    if (entry.name != name) continue;
    Message message;
    parse_textproto(entry.content, fmt::format("evidence/data/{}.textproto", name), &message);
    return message;
  }
  throw InternalError(fmt::format("no evidence/data/{}.textproto", name));
}

// What a pattern takes is set in `row`.
bool holds(const proto::Match& match, Fields* row) {
  const std::string& stated = row->text(match.column());
  if (!match.pattern().empty()) {
    const auto taken = match_pattern(match.pattern(), stated);
    if (!taken) return false;
    for (const auto& [name, value] : *taken) row->set(name, value);
    return true;
  }
  const std::string text = match.any_case() ? lower(stated) : stated;
  const auto stands = [&](const std::string& part) { return contains(text, part); };
  if (match.any_size() > 0 && std::none_of(match.any().begin(), match.any().end(), stands)) return false;
  if (std::any_of(match.none().begin(), match.none().end(), stands)) return false;
  if (!match.equals().empty() && text != match.equals()) return false;
  if ((match.empty() && !text.empty()) || (match.stated() && text.empty())) return false;
  const double number = row->real(match.column());
  return (!match.has_at_least() || number >= match.at_least()) &&
         (!match.has_below() || number < match.below());
}

// What the patterns of a rule take is the row's only where all of the rule holds.
bool all_hold(const proto::Assumption& rule, Fields* row) {
  std::optional<Fields> before;
  for (const proto::Match& match : rule.when()) {
    if (!match.pattern().empty() && !before) before = *row;
    if (holds(match, row)) continue;
    if (before) *row = *before;
    return false;
  }
  return true;
}

// Appends to the list what a rule changes, if anything.
void add(const std::string& changes, const char* what, const Fields& row, std::vector<std::string>* list,
         std::string* said) {
  if (changes.empty()) return;
  list->push_back(substitute(changes, [&](std::string_view name) { return row.text(name); }));
  *said += fmt::format("{}{} {}", said->empty() ? "" : "; ", what, list->back());
}

void apply(const proto::Assumption& rule, Fields* row, Findings* findings) {
  const auto filled = [&](const std::string& text) {
    return substitute(text, [&](std::string_view name) { return row->text(name); });
  };
  std::string said;
  const std::map<std::string, std::string> columns(rule.columns().begin(), rule.columns().end());
  for (const auto& [column, text] : columns) {
    row->set(column, filled(text));
    said += fmt::format("{}{} {}", said.empty() ? "" : "; ", column, row->text(column));
  }
  if (!rule.profile().empty()) {
    row->set("runtime", rule.profile());
    said += fmt::format("{}runtime {}", said.empty() ? "" : "; ", rule.profile());
  }
  add(rule.runtime(), "runtime", *row, &findings->runtime, &said);
  if (rule.of_the_row() && !rule.runtime().empty())
    findings->runtime_of_the_row.push_back(findings->runtime.back());
  add(rule.transformer(), "model", *row, &findings->transformer, &said);
  add(rule.training(), "training", *row, &findings->training, &said);
  add(rule.choices(), "plan", *row, &findings->choices, &said);
  std::vector<std::string> reading;
  add(rule.reading(), "reading", *row, &reading, &said);
  for (const std::string& changes : reading)
    merge_textproto(changes, "a rule's reading", findings->reading.get());
  if (findings->skip.empty() && !rule.skip().empty()) {
    findings->skip = filled(rule.skip());
    findings->counts = !rule.uncounted();
  }
  if (!said.empty()) findings->assumed.push_back({said, rule.why(), rule.widens()});
}

}  // namespace

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

double widening(const std::vector<Assumed>& assumed) {
  double squares = 0;
  for (const Assumed& one : assumed) squares += one.widens * one.widens;
  return std::sqrt(squares);
}

const proto::Assumptions& rules(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, proto::Assumptions, std::less<>> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(name);
  if (found == known.end()) found = known.emplace(name, read_data<proto::Assumptions>(name)).first;
  return found->second;
}

Findings apply_rules(const proto::Assumptions& rules, Fields* row) {
  Findings findings;
  findings.reading = std::make_shared<proto::Reading>();
  for (const proto::Assumption& rule : rules.assume())
    if (all_hold(rule, row)) apply(rule, row, &findings);
  return findings;
}

const proto::PublishedMachines& published_machines() {
  static const auto machines = read_data<proto::PublishedMachines>("machines");
  return machines;
}

const proto::PublishedModels& published_models() {
  static const auto models = read_data<proto::PublishedModels>("models");
  return models;
}

const proto::PublishedFrameworks& published_frameworks() {
  static const auto frameworks = read_data<proto::PublishedFrameworks>("frameworks");
  return frameworks;
}

}  // namespace orrery::evidence
