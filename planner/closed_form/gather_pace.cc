// What waiting for parameters costs where their owners are spread over the replicas: in every pass with
// ZeRO-3, in the first forward pass of a step with ZeRO 1 and 2 where the runtime gathers beside it.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "planner/closed_form/step_model.h"

namespace orrery::planner {
namespace {

// A layer's turn in a pass.
struct Turn {
  double work_s = 0;
  double gather_s = 0;  // before it; 0: its parameters are there
  double again_s = 0;   // in the middle of it
  double reduce_s = 0;  // of its gradients, after it
};

// Of the first turn from `begin` on that needs one; 0: none does.
double first_gather(const std::vector<Turn>& turns, std::size_t begin = 0) {
  for (std::size_t i = begin; i < turns.size(); ++i)
    if (turns[i].gather_s > 0) return turns[i].gather_s;
  return 0;
}

// Forward and backward passes of a chunk one after the other, as zero.cc has them: the gathering of the
// next layer that needs one is issued where a layer that needed one begins, after the layer before that.
class LayerStreams {
 public:
  LayerStreams(bool overlap_reduce, bool ahead) : overlap_reduce_(overlap_reduce), ahead_(ahead) {}

  // Seconds that the pass takes. `next_s`: gathering of the first turn after it that needs one.
  double run(const std::vector<Turn>& turns, double next_s) {
    const double begin_s = compute_s_;
    double reduced_s = 0;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      if (turns[i].gather_s > 0 && !ahead_) {
        compute_s_ = data_s_ = std::max(data_s_, compute_s_) + turns[i].gather_s;
      } else if (turns[i].gather_s > 0) {
        const double there_s = gathered_s_;
        const double here_s = first_gather(turns, i + 1);
        data_s_ = std::max(data_s_, compute_s_) + (here_s > 0 ? here_s : next_s);
        gathered_s_ = data_s_;
        compute_s_ = std::max(compute_s_, there_s);
      }
      compute_s_ += turns[i].work_s;
      if (turns[i].again_s > 0) compute_s_ = data_s_ = std::max(data_s_, compute_s_) + turns[i].again_s;
      if (overlap_reduce_) {
        if (turns[i].reduce_s > 0) data_s_ = std::max(data_s_, compute_s_) + turns[i].reduce_s;
      } else {
        reduced_s += turns[i].reduce_s;
      }
    }
    if (reduced_s > 0) compute_s_ = data_s_ = std::max(data_s_, compute_s_) + reduced_s;
    return compute_s_ - begin_s;
  }

