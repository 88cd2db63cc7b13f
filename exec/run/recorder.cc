#include "exec/run/recorder.h"

#include "exec/communicators/clock.h"

namespace orrery::exec {

StepRecorder::StepRecorder(Device& device, std::size_t instructions)
    : device_(device), intervals_(instructions) {
  marks_.reserve(instructions);
}

void StepRecorder::computation_begins(std::size_t instruction) {
  if (on_) marks_.push_back({instruction, device_.mark(), 0});
}

void StepRecorder::computation_ends() {
  if (on_) marks_.back().end = device_.mark();
}

void StepRecorder::communication_begins(std::size_t instruction) {
  if (on_) intervals_[instruction].start_s = steady_seconds();
}

void StepRecorder::communication_ends(std::size_t instruction) {
  if (on_) intervals_[instruction].end_s = steady_seconds();
}

void StepRecorder::step_ends() {
  for (const Marks& marks : marks_)
    intervals_[marks.instruction] = {device_.seconds_of(marks.begin), device_.seconds_of(marks.end)};
  marks_.clear();
  device_.release_marks();
}

void KeptSteps::keep(const std::vector<Interval>& intervals) {
  if (static_cast<std::int64_t>(steps_.size()) < kMost) {
    steps_.push_back(intervals);
    return;
  }
  // The oldest step's memory serves the newest.
  steps_.push_back(std::move(steps_.front()));
  steps_.pop_front();
  steps_.back() = intervals;
  ++first_;
}

}  // namespace orrery::exec
