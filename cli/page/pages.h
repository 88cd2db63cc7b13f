// What is written from the verbs' records: pages to read and completions for shells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/page/command_record.h"

namespace orrery::cli {

// docs/options.md: all verbs' options.
std::string options_page(const std::vector<Command>& commands);

struct Page {
  std::string file;  // in a folder of its kind: "man/man1/orrery-plan.1"
  std::string text;
};
// orrery(1), and a page for each verb that is not hidden; `version` stands at their foot.
std::vector<Page> man_pages(const std::vector<Command>& commands, std::string_view version);
// For bash, zsh and fish: verbs, options, their values, and the names of the catalogs.
std::vector<Page> completions(const std::vector<Command>& commands);

}  // namespace orrery::cli
