// What one rank trains, and what it notes of that for rank 0.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "exec/math/routing.h"
#include "exec/run/asynchronous_servers.h"
#include "exec/run/interpreter.h"
#include "exec/run/recorder.h"
#include "exec/state/learning_rate.h"
#include "program/plan.h"
#include "program/timeline.h"

namespace orrery::exec {

// Figures of a whole run.
struct RankReport {
  double begin_s = 0;  // of the first step, on rank 0's clock
  std::int64_t first_step = 0;
  std::int64_t skipped_steps = 0;  // of all from the beginning: whose gradients were not finite
  double flops = 0;                // of one step's computations
  double allocated_bytes = 0;      // on the device, at most
  double context_bytes = 0;        // the process before it allocated anything: code, MPI, libraries
  double resident_bytes = 0;       // at most
  Staleness staleness;
};

// All times on rank 0's clock.
struct RankNotes {
  RankReport report;
  std::vector<double> loss;           // by step, of this rank's samples
  std::vector<double> begins_s;       // by step, where something else than training came before it; else 0
  std::vector<double> batches;        // by step, that it trained: of asynchronous workers alone
  std::vector<double> ends_s;         // of what it trained: steps, or an asynchronous worker's batches
  std::vector<TimelineEvent> events;  // of the last KeptSteps::kMost of these
  std::vector<RoutedRows> routed;     // FormMathematics::routed()
};
std::string packed(const RankNotes& notes);
RankNotes unpacked(std::string_view bytes);

class RankRun {
 public:
  // Steps [first_step, end_step) are to be trained. `offset`: see clock_offset(). Keeps references.
  RankRun(const Plan& plan, Interpreter& interpreter, const LearningRate& rate, std::int64_t first_step,
          std::int64_t end_step, double offset);

  double now_s() const;  // on rank 0's clock

  // Steps [begin, end); between two calls there was something else than training. Throws NotFinite
  // (exec/state/not_finite.h) after a step whose loss was no number and whose update was applied all the
  // same, and after an asynchronous worker's batch whose loss was none.
  void train(std::int64_t begin, std::int64_t end);

  // Of this rank's samples, by step from the first one.
  const std::vector<double>& losses() const { return loss_; }
  // How many batches of each step it trained; of asynchronous workers alone.
  const std::vector<double>& batches() const { return batches_; }
  double rate_of(std::int64_t step) const;
  // Nothing is trained from this step on.
  void end_at(std::int64_t step);

  RankNotes notes(const RankReport& report) const;

 private:
  void train_with_servers(std::int64_t begin, std::int64_t end);
  void note(std::int64_t step);
  [[noreturn]] void not_finite(std::int64_t step) const;

  const Plan& plan_;
  Interpreter& interpreter_;
  const LearningRate& rate_;
  double plain_rate_;
  std::int64_t first_step_;
  double offset_;
  std::vector<double> loss_, begins_s_, batches_, ends_s_;  // as RankNotes has them
  KeptSteps kept_;
};

// A step's loss by the batches that are known: of those that a lost worker trained nobody knows any. Where
// none is, that of the step before.
void spread_losses(std::vector<double>& losses, const std::vector<double>& batches, int workers);

}  // namespace orrery::exec
