// Runs a Scenario in virtual time.
//
// Work (compute, pack, copy) and flows that share nothing have durations known in advance: their ends stand
// in a queue of our own. Flows that share links are SimGrid transfers, started when they are due; SimGrid's
// clock then leads. While no such flow runs, time advances without SimGrid.
//
// An instruction starts when its predecessor on its stream and everything in `after` has ended. A collective,
// or a transfer, starts when everyone has come.
//
// With Scenario::single_threaded a rank's one thread issues its instructions in their order, as
// exec/interpreter.h does: it computes, starts communication and goes on, and waits before work that needs
// what is not there yet. Between nodes what was started moves beside computation (the kernel sends, and the
// executor progresses between operators); inside a node ranks copy by hand, so it moves only while none of
// its ranks computes.
#pragma once

#include <string>
#include <vector>

#include "program/timeline.h"
#include "sim/scenario.h"

namespace orrery::sim {

struct Trace {
  std::vector<double> step_ends_s;                    // of the last rank
  std::vector<std::vector<double>> rank_step_ends_s;  // [step][simulated rank]
  std::vector<TimelineEvent> events;                  // by (rank, step, instruction); global rank numbers
  std::vector<double> flow_bytes;                     // by flow: bytes of one of its transfers, in all
  std::int64_t activities = 0;
  double end_s = 0;  // of all that was simulated
  // Asynchronous servers, by script: steps after the slowest rank has done half of those that are simulated,
  // and how long they took.
  std::vector<double> late_steps, late_s;
};

// In a process of its own (sim/isolate.h). Throws InternalError naming what waits when nothing moves any
// more.
Trace interpret(const Scenario& scenario, int steps);

std::string to_bytes(const Trace& trace);
Trace trace_from_bytes(const std::string& bytes);

}  // namespace orrery::sim
