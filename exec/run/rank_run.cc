#include "exec/run/rank_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "exec/communicators/clock.h"
#include "exec/math/objective.h"
#include "exec/state/not_finite.h"

namespace orrery::exec {
namespace {

template <typename T>
void append(std::string& bytes, const std::vector<T>& values) {
  const std::size_t count = values.size();
  bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
  bytes.append(reinterpret_cast<const char*>(values.data()), count * sizeof(T));
}

void take(std::string_view& bytes, void* into, std::size_t count) {
  ORRERY_CHECK(bytes.size() >= count, "what a rank has noted is cut off");
  if (count > 0) std::memcpy(into, bytes.data(), count);
  bytes.remove_prefix(count);
}

template <typename T>
std::vector<T> taken(std::string_view& bytes) {
  std::size_t count = 0;
  take(bytes, &count, sizeof(count));
  ORRERY_CHECK(count <= bytes.size() / sizeof(T), "what a rank has noted is cut off");
  std::vector<T> values(count);
  take(bytes, values.data(), count * sizeof(T));
  return values;
}

}  // namespace

void spread_losses(std::vector<double>& losses, const std::vector<double>& batches, int workers) {
  for (std::size_t step = 0; step < std::min(losses.size(), batches.size()); ++step) {
    if (batches[step] > 0 && batches[step] != workers) losses[step] *= workers / batches[step];
    if (batches[step] == 0 && step > 0) losses[step] = losses[step - 1];
  }
}

std::string packed(const RankNotes& notes) {
  std::string bytes(reinterpret_cast<const char*>(&notes.report), sizeof(notes.report));
  append(bytes, notes.loss);
  append(bytes, notes.begins_s);
  append(bytes, notes.batches);
  append(bytes, notes.ends_s);
  append(bytes, notes.events);
  append(bytes, notes.routed);
  return bytes;
}

RankNotes unpacked(std::string_view bytes) {
  RankNotes notes;
  take(bytes, &notes.report, sizeof(notes.report));
  notes.loss = taken<double>(bytes);
  notes.begins_s = taken<double>(bytes);
  notes.batches = taken<double>(bytes);
  notes.ends_s = taken<double>(bytes);
  notes.events = taken<TimelineEvent>(bytes);
  notes.routed = taken<RoutedRows>(bytes);
  return notes;
}

RankRun::RankRun(const Plan& plan, Interpreter& interpreter, const LearningRate& rate,
                 std::int64_t first_step, std::int64_t end_step, double offset)
    : plan_(plan),
      interpreter_(interpreter),
      rate_(rate),
      plain_rate_(interpreter.parameters().learning_rate()),
      first_step_(first_step),
      offset_(offset),
      loss_(static_cast<std::size_t>(end_step - first_step)),
      begins_s_(loss_.size()),
      batches_(plan.choices.asynchronous() ? loss_.size() : 0) {}

double RankRun::now_s() const {
  return steady_seconds() + offset_;
}

double RankRun::rate_of(std::int64_t step) const {
  return rate_.at(step, plain_rate_, plan_.job->training.global_batch);
}

void RankRun::train(std::int64_t begin, std::int64_t end) {
  if (begin > first_step_) begins_s_[static_cast<std::size_t>(begin - first_step_)] = now_s();
  if (plan_.choices.asynchronous()) {
    train_with_servers(begin, end);
    return;
  }
  for (std::int64_t step = begin; step < end; ++step) {
    interpreter_.parameters().set_learning_rate(rate_of(step));
    const std::int64_t updates = interpreter_.updates();
    interpreter_.run_step(step);
    if (!std::isfinite(interpreter_.loss_sum()) && interpreter_.updates() > updates) not_finite(step);
    note(step);
  }
}

void RankRun::not_finite(std::int64_t step) const {
  const Parameters& parameters = interpreter_.parameters();
  std::string first = "all of the rank's weights still are";
  for (const HeldTensor& held : parameters.held()) {
    const Parameters::Part part = parameters.kept_part(held);
    if (std::isfinite(interpreter_.sum_of_squares(parameters.kept_weights(held),
                                                  static_cast<std::size_t>(part.end - part.begin))))
      continue;
    first = held.name() + " is the first of its tensors that is not";
    break;
  }
  // Servers have applied what came before anyone could look at it.
  throw NotFinite(fmt::format(
      "the loss of step {} is {} on rank {}: {} (expected a smaller `learning_rate`{})", step, kNotFinite,
      interpreter_.rank(), first, plan_.choices.asynchronous() ? "" : ", or `on_nan` skip"));
}

void RankRun::train_with_servers(std::int64_t begin, std::int64_t end) {
  const std::int64_t replicas = plan_.choices.dp;
  AsynchronousServers& servers = interpreter_.servers();
  servers.begin(
      begin * replicas, end * replicas, [this](std::int64_t step) { return rate_of(step); },
      interpreter_.updates());
  while (const auto batch = servers.next()) {
    interpreter_.run_batch(*batch);
    if (!std::isfinite(interpreter_.loss_sum())) not_finite(*batch / replicas);
    note(*batch / replicas);
  }
  servers.finish();
  interpreter_.resume(servers.updates(), interpreter_.scaler());
}

void RankRun::note(std::int64_t step) {
  if (!batches_.empty()) batches_[static_cast<std::size_t>(step - first_step_)] += 1;
  loss_[static_cast<std::size_t>(step - first_step_)] +=
      interpreter_.loss_sum() / (static_cast<double>(plan_.job->training.global_batch) *
                                 static_cast<double>(predictions_per_sample(*plan_.job)));
  const std::vector<Interval>& intervals = interpreter_.intervals();
  double end_s = 0;
  for (const Interval& interval : intervals) end_s = std::max(end_s, interval.end_s);
  ends_s_.push_back(end_s + offset_);
  kept_.keep(intervals);
}

void RankRun::end_at(std::int64_t step) {
  loss_.resize(static_cast<std::size_t>(step - first_step_));
  begins_s_.resize(loss_.size());
  if (!batches_.empty()) batches_.resize(loss_.size());
}

RankNotes RankRun::notes(const RankReport& report) const {
  RankNotes notes{report, loss_, begins_s_, batches_, ends_s_, {}, interpreter_.routed()};
  auto step = static_cast<std::int32_t>(kept_.first());
  for (const std::vector<Interval>& intervals : kept_.steps()) {
    for (std::uint32_t i = 0; i < intervals.size(); ++i)
      notes.events.push_back({interpreter_.rank(), step, i, intervals[i].start_s, intervals[i].end_s});
    ++step;
  }
  if (plan_.choices.asynchronous()) {
    const std::vector<TimelineEvent> served = interpreter_.servers().events();
    notes.events.insert(notes.events.end(), served.begin(), served.end());
  }
  for (TimelineEvent& event : notes.events) {
    event.start_s += offset_;
    event.end_s += offset_;
  }
  return notes;
}

}  // namespace orrery::exec
