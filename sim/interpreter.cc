#include "sim/interpreter.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "sim/bytes.h"
#include "sim/platform.h"

namespace orrery::sim {
namespace {

enum class ActivityKind : std::uint8_t { work, move, issue, step_begin, packets };

// Something that takes time: work of a task, a payload on its way, a rank's overhead before a step.
// Where a shared payload is: in its latency, about to go to SimGrid, there, or held back with its latency
// over.
enum class Carriage : std::uint8_t { latency, queued, moving, parked };

struct Activity {
  ActivityKind kind = ActivityKind::work;
  bool shared = false;  // a payload that SimGrid carries after its latency
  Carriage carriage = Carriage::latency;
  int owner = 0;     // work, issue: task; move: meeting; step_begin: rank; packets: index of what they take
  int message = -1;  // of the meeting's graph
  int blockers = 0;  // ranks that compute and so hold the payload up
  std::uint32_t generation = 0;
  double remaining_s = 0;  // at rate 1
  double bytes_left = -1;  // of a payload that SimGrid carried in part; negative: all
  double rate = 0;
  double since_s = 0;
};

struct Due {
  double time_s = 0;
  int activity = 0;
  std::uint32_t generation = 0;
  bool operator>(const Due& other) const {
    return time_s != other.time_s ? time_s > other.time_s : activity > other.activity;
  }
};

struct RankState {
  int step = 0;
  std::size_t left = 0;       // tasks of this step
  std::uint32_t next = 0;     // single-threaded: instruction to issue
  bool computing = false;     // as last told to the payloads
  int overlapping = 0;        // collectives under way
  std::uint32_t stretch = 0;  // of the host's issuing
  double stretch_begin_s = 0;
  std::vector<std::size_t> not_issued;  // tasks of later stretches that wait for nothing else
  std::vector<int> works;               // activities
  std::vector<int> moves;               // payloads that this rank's thread copies
  std::deque<int> serving;              // activities: pushes that it applies, the first at work
  int copying = 0;                      // pushes that its thread copies
  int marked_step = 0;                  // the late steps begin after so many, and when
  double marked_s = 0;
};

// Pushes of the same parameters at a server, by rank that pushes, and who waits for the slowest.
struct PushCounter {
  std::vector<int> applied;
  std::vector<std::size_t> waiting;  // tasks
};

struct MeetingState {
  int come = 0;
  int delivered = 0;  // eager: arrived, not yet received
  int wanted = 0;     // eager: receivers that wait
  int messages_left = 0;
  std::vector<int> message_waits;
};

// Of a node's cores, by packets: what computes is not starved.
constexpr double kMostTaken = 0.9;

class Interpreter {
 public:
  Interpreter(const Scenario& scenario, int steps) : s_(scenario), steps_(steps) {
    base_.push_back(0);
    for (const RankScript& rank : s_.ranks) base_.push_back(base_.back() + rank.tasks.size());
    const std::size_t tasks = base_.back();
    waits_.resize(tasks);
    blocked_.resize(tasks);
    issued_.resize(tasks);
    meetings_left_.resize(tasks);
    rank_of_.resize(tasks);
    ranks_.resize(s_.ranks.size());
    meetings_.resize(s_.meetings.size());
    lines_.resize(static_cast<std::size_t>(s_.lines));
    node_ranks_.resize(s_.nodes.size());
    node_dirty_.assign(s_.nodes.size(), false);
    taken_.assign(s_.nodes.size(), 0);
    rank_dirty_.assign(s_.ranks.size(), false);
    for (std::size_t r = 0; r < s_.ranks.size(); ++r) {
      std::fill(rank_of_.begin() + static_cast<std::ptrdiff_t>(base_[r]),
                rank_of_.begin() + static_cast<std::ptrdiff_t>(base_[r + 1]), static_cast<int>(r));
      if (s_.ranks[r].beside < 0)
        node_ranks_[static_cast<std::size_t>(s_.ranks[r].node)].push_back(static_cast<int>(r));
    }
    trace_.events.resize(tasks * static_cast<std::size_t>(steps));
    trace_.step_ends_s.assign(static_cast<std::size_t>(steps), 0);
    trace_.rank_step_ends_s.assign(static_cast<std::size_t>(steps), std::vector<double>(s_.ranks.size(), 0));
    trace_.flow_bytes.assign(s_.flows.flows().size(), 0);
    if (s_.asynchronous) prepare_services();
    if (!s_.flows.constraints().empty()) platform_ = std::make_unique<Platform>(s_.flows);
  }