 private:
  bool overlap_reduce_, ahead_;
  double compute_s_ = 0, data_s_ = 0;  // until when the streams are busy
  double gathered_s_ = 0;              // of what was issued last
};

// Two kinds of groups of a node at work at once: by how much each is slower than alone. All transfers that
// cross a link share it evenly, none being faster than alone (max-min).
struct Meeting {
  double within = 1, data = 1;  // pace, of its own
  void at_link(double capacity, double within_rate, double within_groups, double data_rate,
               double data_groups) {
    if (capacity <= 0 || within_rate <= 0 || data_rate <= 0) return;
    if (within_rate * within_groups + data_rate * data_groups <= capacity) return;
    const double even = capacity / (within_groups + data_groups);
    const auto left = [&](double rate, double groups, double other_rate, double other_groups) {
      return std::min(rate, std::max(even, (capacity - other_rate * other_groups) / groups)) / rate;
    };
    const double own = left(within_rate, within_groups, data_rate, data_groups);
    if (own >= within) return;
    within = own;
    data = left(data_rate, data_groups, within_rate, within_groups);
  }
};

// What each edge of a ring through the group carries, alone: the longest of long messages.
double edge_rate(GroupKind kind, const GroupShape& shape, const Job& job) {
  constexpr double kBytes = 1e9;
  if (kind == GroupKind::context) return kBytes / transfer_s(kBytes, shape, job);
  return kBytes * (shape.ranks - 1) / shape.ranks /
         collective_s(CollectiveKind::all_gather, kBytes, shape, job);
}

Meeting meeting_of(GroupKind kind, const GroupShape& within, const GroupShape& data, const Job& job) {
  Meeting meeting;
  const NodeType& node = job.cluster.groups.front().node;
  const double within_rate = edge_rate(kind, within, job);
  const double data_rate = edge_rate(GroupKind::data, data, job);
  // Where a device has one link; in a mesh or a torus groups use different ones.
  const bool one_link = node.intra.torus.empty() &&
                        (node.intra.kind == IntraKind::nvswitch || node.intra.kind == IntraKind::pcie);
  if (one_link && within.ranks_per_node > 1 && data.ranks_per_node > 1) {
    const LinkKind link = within.intra == PathClass::pcie ? LinkKind::pcie : LinkKind::device_port;
    meeting.at_link(std::min(within.intra_bandwidth_bytes_per_s, data.intra_bandwidth_bytes_per_s) *
                        usable_fraction(link, node, job.cluster),
                    within_rate, 1, data_rate, 1);
  }
  if (within.bridge_bandwidth_bytes_per_s > 0 && data.bridge_bandwidth_bytes_per_s > 0) {
    meeting.at_link(node.intra.bridge_bandwidth_bytes_per_s, within_rate, groups_at_bridge(within, node),
                    data_rate, groups_at_bridge(data, node));
  }
  if (within.nodes > 1 && data.nodes > 1) {
    const auto groups = [&](const GroupShape& shape) {
      return 1.0 * node.devices / std::max(1, shape.ranks_per_node);
    };
    meeting.at_link(ports_bytes_per_s(node, job.cluster), within_rate, groups(within), data_rate,
                    groups(data));
  }
  return meeting;
}

// The part of a pass during which data's traffic is on: f = (beside + lost f more) / (busy + f more), both of
// which grow with what they lose to one another.
double shared_share(double beside, double busy, double more, double lost) {
  const double apart = busy - lost * more;
  if (beside + lost * more >= busy + more) return 1;
  return std::min(1.0, (std::sqrt(apart * apart + 4 * more * beside) - apart) / (2 * more));
}

GroupShape at_pace(GroupShape shape, double pace) {
  for (double* rate : {&shape.intra_bandwidth_bytes_per_s, &shape.all_pairs_bandwidth_bytes_per_s,
                       &shape.to_one_bandwidth_bytes_per_s, &shape.neighbour_bandwidth_bytes_per_s,
                       &shape.bridge_bandwidth_bytes_per_s, &shape.inter_bandwidth_bytes_per_s,
                       &shape.port_bandwidth_bytes_per_s})
    *rate *= pace;
  return shape;
}

}  // namespace

const StepModel::Shared& StepModel::shared(const Plan& plan, const Frame& frame) {
  const Choices& c = plan.choices;
  if (shared_.valid && shared_.shard_group == c.shard_group) return shared_;
  shared_ = {true, c.shard_group, false, {}, 0};
  const GroupShape* data = nullptr;
  if (c.hybrid()) {
    data = &geometries_.sharded(c, *frame.geometry).shard;
  } else if (const auto at = frame.geometry->shapes.find(GroupKind::data);
             at != frame.geometry->shapes.end()) {
    data = &at->second;
  }
  if (data == nullptr || data->ranks < 2 || !geometries_.uniform() ||
      job_->cluster.communication.library == CommunicationLibrary::mpi)
    return shared_;
  GroupShapes slower = frame.geometry->shapes;
  double least = 1;
  for (const GroupKind kind : {GroupKind::tensor, GroupKind::context}) {
    const auto at = slower.find(kind);
    if (at == slower.end()) continue;
    const Meeting meeting = meeting_of(kind, at->second, *data, *job_);
    if (meeting.within >= 1) continue;
    at->second = at_pace(at->second, meeting.within);
    shared_.any = true;
    if (meeting.within >= least) continue;
    least = meeting.within;
    shared_.lost = (1 - meeting.data) / (1 - meeting.within);
  }
  if (!shared_.any) return shared_;
  const std::uint64_t key = inner_shapes_key(slower);
  for (int stage = 0; stage < c.pp; ++stage) {
    const int twin = frame.cut->twin[stage];
    if (twin != stage) {
      shared_.stages.push_back(shared_.stages[twin]);
      continue;
    }
    shared_.stages.push_back(stage_times(c, frame, slower, key, stage, stages_.kinds[stage]));
    if (job_->training.lengths.any()) shared_.stages.back().scale(plan.wait_for_longest());
  }
  return shared_;
}

