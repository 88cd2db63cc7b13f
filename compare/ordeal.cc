#include "compare/ordeal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/format.h"

namespace orrery::comparison {
namespace {

constexpr double kEventHorizon_s = 3600;
constexpr double kRacedSteps = 400;  // of a stretch that is longer the rest goes on at their mean rate
constexpr double kRacedTurns = 20;

struct Event {
  double when_s = 0;
  bool back = false;  // those of `ids` are replaced
  const Trouble* trouble = nullptr;
  std::vector<int> ids;
};

const Answer& answer_of(const Strategy& strategy, Role role) {
  return role == Role::worker ? strategy.worker : role == Role::chief ? strategy.chief : strategy.server;
}

// Who goes with rank `rank`: its whole node, where there are several and the others form a new group.
std::vector<int> gone_with(int rank, int workers, int of_node, bool whole_node) {
  if (!whole_node || of_node >= workers) return {rank};
  std::vector<int> gone(static_cast<std::size_t>(of_node));
  std::iota(gone.begin(), gone.end(), rank / of_node * of_node);
  return gone;
}

class Course {
 public:
  Course(const Strategy& strategy, const Field& field, const std::vector<Trouble>& troubles,
         const OrdealOptions& options)
      : strategy_(strategy), field_(field), options_(options), disturbance_(troubles, options.seed) {
    result_.horizon_s = horizon_of(options, troubles, field.step_s);
    ids_.resize(field.compute_s.size());
    std::iota(ids_.begin(), ids_.end(), 0);
    for (const Trouble& trouble : troubles) {
      if (trouble.is_event()) events_.push_back({trouble.when_s, false, &trouble, {}});
      raced_s_ = std::max(raced_s_, kRacedTurns * (trouble.on_s + trouble.off_s));
    }
    raced_s_ = std::max(raced_s_, std::max(kRacedSteps, 4.0 * strategy.mechanics.local_steps) * field.step_s);
  }

  Ordeal run() {
    while (!events_.empty()) {
      const auto next = std::min_element(events_.begin(), events_.end(),
                                         [](const Event& a, const Event& b) { return a.when_s < b.when_s; });
      const Event event = *next;
      events_.erase(next);
      if (event.when_s >= result_.horizon_s) continue;
      train_until(event.when_s);
      apply(event);
    }
    train_until(result_.horizon_s);
    result_.workers = static_cast<int>(ids_.size());
    if (trained_s_ > 0) {
      result_.mean_waiting /= trained_s_;
      result_.worst_waiting /= trained_s_;
    }
    return result_;
  }

 private:
  void train_until(double end_s) {
    // What is trained up to the last checkpoint before the end is safe.
    const double every = options_.checkpoint_every_s;
    const double saved_s = every > 0 ? std::floor(end_s / every) * every : end_s;
    if (saved_s > now_) {
      train(saved_s);
      unsaved_ = 0;
    }
    train(end_s);
  }

  void train(double end_s) {
    if (end_s <= now_) return;
    Race race;
    race.rendezvous = strategy_.rendezvous;
    race.backups = std::max(0, strategy_.mechanics.backups - missing_);
    race.staleness = strategy_.mechanics.staleness;
    race.local_steps = strategy_.mechanics.local_steps;
    race.dispatch_s = strategy_.mechanics.dispatch_s;
    race.ids = ids_;
    for (const int id : ids_) race.compute_s.push_back(compute_s(id));
    const Field::Exchange exchange = field_.exchange(static_cast<int>(ids_.size()));
    race.exchange_s = exchange.quiet_s;
    race.busy_exchange_s = exchange.busy_s;
    race.average_s = exchange.average_s;
    const double seconds = end_s - now_;
    const double raced_s = std::min(seconds, raced_s_);
    const Raced raced = comparison::race(race, disturbance_, now_, now_ + raced_s);
    const double times = seconds / raced_s;
    const double samples = raced.worker_steps * times * field_.samples_each;
    result_.samples += samples;
    unsaved_ += samples;
    rate_ = samples / seconds;
    result_.dropped += raced.dropped * times;
    result_.mean_waiting += raced.mean_waiting_share() * seconds;
    result_.worst_waiting += raced.worst_waiting_share() * seconds;
    trained_s_ += seconds;
    stretch_s_ = now_;
    now_ = end_s;
  }

  double compute_s(int id) const {
    return id < static_cast<int>(field_.compute_s.size()) ? field_.compute_s[static_cast<std::size_t>(id)]
                                                          : field_.healthy_s;
  }

  void lose(double samples) {
    samples = std::min(samples, result_.samples);
    result_.samples -= samples;
    result_.lost_samples += samples;
    unsaved_ = std::max(0.0, unsaved_ - samples);
  }

