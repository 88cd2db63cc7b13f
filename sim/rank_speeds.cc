#include "sim/rank_speeds.h"

#include <algorithm>

namespace orrery::sim {

RankSpeeds::RankSpeeds(const Scenario& scenario, Activities& activities)
    : scenario_(scenario),
      activities_(activities),
      states_(scenario.ranks.size()),
      node_ranks_(scenario.nodes.size()),
      taken_(scenario.nodes.size(), 0),
      node_dirty_(scenario.nodes.size(), false),
      rank_dirty_(scenario.ranks.size(), false) {
  for (std::size_t r = 0; r < scenario.ranks.size(); ++r)
    if (scenario.ranks[r].beside < 0)
      node_ranks_[static_cast<std::size_t>(scenario.ranks[r].node)].push_back(static_cast<int>(r));
}

// Else its work always goes at full speed.
bool RankSpeeds::varies(int index) const {
  const RankScript& r = script(index);
  const NodeCores& node = scenario_.nodes[static_cast<std::size_t>(r.node)];
  return scenario_.asynchronous || scenario_.single_threaded || r.overlap_slowdown > 0 || node.shared();
}

void RankSpeeds::touch(int index) {
  if (script(index).beside >= 0) index = script(index).beside;
  touch_rank(index);
  const int node = script(index).node;
  if (scenario_.nodes[static_cast<std::size_t>(node)].shared()) touch_node(node);
}

void RankSpeeds::touch_rank(int rank) {
  if (rank_dirty_[static_cast<std::size_t>(rank)]) return;
  rank_dirty_[static_cast<std::size_t>(rank)] = true;
  dirty_ranks_.push_back(rank);
}

void RankSpeeds::touch_node(int node) {
  if (node_dirty_[static_cast<std::size_t>(node)]) return;
  node_dirty_[static_cast<std::size_t>(node)] = true;
  dirty_nodes_.push_back(node);
}

void RankSpeeds::begin_work(int index, int activity, bool slowed) {
  state(index).works.push_back({activity, slowed});
  if (script(index).beside >= 0) state(script(index).beside).serving.push_back(activity);
  if (varies(index))
    touch(index);
  else
    activities_.set_rate(activity, 1);
}

void RankSpeeds::end_work(int index, int activity) {
  std::vector<Work>& works = state(index).works;
  works.erase(
      std::find_if(works.begin(), works.end(), [&](const Work& work) { return work.activity == activity; }));
  if (script(index).beside >= 0) state(script(index).beside).serving.pop_front();
  if (varies(index)) touch(index);
}

void RankSpeeds::overlap(int index, int change) {
  if (script(index).overlap_slowdown <= 0) return;
  State& r = state(index);
  const bool before = r.overlapping > 0;
  r.overlapping += change;
  if (before != (r.overlapping > 0)) touch(index);
}

void RankSpeeds::take_cores(int packets, int sign) {
  for (const TakenCores& some : scenario_.packets[static_cast<std::size_t>(packets)]) {
    const auto node = static_cast<std::size_t>(some.node);
    if (scenario_.nodes[node].cores == 0) continue;
    taken_[node] += sign * some.cores;
    touch_node(some.node);
  }
}

bool RankSpeeds::begin_copy(int index, int activity) {
  state(index).copies.push_back(activity);
  copy_beside(index, +1);
  return state(index).computing;
}

void RankSpeeds::end_copy(int index, int activity) {
  std::vector<int>& copies = state(index).copies;
  copies.erase(std::find(copies.begin(), copies.end(), activity));
  copy_beside(index, -1);
}

// A server's thread copies what is pushed between the operators of its rank.
void RankSpeeds::copy_beside(int index, int change) {
  const int host = script(index).beside;
  if (host < 0) return;
  state(host).copying += change;
  touch(host);
}

double RankSpeeds::core_speed_of(int index) {
  const auto at = static_cast<std::size_t>(script(index).node);
  const NodeCores& node = scenario_.nodes[at];
  if (!node.shared()) return 1;
  at_work_.clear();
  for (const int rank : node_ranks_[at])
    if (state(rank).at_work()) at_work_.push_back({script(rank).core_share, script(rank).on_node});
  return core_speed(node, at_work_, script(index).core_share, taken_[at]);
}

void RankSpeeds::set_rates(int index) {
  const State& r = state(index);
  if (!r.at_work()) return;
  const double speed = core_speed_of(index);
  for (std::size_t i = 0; i < r.serving.size(); ++i) activities_.set_rate(r.serving[i], i == 0 ? speed : 0);
  const bool serves = !r.serving.empty() || r.copying > 0;
  for (const Work& work : r.works) {
    const bool slowed = work.slowed && r.overlapping > 0;
    const double own = slowed ? speed / (1 + script(index).overlap_slowdown) : speed;
    activities_.set_rate(work.activity, serves ? 0 : own);
  }
}

void RankSpeeds::refresh(const std::function<void(int activity, bool computing)>& turned) {
  for (const int node : dirty_nodes_) {
    node_dirty_[static_cast<std::size_t>(node)] = false;
    for (const int rank : node_ranks_[static_cast<std::size_t>(node)]) touch_rank(rank);
  }
  dirty_nodes_.clear();
  std::sort(dirty_ranks_.begin(), dirty_ranks_.end());
  for (const int rank : dirty_ranks_) {
    rank_dirty_[static_cast<std::size_t>(rank)] = false;
    set_rates(rank);
    State& r = state(rank);
    if (r.at_work() == r.computing) continue;
    r.computing = r.at_work();
    for (const int activity : r.copies) turned(activity, r.computing);
  }
  dirty_ranks_.clear();
}

}  // namespace orrery::sim
