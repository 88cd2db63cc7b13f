#include "exec/run/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "exec/communicators/gather.h"
#include "exec/math/objective.h"

namespace orrery::exec {
Evaluations::Evaluations(const Plan& plan, const TrainingOptions& options, Communicator& control)
    : plan_(plan), options_(options), control_(control) {
  if (options.eval_data.empty()) return;
  const Training& training = plan.job->training;
  held_out_.emplace(options.eval_data, training.seq_len, training.seed, training.global_batch,
                    options.vocabulary, plan.job->workload.transformer->vocab);
  const std::int64_t whole = held_out_->sequences() / training.global_batch;
  if (whole < 1)
    throw UserError(options.eval_data, 0,
                    fmt::format("has {} sequences of {} tokens", held_out_->sequences(), training.seq_len),
                    fmt::format("at least {}, a batch", training.global_batch));
  batches_ = options.eval_batches > 0 ? std::min(options.eval_batches, whole) : whole;
}

bool Evaluations::due(std::int64_t done) const {
  if (!wanted() || (!done_.empty() && done_.back().step == done)) return false;
  return done == options_.steps || (options_.eval_every > 0 && done % options_.eval_every == 0);
}

double Evaluations::evaluate(Interpreter& interpreter, std::int64_t done) {
  double mine = 0;
  for (std::int64_t batch = 0; batch < batches_; ++batch) mine += interpreter.evaluate(*held_out_, batch);
  double all = sum_at_root(control_, {mine}).front();
  const std::string bytes = broadcast_from_root(control_, {reinterpret_cast<const char*>(&all), sizeof(all)});
  std::memcpy(&all, bytes.data(), sizeof(all));
  const double loss =
      all / (static_cast<double>(batches_) * static_cast<double>(plan_.job->training.global_batch) *
             static_cast<double>(predictions_per_sample(*plan_.job)));
  double best = std::numeric_limits<double>::infinity();
  for (const Evaluated& earlier : done_) best = std::min(best, earlier.loss);
  without_best_ = loss < best ? 0 : without_best_ + 1;
  done_.push_back({done, loss});
  return loss;
}

std::vector<EvaluationDone> Evaluations::report() const {
  std::vector<EvaluationDone> all;
  for (const Evaluated& one : done_) all.push_back({one.step, one.loss, std::exp(one.loss)});
  return all;
}

}  // namespace orrery::exec