  void stand_until(double until_s) {
    const double end_s = std::min(until_s, result_.horizon_s);
    if (end_s > now_) result_.stood_s += end_s - now_;
    now_ = std::max(now_, end_s);
  }

  void say(double when_s, const std::string& what) {
    result_.story.push_back(fmt::format("{}: {}", human_seconds(when_s), what));
  }

  void remove(const std::vector<int>& gone) {
    for (const int id : gone) ids_.erase(std::remove(ids_.begin(), ids_.end(), id), ids_.end());
  }

  // Since the last commit: of steps since this stretch began.
  double uncommitted() const {
    const int every = strategy_.mechanics.commit_steps;
    if (every == 0) return unsaved_;
    const double steps = field_.step_s > 0 ? (now_ - stretch_s_) / field_.step_s : 0;
    return std::fmod(steps, every) * field_.step_s * rate_;
  }

  void apply(const Event& event) {
    // What happens while all stand is met when they go on.
    const double when_s = std::max(event.when_s, now_);
    if (event.back)
      come_back(event, when_s);
    else if (event.trouble->kind == TroubleKind::dies)
      die(*event.trouble, when_s);
    else if (event.trouble->kind == TroubleKind::leaves)
      leave(*event.trouble, when_s);
    else
      join(*event.trouble, when_s);
  }

  void die(const Trouble& trouble, double when_s) {
    const Answer& answer = answer_of(strategy_, trouble.role);
    const std::string who = trouble.role == Role::chief
                                ? std::string("the chief dies")
                                : fmt::format("{} {} dies", name_of(trouble.role), trouble.at);
    if (answer.reaction == Reaction::absent) return say(when_s, who + ": this strategy has none");
    const int rank = trouble.role == Role::worker ? trouble.at : 0;
    if (trouble.role == Role::worker && std::find(ids_.begin(), ids_.end(), rank) == ids_.end())
      return say(when_s, who + ": it was gone already");
    const double back_s = when_s + std::max(answer.notice_s, options_.replace_s) + options_.restart_s;
    const double was = result_.lost_samples;
    // Of the actor, where the others go on without it; of all, where they start again together.
    const bool again =
        trouble.role != Role::worker || may_restart(answer.reaction == Reaction::go_on ? rank : kTogether);
    if (!again && answer.reaction != Reaction::go_on) {
      lose(unsaved_);
      stand_until(result_.horizon_s);
      return say(
          when_s,
          fmt::format("{}: noticed after {}; the run ends, for it may not start again; {:.0f} samples lost",
                      who, human_seconds(answer.notice_s), result_.lost_samples - was));
    }
    switch (answer.reaction) {
      case Reaction::restart:
        lose(unsaved_);
        stand_until(back_s);
        break;
      case Reaction::wait:
        stand_until(back_s);
        break;
      case Reaction::go_on:
        if (strategy_.rendezvous == Rendezvous::first && ++missing_ > strategy_.mechanics.backups) {
          stand_until(back_s);  // as many gradients as the servers want never come
          --missing_;
          break;
        }
        remove({rank});
        if (ids_.empty()) stand_until(again ? back_s : result_.horizon_s);
        // Until it is known to be dead it is only slow: they go as far ahead of it as they may.
        if (strategy_.rendezvous == Rendezvous::bounded && !ids_.empty()) {
          const double ahead_s = std::min(answer.notice_s, strategy_.mechanics.staleness * field_.step_s);
          train_until(std::min(when_s + ahead_s, result_.horizon_s));
          stand_until(when_s + answer.notice_s);
        }
        if (again) events_.push_back({back_s, true, &trouble, {rank}});
        break;
      case Reaction::shrink: {
        const std::vector<int> gone =
            gone_with(rank, static_cast<int>(field_.compute_s.size()), field_.of_node, true);
        lose(uncommitted());
        remove(gone);
        if (ids_.empty()) {
          stand_until(back_s);
          ids_ = gone;
          break;
        }
        stand_until(when_s + answer.notice_s + options_.restart_s);
        events_.push_back({when_s + std::max(answer.notice_s, options_.replace_s), true, &trouble, gone});
        break;
      }
      case Reaction::absent:
        break;
    }
    say(when_s, fmt::format("{}: {}; noticed after {}; {} {:.0f} samples lost", who, answer.why,
                            human_seconds(answer.notice_s),
                            now_ > when_s ? fmt::format("stands for {},", human_seconds(now_ - when_s))
                                          : fmt::format("{} workers go on,", ids_.size()),
                            result_.lost_samples - was) +
                    (again ? "" : "; it is not started again"));
  }

