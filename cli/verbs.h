// The verbs of the command line, one file each.
#pragma once

#include "cli/command.h"

namespace orrery::cli {

Command catalog_command();
Command describe_command();
Command device_command();
Command discover_command();
Command plan_command();
Command whatif_command();
Command compare_command();  // cli/compare
Command simulate_command();
Command collective_command();
Command run_command();
Command calibrate_command();
Command validate_command();
Command export_command();
Command goodput_command();
Command measurements_command();
Command report_command();
Command trace_diff_command();
Command schema_command();
Command serve_command();

}  // namespace orrery::cli
