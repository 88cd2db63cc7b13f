// Manual pages in man(7)'s macros. They hold no date: the same sources make the same page.
#include <fmt/format.h>

#include <cctype>

#include "cli/page/pages.h"

namespace orrery::cli {
namespace {

// Text as roff takes it: a backslash is written \e, a dash that is one \-, and no line begins with a request.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else if (c == '\n')
      result += "\n\\&";
    else
      result += c;
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::string title(std::string_view page, std::string_view version) {
  return fmt::format(".TH {} 1 \"\" \"Orrery {}\" \"Orrery\"\n", upper(page), version);
}

// "\fB\-\-tp\fR \fIN\fR"
std::string name_of(const Option& option) {
  const std::string flag = fmt::format("\\fB{}\\fR", roff(option.flag()));
  return option.unit.empty() ? flag : fmt::format("{} \\fI{}\\fR", flag, roff(option.unit));
}

std::string sentence_of(const Option& option) {
  std::string text = roff(option.help) + ".";
  const auto add = [&](std::string_view what, const std::string& value) {
    if (!value.empty()) text += fmt::format("\n{}: {}.", what, roff(value));
  };
  add("Default", option.fallback);
  add("Range", option.range);
  if (!option.excludes.empty()) add("Not with", Option{.key = option.excludes}.flag());
  if (!option.environment.empty()) add("Else the environment's", option.environment);
  if (option.required && !option.positional) text += "\nRequired.";
  if (option.repeated) text += "\nMay be given several times.";
  return text;
}

std::string item(const Option& option) {
  return fmt::format(".TP\n{}\n{}\n", name_of(option), sentence_of(option));
}

std::string synopsis(const Command& command) {
  std::string text = fmt::format(".SH SYNOPSIS\n\\fBorrery {}\\fR", roff(command.name));
  for (const Setting& setting : command.settings) {
    const Option& option = setting.option;
    if (option.positional)
      text += fmt::format(" {}\\fI{}\\fR{}{}", option.required ? "" : "[", roff(option.flag()),
                          option.many ? " ..." : "", option.required ? "" : "]");
    else if (option.required)
      text += " " + name_of(option);
  }
  return text + " [\\fIOPTIONS\\fR]\n";
}

constexpr std::string_view kExitCodes =
    ".SH EXIT STATUS\n"
    ".TP\n0\ndone\n"
    ".TP\n2\nbad usage or input: one line on stderr says what is wrong and what was expected\n"
    ".TP\n3\nasked, and the answer is no; a file of \\fB\\-\\-json\\fR holds why in \\fIwhy_not\\fR\n"
    ".TP\n1\nan internal failure\n";

Page page_of(const Command& command, std::string_view version) {
  const std::string page = "orrery-" + command.name;
  std::string text = title(page, version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(page), roff(command.what)) + synopsis(command);
  std::string group = "OPTIONS";
  text += fmt::format(".SH {}\n", group);
  for (const Setting& setting : command.settings)
    if (setting.option.group.empty()) text += item(setting.option);
  for (const Setting& setting : command.settings) {
    if (setting.option.group.empty()) continue;
    if (setting.option.group != group) text += fmt::format(".SS {}\n", roff(group = setting.option.group));
    text += item(setting.option);
  }
  text += kExitCodes;
  return {fmt::format("man/man1/{}.1", page), text + ".SH SEE ALSO\n\\fBorrery\\fR(1)\n"};
}

Page overview(const std::vector<Command>& commands, std::string_view version) {
  std::string text = title("orrery", version);
  text +=
      ".SH NAME\norrery \\- plans the training of neural networks on clusters, simulates and runs the plans\n"
      ".SH SYNOPSIS\n\\fBorrery\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR]\n"
      ".SH VERBS\n";
  std::string also;
  for (const Command& command : commands) {
    if (command.hidden) continue;
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(command.name), roff(command.what));
    also += fmt::format("{}\\fBorrery\\-{}\\fR(1)", also.empty() ? "" : ",\n", roff(command.name));
  }
  text += kExitCodes;
  return {"man/man1/orrery.1", text + ".SH SEE ALSO\n" + also + "\n"};
}

}  // namespace

std::vector<Page> man_pages(const std::vector<Command>& commands, std::string_view version) {
  std::vector<Page> pages = {overview(commands, version)};
  for (const Command& command : commands)
    if (!command.hidden) pages.push_back(page_of(command, version));
  return pages;
}

}  // namespace orrery::cli
