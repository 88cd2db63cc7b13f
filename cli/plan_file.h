// What the verbs that take a PLAN share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "orrery/orrery.h"

namespace orrery::cli {

void add_detail_option(CLI::App& verb, std::string& detail);
sim::Detail parse_detail(const std::string& name);
bool parse_fold(const std::string& name);

// "of the step:  compute 81.2%  bubble 9.0% …", parts from 0.05% on.
std::string breakdown_text(const Breakdown& breakdown);

// Ranked plans, one a line, with the dimensions that any of them uses.
std::string plan_table(const std::vector<planner::Evaluation>& plans);
// What each stage and each replica of a plan has to do, one a line.
std::string load_table(const planner::Load& load);

}  // namespace orrery::cli
