// What a simulation saw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/timeline.h"

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

// Through a pipe between two copies of this process.
std::string to_bytes(const Trace& trace);
Trace trace_from_bytes(const std::string& bytes);

}  // namespace orrery::sim
