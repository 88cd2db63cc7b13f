#include "sim/interpreter.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sim/activities.h"
#include "sim/asynchronous_pace.h"
#include "sim/network/platform.h"
#include "sim/rank_speeds.h"
#include "sim/transport.h"

namespace orrery::sim {
namespace {

struct RankState {
  int step = 0;
  std::size_t left = 0;       // tasks of this step
  std::uint32_t next = 0;     // single-threaded: instruction to issue
  std::uint32_t stretch = 0;  // of the host's issuing
  double stretch_begin_s = 0;
  std::vector<std::size_t> not_issued;  // tasks of later stretches that wait for nothing else
};

struct CommunicationState {
  int come = 0;
  int delivered = 0;  // eager: arrived, not yet received
  int wanted = 0;     // eager: receivers that wait
};

class Interpreter {
 public:
  Interpreter(const Scenario& scenario, int steps, bool keep_moved) : s_(scenario), steps_(steps) {
    base_.push_back(0);
    for (const RankScript& rank : s_.ranks) base_.push_back(base_.back() + rank.tasks.size());
    const std::size_t tasks = base_.back();
    waits_.resize(tasks);
    blocked_.resize(tasks);
    issued_.resize(tasks);
    communications_left_.resize(tasks);
    rank_of_.resize(tasks);
    ranks_.resize(s_.ranks.size());
    communications_.resize(s_.communications.size());
    for (std::size_t r = 0; r < s_.ranks.size(); ++r)
      std::fill(rank_of_.begin() + static_cast<std::ptrdiff_t>(base_[r]),
                rank_of_.begin() + static_cast<std::ptrdiff_t>(base_[r + 1]), static_cast<int>(r));
    trace_.events.resize(tasks * static_cast<std::size_t>(steps));
    trace_.step_ends_s.assign(static_cast<std::size_t>(steps), 0);
    trace_.rank_step_ends_s.assign(static_cast<std::size_t>(steps), std::vector<double>(s_.ranks.size(), 0));
    if (s_.asynchronous) pace_.emplace(s_, steps);
    transport_.emplace(
        s_, activities_, speeds_, [this](int communication) { arrived(communication); }, keep_moved);
  }

  Trace run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) prepare_step(static_cast<int>(r));
    pump();
    const auto go_on = [this](const std::vector<int>& carried) {
      if (over_ || !failure_.empty()) return;
      guarded([&] {
        activities_.advance(platform_->now_s());
        for (const int move : carried) transport_->end_move(move);
        take_due();
        pump();
      });
    };
    if (platform_) platform_->run([&] { go_on({}); }, go_on);
    if (!failure_.empty()) throw InternalError(failure_);
    check_finished();
    trace_.end_s = now_s();
    trace_.flow_bytes = std::move(transport_->flow_bytes);
    trace_.moved = std::move(transport_->moved);
    trace_.activities += transport_->moves;
    if (pace_) add_pace();
    return std::move(trace_);
  }

