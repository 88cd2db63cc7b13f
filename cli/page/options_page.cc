// docs/options.md, from the records that the command line is made of.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "cli/page/pages.h"
#include "orrery/orrery.h"

namespace orrery::cli {
namespace {

// A cell of a table: no bar may part it.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string notes_of(const Option& option) {
  std::string notes;
  const auto add = [&](std::string_view note) {
    notes += fmt::format("{}{}", notes.empty() ? "" : ", ", note);
  };
  if (option.required) add("required");
  if (option.many) add("several");
  if (option.repeated) add("repeated");
  if (!option.excludes.empty()) add(fmt::format("not with `{}`", Option{.key = option.excludes}.flag()));
  if (!option.environment.empty()) add(fmt::format("else `${}`", option.environment));
  if (option.pinned) add("pins");
  if (option.varied) add("varies");
  return notes;
}

std::string row_of(const Option& option) {
  const std::string name =
      option.unit.empty() ? option.flag() : fmt::format("{} {}", option.flag(), option.unit);
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", cell(name), cell(option.help), cell(option.fallback),
                     cell(option.range), notes_of(option));
}

// Groups with their rows, in the order of the first of each.
std::vector<std::pair<std::string, std::string>> groups_of(const Command& command) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const Setting& setting : command.settings) {
    auto at = groups.begin();
    while (at != groups.end() && at->first != setting.option.group) ++at;
    if (at == groups.end()) at = groups.insert(at, {setting.option.group, ""});
    at->second += row_of(setting.option);
  }
  return groups;
}

std::string hardware_section() {
  std::string text =
      "## Hardware that `whatif --vary` changes\n\nBeside the options above that vary.\n\n| key | what it is "
      "| range "
      "|\n|---|---|---|\n";
  for (const planner::HardwareKey& key : planner::hardware_keys())
    text += fmt::format("| `{}` | {} | {:g} to {:g} |\n", key.key, key.help, key.least, key.most);
  return text;
}

}  // namespace

std::string options_page(const std::vector<Command>& commands) {
  std::string text =
      "# Options\n\n"
      "Every option of every verb, written by `orrery options` from the records that the command line, its "
      "help and "
      "`whatif --vary` are made of; a test keeps this page as the program is.\n\n"
      "*pins*: fixes a dimension of the search. *varies*: `whatif --vary NAME=A,B` takes it, without its "
      "dashes. An "
      "empty default: nothing, or what the heading says; an empty range: what the value's form says. "
      "Numbers take k, M, G or T behind them: decimal (`--budget-usd 10k`), binary for bytes, batches and "
      "sequences (`--seq-len 8k` is 8,192).\n";
  std::map<std::string, std::string> told;  // rows: the verb
  for (const Command& command : commands) {
    if (command.hidden) continue;
    text += fmt::format("\n## orrery {}\n\n{}\n", command.name, command.what);
    for (const auto& [group, rows] : groups_of(command)) {
      text += group.empty() ? "\n" : fmt::format("\n### {}\n\n", group);
      const auto [known, fresh] = told.emplace(rows, command.name);
      text += fresh || group.empty()
                  ? "| option | what it is | default | range | |\n|---|---|---|---|---|\n" + rows
                  : fmt::format("As of `orrery {}`.\n", known->second);
    }
  }
  return text + "\n" + hardware_section();
}

}  // namespace orrery::cli