std::pair<double, double> StepModel::waits_for_layers(const Plan& plan, const Frame& frame, int stage,
                                                      const Reductions& all) {
  const Choices& c = plan.choices;
  const DeviceKindAt& kind = stages_.kinds[stage];
  const LayerSums& own = sums_of(c, frame, kind);
  const auto parts = static_cast<std::size_t>(sums_.parts().count());
  std::vector<double> gathers(parts, 0), gathers_back(parts, 0), agains(parts, 0), reductions(parts, 0);
  for (const Reductions::Step& step : all.steps) {
    gathers[step.part] += step.gather_s;
    gathers_back[step.part] += step.gather_back_s;
    agains[step.part] += step.again_s;
    reductions[step.part] += step.seconds;
  }
  Again run = run_again(c, frame.geometry->shapes, frame.shapes_key, kind);
  std::pair<double, double> waits;
  for (int chunk = 0; chunk < c.interleave; ++chunk) {
    const auto [begin, end] = frame.cut->part(stage, chunk);
    run.enter({begin, end});
    std::vector<Turn> forward, backward;
    double forward_s = 0, backward_s = 0;
    for (int part = begin; part < end; ++part) {
      // The layer that one pass ends with is there for the next, unless that is another chunk's.
      const bool there = part == begin && c.interleave == 1;
      const double work_s = own.forward[part + 1] - own.forward[part];
      forward.push_back({work_s, there ? 0 : gathers[part], 0, 0});
      forward_s += work_s;
    }
    for (int part = end - 1; part >= begin; --part) {
      const double work_s =
          own.backward[part + 1] - own.backward[part] + run.more_s(own, part + 1) - run.more_s(own, part);
      const bool partly = run.sums != nullptr;
      const bool again =
          c.recompute == Recompute::full &&
          (partly ? part >= run.from && part < run.to : part > 0 && part < sums_.parts().count() - 1);
      backward.push_back(
          {work_s, part == end - 1 ? 0 : gathers_back[part], again ? agains[part] : 0, reductions[part]});
      backward_s += work_s;
    }
    LayerStreams streams(c.overlap_grad_reduce, gathers_ahead(all));
    const double forward_gather_s = first_gather(forward);
    const double backward_gather_s = first_gather(backward);
    std::pair<double, double> steady;
    for (int round = 0; round < 2; ++round)
      steady = {streams.run(forward, backward_gather_s > 0 ? backward_gather_s : forward_gather_s),
                streams.run(backward, forward_gather_s > 0 ? forward_gather_s : backward_gather_s)};
    waits.first += steady.first - forward_s;
    waits.second += steady.second - backward_s;
  }
  return waits;
}

bool StepModel::gathers_ahead(const Reductions& all) const {
  const RuntimeProfile& runtime = job_->runtime;
  return !runtime.gathers_on_demand &&
         (runtime.live_parameters <= 0 || all.largest_layer <= runtime.live_parameters);
}

double StepModel::recomputed_share(const Choices& c, const Frame& frame, int stage) const {
  if (c.recompute != Recompute::full) return 0;
  if (c.recompute_layers == 0) return 1;
  double layers = 0;
  for (int chunk = 0; chunk < c.interleave; ++chunk)
    layers += frame.cut->part(stage, chunk).end - frame.cut->part(stage, chunk).begin;
  return std::min(1.0, c.recompute_layers / layers);
}

double StepModel::lost_beside(int stage, double beside_s, double busy_s, double compute_s) const {
  const double slowdown = job_->cluster.profiles[stages_.kinds[stage].profile].overlap_slowdown;
  if (slowdown <= 0 || busy_s <= 0) return 0;
  // While it lasts, computation goes at 1 / (1 + slowdown) of its speed.
  return slowdown / (1 + slowdown) * std::min(beside_s * compute_s / busy_s, compute_s * (1 + slowdown));
}

double StepModel::lost_to_gathers(const Plan& plan, const Frame& frame) {
  const Reductions& all = gradients_.of(plan, *frame.geometry, *frame.cut, 0);
  if (all.uses.empty()) return 0;
  const StageTimes& t = stages_.times.front();
  return lost_beside(0, std::min(all.uses.back().gathered_s, t.forward_busy), t.forward_busy,
                     t.forward_compute);
}

