// What takes time in a simulation, with the queue of its ends. Here in full, for every event passes through.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace orrery::sim {

enum class ActivityKind : std::uint8_t { work, move, issue, step_begin, packets };

// Where a shared payload is: in its latency, about to move, moving with its links to itself, in SimGrid's
// hands, or held back with its latency over.
enum class Carriage : std::uint8_t { latency, queued, alone, moving, parked };

// Work of a task, a payload on its way, a rank's overhead before a step.
struct Activity {
  ActivityKind kind = ActivityKind::work;
  bool shared = false;  // a payload that may have to share its links after its latency
  Carriage carriage = Carriage::latency;
  // work, issue: task; move: communication; step_begin: rank; packets: index of what they take
  int owner = 0;
  int message = -1;        // of the communication's graph
  int blockers = 0;        // ranks that compute and so hold the payload up
  double bytes_left = -1;  // of a payload that was carried in part; negative: all
  double sets_out_s = 0;   // of a payload: its latency is over, if nothing holds it up
};

class Activities {
 public:
  double now_s() const { return now_s_; }
  // Not back.
  void advance(double time_s) { now_s_ = std::max(now_s_, time_s); }

  Activity& operator[](int id) { return pool_[static_cast<std::size_t>(id)].activity; }

  // Of so many seconds at rate 1; it stands still until it is given a rate.
  int add(ActivityKind kind, int owner, double seconds) {
    int id = 0;
    if (free_.empty()) {
      id = static_cast<int>(pool_.size());
      pool_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    Slot& slot = pool_[static_cast<std::size_t>(id)];
    slot = Slot{.activity = {.kind = kind, .owner = owner},
                .generation = slot.generation,
                .remaining_s = seconds,
                .since_s = now_s_};
    return id;
  }

  // Its number may be given to another; whether or not its end is still in the queue.
  void release(int id) {
    ++pool_[static_cast<std::size_t>(id)].generation;
    free_.push_back(id);
  }

  void set_rate(int id, double rate) {
    Slot& slot = pool_[static_cast<std::size_t>(id)];
    if (slot.rate == rate) return;
    slot.remaining_s = std::max(0.0, slot.remaining_s - slot.rate * (now_s_ - slot.since_s));
    slot.rate = rate;
    slot.since_s = now_s_;
    ++slot.generation;
    if (rate > 0) due_.push({now_s_ + slot.remaining_s / rate, id, slot.generation});
  }

  // Begins anew, of so many seconds at rate 1, which it is given.
  void restart(int id, double seconds) {
    Slot& slot = pool_[static_cast<std::size_t>(id)];
    slot.remaining_s = seconds;
    slot.rate = 0;
    set_rate(id, 1);
  }
  // Stands still; the seconds that are left.
  double stop(int id) {
    set_rate(id, 0);
    return pool_[static_cast<std::size_t>(id)].remaining_s;
  }

  // Ends at that very time, which now + (time - now) may miss by a bit.
  void end_at(int id, double time_s) {
    Slot& slot = pool_[static_cast<std::size_t>(id)];
    slot.rate = 1;
    due_.push({time_s, id, ++slot.generation});
  }

  // Ends, and times that were ends before a rate changed.
  bool waiting() const { return !due_.empty(); }
  double next_s() const { return due_.top().time_s; }

  // The next that ends by now; -1: none.
  int take_due() {
    while (waiting() && next_s() <= now_s_) {
      const Due due = due_.top();
      due_.pop();
      Slot& slot = pool_[static_cast<std::size_t>(due.id)];
      if (slot.generation != due.generation) continue;
      slot.remaining_s = 0;
      ++slot.generation;
      return due.id;
    }
    return -1;
  }

 private:
  struct Slot {
    Activity activity;
    std::uint32_t generation = 0;  // of its end in the queue, if that counts
    double remaining_s = 0;        // at rate 1
    double rate = 0;
    double since_s = 0;
  };
  struct Due {
    double time_s = 0;
    int id = 0;
    std::uint32_t generation = 0;
    bool operator>(const Due& other) const {
      return time_s != other.time_s ? time_s > other.time_s : id > other.id;
    }
  };

  double now_s_ = 0;
  std::vector<Slot> pool_;
  std::vector<int> free_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace orrery::sim