  bool may_restart(int who) {
    const int most = strategy_.mechanics.most_restarts;
    return most < 0 || restarts_[who]++ < most;
  }

  void come_back(const Event& event, double when_s) {
    for (const int id : event.ids) ids_.push_back(id);
    std::sort(ids_.begin(), ids_.end());
    if (strategy_.rendezvous == Rendezvous::first) --missing_;
    if (strategy_.worker.reaction == Reaction::shrink) meet_again(when_s);
    say(when_s, fmt::format("replaced: {} workers", ids_.size()));
  }

  // A group of another size: what is not committed is done again only where the software restarts its
  // workers from a checkpoint; a change that is announced waits for the commit.
  void meet_again(double when_s) {
    if (strategy_.mechanics.commit_steps == 0) lose(unsaved_);
    stand_until(when_s + options_.restart_s);
  }

  void leave(const Trouble& trouble, double when_s) {
    const int left = static_cast<int>(ids_.size()) - trouble.devices;
    if (left < 1) return say(when_s, "nobody would be left: nobody leaves");
    ids_.resize(static_cast<std::size_t>(left));
    change(fmt::format("{} leave", trouble.devices), when_s);
  }

  void join(const Trouble& trouble, double when_s) {
    if (!strategy_.elastic)
      return say(when_s,
                 fmt::format("{} join: they stay idle until the job is started anew", trouble.devices));
    int id = std::max(static_cast<int>(field_.compute_s.size()), ids_.empty() ? 0 : ids_.back() + 1);
    for (int i = 0; i < trouble.devices; ++i) ids_.push_back(id++);
    change(fmt::format("{} join", trouble.devices), when_s);
  }

  void change(const std::string& what, double when_s) {
    const double was = result_.lost_samples;
    if (!strategy_.elastic) {
      lose(unsaved_);
      stand_until(when_s + options_.restart_s);
    } else if (strategy_.worker.reaction == Reaction::shrink) {
      meet_again(when_s);
    }
    say(when_s,
        fmt::format(
            "{}: {}, {} {:.0f} samples lost", what, counted(static_cast<std::int64_t>(ids_.size()), "worker"),
            now_ > when_s ? fmt::format("after {} of standing,", human_seconds(now_ - when_s)) : "at once,",
            result_.lost_samples - was));
  }

  const Strategy& strategy_;
  const Field& field_;
  const OrdealOptions& options_;
  Disturbance disturbance_;
  std::vector<Event> events_;
  std::vector<int> ids_;
  int missing_ = 0;  // Rendezvous::first: workers that are gone
  static constexpr int kTogether = -1;
  std::map<int, int> restarts_;  // by worker; kTogether: of all
  double now_ = 0, stretch_s_ = 0, trained_s_ = 0, raced_s_ = 0;
  double unsaved_ = 0, rate_ = 0;
  Ordeal result_;
};

}  // namespace

double horizon_of(const OrdealOptions& options, const std::vector<Trouble>& troubles, double step_s) {
  if (options.horizon_s > 0) return options.horizon_s;
  double last_s = 0;
  bool events = false;
  bool turns = false;
  for (const Trouble& trouble : troubles) {
    events = events || trouble.is_event();
    turns = turns || trouble.on_s > 0;
    last_s = std::max(last_s, trouble.when_s);
  }
  if (events || turns) return std::max(kEventHorizon_s, 2 * last_s);
  return kRacedSteps * step_s;
}

std::vector<int> sizes_of(const Strategy& strategy, const std::vector<Trouble>& troubles, int workers,
                          int of_node) {
  std::set<int> sizes;
  int now = workers;
  int dead = 0;
  const bool by_node = strategy.worker.reaction == Reaction::shrink;
  for (const Trouble& trouble : troubles) {
    // Who waits for nobody queues at the servers with fewer.
    if (trouble.kind == TroubleKind::dies && answer_of(strategy, trouble.role).reaction == Reaction::go_on)
      sizes.insert(now - ++dead);
    if (trouble.kind == TroubleKind::dies && by_node && trouble.role != Role::server)
      sizes.insert(now - static_cast<int>(gone_with(0, workers, of_node, true).size()));
    if (trouble.kind == TroubleKind::leaves) sizes.insert(now -= trouble.devices);
    if (trouble.kind == TroubleKind::joins && strategy.elastic) sizes.insert(now += trouble.devices);
  }
  sizes.erase(workers);
  std::vector<int> some;
  for (const int size : sizes)
    if (size > 0) some.push_back(size);
  return some;
}

Ordeal ordeal_of(const Strategy& strategy, const Field& field, const std::vector<Trouble>& troubles,
                 const OrdealOptions& options) {
  return Course(strategy, field, troubles, options).run();
}

}  // namespace orrery::comparison