void StepModel::pace(const Plan& plan, const Frame& frame, std::vector<StageTimes>* stages) {
  const Choices& c = plan.choices;
  const Shared& meeting = shared(plan, frame);
  for (const int stage : frame.cut->distinct) {
    const Reductions& all = gradients_.of(plan, *frame.geometry, *frame.cut, stage);
    StageTimes& t = (*stages)[stage];
    double forward = 0, backward = 0;
    if (c.zero == 3 && !frame.cut->alike) {
      std::tie(forward, backward) = waits_for_layers(plan, frame, stage, all);
    } else {
      const double gather = c.zero == 3 ? all.gather_s : 0;
      const double gather_back = c.zero == 3 ? all.gather_back_s : 0;
      const double reduced = c.overlap_grad_reduce ? all.total_s : 0;
      // Of traffic inside layers beside data's all the time.
      double forward_more = 0, backward_more = 0;
      if (meeting.any) {
        const StageTimes &alone = stages_.times[stage], &beside = meeting.stages[stage];
        forward_more = std::max(0.0, beside.forward_busy - alone.forward_busy);
        backward_more = std::max(0.0, beside.backward_busy - alone.backward_busy);
      }
      const auto slower = [&](double beside, double busy, double computing, double more) {
        double own = busy;
        if (more > 0 && beside > 0) {
          const double share = shared_share(beside, busy, more, meeting.lost);
          beside += share * more * meeting.lost;
          own += share * more;
        }
        return std::max(beside, own + lost_beside(stage, beside, own, computing)) - busy;
      };
      if (c.zero == 3 && !gathers_ahead(all)) {
        // Everything stands between the computations; a reduction is in the way of the next gathering.
        forward = gather;
        backward = gather_back + recomputed_share(c, frame, stage) * all.again_s + all.total_s;
      } else {
        forward = slower(gather, t.forward_busy, t.forward_compute, forward_more);
        backward = slower(gather_back, t.backward_busy, t.backward_compute, backward_more);
        // What one pass leaves of its reductions may go on beside the next.
        backward =
            std::max(backward, slower(gather + gather_back + reduced, t.forward_busy + t.backward_busy,
                                      t.forward_compute + t.backward_compute, forward_more + backward_more) -
                                   forward);
        if (!c.overlap_grad_reduce) backward += all.total_s;
      }
    }
    t.forward += forward;
    t.forward_busy += forward;
    t.backward += backward;
    t.backward_busy += backward;
    t.first_forward += forward / c.interleave;
    t.first_backward += backward / c.interleave;
  }
  for (int stage = 0; stage < c.pp; ++stage)
    if (frame.cut->twin[stage] != stage) (*stages)[stage] = (*stages)[frame.cut->twin[stage]];
}

double StepModel::gather_delay(const Plan& plan, const Frame& frame, const std::vector<StageTimes>& stages) {
  const Choices& c = plan.choices;
  double delay = 0;
  double arrival = 0;  // of the first micro-batch, were nothing late
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = stages[stage];
    if (frame.cut->twin[stage] == stage) {
      const Reductions& all = gradients_.of(plan, *frame.geometry, *frame.cut, stage);
      const LayerSums& own = sums_of(c, frame, stages_.kinds[stage]);
      // Where layers are alike, gathering and computing both run evenly between a chunk's first and last.
      const std::size_t step = frame.cut->alike ? std::max<std::size_t>(1, all.uses.size() / 8) : 1;
      const auto late = [&](const Reductions::Use& use) {
        const int begin = frame.cut->part(stage, use.chunk).begin;
        double before = arrival + own.forward[use.part] - own.forward[begin];
        // The parts between this stage's first chunk and this one have had a micro-batch.
        const int between = part_of(c, stage, use.chunk) - part_of(c, stage, 0);
        if (use.chunk > 0) before += between * t.forward / c.interleave;
        return use.gathered_s - before;
      };
      for (std::size_t i = 0; i < all.uses.size(); i += step) delay = std::max(delay, late(all.uses[i]));
      if (!all.uses.empty()) delay = std::max(delay, late(all.uses.back()));
    }
    arrival += t.first_forward + (stage + 1 < c.pp ? frame.hops[stage] : 0);
  }
  return delay;
}

}  // namespace orrery::planner