  Trace run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) prepare_step(static_cast<int>(r));
    pump();
    if (platform_)
      platform_->run(
          [this] {
            if (over_ || !failure_.empty()) return;
            guarded([this] {
              now_ = std::max(now_, platform_->now_s());
              take_due();
              pump();
            });
          },
          [this](const std::vector<int>& tokens) {
            if (over_ || !failure_.empty()) return;
            guarded([&] {
              now_ = std::max(now_, platform_->now_s());
              for (const int token : tokens) end_move(token);
              take_due();
              pump();
            });
          });
    if (!failure_.empty()) throw InternalError(failure_);
    check_finished();
    trace_.end_s = now_;
    if (s_.asynchronous) tidy_events();
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
      refresh();
      if (!to_simgrid_.empty()) {
        if (platform_->now_s() < now_) {
          platform_->wake_at(now_);
          return;
        }
        hand_to_simgrid();
      }
      if (platform_ && platform_->running() > 0) {
        if (!due_.empty()) platform_->wake_at(due_.top().time_s);
        return;
      }
      if (due_.empty()) return;
      now_ = due_.top().time_s;
      take_due();
    }
  }

  void take_due() {
    while (!over_ && !due_.empty() && due_.top().time_s <= now_) {
      const Due due = due_.top();
      due_.pop();
      Activity& activity = activities_[static_cast<std::size_t>(due.activity)];
      if (activity.generation != due.generation) continue;
      activity.remaining_s = 0;
      ++activity.generation;
      switch (activity.kind) {
        case ActivityKind::work:
          end_work(due.activity);
          break;
        case ActivityKind::move:
          if (activity.shared)
            queue_for_simgrid(due.activity);
          else
            end_move(due.activity);
          break;
        case ActivityKind::issue:
          ready_.push_back(static_cast<std::size_t>(activity.owner));
          release(due.activity);
          break;
        case ActivityKind::step_begin:
          begin_step(activity.owner);
          release(due.activity);
          break;
        case ActivityKind::packets:
          take_cores(activity.owner, -1);
          release(due.activity);
          break;
      }
    }
  }

  int new_activity(ActivityKind kind, int owner, double seconds) {
    int id = 0;
    if (free_.empty()) {
      id = static_cast<int>(activities_.size());
      activities_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    Activity& activity = activities_[static_cast<std::size_t>(id)];
    const std::uint32_t generation = activity.generation;
    activity = Activity{};
    activity.generation = generation;
    activity.kind = kind;
    activity.owner = owner;
    activity.remaining_s = seconds;
    activity.since_s = now_;
    return id;
  }

  void release(int id) { free_.push_back(id); }

  void set_rate(int id, double rate) {
    Activity& activity = activities_[static_cast<std::size_t>(id)];
    if (activity.rate == rate) return;
    activity.remaining_s = std::max(0.0, activity.remaining_s - activity.rate * (now_ - activity.since_s));
    activity.rate = rate;
    activity.since_s = now_;
    ++activity.generation;
    if (rate > 0) due_.push({now_ + activity.remaining_s / rate, id, activity.generation});
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
      set_rate(new_activity(ActivityKind::step_begin, rank, s_.step_overhead_s), 1);
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
    state(rank).stretch_begin_s = now_;
    const std::size_t first = base_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < r.tasks.size(); ++i)
      if (waits_[first + i] == 0 && !blocked_[first + i]) ready_.push_back(first + i);
  }

  void end_step(int rank) {
    RankState& r = state(rank);
    if (s_.asynchronous) {
      end_asynchronous_step(rank);
      return;
    }
    const auto step = static_cast<std::size_t>(r.step);
    trace_.rank_step_ends_s[step][static_cast<std::size_t>(rank)] = now_;
    trace_.step_ends_s[step] = std::max(trace_.step_ends_s[step], now_);
    ++r.step;
    if (r.step < steps_of(rank)) prepare_step(rank);
  }

  // ---- asynchronous servers ----

  void prepare_services() {
    int ranks = 0;
    for (const RankScript& rank : s_.ranks) ranks = std::max(ranks, rank.worker + 1);
    counters_.resize(static_cast<std::size_t>(s_.push_counters));
    for (PushCounter& counter : counters_) counter.applied.assign(static_cast<std::size_t>(ranks), 0);
    trace_.late_steps.assign(s_.ranks.size(), 0);
    trace_.late_s.assign(s_.ranks.size(), 0);
  }

  // All go on until the slowest has done its steps, or the fastest has done far more.
  void end_asynchronous_step(int rank) {
    constexpr int kMostTimesSlower = 32;
    RankState& r = state(rank);
    if (r.step < steps_) {
      const auto step = static_cast<std::size_t>(r.step);
      trace_.rank_step_ends_s[step][static_cast<std::size_t>(rank)] = now_;
      if (script(rank).beside < 0) trace_.step_ends_s[step] = std::max(trace_.step_ends_s[step], now_);
    }
    ++r.step;
    if (script(rank).beside < 0) {
      const auto ranks = s_.ranks.size() - s_.services.size();
      if (r.step == steps_ / 2) ++ranks_half_done_;
      late_ = late_ || ranks_half_done_ == ranks || r.step >= kMostTimesSlower * steps_ / 2;
      if (r.step == steps_) ++ranks_done_;
      if (late_ && r.marked_step == 0) {
        r.marked_step = r.step;
        r.marked_s = now_;
      } else if (r.marked_step > 0) {
        trace_.late_steps[static_cast<std::size_t>(rank)] = r.step - r.marked_step;
        trace_.late_s[static_cast<std::size_t>(rank)] = now_ - r.marked_s;
      }
      over_ = ranks_done_ == ranks || r.step >= kMostTimesSlower * steps_;
    }
    if (!over_) prepare_step(rank);
  }

  int slowest(const PushCounter& counter) const {
    int least = std::numeric_limits<int>::max();
    for (std::size_t r = 0; r < s_.ranks.size(); ++r)
      if (s_.ranks[r].beside < 0)
        least = std::min(least, counter.applied[static_cast<std::size_t>(s_.ranks[r].worker)]);
    return least;
  }

  // Whether who asks for parameters is too far ahead; then it comes back when the slowest has pushed.
  bool too_far_ahead(std::size_t id, const Task& t) {
    const int rank = rank_of_[id];
    PushCounter& counter = counters_[static_cast<std::size_t>(t.pushes)];
    const int ahead = counter.applied[static_cast<std::size_t>(script(rank).worker)] - slowest(counter);
    if (ahead > t.lead) {
      counter.waiting.push_back(id);
      return true;
    }
    return false;
  }

  void count_push(std::size_t id, const Task& t) {
    PushCounter& counter = counters_[static_cast<std::size_t>(t.pushes)];
    ++counter.applied[static_cast<std::size_t>(script(rank_of_[id]).worker)];
    ready_.insert(ready_.end(), counter.waiting.begin(), counter.waiting.end());
    counter.waiting.clear();
  }

  // Services' events among those of their ranks; without what was not done when the simulation ended.
  void tidy_events() {
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
    const double left = r.stretch_begin_s + issue->begin_s - now_;
    if (left <= 0) return true;
    // Due at the very time that the comparison above asks for.
    const int timer = new_activity(ActivityKind::issue, static_cast<int>(id), left);
    Activity& activity = activities_[static_cast<std::size_t>(timer)];
    activity.rate = 1;
    ++activity.generation;
    due_.push({r.stretch_begin_s + issue->begin_s, timer, activity.generation});
    return false;
  }

  void end_stretch(int rank) {
    RankState& r = state(rank);
    ++r.stretch;
    r.stretch_begin_s = now_;
    ready_.insert(ready_.end(), r.not_issued.begin(), r.not_issued.end());
    r.not_issued.clear();
  }

  // A single-threaded rank goes on as far as it can.
  void issue(int rank) {
    RankState& r = state(rank);
    const std::size_t first = base_[static_cast<std::size_t>(rank)];
    const RankScript& s = script(rank);
    while (r.works.empty() && r.next < s.tasks.size()) {
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
    if (t.lead >= 0 && too_far_ahead(id, t)) return;
    TimelineEvent& e = event(id);
    e.rank = script(rank).rank;
    e.step = state(rank).step;
    e.instruction = script(rank).first_instruction +
                    static_cast<std::uint32_t>(id - base_[static_cast<std::size_t>(rank)]);
    e.start_s = now_;
    if (t.works)
      start_work(rank, id, t);
    else
      arrive(id, t);
  }

  void start_work(int rank, std::size_t id, const Task& t) {
    double seconds = t.work_s;
    const Issue* issue = issue_of(id);
    if (issue != nullptr && !s_.single_threaded && issue->stretch == state(rank).stretch)
      seconds = std::max(seconds, state(rank).stretch_begin_s + issue->end_s - now_);
    const int activity = new_activity(ActivityKind::work, static_cast<int>(id), seconds);
    state(rank).works.push_back(activity);
    if (script(rank).beside >= 0) state(script(rank).beside).serving.push_back(activity);
    if (speed_varies(rank))
      touch(rank);
    else
      set_rate(activity, 1);
  }

  void end_work(int id) {
    const auto task_index = static_cast<std::size_t>(activities_[static_cast<std::size_t>(id)].owner);
    const int rank = rank_of_[task_index];
    std::vector<int>& works = state(rank).works;
    works.erase(std::find(works.begin(), works.end(), id));
    if (script(rank).beside >= 0) state(script(rank).beside).serving.pop_front();
    if (speed_varies(rank)) touch(rank);
    release(id);
    complete(task_index);
  }

  void complete(std::size_t id) {
    event(id).end_s = now_;
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
    if (s.tasks[i].pushes >= 0 && s.tasks[i].works) count_push(id, s.tasks[i]);
    if (!s.issues.empty() && s.issues[i].waited_for) end_stretch(rank);
    if (--state(rank).left == 0) end_step(rank);
  }

  void unlocked(std::size_t id) {
    if (waits_[id] > 0 || blocked_[id]) return;
    if (!s_.single_threaded || issued_[id]) ready_.push_back(id);
  }

  // ---- meetings ----

  void arrive(std::size_t id, const Task& t) {
    meetings_left_[id] = static_cast<std::uint32_t>(t.meetings.size());
    if (t.meetings.empty()) complete(id);
    for (const MeetingRef& ref : t.meetings) {
      const Meeting& meeting = s_.meetings[static_cast<std::size_t>(ref.meeting)];
      MeetingState& m = meetings_[static_cast<std::size_t>(ref.meeting)];
      if (!meeting.eager) {
        if (++m.come < static_cast<int>(meeting.tasks.size())) continue;
        m.come = 0;
        launch(ref.meeting);
      } else if (ref.sends) {
        launch(ref.meeting);
        left_meeting(id);
      } else if (m.delivered > 0) {
        --m.delivered;
        left_meeting(id);
      } else {
        ++m.wanted;
      }
    }
  }

  void launch(int index) {
    const Meeting& meeting = s_.meetings[static_cast<std::size_t>(index)];
    if (meeting.collective) overlap(meeting, +1);
    if (meeting.line >= 0) {
      std::deque<int>& line = lines_[static_cast<std::size_t>(meeting.line)];
      line.push_back(index);
      if (line.size() > 1) return;
    }
    if (meeting.messages < 0) {
      start_move(index, -1, meeting.payload);
      return;
    }
    const std::vector<Message>& graph = s_.message_graphs[static_cast<std::size_t>(meeting.messages)];
    MeetingState& m = meetings_[static_cast<std::size_t>(index)];
    m.messages_left = static_cast<int>(graph.size());
    m.message_waits.clear();
    for (const Message& message : graph) m.message_waits.push_back(message.waits_for);
    for (std::size_t i = 0; i < graph.size(); ++i)
      if (graph[i].waits_for == 0) start_move(index, static_cast<int>(i), graph[i].payload);
  }

  const Payload& payload_of(const Activity& activity) const {
    const Meeting& meeting = s_.meetings[static_cast<std::size_t>(activity.owner)];
    if (activity.message < 0) return meeting.payload;
    return s_
        .message_graphs[static_cast<std::size_t>(meeting.messages)]
                       [static_cast<std::size_t>(activity.message)]
        .payload;
  }

  void start_move(int index, int message, const Payload& payload) {
    double seconds = payload.latency_s;
    bool shared = false;
    if (payload.flow >= 0) {
      trace_.flow_bytes[static_cast<std::size_t>(payload.flow)] += payload.bytes;
      shared = !s_.flows.constraints_of(payload.flow).empty();
      if (!shared) seconds += payload.bytes / s_.flows.lone_rate(payload.flow);
      if (payload.packets >= 0) handle_packets(payload);
    }
    const int id = new_activity(ActivityKind::move, index, seconds);
    Activity& activity = activities_[static_cast<std::size_t>(id)];
    activity.message = message;
    activity.shared = shared;
    const Meeting& meeting = s_.meetings[static_cast<std::size_t>(index)];
    if (meeting.by_hand && !meeting.eager) {
      for_each_copier(meeting, [&](int rank) {
        state(rank).moves.push_back(id);
        if (state(rank).computing) ++activity.blockers;
        copy_beside(rank, +1);
      });
    }
    if (activity.blockers == 0) set_rate(id, 1);
  }

  // They are as much work however long they are under way: it is done at the rate of a payload alone.
  void handle_packets(const Payload& payload) {
    const Flow& flow = s_.flows.flows()[static_cast<std::size_t>(payload.flow)];
    take_cores(payload.packets, +1);
    set_rate(new_activity(ActivityKind::packets, payload.packets, payload.bytes / flow.bound_bytes_per_s), 1);
  }

  void take_cores(int packets, int sign) {
    for (const TakenCores& taken : s_.packets[static_cast<std::size_t>(packets)]) {
      const auto node = static_cast<std::size_t>(taken.node);
      if (s_.nodes[node].cores == 0) continue;
      taken_[node] += sign * taken.cores;
      if (!node_dirty_[node]) dirty_nodes_.push_back(taken.node);
      node_dirty_[node] = true;
    }
  }

  void end_move(int id) {
    const Activity activity = activities_[static_cast<std::size_t>(id)];
    const Meeting& meeting = s_.meetings[static_cast<std::size_t>(activity.owner)];
    if (meeting.by_hand && !meeting.eager)
      for_each_copier(meeting, [&](int rank) {
        std::vector<int>& moves = state(rank).moves;
        moves.erase(std::find(moves.begin(), moves.end(), id));
        copy_beside(rank, -1);
      });
    ++activities_[static_cast<std::size_t>(id)].generation;
    release(id);
    ++trace_.activities;
    if (activity.message < 0) {
      end_meeting(activity.owner);
      return;
    }
    MeetingState& m = meetings_[static_cast<std::size_t>(activity.owner)];
    const std::vector<Message>& graph = s_.message_graphs[static_cast<std::size_t>(meeting.messages)];
    for (const int next : graph[static_cast<std::size_t>(activity.message)].next)
      if (--m.message_waits[static_cast<std::size_t>(next)] == 0)
        start_move(activity.owner, next, graph[static_cast<std::size_t>(next)].payload);
    if (--m.messages_left == 0) end_meeting(activity.owner);
  }

  void end_meeting(int index) {
    const Meeting& meeting = s_.meetings[static_cast<std::size_t>(index)];
    MeetingState& m = meetings_[static_cast<std::size_t>(index)];
    if (meeting.collective) overlap(meeting, -1);
    if (meeting.line >= 0) {
      std::deque<int>& line = lines_[static_cast<std::size_t>(meeting.line)];
      line.pop_front();
      if (!line.empty()) {
        Payload next = s_.meetings[static_cast<std::size_t>(line.front())].payload;
        next.latency_s = 0;  // it has passed beside the one before
        start_move(line.front(), -1, next);
      }
    }
    if (!meeting.eager) {
      for (const TaskRef& ref : meeting.tasks) left_meeting(task_id(ref));
    } else if (m.wanted > 0) {
      --m.wanted;
      left_meeting(task_id(meeting.tasks.back()));
    } else {
      ++m.delivered;
    }
  }

  void left_meeting(std::size_t id) {
    if (--meetings_left_[id] == 0) complete(id);
  }

  template <typename Visit>
  void for_each_rank(const Meeting& meeting, Visit visit) {
    int last = -1;
    for (const TaskRef& ref : meeting.tasks)
      if (ref.rank != last) visit(last = ref.rank);
  }

  // Whose threads carry a payload inside a node: all members of a collective; of a transfer the receiver
  // alone, who copies from the sender's memory (cross memory attach, in Open MPI's vader as in MPICH: with
  // the sender asleep a 4 MiB message arrived in 0.7 ms).
  template <typename Visit>
  void for_each_copier(const Meeting& meeting, Visit visit) {
    if (meeting.collective) {
      for_each_rank(meeting, visit);
      return;
    }
    const TaskRef& last = meeting.tasks.back();
    for (const MeetingRef& ref : task(task_id(last)).meetings)
      if (&s_.meetings[static_cast<std::size_t>(ref.meeting)] == &meeting && !ref.sends) visit(last.rank);
  }

  // A server's thread copies what is pushed between the operators of its rank.
  void copy_beside(int rank, int change) {
    const int host = script(rank).beside;
    if (host < 0) return;
    state(host).copying += change;
    touch(host);
  }

  // ---- speeds ----

  bool speed_varies(int rank) const {
    const RankScript& r = script(rank);
    const NodeCores& node = s_.nodes[static_cast<std::size_t>(r.node)];
    return s_.asynchronous || s_.single_threaded || r.overlap_slowdown > 0 || node.cores > 0 ||
           !node.keep.empty();
  }

  void touch(int rank) {
    if (script(rank).beside >= 0) rank = script(rank).beside;
    if (!rank_dirty_[static_cast<std::size_t>(rank)]) {
      rank_dirty_[static_cast<std::size_t>(rank)] = true;
      dirty_ranks_.push_back(rank);
    }
    const auto node = static_cast<std::size_t>(script(rank).node);
    const bool alone = s_.nodes[node].cores == 0 && s_.nodes[node].keep.empty();
    if (alone || node_dirty_[node]) return;
    node_dirty_[node] = true;
    dirty_nodes_.push_back(static_cast<int>(node));
  }

  void overlap(const Meeting& meeting, int change) {
    for_each_rank(meeting, [&](int rank) {
      if (script(rank).overlap_slowdown <= 0) return;
      RankState& r = state(rank);
      const bool before = r.overlapping > 0;
      r.overlapping += change;
      if (before != (r.overlapping > 0)) touch(rank);
    });
  }

  // At the end of an instant: who computes at which speed, and which payloads may move.
  void refresh() {
    for (const int node : dirty_nodes_) {
      node_dirty_[static_cast<std::size_t>(node)] = false;
      for (const int rank : node_ranks_[static_cast<std::size_t>(node)])
        if (!rank_dirty_[static_cast<std::size_t>(rank)]) {
          rank_dirty_[static_cast<std::size_t>(rank)] = true;
          dirty_ranks_.push_back(rank);
        }
    }
    dirty_nodes_.clear();
    std::sort(dirty_ranks_.begin(), dirty_ranks_.end());
    for (const int rank : dirty_ranks_) {
      rank_dirty_[static_cast<std::size_t>(rank)] = false;
      refresh_rank(rank);
    }
    dirty_ranks_.clear();
  }

  // Of what `asking` reaches alone. Busy ranks share the cores evenly, none beyond its own share of a core.
  double core_speed(int asking) {
    const NodeCores& node = s_.nodes[static_cast<std::size_t>(script(asking).node)];
    if (node.cores == 0 && node.keep.empty()) return 1;
    int busy = 0;
    std::vector<std::pair<double, int>>& wanted = wanted_shares_;  // and by how many ranks
    wanted.clear();
    for (const int rank : node_ranks_[static_cast<std::size_t>(script(asking).node)])
      if (at_work(state(rank))) {
        busy += script(rank).on_node;
        wanted.emplace_back(script(rank).core_share, script(rank).on_node);
      }
    if (busy == 0) return 1;
    const int at_once = node.cores > 0 ? std::min(busy, node.cores) : busy;
    double speed = 1;
    if (node.cores > 0) {
      std::sort(wanted.begin(), wanted.end());
      double cores = node.cores;
      int left = busy;
      double share = wanted.back().first;
      for (const auto& [want, ranks] : wanted) {
        share = cores / left;
        if (want >= share) break;  // the rest divide what is left evenly
        cores -= want * ranks;
        left -= ranks;
        share = want;
      }
      speed = std::min(1.0, share / script(asking).core_share);
    }
    if (!node.keep.empty())
      speed *= node.keep[std::min(static_cast<std::size_t>(at_once), node.keep.size()) - 1];
    // Interrupts do not ask which core computes.
    if (node.cores > 0)
      speed *=
          1 - std::clamp(taken_[static_cast<std::size_t>(script(asking).node)] / node.cores, 0.0, kMostTaken);
    return speed;
  }

  static bool at_work(const RankState& r) { return !r.works.empty() || !r.serving.empty(); }

  void refresh_rank(int rank) {
    RankState& r = state(rank);
    for (std::size_t i = 0; i < r.serving.size(); ++i) set_rate(r.serving[i], i == 0 ? core_speed(rank) : 0);
    if (!r.serving.empty() || r.copying > 0) {
      for (const int id : r.works) set_rate(id, 0);
    } else if (!r.works.empty()) {
      const double node = core_speed(rank);
      for (const int id : r.works) {
        const Task& t = task(static_cast<std::size_t>(activities_[static_cast<std::size_t>(id)].owner));
        const bool slowed = t.slowed && r.overlapping > 0;
        set_rate(id, slowed ? node / (1 + script(rank).overlap_slowdown) : node);
      }
    }
    const bool computing = at_work(r);
    if (computing == r.computing) return;
    r.computing = computing;
    for (const int id : r.moves) {
      Activity& activity = activities_[static_cast<std::size_t>(id)];
      activity.blockers += computing ? 1 : -1;
      if (computing && activity.blockers == 1)
        hold(id, activity);
      else if (!computing && activity.blockers == 0)
        let_go(id, activity);
    }
  }

  void hold(int id, Activity& activity) {
    if (activity.carriage == Carriage::latency) set_rate(id, 0);
    if (activity.carriage != Carriage::moving) return;
    const std::optional<double> left = platform_->stop(id);
    if (!left) return;  // it has just arrived
    activity.bytes_left = *left;
    activity.carriage = Carriage::parked;
  }

  void let_go(int id, Activity& activity) {
    if (activity.carriage == Carriage::latency) set_rate(id, 1);
    if (activity.carriage == Carriage::parked) queue_for_simgrid(id);
  }

  void queue_for_simgrid(int id) {
    activities_[static_cast<std::size_t>(id)].carriage = Carriage::queued;
    to_simgrid_.push_back(id);
  }

  void hand_to_simgrid() {
    for (const int id : to_simgrid_) {
      Activity& activity = activities_[static_cast<std::size_t>(id)];
      if (activity.blockers > 0) {
        activity.carriage = Carriage::parked;
        continue;
      }
      const Payload& payload = payload_of(activity);
      activity.carriage = Carriage::moving;
      platform_->start(payload.flow, activity.bytes_left < 0 ? payload.bytes : activity.bytes_left, id);
    }
    to_simgrid_.clear();
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
  // Asynchronous ranks: their pace is taken from now on; they have been seen long enough.
  bool late_ = false, over_ = false;
  std::size_t ranks_half_done_ = 0, ranks_done_ = 0;
  std::vector<PushCounter> counters_;
  TimelineEvent unrecorded_;
  double now_ = 0;
  Trace trace_;
  std::string failure_;
  std::unique_ptr<Platform> platform_;
  std::vector<std::size_t> base_;  // first task of each rank
  std::vector<int> rank_of_;       // by task
  std::vector<std::uint32_t> waits_;
  std::vector<char> blocked_;  // by the predecessor on the stream
  std::vector<char> issued_;
  std::vector<std::uint32_t> meetings_left_;
  std::vector<RankState> ranks_;
  std::vector<MeetingState> meetings_;
  std::vector<std::deque<int>> lines_;  // meetings: the first moves
  std::vector<std::vector<int>> node_ranks_;
  std::vector<char> node_dirty_;
  std::vector<double> taken_;  // by node: cores that packets take
  std::vector<char> rank_dirty_;
  std::vector<int> dirty_nodes_;
  std::vector<std::pair<double, int>> wanted_shares_;  // of core_speed, kept for its memory
  std::vector<int> dirty_ranks_;
  std::deque<std::size_t> ready_;
  std::deque<int> threads_;
  std::vector<Activity> activities_;
  std::vector<int> free_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<int> to_simgrid_;
};

template <typename Bytes, typename T>
void move_fields(Bytes& bytes, T& trace) {
  bytes(trace.step_ends_s);
  bytes.each(trace.rank_step_ends_s, [&](auto& ends) { bytes(ends); });
  bytes(trace.events);
  bytes(trace.flow_bytes);
  bytes(trace.activities);
  bytes(trace.end_s);
  bytes(trace.late_steps);
  bytes(trace.late_s);
}

}  // namespace

Trace interpret(const Scenario& scenario, int steps) {
  ORRERY_CHECK(steps >= 1, "no step to simulate");
  return Interpreter(scenario, steps).run();
}

std::string to_bytes(const Trace& trace) {
  ByteWriter out;
  move_fields(out, trace);
  return out.take();
}

Trace trace_from_bytes(const std::string& bytes) {
  ByteReader in(bytes);
  Trace trace;
  move_fields(in, trace);
  return trace;
}

}  // namespace orrery::sim