 private:
  // Nothing may be thrown through SimGrid.
  template <typename Body>
  void guarded(Body body) {
    try {
      body();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  const RankScript& script(int rank) const { return s_.ranks[static_cast<std::size_t>(rank)]; }
  double now_s() const { return activities_.now_s(); }
  int steps_of(int rank) const { return script(rank).steps > 0 ? script(rank).steps : steps_; }
  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::size_t task_id(const TaskRef& ref) const {
    return base_[static_cast<std::size_t>(ref.rank)] + ref.instruction;
  }
  const Task& task(std::size_t id) const {
    const int rank = rank_of_[id];
    return script(rank).tasks[id - base_[static_cast<std::size_t>(rank)]];
  }
  TimelineEvent& event(std::size_t id) {
    const int rank = rank_of_[id];
    if (state(rank).step >= steps_) return unrecorded_;
    const std::size_t first = base_[static_cast<std::size_t>(rank)];
    const std::size_t count = script(rank).tasks.size();
    return trace_.events[first * static_cast<std::size_t>(steps_) +
                         static_cast<std::size_t>(state(rank).step) * count + (id - first)];
  }

  // ---- time ----

  // Acts on everything that happens now, then lets time pass until SimGrid has to lead.
  void pump() {
    while (true) {
      drain();
      if (over_) return;
      speeds_.refresh([this](int activity, bool computing) { transport_->turn(activity, computing); });
      transport_->set_out();
      if (transport_->has_for_simgrid()) {
        if (!platform_) platform_ = make_platform(s_.flows);
        if (platform_->now_s() < now_s()) {
          platform_->wake_at(now_s());
          return;
        }
        transport_->hand_to(*platform_);
      }
      if (platform_ && platform_->running() > 0) {
        if (activities_.waiting()) platform_->wake_at(activities_.next_s());
        return;
      }
      if (!activities_.waiting()) return;
      activities_.advance(activities_.next_s());
      take_due();
    }
  }

  void take_due() {
    for (int id = 0; !over_ && (id = activities_.take_due()) >= 0;) {
      const Activity& activity = activities_[id];
      switch (activity.kind) {
        case ActivityKind::work:
          end_work(id);
          break;
        case ActivityKind::move:
          transport_->end(id);
          break;
        case ActivityKind::issue:
          ready_.push_back(static_cast<std::size_t>(activity.owner));
          activities_.release(id);
          break;
        case ActivityKind::step_begin:
          begin_step(activity.owner);
          activities_.release(id);
          break;
        case ActivityKind::packets:
          speeds_.take_cores(activity.owner, -1);
          activities_.release(id);
          break;
      }
    }
  }

  // ---- steps ----

  void prepare_step(int rank) {
    const RankScript& r = script(rank);
    const std::size_t first = base_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < r.tasks.size(); ++i) {
      waits_[first + i] = r.tasks[i].waits_for;
      blocked_[first + i] = r.tasks[i].has_predecessor;
      issued_[first + i] = false;
    }
    state(rank).left = r.tasks.size();
    state(rank).next = 0;
    if (s_.step_overhead_s > 0 && r.beside < 0)
      activities_.set_rate(activities_.add(ActivityKind::step_begin, rank, s_.step_overhead_s), 1);
    else
      begin_step(rank);
  }

  void begin_step(int rank) {
    const RankScript& r = script(rank);
    if (r.tasks.empty()) {
      end_step(rank);
      return;
    }
    if (s_.single_threaded) {
      threads_.push_back(rank);
      return;
    }
    state(rank).stretch = 0;
    state(rank).stretch_begin_s = now_s();
    const std::size_t first = base_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < r.tasks.size(); ++i)
      if (waits_[first + i] == 0 && !blocked_[first + i]) ready_.push_back(first + i);
  }

  void end_step(int rank) {
    RankState& r = state(rank);
    const bool service = script(rank).beside >= 0;
    if (r.step < steps_) {
      const auto step = static_cast<std::size_t>(r.step);
      trace_.rank_step_ends_s[step][static_cast<std::size_t>(rank)] = now_s();
      if (!service) trace_.step_ends_s[step] = std::max(trace_.step_ends_s[step], now_s());
    }
    ++r.step;
    if (pace_ && !service) over_ = pace_->end_step(rank, r.step, now_s());
    if (pace_ ? !over_ : r.step < steps_of(rank)) prepare_step(rank);
  }

  // Services' events among those of their ranks; without what was not done when the simulation ended.
  void add_pace() {
    trace_.late_steps = std::move(pace_->late_steps);
    trace_.late_s = std::move(pace_->late_s);
    std::erase_if(trace_.events, [](const TimelineEvent& e) { return e.end_s <= 0; });
    std::sort(trace_.events.begin(), trace_.events.end(), [](const TimelineEvent& a, const TimelineEvent& b) {
      return std::tie(a.rank, a.step, a.instruction) < std::tie(b.rank, b.step, b.instruction);
    });
  }

  // ---- tasks ----

  void drain() {
    while (!over_ && (!ready_.empty() || !threads_.empty())) {
      while (!over_ && !ready_.empty()) {
        const std::size_t id = ready_.front();
        ready_.pop_front();
        if (is_issued(id)) start_task(id);
      }
      if (!over_ && !threads_.empty()) {
        const int rank = threads_.front();
        threads_.pop_front();
        issue(rank);
      }
    }
  }

