#include "sim/transport.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace orrery::sim {
namespace {

template <typename Visit>
void for_each_rank(const Communication& communication, Visit visit) {
  int last = -1;
  for (const TaskRef& ref : communication.tasks)
    if (ref.rank != last) visit(last = ref.rank);
}

// Whose threads carry a payload inside a node: all members of a collective; of a transfer the receiver
// alone, who copies from the sender's memory (cross memory attach, in Open MPI's vader as in MPICH: with
// the sender asleep a 4 MiB message arrived in 0.7 ms).
template <typename Visit>
void for_each_copier(const Scenario& scenario, const Communication& communication, Visit visit) {
  if (!communication.by_hand || communication.eager) return;
  if (communication.collective) {
    for_each_rank(communication, visit);
    return;
  }
  const TaskRef& last = communication.tasks.back();
  const Task& task = scenario.ranks[static_cast<std::size_t>(last.rank)].tasks[last.instruction];
  for (const CommunicationRef& ref : task.communications)
    if (&scenario.communications[static_cast<std::size_t>(ref.communication)] == &communication && !ref.sends)
      visit(last.rank);
}

}  // namespace

Transport::Transport(const Scenario& scenario, Activities& activities, RankSpeeds& speeds,
                     std::function<void(int communication)> arrived, bool keep_moved)
    : flow_bytes(scenario.flows.flows().size(), 0),
      scenario_(scenario),
      activities_(activities),
      speeds_(speeds),
      arrived_(std::move(arrived)),
      keep_moved_(keep_moved),
      messages_(scenario.message_graphs.empty() ? 0 : scenario.communications.size()),
      lines_(static_cast<std::size_t>(scenario.lines)),
      links_(scenario.flows) {}

const Payload& Transport::payload_of(const Activity& activity) const {
  const Communication& of = communication(activity.owner);
  return activity.message < 0 ? of.payload : graph_of(of)[static_cast<std::size_t>(activity.message)].payload;
}

void Transport::launch(int index) {
  const Communication& of = communication(index);
  if (of.collective) for_each_rank(of, [&](int rank) { speeds_.overlap(rank, +1); });
  if (of.line >= 0) {
    std::deque<int>& line = lines_[static_cast<std::size_t>(of.line)];
    line.push_back(index);
    if (line.size() > 1) return;
  }
  if (of.messages < 0) {
    start_move(index, -1, of.payload);
    return;
  }
  const std::vector<Message>& graph = graph_of(of);
  Messages& messages = messages_[static_cast<std::size_t>(index)];
  messages.left = static_cast<int>(graph.size());
  messages.waits.clear();
  for (const Message& message : graph) messages.waits.push_back(message.waits_for);
  for (std::size_t i = 0; i < graph.size(); ++i)
    if (graph[i].waits_for == 0) start_move(index, static_cast<int>(i), graph[i].payload);
}

void Transport::start_move(int index, int message, const Payload& payload) {
  double seconds = payload.latency_s;
  bool shared = false;
  if (payload.flow >= 0) {
    flow_bytes[static_cast<std::size_t>(payload.flow)] += payload.bytes;
    shared = !scenario_.flows.constraints_of(payload.flow).empty();
    if (!shared) seconds += payload.bytes / scenario_.flows.lone_rate(payload.flow);
    if (payload.packets >= 0) handle_packets(payload);
  }
  const int id = activities_.add(ActivityKind::move, index, seconds);
  Activity& activity = activities_[id];
  activity.message = message;
  activity.shared = shared;
  activity.sets_out_s = activities_.now_s() + payload.latency_s;
  for_each_copier(scenario_, communication(index), [&](int rank) {
    if (speeds_.begin_copy(rank, id)) ++activity.blockers;
  });
  if (activity.blockers == 0) activities_.set_rate(id, 1);
}

// They are as much work however long they are under way: it is done at the rate of a payload alone.
void Transport::handle_packets(const Payload& payload) {
  const Flow& flow = scenario_.flows.flows()[static_cast<std::size_t>(payload.flow)];
  speeds_.take_cores(payload.packets, +1);
  const double seconds = payload.bytes / flow.bound_bytes_per_s;
  activities_.set_rate(activities_.add(ActivityKind::packets, payload.packets, seconds), 1);
}

void Transport::end(int id) {
  const Activity& activity = activities_[id];
  if (activity.shared && activity.carriage == Carriage::latency)
    queue(id);
  else
    end_move(id);
}

