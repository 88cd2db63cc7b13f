// When the instructions of steps ran.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "exec/device/device.h"

namespace orrery::exec {

// When an instruction ran, on this rank's steady clock (seconds since its epoch).
struct Interval {
  double start_s = 0;
  double end_s = 0;
};

// Of the step under way. Computation is timed by marks in the device's stream, communication by the host's
// clock: neither waits for anything.
class StepRecorder {
 public:
  StepRecorder(Device& device, std::size_t instructions);

  // While it is off no clock is read and intervals() stays as it is.
  void turn(bool on) { on_ = on; }

  void computation_begins(std::size_t instruction);
  void computation_ends();  // the one that began last
  void communication_begins(std::size_t instruction);
  void communication_ends(std::size_t instruction);
  // After all of a step's instructions; waits for the device's marks.
  void step_ends();

  const std::vector<Interval>& intervals() const { return intervals_; }  // of the last step, by instruction

 private:
  struct Marks {
    std::size_t instruction = 0;
    Mark begin = 0;
    Mark end = 0;
  };
  Device& device_;
  bool on_ = true;
  std::vector<Marks> marks_;  // of this step's computations
  std::vector<Interval> intervals_;
};

// The intervals of the last steps: a run of a million steps must not fill the memory with them.
class KeptSteps {
 public:
  static constexpr std::int64_t kMost = 256;

  void keep(const std::vector<Interval>& intervals);
  std::int64_t first() const {
    return first_;
  }  // the number of the first step that is kept; they count from 0
  const std::deque<std::vector<Interval>>& steps() const { return steps_; }

 private:
  std::int64_t first_ = 0;
  std::deque<std::vector<Interval>> steps_;
};

}  // namespace orrery::exec
