// What is said of a run while it runs: a log for programs, a line for people.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "exec/communicators/communicator.h"
#include "exec/run/rank_run.h"
#include "exec/run/training.h"
#include "program/plan.h"

namespace orrery::exec {

// A file of scalars for TensorBoard, in a folder that is made where there is none.
class EventFile {
 public:
  explicit EventFile(const std::string& folder);  // throws UserError where it cannot be written
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  // Throws UserError where it cannot be written any more.
  void write(std::int64_t step, std::initializer_list<std::pair<const char*, double>> values);

 private:
  std::string folder_;
  std::FILE* file_ = nullptr;
};

// The log is a JSON object a line, flushed after each:
//   {"step": 12, "loss": 3.1, "learning_rate": 0.001, "elapsed_s": 4.2, "step_s": 0.31, "tokens_per_s": 5e4}
//   {"step": 20, "evaluation_loss": 3.0, "perplexity": 20.1, "elapsed_s": 7.0}
//   {"step": 20, "checkpoint": "FOLDER", "elapsed_s": 7.1}
// TensorBoard gets loss, learning_rate and tokens_per_s of each step, evaluation_loss and perplexity.
// `step`: so many are done. `step_s`: mean since the line before; networks on images have images_per_s.
// Rank 0 writes; all ranks take part.
class Progress {
 public:
  // Throws UserError where the log cannot be written. A run that goes on after `first_step` appends to it.
  Progress(const Plan& plan, const TrainingOptions& options, std::int64_t first_step, Communicator& control);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool wanted() const { return wanted_; }
  // Collective, where wanted: steps up to `done` have been trained.
  void trained(const RankRun& run, std::int64_t done);
  void evaluated(std::int64_t done, double loss);
  // From now on these take part: of all ranks some are lost.
  void go_on_with(Communicator& control) { control_ = &control; }
  void checkpointed(std::int64_t done);

 private:
  void write(const Json& line);
  void say(std::int64_t done, double loss, double step_s, double rate_per_s);
  double elapsed_s() const;

  const Plan& plan_;
  const TrainingOptions& options_;
  Communicator* control_;
  bool wanted_;
  std::FILE* log_ = nullptr;
  std::optional<EventFile> events_;
  std::int64_t first_step_, logged_;
  double begin_s_, logged_s_, said_s_;
};

}  // namespace orrery::exec
