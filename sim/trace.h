// What a simulation saw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/timeline.h"

namespace orrery::sim {

// A payload that has arrived.
struct Moved {
  std::int32_t flow = 0;
  double begin_s = 0;  // its latency was over
  double end_s = 0;
  double bytes = 0;  // of one of the flow's transfers
};

struct Trace {
  std::vector<double> step_ends_s;                    // of the last rank
  std::vector<std::vector<double>> rank_step_ends_s;  // [step][simulated rank]
  std::vector<TimelineEvent> events;                  // by (rank, step, instruction); global rank numbers
  std::vector<double> flow_bytes;                     // by flow: bytes of one of its transfers, in all
  std::vector<Moved> moved;                           // where they are kept, by end
  std::int64_t activities = 0;
  double end_s = 0;  // of all that was simulated
  // Asynchronous servers, by script: steps after the slowest rank has done half of those that are simulated,
  // and how long they took.
  std::vector<double> late_steps, late_s;
};

// Through a pipe between two copies of this process.
std::string to_bytes(const Trace& trace);
Trace trace_from_bytes(const std::string& bytes);

}  // namespace orrery::sim
