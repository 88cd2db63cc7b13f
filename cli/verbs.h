// The verbs of the command line, one file each. Each `add_…` declares its options and leaves in `action` what
// to do once the whole command line has been parsed: the exit code, or an exception of base/error.h.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace orrery::cli {

using Action = std::function<int()>;

void add_catalog(CLI::App& app, Action& action);
void add_describe(CLI::App& app, Action& action);
void add_discover(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_whatif(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
void add_collective(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_goodput(CLI::App& app, Action& action);

}  // namespace orrery::cli