  const Issue* issue_of(std::size_t id) const {
    const int rank = rank_of_[id];
    const RankScript& s = script(rank);
    return s.issues.empty() ? nullptr : &s.issues[id - base_[static_cast<std::size_t>(rank)]];
  }

  // Else it comes back when the host issues it.
  bool is_issued(std::size_t id) {
    const Issue* issue = issue_of(id);
    if (issue == nullptr || s_.single_threaded) return true;
    RankState& r = state(rank_of_[id]);
    if (issue->stretch < r.stretch) return true;
    if (issue->stretch > r.stretch) {
      r.not_issued.push_back(id);
      return false;
    }
    const double left = r.stretch_begin_s + issue->begin_s - now_s();
    if (left <= 0) return true;
    // Due at the very time that the comparison above asks for.
    const int timer = activities_.add(ActivityKind::issue, static_cast<int>(id), left);
    activities_.end_at(timer, r.stretch_begin_s + issue->begin_s);
    return false;
  }

  void end_stretch(int rank) {
    RankState& r = state(rank);
    ++r.stretch;
    r.stretch_begin_s = now_s();
    ready_.insert(ready_.end(), r.not_issued.begin(), r.not_issued.end());
    r.not_issued.clear();
  }

  // A single-threaded rank goes on as far as it can.
  void issue(int rank) {
    RankState& r = state(rank);
    const std::size_t first = base_[static_cast<std::size_t>(rank)];
    const RankScript& s = script(rank);
    while (!speeds_.works(rank) && r.next < s.tasks.size()) {
      const std::size_t id = first + r.next;
      const bool free = waits_[id] == 0 && !blocked_[id];
      if (s.tasks[r.next].works && !free) return;
      ++r.next;
      issued_[id] = true;
      if (free) start_task(id);
    }
  }

  void start_task(std::size_t id) {
    const int rank = rank_of_[id];
    const Task& t = task(id);
    if (t.lead >= 0 && pace_->must_wait(t, rank, id)) return;
    TimelineEvent& e = event(id);
    e.rank = script(rank).rank;
    e.step = state(rank).step;
    e.instruction = script(rank).first_instruction +
                    static_cast<std::uint32_t>(id - base_[static_cast<std::size_t>(rank)]);
    e.start_s = now_s();
    e.met_s = 0;
    if (t.works)
      start_work(rank, id, t);
    else
      arrive(id, t);
  }

  void start_work(int rank, std::size_t id, const Task& t) {
    double seconds = t.work_s;
    const Issue* issue = issue_of(id);
    if (issue != nullptr && !s_.single_threaded && issue->stretch == state(rank).stretch)
      seconds = std::max(seconds, state(rank).stretch_begin_s + issue->end_s - now_s());
    speeds_.begin_work(rank, activities_.add(ActivityKind::work, static_cast<int>(id), seconds), t.slowed);
  }

  void end_work(int id) {
    const auto task_index = static_cast<std::size_t>(activities_[id].owner);
    const int rank = rank_of_[task_index];
    speeds_.end_work(rank, id);
    activities_.release(id);
    complete(task_index);
  }

  void complete(std::size_t id) {
    event(id).end_s = now_s();
    ++trace_.activities;
    const int rank = rank_of_[id];
    const std::size_t first = base_[static_cast<std::size_t>(rank)];
    const RankScript& s = script(rank);
    const std::size_t i = id - first;
    const std::uint32_t follower = s.tasks[i].stream_next;
    if (follower != kNoTask) {
      blocked_[first + follower] = false;
      unlocked(first + follower);
    }
    for (std::uint32_t k = s.next_begin[i]; k < s.next_begin[i + 1]; ++k) {
      const std::size_t next = first + s.next[k];
      if (--waits_[next] == 0) unlocked(next);
    }
    if (s_.single_threaded) threads_.push_back(rank);
    if (s.tasks[i].pushes >= 0 && s.tasks[i].works) {
      const std::vector<std::size_t> free = pace_->count_push(s.tasks[i], rank);
      ready_.insert(ready_.end(), free.begin(), free.end());
    }
    if (!s.issues.empty() && s.issues[i].waited_for) end_stretch(rank);
    if (--state(rank).left == 0) end_step(rank);
  }

