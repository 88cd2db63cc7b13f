// What the verbs that take a PLAN share.
#pragma once

#include <string>

#include "base/option.h"
#include "orrery/orrery.h"

namespace orrery::cli {

// On stderr, how much of other systems' settings was read, what was not (what says nothing here by its number
// alone, unless it is asked for), and what they do not say, if anything.
void say_what_was_imported(const std::vector<std::string>& ignored, int settings_read,
                           const std::vector<std::string>& assumed);

// On stderr, how a workload's file was read where it did not say.
void say_warnings(const std::vector<std::string>& warnings);
void say_notes(const Workload& workload);

// Processes of a verb's `jobs`, at most.
constexpr int kMostJobs = 1024;

// `text` with the options of a request that it quotes ("`micro_batch`") as flags.
std::string in_flags(std::string_view text);

// A positional PLAN.
Setting plan_option(std::string& plan);
Setting detail_option(std::string& detail);
bool parse_fold(const std::string& name);

// One line: what is trained on what, how, and by which runtime.
std::string job_line(const Job& job);
// "Parts of the step: compute 81.2%, pipeline bubble 9.0%, …", parts from 0.05% on.
std::string breakdown_text(const Breakdown& breakdown);

// Ranked plans, one a line, with the dimensions that any of them uses.
std::string plan_table(const std::vector<planner::Evaluation>& plans);
// "sequences of 2048", or of unequal ones; empty for models without.
std::string sequences_text(const Training& training);
// One line: the interval of a plan's step and memory, what it rests on and what would narrow it; empty where
// there is none.
std::string interval_line(const planner::Evaluation& evaluation);
// Its end: "This rests on: …. What would narrow the interval most: …."
std::string what_it_rests_on(const planner::RestsOn& rests_on, const std::string& narrowed_by);
// What each stage and each replica of a plan has to do, one a line.
std::string load_table(const planner::Load& load);

}  // namespace orrery::cli
