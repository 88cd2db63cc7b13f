// What a rank holds over its steps, as its timeline makes and frees activations.
#pragma once

#include <string>
#include <vector>

#include "planner/evaluation/evaluation.h"
#include "program/program.h"
#include "program/timeline.h"

namespace orrery::planner {

bool is_backward(const Instruction& instruction);

// A micro-batch's activations grow with the operators whose forward pass has ended and shrink with those
// whose backward pass has (where gradients of inputs and of weights are computed apart, of the latter).
struct KeptChange {
  double at_s = 0;
  double operators = 0;  // so many operators' worth of them more, or less
};
// By rising time.
std::vector<KeptChange> kept_changes(const Program& program, const Timeline& timeline, int step);

// A simulated plan's trace (program/timeline.h, chrome_trace) with a counter of each rank's memory (what
// stays, and the activations that are kept, whose peak is what the memory model says), and one of what links
// of each kind carry, of a process "network" behind the ranks. The simulation must have kept its timeline.
std::string trace_of(const Evaluation& evaluation);

}  // namespace orrery::planner
