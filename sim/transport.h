// How payloads get from where ranks meet to where they are awaited: their latency, the connection on which
// they queue, the members' threads that copy them, the messages of a collective one after another, and the
// links, which SimGrid shares where several want them.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "sim/activities.h"
#include "sim/network/constraint_use.h"
#include "sim/network/platform.h"
#include "sim/rank_speeds.h"
#include "sim/scenario/scenario.h"
#include "sim/trace.h"

namespace orrery::sim {

class Transport {
 public:
  // Keeps references. `arrived`: all of a communication's payload has. `keep_moved`: each payload is noted.
  Transport(const Scenario& scenario, Activities& activities, RankSpeeds& speeds,
            std::function<void(int communication)> arrived, bool keep_moved);

  // Everyone has come.
  void launch(int communication);
  // A move's time is over: its latency, where it still has to go over links, or all of it.
  void end(int activity);
  // All of it is over.
  void end_move(int activity);
  // Who copies this payload has begun, or ceased, to compute.
  void turn(int activity, bool computing);

  // At the end of an instant: payloads whose turn on the links has come set out. Those that have theirs to
  // themselves move at their lone rate.
  void set_out();
  // The others, and whom they disturb: to be given to SimGrid once its clock shows this time.
  bool has_for_simgrid() const { return !to_simgrid_.empty(); }
  void hand_to(Platform& simgrid);

  std::vector<double> flow_bytes;  // by flow: bytes of one of its transfers, in all
  std::vector<Moved> moved;        // where they are kept
  std::int64_t moves = 0;          // that have ended

 private:
  // Of a collective that is simulated message by message.
  struct Messages {
    int left = 0;
    std::vector<int> waits;
  };

  const Communication& communication(int index) const {
    return scenario_.communications[static_cast<std::size_t>(index)];
  }
  const std::vector<Message>& graph_of(const Communication& communication) const {
    return scenario_.message_graphs[static_cast<std::size_t>(communication.messages)];
  }
  const Payload& payload_of(const Activity& activity) const;
  void start_move(int index, int message, const Payload& payload);
  void handle_packets(const Payload& payload);
  void end_message(const Activity& activity);
  void arrive(int index);
  void hold(int id, Activity& activity);
  void let_go(int id, Activity& activity);
  void queue(int id);
  void park(int id, Activity& activity);
  void stop_alone(int id, Activity& activity);

  const Scenario& scenario_;
  Activities& activities_;
  RankSpeeds& speeds_;
  Platform* simgrid_ = nullptr;  // once it has carried something
  std::function<void(int)> arrived_;
  bool keep_moved_;
  std::vector<Messages> messages_;      // by communication
  std::vector<std::deque<int>> lines_;  // communications: the first moves
  ConstraintUse links_;
  std::vector<int> queued_, disturbed_, to_simgrid_;
};

}  // namespace orrery::sim
