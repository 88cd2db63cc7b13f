// When each instruction ran: what both clocks emit and everything downstream reads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/program.h"

namespace orrery {

// An exchange or a collective starts when its rank comes to it. The virtual clock also knows when its last
// participant did: until then it waits, which is nobody's communication. The real clock cannot tell.
struct TimelineEvent {
  std::int32_t rank = 0;
  std::int32_t step = 0;
  std::uint32_t instruction = 0;
  double start_s = 0;
  double end_s = 0;
  double met_s = 0;  // all participants had come; before `start_s`: not known, or nobody was waited for

  double moving_since_s() const { return met_s > start_s ? met_s : start_s; }
};

struct Timeline {
  std::vector<TimelineEvent> events;  // sorted by (rank, step, instruction)
};

// The breakdown of one step of one rank: every instant counted once, adds up to `step_time_s`.
struct Breakdown {
  double compute = 0, recompute = 0, tensor_comm = 0, data_comm = 0, pipeline_comm = 0, expert_comm = 0,
         context_comm = 0, bubble = 0, optimizer = 0, input = 0, other = 0;
  double total() const {
    return compute + recompute + tensor_comm + data_comm + pipeline_comm + expert_comm + context_comm +
           bubble + optimizer + input + other;
  }
  void scale(double factor) {
    for (double* part : {&compute, &recompute, &tensor_comm, &data_comm, &pipeline_comm, &expert_comm,
                         &context_comm, &bubble, &optimizer, &input, &other})
      *part *= factor;
  }
  // Another's parts, each times `factor`.
  void add(const Breakdown& other, double factor) {
    for (double Breakdown::*part :
         {&Breakdown::compute, &Breakdown::recompute, &Breakdown::tensor_comm, &Breakdown::data_comm,
          &Breakdown::pipeline_comm, &Breakdown::expert_comm, &Breakdown::context_comm, &Breakdown::bubble,
          &Breakdown::optimizer, &Breakdown::input, &Breakdown::other})
      this->*part += factor * other.*part;
  }
};

// Compute where the compute stream is busy, else the communication that the next compute waits for, else
// bubble: also while that communication waits for peers.
Breakdown breakdown(const Program& program, const Timeline& timeline, int step, double begin_s, double end_s);
// The same, stretch by stretch: `part` is a field of Breakdown. Neighbours differ in it, none is empty, and
// together they fill [begin_s, end_s) in order of time.
struct BreakdownStretch {
  double begin_s = 0;
  double end_s = 0;
  double Breakdown::*part = &Breakdown::other;
};
std::vector<BreakdownStretch> breakdown_stretches(const Program& program, const Timeline& timeline, int step,
                                                  double begin_s, double end_s);
// Total busy seconds by kind_of(), of one rank and step; without waiting for peers, where the clock knows it.
std::map<std::string, double> busy_seconds(const Program& program, const Timeline& timeline, int step);

// What is counted over time beside the instructions, each series by its name.
struct TraceCounter {
  std::string name;          // with its unit: "memory (bytes)"
  std::int32_t process = 0;  // a rank, or a number that is none
  std::string process_name;  // of a number that is no rank; it is named once
  std::vector<std::string> series;
  struct Sample {
    double at_s = 0;
    std::vector<double> values;  // by series, from now on
  };
  std::vector<Sample> samples;  // by rising time
};

// Chrome/Perfetto JSON: a process per rank, a thread per stream, flows from sends to receives, and counters:
// what each rank's communication moves a second, and the given ones.
std::string chrome_trace(const std::vector<Program>& programs, const Timeline& timeline,
                         const std::vector<TraceCounter>& counters = {});

}  // namespace orrery
