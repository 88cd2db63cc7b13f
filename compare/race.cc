#include "compare/race.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.h"

namespace orrery::comparison {
namespace {

constexpr std::int64_t kMostSteps = 20'000'000;  // of all workers: more is a mistyped figure

class Run {
 public:
  Run(const Race& race, Disturbance& disturbance, double begin_s, double end_s)
      : race_(race),
        disturbance_(disturbance),
        begin_s_(begin_s),
        end_s_(end_s),
        workers_(race.compute_s.size()) {
    result_.waiting_s.assign(workers_, 0);
    result_.seconds = end_s - begin_s;
  }

  Raced run() {
    if (workers_ == 0 || end_s_ <= begin_s_) return result_;
    switch (race_.rendezvous) {
      case Rendezvous::all:
        together(1, 0);
        break;
      case Rendezvous::periodic:
        together(race_.local_steps, race_.average_s);
        break;
      case Rendezvous::first:
        first();
        break;
      case Rendezvous::nobody:
        apart(std::numeric_limits<std::int64_t>::max());
        break;
      case Rendezvous::bounded:
        apart(race_.staleness);
        break;
    }
    return result_;
  }

 private:
  void count_step() {
    if (++steps_ > kMostSteps)
      throw UserError("a run of more than 20 million steps", "expected a shorter `horizon`");
  }
  double computed(std::size_t worker, std::int64_t step, double start_s) {
    count_step();
    const int id = race_.ids.empty() ? static_cast<int>(worker) : race_.ids[worker];
    return disturbance_.end_of(id, step, start_s, race_.compute_s[worker]);
  }
  // When a worker that asks at `now` has its step: the master hands them out one after another.
  double handed(double now) {
    if (race_.dispatch_s <= 0) return now;
    master_s_ = std::max(master_s_, now) + race_.dispatch_s;
    return master_s_;
  }
  double exchanged(double start_s) {
    return disturbance_.exchange_end(start_s, race_.exchange_s, race_.busy_exchange_s);
  }
  // What of a step from `start_s` to `end_s` is done when the race ends.
  double part(double start_s, double end_s) const {
    if (end_s <= end_s_) return 1;
    return start_s >= end_s_ ? 0 : (end_s_ - start_s) / (end_s - start_s);
  }

  // All wait for the slowest after so many steps.
  void together(int every, double average_s) {
    std::vector<double> arrived(workers_);
    double now = begin_s_;
    for (std::int64_t step = 0; now < end_s_; step += every) {
      double last = now;
      for (std::size_t w = 0; w < workers_; ++w) {
        arrived[w] = now;
        for (int k = 0; k < every; ++k) {
          // The race may end in the middle of hundreds of steps alone.
          if (arrived[w] >= end_s_ && every > 1) break;
          const double start_s = handed(arrived[w]);
          result_.waiting_s[w] += std::min(start_s, end_s_) - std::min(arrived[w], end_s_);
          arrived[w] = computed(w, step + k, start_s);
          if (every > 1) arrived[w] = exchanged(arrived[w]);
          if (every > 1) result_.worker_steps += part(start_s, arrived[w]);
        }
        last = std::max(last, arrived[w]);
      }
      for (std::size_t w = 0; w < workers_; ++w)
        result_.waiting_s[w] += std::max(0.0, std::min(last, end_s_) - std::min(arrived[w], end_s_));
      const double next = every > 1 ? last + average_s : exchanged(last);
      if (every == 1) result_.worker_steps += static_cast<double>(workers_) * part(now, next);
      ORRERY_CHECK(next > now, "a step without time");
      now = next;
    }
  }

  // The step is over when all but the backups have come; who is late drops what it has when it has it.
  void first() {
    const std::size_t wanted = workers_ - std::min(workers_ - 1, static_cast<std::size_t>(race_.backups));
    std::vector<double> free_s(workers_, begin_s_);
    std::vector<std::int64_t> own_step(workers_, 0);
    double now = begin_s_;
    while (now < end_s_) {
      std::vector<std::pair<double, std::size_t>> asked, arrivals;
      for (std::size_t w = 0; w < workers_; ++w) asked.emplace_back(std::max(now, free_s[w]), w);
      std::sort(asked.begin(), asked.end());
      // Who is late with the step before keeps that in hand: nothing is handed to it.
      for (const auto& [when, w] : asked)
        arrivals.emplace_back(computed(w, own_step[w], when > now ? when : handed(when)), w);
      std::sort(arrivals.begin(), arrivals.end());
      const double last = arrivals[wanted - 1].first;
      const double next = exchanged(last);
      ORRERY_CHECK(next > now, "a step without time");
      for (std::size_t i = 0; i < workers_; ++i) {
        const auto& [arrival, w] = arrivals[i];
        if (i < wanted) {
          ++own_step[w];
          result_.waiting_s[w] += std::max(0.0, std::min(last, end_s_) - std::min(arrival, end_s_));
        } else if (std::max(now, free_s[w]) < next) {  // it had begun: it ends, and is dropped
          ++own_step[w];
          free_s[w] = arrival;
          if (arrival <= end_s_) ++result_.dropped;
        }
      }
      result_.worker_steps += static_cast<double>(wanted) * part(now, next);
      now = next;
    }
  }

  // Nobody waits, but who is `most` steps ahead of the slowest.
  void apart(std::int64_t most) {
    using Event = std::tuple<double, std::size_t>;  // when its step ends, who
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    std::vector<std::int64_t> done(workers_, 0);
    std::vector<double> start_s(workers_, begin_s_);
    std::vector<std::size_t> held;
    const auto begin = [&](std::size_t w, double now) {
      start_s[w] = now;
      if (now >= end_s_) return;
      const double ready = handed(now);
      result_.waiting_s[w] += std::min(ready, end_s_) - now;
      events.emplace(exchanged(computed(w, done[w], ready)), w);
    };
    for (std::size_t w = 0; w < workers_; ++w) begin(w, begin_s_);
    while (!events.empty()) {
      const auto [end, w] = events.top();
      events.pop();
      result_.worker_steps += part(start_s[w], end);
      if (end >= end_s_) continue;
      ++done[w];
      start_s[w] = end;
      held.push_back(w);
      const std::int64_t slowest = *std::min_element(done.begin(), done.end());
      std::vector<std::size_t> still;
      for (const std::size_t one : held) {
        if (done[one] - slowest > most) {
          still.push_back(one);
          continue;
        }
        result_.waiting_s[one] += end - start_s[one];
        begin(one, end);
      }
      held = std::move(still);
    }
    for (const std::size_t one : held) result_.waiting_s[one] += end_s_ - start_s[one];
  }

  const Race& race_;
  Disturbance& disturbance_;
  double begin_s_, end_s_;
  std::size_t workers_;
  std::int64_t steps_ = 0;
  double master_s_ = 0;  // until when the master hands out what was asked for
  Raced result_;
};

}  // namespace

double Raced::mean_waiting_share() const {
  double sum = 0;
  for (const double waiting : waiting_s) sum += waiting;
  return waiting_s.empty() || seconds <= 0 ? 0 : sum / static_cast<double>(waiting_s.size()) / seconds;
}

double Raced::worst_waiting_share() const {
  return waiting_s.empty() || seconds <= 0 ? 0
                                           : *std::max_element(waiting_s.begin(), waiting_s.end()) / seconds;
}

Raced race(const Race& race, Disturbance& disturbance, double begin_s, double end_s) {
  return Run(race, disturbance, begin_s, end_s).run();
}

}  // namespace orrery::comparison
