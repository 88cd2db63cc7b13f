#include "exec/run/progress.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/note.h"
#include "exec/communicators/clock.h"
#include "exec/communicators/gather.h"

namespace orrery::exec {
namespace {

constexpr double kSayEvery_s = 2;

}  // namespace

Progress::Progress(const Plan& plan, const TrainingOptions& options, std::int64_t first_step,
                   Communicator& control)
    : plan_(plan),
      options_(options),
      control_(&control),
      wanted_(!options.log.empty() || !options.tensorboard.empty() || options.progress),
      first_step_(first_step),
      logged_(first_step),
      begin_s_(steady_seconds()),
      logged_s_(begin_s_),
      said_s_(begin_s_) {
  if (control.rank() != 0) return;
  if (!options.tensorboard.empty()) events_.emplace(options.tensorboard);
  if (options.log.empty()) return;
  log_ = std::fopen(options.log.c_str(), first_step > 0 ? "ae" : "we");
  if (log_ == nullptr)
    throw UserError(options.log, 0, std::string("cannot be written: ") + std::strerror(errno),
                    "a file in a folder that is there");
}

Progress::~Progress() {
  if (log_ != nullptr) std::fclose(log_);
}

double Progress::elapsed_s() const {
  return steady_seconds() - begin_s_;
}

void Progress::write(const Json& line) {
  if (log_ == nullptr) return;
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), log_) != text.size() || std::fflush(log_) != 0)
    throw UserError(options_.log, 0, std::string("cannot be written: ") + std::strerror(errno),
                    "a place with room");
}

void Progress::trained(const RankRun& run, std::int64_t done) {
  const std::vector<double>& all = run.losses();
  const std::int64_t from = std::exchange(logged_, done);
  const auto begin = static_cast<std::ptrdiff_t>(from - first_step_);
  const auto end = static_cast<std::ptrdiff_t>(done - first_step_);
  std::vector<double> losses = sum_at_root(*control_, {all.begin() + begin, all.begin() + end});
  if (plan_.choices.asynchronous()) {
    const std::vector<double>& batches = run.batches();
    spread_losses(losses, sum_at_root(*control_, {batches.begin() + begin, batches.begin() + end}),
                  plan_.choices.dp);
  }
  if (control_->rank() != 0) return;
  const double now_s = steady_seconds();
  const double step_s = (now_s - logged_s_) / static_cast<double>(done - from);
  const Training& training = plan_.job->training;
  const bool text = plan_.job->workload.transformer.has_value();
  const double rate_per_s =
      static_cast<double>(training.global_batch) * (text ? training.seq_len : 1) / step_s;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const std::int64_t step = from + static_cast<std::int64_t>(i);
    write({{"step", step + 1},
           {"loss", losses[i]},
           {"learning_rate", run.rate_of(step)},
           {"elapsed_s", now_s - begin_s_},
           {"step_s", step_s},
           {text ? "tokens_per_s" : "images_per_s", rate_per_s}});
    if (events_)
      events_->write(step + 1, {{"loss", losses[i]},
                                {"learning_rate", run.rate_of(step)},
                                {text ? "tokens_per_s" : "images_per_s", rate_per_s}});
  }
  logged_s_ = now_s;
  const bool due = now_s - said_s_ >= kSayEvery_s || done == options_.steps;
  if (options_.progress && due) say(done, losses.back(), step_s, rate_per_s);
}

void Progress::say(std::int64_t done, double loss, double step_s, double rate_per_s) {
  said_s_ = steady_seconds();
  const double mean_s = elapsed_s() / static_cast<double>(done - first_step_);
  std::string pace;
  if (options_.predicted_step_s > 0)
    pace = fmt::format("; {} a step, {} predicted", human_seconds(step_s),
                       human_seconds(options_.predicted_step_s));
  const char* unit = plan_.job->workload.transformer ? "tokens" : "images";
  fmt::print(stderr, "{}step {} of {}: loss {:.4f}, {:.4g} {}/s, {} left{}\n", kNote, done, options_.steps,
             loss, rate_per_s, unit, human_seconds(mean_s * static_cast<double>(options_.steps - done)),
             pace);
}

void Progress::evaluated(std::int64_t done, double loss) {
  if (control_->rank() != 0) return;
  write({{"step", done},
         {"evaluation_loss", loss},
         {"perplexity", std::exp(loss)},
         {"elapsed_s", elapsed_s()}});
  if (events_) events_->write(done, {{"evaluation_loss", loss}, {"perplexity", std::exp(loss)}});
  if (options_.progress)
    fmt::print(stderr, "{}step {}: held-out loss {:.4f}, perplexity {:.4g}\n", kNote, done, loss,
               std::exp(loss));
  logged_s_ = steady_seconds();
}

void Progress::checkpointed(std::int64_t done) {
  if (control_->rank() != 0) return;
  write({{"step", done}, {"checkpoint", options_.checkpoint_folder}, {"elapsed_s", elapsed_s()}});
  logged_s_ = steady_seconds();
}

}  // namespace orrery::exec
