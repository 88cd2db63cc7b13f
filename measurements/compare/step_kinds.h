// What a step of a job is made of, by kind: as its traces show it and as it is predicted.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "measurements/trace.h"
#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/validation.h"

namespace orrery::measurements {

struct KindTime {
  bool communication = false;
  double count = 0, seconds = 0;
  void add(const KindTime& more, double ranks = 1);  // as a part of a mean over so many
};
// Mean over its ranks. Kinds may run at once: kinds + idle_s = seconds + at_once_s.
struct StepKinds {
  double seconds = 0;
  double idle_s = 0;  // nothing runs: bubbles, the host, waiting for peers
  std::map<std::string, KindTime> kinds;
  double waited_s = 0;  // taken off collectives, which took as long as on the rank that came last
  double at_once_s() const;
};

// Of the step in the middle by its time. Ranks of one job; none may be without steps.
StepKinds measured_step(const std::vector<const RankTrace*>& ranks);
// The same ranks, of a simulation that kept its timeline; all where `ranks` is empty. `of_instructions`:
// kinds as kind_of() has them, else kernels', as the cost model has their shares of each instruction.
StepKinds predicted_step(const planner::Evaluation& predicted, const std::vector<int>& ranks,
                         bool of_instructions);
// In as much detail as both have ("all_reduce over 8", "all_reduce", "collectives"), and besides "idle" and
// "at once"; largest difference first.
std::vector<planner::KindComparison> compare(StepKinds predicted, StepKinds measured);
// `kind` of a communication in so much detail: 2 all of it, 1 without the group's size, 0 "collectives".
std::string in_detail(const std::string& kind, int detail);
int detail_of(const StepKinds& step);

}  // namespace orrery::measurements
