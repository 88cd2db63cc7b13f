// The loss on text that is not trained on, now and then in a run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/data/data.h"
#include "exec/launch/answers.h"
#include "exec/run/interpreter.h"
#include "exec/run/training.h"
#include "program/plan.h"

namespace orrery::exec {

class Evaluations {
 public:
  // Throws UserError where the text is too short for one batch, or cannot be read.
  Evaluations(const Plan& plan, const TrainingOptions& options, Communicator& control);

  bool wanted() const { return held_out_.has_value(); }
  // Whether one is due when `done` steps are done.
  bool due(std::int64_t done) const;
  // Mean loss of a prediction, on every rank. Collective.
  double evaluate(Interpreter& interpreter, std::int64_t done);
  // The run may end: no new least loss for so long as was asked.
  bool patience_is_over() const { return options_.patience > 0 && without_best_ >= options_.patience; }

  std::vector<EvaluationDone> report() const;

 private:
  struct Evaluated {
    std::int64_t step = 0;
    double loss = 0;
  };
  const Plan& plan_;
  const TrainingOptions& options_;
  Communicator& control_;
  std::optional<TextData> held_out_;
  std::int64_t batches_ = 0;
  std::vector<Evaluated> done_;
  std::int64_t without_best_ = 0;
};

}  // namespace orrery::exec
