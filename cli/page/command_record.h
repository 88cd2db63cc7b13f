// A verb of the command line: its options as records, and what it does once they have been read.
#pragma once

#include <functional>
#include <string>
#include <string_view>
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
  bool has_group(std::string_view group) const;
  // The setting of `key`, to change its record; it must be there.
  Option& option(std::string_view key);
};

}  // namespace orrery::cli
