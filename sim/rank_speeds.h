// Who computes at which speed: ranks share the cores of a node, work is slowed by collectives under way,
// and a rank's thread either computes, or serves another rank, or copies.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "sim/activities.h"
#include "sim/core_speed.h"
#include "sim/scenario/scenario.h"

namespace orrery::sim {

// Of scripts, by index; what a service does is done on the device of the rank that it is beside. Changes
// count from the next refresh() on.
class RankSpeeds {
 public:
  // Keeps references.
  RankSpeeds(const Scenario& scenario, Activities& activities);

  void begin_work(int script, int activity, bool slowed);
  void end_work(int script, int activity);
  bool works(int script) const { return !state(script).works.empty(); }

  // Collectives under way, that slow work.
  void overlap(int script, int change);
  // `packets`: in Scenario::packets.
  void take_cores(int packets, int sign);

  // A payload that the script's thread copies; returns whether it computes, and so holds the payload up.
  bool begin_copy(int script, int activity);
  void end_copy(int script, int activity);

  // At the end of an instant. `turned`: who copies this payload has begun, or ceased, to compute.
  void refresh(const std::function<void(int activity, bool computing)>& turned);

 private:
  struct Work {
    int activity = 0;
    bool slowed = false;
  };
  struct State {
    bool computing = false;  // as last told
    int overlapping = 0;     // collectives under way
    std::vector<Work> works;
    std::vector<int> copies;  // activities
    std::deque<int> serving;  // activities: pushes that it applies, the first at work
    int copying = 0;          // pushes that its thread copies
    bool at_work() const { return !works.empty() || !serving.empty(); }
  };

  const RankScript& script(int index) const { return scenario_.ranks[static_cast<std::size_t>(index)]; }
  const State& state(int index) const { return states_[static_cast<std::size_t>(index)]; }
  State& state(int index) { return states_[static_cast<std::size_t>(index)]; }
  bool varies(int index) const;
  void touch(int index);
  void touch_rank(int rank);
  void touch_node(int node);
  void copy_beside(int index, int change);
  double core_speed_of(int index);
  void set_rates(int index);

  const Scenario& scenario_;
  Activities& activities_;
  std::vector<State> states_;
  std::vector<std::vector<int>> node_ranks_;
  std::vector<double> taken_;  // by node: cores that packets take
  std::vector<char> node_dirty_, rank_dirty_;
  std::vector<int> dirty_nodes_, dirty_ranks_;
  std::vector<AtWork> at_work_;  // of core_speed_of, kept for its memory
};

}  // namespace orrery::sim