void Transport::end_move(int id) {
  const Activity activity = activities_[id];
  for_each_copier(scenario_, communication(activity.owner), [&](int rank) { speeds_.end_copy(rank, id); });
  if (activity.shared) links_.end(id, payload_of(activity).flow);
  const Payload& payload = payload_of(activity);
  if (keep_moved_ && payload.flow >= 0 && payload.bytes > 0)
    moved.push_back({payload.flow, std::min(activity.sets_out_s, activities_.now_s()), activities_.now_s(),
                     payload.bytes});
  activities_.release(id);
  ++moves;
  if (activity.message < 0)
    arrive(activity.owner);
  else
    end_message(activity);
}

void Transport::end_message(const Activity& activity) {
  Messages& messages = messages_[static_cast<std::size_t>(activity.owner)];
  const std::vector<Message>& graph = graph_of(communication(activity.owner));
  for (const int next : graph[static_cast<std::size_t>(activity.message)].next)
    if (--messages.waits[static_cast<std::size_t>(next)] == 0)
      start_move(activity.owner, next, graph[static_cast<std::size_t>(next)].payload);
  if (--messages.left == 0) arrive(activity.owner);
}

void Transport::arrive(int index) {
  const Communication& of = communication(index);
  if (of.collective) for_each_rank(of, [&](int rank) { speeds_.overlap(rank, -1); });
  if (of.line >= 0) {
    std::deque<int>& line = lines_[static_cast<std::size_t>(of.line)];
    line.pop_front();
    if (!line.empty()) {
      Payload next = communication(line.front()).payload;
      next.latency_s = 0;  // it has passed beside the one before
      start_move(line.front(), -1, next);
    }
  }
  arrived_(index);
}

void Transport::turn(int id, bool computing) {
  Activity& activity = activities_[id];
  activity.blockers += computing ? 1 : -1;
  if (computing && activity.blockers == 1)
    hold(id, activity);
  else if (!computing && activity.blockers == 0)
    let_go(id, activity);
}

void Transport::hold(int id, Activity& activity) {
  switch (activity.carriage) {
    case Carriage::latency:
      activities_.set_rate(id, 0);
      return;
    case Carriage::alone:
      stop_alone(id, activity);
      break;
    case Carriage::moving: {
      const std::optional<double> left = simgrid_->stop(id);
      if (!left) return;  // it has just arrived
      activity.bytes_left = *left;
      break;
    }
    case Carriage::queued:  // who takes it from the queue sees that it is held back
    case Carriage::parked:
      return;
  }
  park(id, activity);
}

void Transport::let_go(int id, Activity& activity) {
  if (activity.carriage == Carriage::latency) activities_.set_rate(id, 1);
  if (activity.carriage == Carriage::parked) queue(id);
}

void Transport::queue(int id) {
  activities_[id].carriage = Carriage::queued;
  queued_.push_back(id);
}

void Transport::park(int id, Activity& activity) {
  links_.end(id, payload_of(activity).flow);
  activity.carriage = Carriage::parked;
}

void Transport::stop_alone(int id, Activity& activity) {
  activity.bytes_left = activities_.stop(id) * scenario_.flows.lone_rate(payload_of(activity).flow);
}

void Transport::set_out() {
  for (const int id : queued_) {
    Activity& activity = activities_[id];
    if (activity.blockers > 0) {
      activity.carriage = Carriage::parked;
      continue;
    }
    const Payload& payload = payload_of(activity);
    if (activity.bytes_left < 0) activity.bytes_left = payload.bytes;
    disturbed_.clear();
    const bool alone = links_.begin(id, payload.flow, disturbed_);
    for (const int other : disturbed_) {
      stop_alone(other, activities_[other]);
      activities_[other].carriage = Carriage::queued;
      to_simgrid_.push_back(other);
    }
    if (!alone) {
      to_simgrid_.push_back(id);
      continue;
    }
    activity.carriage = Carriage::alone;
    activities_.restart(id, activity.bytes_left / scenario_.flows.lone_rate(payload.flow));
  }
  queued_.clear();
}

void Transport::hand_to(Platform& simgrid) {
  simgrid_ = &simgrid;
  for (const int id : to_simgrid_) {
    Activity& activity = activities_[id];
    if (activity.blockers > 0) {
      park(id, activity);
      continue;
    }
    activity.carriage = Carriage::moving;
    simgrid.start(payload_of(activity).flow, activity.bytes_left, id);
  }
  to_simgrid_.clear();
}

}  // namespace orrery::sim
