// Completions for bash, zsh and fish, all of them words that are known when they are written.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/parse.h"
#include "cli/page/pages.h"
#include "orrery/orrery.h"

namespace orrery::cli {
namespace {

using Words = std::vector<std::string>;

// What a catalog knows that a value may be, beside files.
struct Names {
  Words workloads, clusters, runtimes;
};

template <typename Entries>
Words names_of(const Entries& entries) {
  Words names;
  for (const auto& entry : entries) names.push_back(entry.name);
  return names;
}

// Words that a value of the option may be; empty: a file, or anything.
Words values_of(const Option& option, const Names& names) {
  if (option.key == "workload") return names.workloads;
  if (option.key == "cluster") return names.clusters;
  if (option.key == "runtime") return names.runtimes;
  Words values;
  if (option.unit.find('|') == std::string::npos) return values;
  for (std::string& value : split(option.unit, '|')) {
    const bool word = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
    if (word && value != "-") values.push_back(std::move(value));  // "full:K", "FILE" are forms, no words
  }
  return values;
}

Words flags_of(const Command& command) {
  Words flags = {"--help"};
  for (const Setting& setting : command.settings)
    if (!setting.option.positional) flags.push_back(setting.option.flag());
  return flags;
}

// Of all positional values of the verb: shells count words, and options stand between them.
Words positional_values(const Command& command, const Names& names) {
  Words all;
  for (const Setting& setting : command.settings)
    if (setting.option.positional)
      for (std::string& value : values_of(setting.option, names)) all.push_back(std::move(value));
  return all;
}

std::vector<const Command*> shown(const std::vector<Command>& commands) {
  std::vector<const Command*> result;
  for (const Command& command : commands)
    if (!command.hidden) result.push_back(&command);
  return result;
}

// Between a shell's single quotes.
std::string shell_word(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

Page bash(const std::vector<const Command*>& commands, const Names& names) {
  std::string verbs, cases;
  for (const Command* command : commands) {
    verbs += (verbs.empty() ? "" : " ") + command->name;
    cases += fmt::format("    {})\n      case \"$before\" in\n", command->name);
    for (const Setting& setting : command->settings) {
      const Option& option = setting.option;
      if (option.positional || option.is_switch()) continue;
      const Words values = values_of(option, names);
      cases += values.empty() ? fmt::format("        {}) files=1 ;;\n", option.flag())
                              : fmt::format("        {}) words=\"{}\"; files=1 ;;\n", option.flag(),
                                            fmt::join(values, " "));
    }
    cases += fmt::format(
        "        *)\n          if [[ $word == -* ]]; then words=\"{}\"; else words=\"{}\"; files=1; fi ;;\n"
        "      esac ;;\n",
        fmt::join(flags_of(*command), " "), fmt::join(positional_values(*command, names), " "));
  }
  return {"bash-completion/completions/orrery",
          fmt::format(
              "# bash completion for orrery, made from the records of its options\n"
              "_orrery() {{\n"
              "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words= files=\n"
              "  if (( COMP_CWORD == 1 )); then\n"
              "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n"
              "    return\n"
              "  fi\n"
              "  case \"${{COMP_WORDS[1]}}\" in\n"
              "{}"
              "  esac\n"
              "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
              "  if [[ $files ]]; then\n"
              "    compopt -o filenames 2>/dev/null\n"
              "    COMPREPLY+=($(compgen -f -- \"$word\"))\n"
              "  fi\n"
              "}}\n"
              "complete -F _orrery orrery\n",
              verbs, cases)};
}

// In a zsh specification, '--tp[tensor-parallel ranks]:N:', brackets and colons part its fields.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_action(const Words& values) {
  return values.empty() ? "_files"
                        : fmt::format("{{_alternative \"words:word:({})\" \"files:file:_files\"}}",
                                      fmt::join(values, " "));
}

Page zsh(const std::vector<const Command*>& commands, const Names& names) {
  std::string verbs, cases;
  for (const Command* command : commands) {
    verbs += fmt::format("    {}\n", shell_word(command->name + ":" + zsh_text(command->what)));
    cases += fmt::format("    {})\n      _arguments -S \\\n", command->name);
    for (const Setting& setting : command->settings) {
      const Option& option = setting.option;
      const std::string action = zsh_action(values_of(option, names));
      const std::string what = zsh_text(option.unit.empty() ? option.flag() : option.unit);
      std::string spec;
      if (option.positional)
        spec = fmt::format("{}:{}:{}", option.many ? "*" : "", what, action);
      else if (option.is_switch())
        spec = fmt::format("{}[{}]", option.flag(), zsh_text(option.help));
      else
        spec = fmt::format("{}{}[{}]:{}:{}", option.repeated ? "*" : "", option.flag(), zsh_text(option.help),
                           what, action);
      cases += fmt::format("        {} \\\n", shell_word(spec));
    }
    cases += "        '--help[explains every option]' ;;\n";
  }
  return {"zsh/site-functions/_orrery", fmt::format("#compdef orrery\n"
                                                    "# made from the records of orrery's options\n"
                                                    "local -a verbs\n"
                                                    "verbs=(\n{})\n"
                                                    "if (( CURRENT == 2 )); then\n"
                                                    "  _describe verb verbs\n"
                                                    "else\n"
                                                    "  local verb=${{words[2]}}\n"
                                                    "  shift words\n"
                                                    "  (( CURRENT-- ))\n"
                                                    "  case $verb in\n"
                                                    "{}"
                                                    "  esac\n"
                                                    "fi\n",
                                                    verbs, cases)};
}

// Between fish's single quotes, where a backslash stays one before all but a quote and itself.
std::string fish_word(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

Page fish(const std::vector<const Command*>& commands, const Names& names) {
  std::string text = "# fish completion for orrery, made from the records of its options\n";
  for (const Command* command : commands)
    text += fmt::format("complete -c orrery -n __fish_use_subcommand -f -a {} -d {}\n", command->name,
                        fish_word(command->what));
  for (const Command* command : commands) {
    const std::string behind =
        fmt::format("complete -c orrery -n '__fish_seen_subcommand_from {}'", command->name);
    for (const Setting& setting : command->settings) {
      const Option& option = setting.option;
      const Words values = values_of(option, names);
      const std::string words = fish_word(fmt::format("{}", fmt::join(values, " ")));
      if (option.positional) {
        if (!values.empty()) text += fmt::format("{} -a {}\n", behind, words);
        continue;
      }
      text += fmt::format("{} -l {} -d {}", behind, option.name(), fish_word(option.help));
      if (!option.is_switch()) text += values.empty() ? " -r" : fmt::format(" -r -a {}", words);
      text += "\n";
    }
  }
  return {"fish/vendor_completions.d/orrery.fish", text};
}

}  // namespace

std::vector<Page> completions(const std::vector<Command>& commands) {
  const Catalog all = catalog();
  const Names names = {names_of(all.workloads), names_of(all.clusters), names_of(all.runtimes)};
  const std::vector<const Command*> verbs = shown(commands);
  return {bash(verbs, names), zsh(verbs, names), fish(verbs, names)};
}

}  // namespace orrery::cli
