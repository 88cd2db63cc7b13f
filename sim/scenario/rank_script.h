// What of a rank's script follows from its Program alone: in which order tasks may start, and when its host
// issues them.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace orrery::sim {

// "rank 3, instruction 14 (forward 2)": for messages.
std::string where(const Program& program, std::size_t instruction);

// What each task waits for and who waits for it: its stream's order and Instruction::after. `script` has a
// task for each instruction. Throws InternalError where an instruction waits for a later one.
void order_tasks(const Program& program, RankScript& script);

// By instruction; empty: the host costs nothing.
std::vector<Issue> issues_of(const Program& program, const ScenarioInput& input);

// While 1, 2, … devices are busy, relative to the speed beside `assumed_busy`.
std::vector<double> relative_speeds(std::vector<double> concurrency_scale, int assumed_busy);

}  // namespace orrery::sim
