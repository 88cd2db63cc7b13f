// Words of the command line to verbs.
#pragma once

#include <string>
#include <vector>

#include "cli/page/command_record.h"

namespace orrery::cli {

// Reads the words, and runs the verb that they name; 0 where they asked for help or the version. The texts of
// errors have flags in the place of quoted keys ("`micro_batch`").
int run(const std::vector<Command>& commands, int argc, char** argv);

std::string version_text();  // what --version says

}  // namespace orrery::cli