  void unlocked(std::size_t id) {
    if (waits_[id] > 0 || blocked_[id]) return;
    if (!s_.single_threaded || issued_[id]) ready_.push_back(id);
  }

  // ---- communications ----

  void arrive(std::size_t id, const Task& t) {
    communications_left_[id] = static_cast<std::uint32_t>(t.communications.size());
    if (t.communications.empty()) complete(id);
    for (const CommunicationRef& ref : t.communications) {
      const Communication& communication = s_.communications[static_cast<std::size_t>(ref.communication)];
      CommunicationState& m = communications_[static_cast<std::size_t>(ref.communication)];
      if (!communication.eager) {
        if (++m.come < static_cast<int>(communication.tasks.size())) continue;
        m.come = 0;
        for (const TaskRef& come : communication.tasks) event(task_id(come)).met_s = now_s();
        transport_->launch(ref.communication);
      } else if (ref.sends) {
        if (m.wanted > 0) event(task_id(communication.tasks.back())).met_s = now_s();
        transport_->launch(ref.communication);
        leave_communication(id);
      } else if (m.delivered > 0) {
        --m.delivered;
        leave_communication(id);
      } else {
        ++m.wanted;
      }
    }
  }

  void arrived(int index) {
    const Communication& communication = s_.communications[static_cast<std::size_t>(index)];
    CommunicationState& m = communications_[static_cast<std::size_t>(index)];
    if (!communication.eager) {
      for (const TaskRef& ref : communication.tasks) leave_communication(task_id(ref));
    } else if (m.wanted > 0) {
      --m.wanted;
      leave_communication(task_id(communication.tasks.back()));
    } else {
      ++m.delivered;
    }
  }

  void leave_communication(std::size_t id) {
    if (--communications_left_[id] == 0) complete(id);
  }

  // ---- the end ----

  void check_finished() {
    if (over_) return;
    std::string stuck;
    int count = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].step == steps_of(static_cast<int>(r))) continue;
      if (++count > 4) continue;
      const RankScript& s = s_.ranks[r];
      for (std::size_t i = 0; i < s.tasks.size(); ++i) {
        if (event(base_[r] + i).end_s > 0 || waits_[base_[r] + i] > 0 || blocked_[base_[r] + i]) continue;
        stuck += (stuck.empty() ? "" : "; ") + std::string("rank ") + std::to_string(s.rank) +
                 " at instruction " + std::to_string(i) + " (" + label_of(*s.program, i) + ")";
        break;
      }
    }
    if (count > 0)
      throw InternalError("the simulation stalled: " + std::to_string(count) + " of " +
                          std::to_string(ranks_.size()) + " ranks did not finish: " + stuck);
  }

  const Scenario& s_;
  int steps_;
  Activities activities_;
  RankSpeeds speeds_{s_, activities_};
  std::optional<AsynchronousPace> pace_;
  bool over_ = false;  // asynchronous ranks have been seen long enough
  TimelineEvent unrecorded_;
  Trace trace_;
  std::string failure_;
  std::unique_ptr<Platform> platform_;  // once two payloads want a link at once
  std::optional<Transport> transport_;
  std::vector<std::size_t> base_;  // first task of each rank
  std::vector<int> rank_of_;       // by task
  std::vector<std::uint32_t> waits_;
  std::vector<char> blocked_;  // by the predecessor on the stream
  std::vector<char> issued_;
  std::vector<std::uint32_t> communications_left_;
  std::vector<RankState> ranks_;
  std::vector<CommunicationState> communications_;
  std::deque<std::size_t> ready_;
  std::deque<int> threads_;
};

}  // namespace

bool shares_links(const Scenario& scenario) {
  return !scenario.flows.constraints().empty();
}

Trace interpret(const Scenario& scenario, int steps, bool keep_moved) {
  ORRERY_CHECK(steps >= 1, "no step to simulate");
  return Interpreter(scenario, steps, keep_moved).run();
}

}  // namespace orrery::sim
