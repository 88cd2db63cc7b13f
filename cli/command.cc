// The only file of orrery that knows CLI11.
#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <sstream>

#include "base/error.h"
#include "base/suggest.h"
#include "cli/output.h"

namespace orrery::cli {
namespace {

std::string help_of(const Option& option) {
  return option.fallback.empty() ? option.help
                                 : fmt::format("{} (default: {})", option.help, option.fallback);
}

// The words that were given for a setting. CLI11 holds references to the members.
struct Given {
  const Setting* setting = nullptr;
  CLI::Option* option = nullptr;
  bool on = false;                 // of a switch
  std::string word;                // of an option with one value
  std::vector<std::string> words;  // of one with several
};

void declare(CLI::App& verb, Given& given) {
  const Option& option = given.setting->option;
  const std::string name = option.flag(), help = help_of(option);
  if (option.is_switch())
    given.option = verb.add_flag(name, given.on, help);
  else if (option.many || option.repeated)
    given.option = verb.add_option(name, given.words, help)->allow_extra_args(option.many);
  else
    given.option = verb.add_option(name, given.word, help);
  if (!option.unit.empty()) given.option->type_name(option.unit);
  if (!option.group.empty()) given.option->group(option.group);
  if (!option.environment.empty()) given.option->envname(option.environment);
  given.option->required(option.required);
}

struct Verb {
  const Command* command = nullptr;
  CLI::App* app = nullptr;
  std::deque<Given> given;  // whose addresses stay
};

void declare(CLI::App& app, Verb& verb) {
  verb.app = app.add_subcommand(verb.command->name, verb.command->what);
  if (verb.command->hidden) verb.app->group("");
  for (const Setting& setting : verb.command->settings) {
    Given& given = verb.given.emplace_back();
    given.setting = &setting;
    declare(*verb.app, given);
  }
  for (Given& given : verb.given)
    for (Given& other : verb.given)
      if (given.setting->option.excludes == other.setting->option.key) given.option->excludes(other.option);
}

std::vector<std::string> flags_of(const Command& command) {
  std::vector<std::string> flags = {"--help"};
  for (const Setting& setting : command.settings)
    if (!setting.option.positional) flags.push_back(setting.option.flag());
  return flags;
}

// An option whose value was forgotten takes the next one's flag for it.
void check_value(const Option& option, const std::string& word, const std::vector<std::string>& flags) {
  if (std::find(flags.begin(), flags.end(), word) != flags.end())
    throw UserError(fmt::format("`{}` is followed by {}", option.key, word),
                    fmt::format("expected {} between them", option.unit));
}

void read(const Verb& verb) {
  const std::vector<std::string> flags = flags_of(*verb.command);
  for (const Given& given : verb.given) {
    if (given.option->count() == 0) continue;
    const Option& option = given.setting->option;
    check_value(option, given.word, flags);
    for (const std::string& word : given.words) check_value(option, word, flags);
    if (option.is_switch()) {
      set(*given.setting, given.on ? "on" : "off");
    } else if (option.many || option.repeated) {
      for (const std::string& word : given.words) set(*given.setting, word);
    } else {
      set(*given.setting, given.word);
    }
  }
}

// Where the verb's JSON goes; empty: nowhere.
std::string json_of(const Verb& verb) {
  for (const Given& given : verb.given)
    if (given.setting->option.key == "json") return given.word;
  return {};
}

int run(const Verb& verb) {
  const std::vector<Setting>& settings = verb.command->settings;
  begin_answer(verb.command->name);
  try {
    read(verb);
    const int code = verb.command->run();
    end_answer(json_of(verb));
    return code;
  } catch (const UserError& error) {
    throw UserError(with_flags(error.what(), settings));
  } catch (const NoAnswer& answer) {
    const std::string why_not = with_flags(answer.what(), settings);
    end_answer(json_of(verb), why_not);
    throw NoAnswer(why_not);
  }
}

// CLI11's help, whose descriptions stand in a column of their own, in lines that a terminal shows.
std::string help_lines(std::string_view help) {
  constexpr std::size_t kDescription = 30;
  const std::string indent(kDescription, ' ');
  std::string result;
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = std::min(help.find('\n', at), help.size());
    const std::string_view line = help.substr(at, end - at);
    const bool described = columns() > 2 * kDescription && line.size() > columns() &&
                           line.starts_with("  ") && line[kDescription - 1] == ' ' &&
                           line[kDescription] != ' ';
    if (described) {
      std::string text = wrapped(line.substr(kDescription), columns() - kDescription);
      for (std::size_t next = text.find('\n'); next != std::string::npos; next = text.find('\n', next + 1))
        text.replace(next + 1, std::min<std::size_t>(2, text.size() - next - 1), indent);
      result += std::string(line.substr(0, kDescription)) + text;
    } else if (line.starts_with("  -")) {  // an option whose values are long: its description is behind it
      result += line;
    } else {
      result += wrapped(line, columns());
    }
    result += '\n';
    at = end + 1;
  }
  return result;
}

std::vector<std::string> verbs_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands)
    if (!command.hidden) names.emplace_back(command.name);
  return names;
}

// The first of the words that looks like an option and is none.
const std::string* unknown_flag(const Command& command, const std::vector<std::string>& words) {
  const std::vector<std::string> flags = flags_of(command);
  for (const std::string& word : words)
    if (word.starts_with("--") && word.size() > 2 &&
        std::find(flags.begin(), flags.end(), word.substr(0, word.find('='))) == flags.end())
      return &word;
  return nullptr;
}

// A verb has dozens: all of them are --help's business.
std::string near_flags(const Command& command, const std::string& flag) {
  const std::string near = suggestion(flag.substr(0, flag.find('=')), flags_of(command));
  return near.starts_with("did you mean") ? near : fmt::format("see orrery {} --help", command.name);
}

}  // namespace

int run(const std::vector<Command>& commands, int argc, char** argv) {
  CLI::App app{
      "Plans the training of a neural network on a cluster, simulates the plan, runs it and learns from "
      "the difference."};
  app.name("orrery");
  app.set_version_flag("--version", &version_text, "versions of Orrery and of what it is built with");
  app.require_subcommand(1);
  std::deque<Verb> verbs;
  for (const Command& command : commands) {
    verbs.push_back({&command, nullptr, {}});
    declare(app, verbs.back());
  }
  const auto parsed = [&] {
    return std::find_if(verbs.begin(), verbs.end(), [](const Verb& verb) { return verb.app->parsed(); });
  };
  // Looked at first: CLI11 takes a later word for the verb.
  const bool named = argc > 1 && argv[1][0] != '-';
  if (named && std::none_of(commands.begin(), commands.end(), [&](const Command& command) {
        return command.name == std::string_view(argv[1]);
      }))
    throw UserError(fmt::format("no verb '{}'", argv[1]), suggestion(argv[1], verbs_of(commands)));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      const int code = app.exit(error, text, text);
      fmt::print("{}", help_lines(text.str()));
      return code;
    }
    const auto verb = parsed();
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (verb != verbs.end())
      if (const std::string* unknown = unknown_flag(*verb->command, words))
        throw UserError(fmt::format("no option {}", *unknown), near_flags(*verb->command, *unknown));
    throw UserError(error.what(), verb == verbs.end()
                                      ? "see orrery --help"
                                      : fmt::format("see orrery {} --help", verb->command->name));
  }
  return run(*parsed());
}

}  // namespace orrery::cli
