// A verb of the command line: its options as records, and what it does once they have been read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/option.h"

namespace orrery::cli {

struct Command {
  std::string name, what;
  std::vector<Setting> settings;
  std::function<int()> run;  // the exit code, or an exception of base/error.h
  bool hidden = false;       // not in the help

  void add(Setting setting) { settings.push_back(std::move(setting)); }
  void add(std::vector<Setting> more) {
    for (Setting& setting : more) add(std::move(setting));
  }
  // The setting of `key`, to change its record; it must be there.
  Option& option(std::string_view key);
};

// Reads the words, and runs the verb that they name; 0 where they asked for help or the version. The texts of
// errors have flags in the place of quoted keys ("`micro_batch`").
int run(const std::vector<Command>& commands, int argc, char** argv);

std::string version_text();  // what --version says

// docs/options.md: all verbs' options.
std::string options_page(const std::vector<Command>& commands);

}  // namespace orrery::cli
