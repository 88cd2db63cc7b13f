#include "planner/closed_form/step_model.h"

#include <algorithm>
#include <cmath>

#include "cost/compute_cost.h"
#include "cost/host_cost.h"
#include "planner/closed_form/figures.h"
#include "planner/closed_form/load_balancing.h"
#include "planner/closed_form/slot_ends.h"
#include "program/operator_work.h"
#include "program/placement.h"
#include "program/schedule.h"
#include "workloads/layer_graph.h"

namespace orrery::planner {
namespace {

bool same_frame(const Choices& a, const Choices& b) {
  return a.tp == b.tp && a.pp == b.pp && a.dp == b.dp && a.cp == b.cp && a.ep == b.ep &&
         a.micro_batch == b.micro_batch && a.interleave == b.interleave &&
         a.sequence_parallel == b.sequence_parallel && a.order == b.order && a.etp == b.etp &&
         a.capacity_factor == b.capacity_factor && a.overlap_experts == b.overlap_experts &&
         a.stage_layers == b.stage_layers && a.degrees == b.degrees && ends_meet(a) == ends_meet(b);
}

bool same_stages(const Choices& a, const Choices& b) {
  return a.recompute == b.recompute && a.recompute_layers == b.recompute_layers &&
         a.recompute_modules == b.recompute_modules &&
         always_splits_backward(a.schedule) == always_splits_backward(b.schedule) && same_frame(a, b);
}

// By how much a device of a node computes faster than plans assume, were all its neighbours idle.
double idle_speedup_of(const Cluster& cluster) {
  double speedup = 1;
  for (const DeviceProfile& profile : cluster.profiles) {
    const auto& scale = profile.concurrency_scale;
    if (scale.empty()) continue;
    const double most = *std::max_element(scale.begin(), scale.end());
    speedup = std::max(speedup, most / kept_speed(cluster.devices(), cluster, profile));
  }
  return speedup;
}

// A slot of P seconds: a pass of t, and a message of h seconds alone, which takes h'. For h' / P of it
// another comes the other way, and beside that it has the share `pace` of its own: h' = h + (1 - pace) h'^2 /
// P, with P = t + h'. (At a pace of half P = h + sqrt(t^2 + h^2).)
double beside_another_s(double hop_s, double pass_s, double pace) {
  const double apart = hop_s - pass_s;
  return (apart + std::sqrt(apart * apart + 4 * pace * hop_s * pass_s)) / (2 * pace);
}

// Of a pipeline with one chunk a stage and these hops (the last goes back to its beginning): at what part of
// its two ends each hop's messages meet others. The nodes at the ends of the pipeline send only one way.
std::vector<double> shared_ends(const std::vector<GroupShape>& hops) {
  std::vector<double> shared(std::max<std::size_t>(1, hops.size()), 1);
  if (hops.size() < 2) return shared;
  const auto leaves = [](const GroupShape& hop) { return hop.nodes > 1; };
  const auto end = hops.end() - 1;
  const bool several_nodes = std::any_of(hops.begin(), end, leaves);
  std::size_t first = 0, last = hops.size() - 2;
  while (several_nodes && !leaves(hops[first])) ++first;
  while (several_nodes && !leaves(hops[last])) --last;
  shared[first] -= 0.5;
  shared[last] -= 0.5;
  return shared;
}

}  // namespace

StepModel::StepModel(std::shared_ptr<const Job> job)
    : job_(std::move(job)),
      sums_(job_),
      geometries_(job_),
      cuts_(job_, sums_.parts(), geometries_.uniform()),
      gradients_(job_, sums_.parts(), geometries_),
      idle_speedup_(idle_speedup_of(job_->cluster)),
      shared_cores_(job_->cluster),
      ranks_copy_(job_->cluster.communication.library == CommunicationLibrary::mpi &&
                  job_->cluster.nodes() == 1) {
  for (const DeviceProfile& profile : job_->cluster.profiles)
    slowest_.push_back(slowest_of(job_->cluster, profile));
  const std::vector<int>& twin = sums_.parts().twin;
  for (int part = 0; part < sums_.parts().count(); ++part)
    if (part == 0 || twin[part] != twin[part - 1]) runs_.push_back(part);
  if (!job_->workload.transformer) crossing_ = crossing_operators(job_->workload);
}

const StepModel::Frame& StepModel::frame(const Choices& c) {
  if (frame_.valid && same_frame(frame_.choices, c)) return frame_;
  frame_.choices = c;
  frame_.valid = true;
  stages_.valid = least_.valid = chunks_.valid = shared_.valid = false;
  frame_.geometry = &geometries_.of(c);
  frame_.cut = &cuts_.of(c);
  frame_.shapes_key = inner_shapes_key(frame_.geometry->shapes);
  frame_.alone_key = inner_shapes_key(frame_.geometry->alone);
  frame_.hops.clear();
  frame_.hops_least.clear();
  frame_.ports_s = 0;
  if (c.pp == 1) return frame_;
  if (!crossing_.empty()) {
    hops_of_graph(c, &frame_);
    return frame_;
  }
  const Plan plan{job_, c};
  const Shard shard = shard_of(plan);
  const double share = message_share(plan);
  // Few ways are different: those of equal shapes cost the same for equal bytes.
  std::uint64_t last_key = 0;
  double last_bytes = -1;
  for (int stage = 0; stage < c.pp; ++stage) {
    // Of the boundary behind the stage's first chunk; from the last stage nothing is sent unless it has more.
    const int boundary = frame_.cut->part(stage, 0).end;
    const double bytes =
        stage + 1 == c.pp && c.interleave == 1
            ? last_bytes
            : share * output_bytes(job_->workload.operators[sums_.parts().begin[boundary] - 1], shard);
    const std::uint64_t key = frame_.geometry->hop_keys[stage];
    const bool same = stage > 0 && bytes == last_bytes && key == last_key;
    last_bytes = bytes;
    last_key = key;
    if (same) {
      frame_.hops.push_back(frame_.hops.back());
      frame_.hops_least.push_back(frame_.hops_least.back());
      continue;
    }
    frame_.hops.push_back(transfer_s(bytes, frame_.geometry->hops[stage], *job_));
    if (share < 1)
      frame_.hops.back() += collective_s(CollectiveKind::all_gather, bytes / share,
                                         frame_.geometry->shapes.at(GroupKind::tensor), *job_);
    frame_.hops_least.push_back(transfer_s(bytes, frame_.geometry->alone_hops[stage], *job_));
  }
  frame_.ports_s = ports_seconds(c, *frame_.geometry, last_bytes);
  return frame_;
}

// Of a transformer, whose stages all send as much.
double StepModel::ports_seconds(const Choices& c, const Geometry& geometry, double bytes) const {
  // Messages that leave a node for one micro-batch, of one rank of the stage.
  const auto leaving = [&](std::size_t stage) {
    const std::size_t before = stage > 0 ? stage - 1 : geometry.alone_hops.size() - 1;
    // Round the ring from the last stage to the first goes what is not of the last chunk.
    const int round = ends_meet(c) ? 0 : c.interleave - 1;
    const int on = stage + 1 < geometry.alone_hops.size() ? c.interleave : round;
    const int back = stage > 0 ? c.interleave : round;
    return (geometry.alone_hops[stage].nodes > 1 ? on : 0) +
           (geometry.alone_hops[before].nodes > 1 ? back : 0);
  };
  double most = 0;
  for (const std::vector<int>& on_node : geometry.on_nodes) {
    double messages = 0;
    for (std::size_t stage = 0; stage < on_node.size(); ++stage) messages += on_node[stage] * leaving(stage);
    most = std::max(most, messages);
  }
  const double rate = ports_bytes_per_s(job_->cluster.groups.front().node, job_->cluster);
  return rate > 0 ? most * bytes / rate : 0;
}

// A message's pace beside one the other way, of its pace alone: half where it fills the port by itself, all
// of it where the node sends only one way. Both together fill the port: what all messages of a micro-batch
// take of it is known.
double StepModel::shared_pace(const Choices& c, const Frame& frame) {
  if (frame.ports_s <= 0) return 0.5;
  const double longest = *std::max_element(frame.hops.begin(), frame.hops.end());
  return std::clamp(c.interleave * longest / frame.ports_s, 0.5, 1.0);
}

// Layers that are different put out different amounts, and several tensors may cross a cut.
void StepModel::hops_of_graph(const Choices& c, Frame* frame) const {
  const Plan plan{job_, c};
  const Shard shard = shard_of(plan);
  for (int stage = 0; stage < c.pp; ++stage) {
    double mean = 0, first_least = 0;
    const int round = ends_meet(c) ? 0 : c.interleave - 1;
    const int chunks = stage + 1 < c.pp ? c.interleave : round;  // that send to the next stage, or it to them
    for (int chunk = 0; chunk < chunks; ++chunk) {
      double all = 0, largest = 0;
      const LayerRange part = frame->cut->part(stage, chunk);
      const bool comes_back = stage + 1 < c.pp && part_of(c, stage + 1, chunk) < part_of(c, stage, chunk);
      // Part p of the model is layer p - 1 (layer_kinds.h).
      for (const int op : crossing_[static_cast<std::size_t>(comes_back ? part.begin : part.end) - 1]) {
        const double bytes = output_bytes(job_->workload.operators[static_cast<std::size_t>(op)], shard);
        all += bytes;
        largest = std::max(largest, bytes);
      }
      mean += transfer_s(all, frame->geometry->hops[stage], *job_) / chunks;
      // Messages travel side by side: none is faster than by itself.
      if (chunk == 0) first_least = transfer_s(largest, frame->geometry->alone_hops[stage], *job_);
    }
    frame->hops.push_back(mean);
    frame->hops_least.push_back(first_least);
  }
}

const LayerSums& StepModel::sums_of(const Choices& c, const Frame& frame, const DeviceKindAt& kind) {
  const bool partly = c.recompute == Recompute::full && c.recompute_layers > 0;
  return sums_.of(c, partly ? Recompute::none : c.recompute, frame.geometry->shapes, frame.shapes_key, kind);
}

double StepModel::Again::more_s(const LayerSums& own, int part) const {
  const int end = std::min(part, to);
  if (sums == nullptr || end <= from) return 0;
  return sums->backward[end] - sums->backward[from] - own.backward[end] + own.backward[from];
}

void StepModel::Again::enter(LayerRange chunk) {
  if (sums == nullptr) return;
  from = std::max(chunk.begin, 1);  // nor is part 0 a layer
  to = std::max(from, std::min({from + left, chunk.end, head}));
  left -= to - from;
}

StepModel::Again StepModel::run_again(const Choices& c, const GroupShapes& shapes, std::uint64_t key,
                                      const DeviceKindAt& kind) {
  if (c.recompute != Recompute::full || c.recompute_layers == 0) return {};
  return {&sums_.of(c, Recompute::full, shapes, key, kind), c.recompute_layers, sums_.parts().count() - 1};
}

StepModel::StageTimes StepModel::stage_times(const Choices& c, const Frame& frame, const GroupShapes& shapes,
                                             std::uint64_t key, int stage, const DeviceKindAt& kind,
                                             std::vector<ChunkTimes>* chunks) {
  const bool partly = c.recompute == Recompute::full && c.recompute_layers > 0;
  const LayerSums& own = sums_.of(c, partly ? Recompute::none : c.recompute, shapes, key, kind);
  Again again = run_again(c, shapes, key, kind);
  const int head = sums_.parts().count() - 1;
  StageTimes times;
  for (int chunk = 0; chunk < c.interleave; ++chunk) {
    const auto [begin, end] = frame.cut->part(stage, chunk);
    const double forward = own.forward[end] - own.forward[begin];
    times.forward += forward;
    times.forward_busy += forward - own.forward_tail[end - 1];
    times.forward_compute += own.forward_compute[end] - own.forward_compute[begin];
    double backward = own.backward[end] - own.backward[begin];
    double compute = own.backward_compute[end] - own.backward_compute[begin];
    double backward_host = own.backward_host[end] - own.backward_host[begin];
    double recomputed = 0;
    again.enter({begin, end});
    if (again.to > again.from) {
      const LayerSums& with = *again.sums;
      recomputed = again.more_s(own, again.to);
      // A layer that is run again begins with computing, not with what the next waits for.
      if (again.to < end) recomputed -= own.backward_tail[again.to];
      backward_host += with.backward_host[again.to] - with.backward_host[again.from] -
                       own.backward_host[again.to] + own.backward_host[again.from];
      compute += with.backward_compute[again.to] - with.backward_compute[again.from] -
                 own.backward_compute[again.to] + own.backward_compute[again.from];
    }
    backward += recomputed;
    times.backward += backward;
    const double paired_gain = own.paired_gain[end] - own.paired_gain[begin];
    times.paired_gain += paired_gain;
    times.weight += own.weight[end] - own.weight[begin];
    times.backward_compute += compute;
    times.forward_host += own.forward_host[end] - own.forward_host[begin];
    times.backward_host += backward_host;
    const double forward_waiting = own.forward_waiting[end] - own.forward_waiting[begin];
    const double backward_waiting = own.backward_waiting[end] - own.backward_waiting[begin];
    times.forward_waiting += forward_waiting;
    times.backward_waiting += backward_waiting;
    // No kernel ends before it is issued: the longest way is the host's up to some part and the device's from
    // there on. In a run of equal parts it changes over at one end.
    double forward_issued = forward, backward_issued = backward;
    if (!own.host_leads) {
      for (const int part : runs_) {
        if (part <= begin || part >= end) continue;
        forward_issued = std::max(forward_issued, own.forward_host[part] - own.forward_host[begin] +
                                                      own.forward[end] - own.forward[part]);
        backward_issued =
            std::max(backward_issued, own.backward_host[end] - own.backward_host[part] + own.backward[part] -
                                          own.backward[begin] + recomputed);
      }
      forward_issued = std::max(forward_issued, own.forward_host[end] - own.forward_host[begin]);
      backward_issued = std::max(backward_issued, backward_host);
    }
    times.forward_issued += forward_issued;
    times.backward_issued += backward_issued;
    times.backward_busy += backward - own.backward_tail[begin];
    const int from = std::max(begin, 2);  // the first layer may have no gradient of its input
    const int to = std::min(end, head);
    // Half of a layer's, or less where experts with few rows write gradients of large weights.
    const double of_layers = to > from ? own.backward_compute[to] - own.backward_compute[from] : 0;
    const double of_weights = to > from ? own.weight[to] - own.weight[from] : 0;
    const double least_of_inputs = std::max(0.0, std::min(of_layers / 2, of_layers - of_weights));
    if (chunks != nullptr)
      chunks->push_back({forward, forward - own.forward_tail[end - 1],
                         own.forward_compute[end] - own.forward_compute[begin], backward,
                         backward - own.backward_tail[begin], compute, least_of_inputs,
                         own.weight[end] - own.weight[begin], paired_gain});
    if (chunk == 0) {
      times.first_forward = forward;
      times.first_forward_compute = own.forward_compute[end] - own.forward_compute[begin];
      times.first_backward = backward;
      times.first_backward_compute = compute;
      times.first_forward_waiting = forward_waiting;
      times.first_backward_waiting = backward_waiting;
      times.least_of_inputs = least_of_inputs;
    }
  }
  return times;
}

void StepModel::all_stages(const Choices& c, const Frame& frame, bool alone, Stages* stages) {
  const bool same_wait = !job_->training.lengths.any() || (stages->of.zero == 3) == (c.zero == 3);
  if (stages->valid && same_stages(stages->of, c) && same_wait) return;
  if (!alone) shared_.valid = false;
  stages->valid = true;
  stages->of = c;
  stages->times.clear();
  stages->kinds.clear();
  // A bound does not count it: rows that are more are computed at a better rate.
  const double wait = job_->training.lengths.any() ? Plan{job_, c}.wait_for_longest() : 1;
  const GroupShapes& shapes = alone ? frame.geometry->alone : frame.geometry->shapes;
  const std::uint64_t key = alone ? frame.alone_key : frame.shapes_key;
  for (int stage = 0; stage < c.pp; ++stage) {
    const int twin = frame.cut->twin[stage];
    if (twin != stage) {
      stages->times.push_back(stages->times[twin]);
      stages->kinds.push_back(stages->kinds[twin]);
      continue;
    }
    const auto& kinds = frame.geometry->kinds[stage];
    StageTimes slowest;
    stages->kinds.push_back(kinds.front());
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      StageTimes one = stage_times(c, frame, shapes, key, stage, kinds[k]);
      if (!alone) one.scale(wait);
      if (k > 0 && alone) {
        // The way through the stage may lead over its fastest devices, and of these the one that computes
        // most gains most where it is faster than assumed.
        one.first_forward = slowest.first_forward = std::min(one.first_forward, slowest.first_forward);
        one.first_forward_compute = slowest.first_forward_compute =
            std::max(one.first_forward_compute, slowest.first_forward_compute);
        one.first_backward = slowest.first_backward = std::min(one.first_backward, slowest.first_backward);
        one.first_backward_compute = slowest.first_backward_compute =
            std::max(one.first_backward_compute, slowest.first_backward_compute);
        one.least_of_inputs = slowest.least_of_inputs =
            std::min(one.least_of_inputs, slowest.least_of_inputs);
      }
      if (k > 0 && one.forward + one.backward <= slowest.forward + slowest.backward) continue;
      slowest = one;
      stages->kinds.back() = kinds[k];
    }
    stages->times.push_back(slowest);
  }
}

double StepModel::body_seconds(const Choices& c, const Frame& frame, const std::vector<StageTimes>& stages,
                               double m) {
  double through = 0;  // one micro-batch, there and back
  double busiest_forward = 0, busiest_backward = 0;
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = stages[stage];
    const double hop = stage + 1 < c.pp ? frame.hops[stage] : 0;
    through += t.forward + t.backward + 2 * hop;
    busiest_forward = std::max({busiest_forward, t.forward_busy, hop});
    busiest_backward = std::max({busiest_backward, t.backward_busy, hop});
  }
  switch (c.schedule) {
    case Schedule::gpipe:
      return through + (m - 1) * (busiest_forward + busiest_backward);
    case Schedule::one_f_one_b:
      if (c.pp == 1) {
        // Passes that run side by side are shorter than one after the other.
        const double gained_s =
            paired_slots({job_, c}, 0, static_cast<std::int64_t>(m)) * stages[0].paired_gain;
        return stages[0].forward + stages[0].backward +
               (m - 1) * (stages[0].forward + stages[0].backward_busy) - gained_s;
      }
      [[fallthrough]];
    case Schedule::zero_bubble: {
      const std::vector<double>& ends = one_f_one_b_ends_of(c, frame, stages, m);
      return *std::max_element(ends.begin(), ends.end());
    }
    case Schedule::interleaved:
    case Schedule::dualpipe_v: {
      const std::vector<double>& ends = chunked_ends_of(c, frame, stages, m);
      return *std::max_element(ends.begin(), ends.end());
    }
  }
  return 0;
}

const std::vector<double>& StepModel::chunked_ends_of(const Choices& c, const Frame& frame,
                                                      const std::vector<StageTimes>& stages, double m) {
  if (!chunks_.valid || !same_stages(chunks_.of, c)) {
    chunks_ = {c, true, {}, {}};
    for (int stage = 0; stage < c.pp; ++stage) {
      const auto twin = static_cast<std::size_t>(frame.cut->twin[stage]);
      std::vector<ChunkTimes>& chunks = chunks_.times.emplace_back();
      if (twin != static_cast<std::size_t>(stage)) {
        chunks_.stages.push_back(chunks_.stages[twin]);
        chunks = chunks_.times[twin];
        continue;
      }
      chunks_.stages.push_back(stage_times(c, frame, frame.geometry->shapes, frame.shapes_key, stage,
                                           stages_.kinds[stage], &chunks));
    }
  }
  std::vector<double> key = {m, static_cast<double>(c.schedule), static_cast<double>(c.pp),
                             static_cast<double>(c.interleave), c.overlap_experts ? 1.0 : 0.0};
  std::vector<std::vector<ChunkSlot>> times;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const StageTimes &whole = stages[stage], &plain = chunks_.stages[stage];
    std::vector<ChunkSlot>& own = times.emplace_back();
    // Whatever makes the stage's passes longer makes all chunks' so.
    const double there = plain.forward > 0 ? whole.forward / plain.forward : 1;
    const double back = plain.backward > 0 ? whole.backward / plain.backward : 1;
    for (const ChunkTimes& t : chunks_.times[stage]) {
      own.push_back({t.forward * there, t.forward_busy * there, t.backward * back, t.backward_busy * back,
                     t.weight * back, t.paired_gain});
      const ChunkSlot& added = own.back();
      key.insert(key.end(), {added.forward, added.forward_busy, added.backward, added.backward_busy,
                             added.weight, added.paired_gain});
    }
  }
  const double pace = shared_pace(c, frame);
  std::vector<double> hops;
  for (std::size_t stage = 0; stage < frame.hops.size(); ++stage)
    hops.push_back(beside_another_s(
        frame.hops[stage], (stages[stage].forward_busy + stages[stage].backward_busy) / (2 * c.interleave),
        pace));
  key.insert(key.end(), hops.begin(), hops.end());
  if (key == chunked_key_) return chunked_ends_;
  chunked_ends_ = chunked_ends(c, times, hops, m, &slot_orders_);
  chunked_key_ = std::move(key);
  return chunked_ends_;
}

const std::vector<double>& StepModel::one_f_one_b_ends_of(const Choices& c, const Frame& frame,
                                                          const std::vector<StageTimes>& stages, double m) {
  const bool weights_wait = splits_backward(c.schedule);
  const double pace = shared_pace(c, frame);
  const std::vector<double> shared = shared_ends(frame.geometry->alone_hops);
  slots_.clear();
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = stages[stage];
    const double weight = weights_wait ? t.weight : 0;
    const double hop = stage + 1 < c.pp ? frame.hops[stage] : 0;
    slots_.push_back({t.forward, t.forward_busy, t.backward - weight, t.backward_busy - weight, weight,
                      beside_another_s(hop, (t.forward_busy + t.backward_busy) / 2,
                                       1 - (1 - pace) * shared[static_cast<std::size_t>(stage)])});
  }
  if (slots_ == slots_laid_ && m == laid_micro_batches_ && weights_wait == laid_weights_wait_)
    return laid_ends_;
  laid_ends_ = one_f_one_b_ends(slots_, m, weights_wait);
  slots_laid_ = slots_;
  laid_micro_batches_ = m;
  laid_weights_wait_ = weights_wait;
  return laid_ends_;
}

std::vector<double> StepModel::done_earlier(const Choices& c, const Frame& frame,
                                            const std::vector<StageTimes>& stages, double m) {
  std::vector<double> earlier;
  if (c.pp > 1 && estimate_lays_slots(c.schedule)) {
    const std::vector<double>& ends =
        c.interleave > 1 ? chunked_ends_of(c, frame, stages, m) : one_f_one_b_ends_of(c, frame, stages, m);
    const double last = *std::max_element(ends.begin(), ends.end());
    for (const double end : ends) earlier.push_back(last - end);
    return earlier;
  }
  earlier.push_back(0);
  for (int stage = 0; stage + 1 < c.pp; ++stage)
    earlier.push_back(earlier.back() + (stages[stage].first_backward + frame.hops[stage]));
  return earlier;
}

double StepModel::replica_seconds(const Plan& plan, const Frame& own, double m,
                                  const std::vector<StageTimes>** stages) {
  const Choices& c = plan.choices;
  // Where the host waits for every pass it starts each with the device; else it runs ahead of it through the
  // whole step.
  const bool host_waits = pipeline_blocks(plan) || job_->runtime.synchronous_passes;
  const bool paced = c.zero >= 2 && c.dp * c.cp > 1;
  if (host_waits || paced) {
    paced_ = **stages;
    for (StageTimes& t : paced_) {
      if (!host_waits) break;
      t.forward_busy += t.forward_issued - t.forward;
      t.backward_busy += t.backward_issued - t.backward;
      t.forward = t.forward_issued;
      t.backward = t.backward_issued;
    }
    if (paced) pace(plan, own, &paced_);
    *stages = &paced_;
  }
  double body =
      std::max(body_seconds(c, own, **stages, m), m * own.ports_s) + m * job_->runtime.micro_batch_overhead_s;
  if (c.zero >= 1 && c.dp * c.cp > 1) body += gather_delay(plan, own, **stages) + lost_to_gathers(plan, own);
  if (!host_waits) {
    // The host's way through the step: all that it issues, and what the device still has to do then.
    double earlier = 0;
    for (int stage = 0; stage < c.pp; ++stage) {
      const StageTimes& t = (**stages)[stage];
      const double once = std::max(t.forward_issued + t.backward, t.forward_host + t.backward_issued);
      const double pace =
          c.pp == 1 ? t.forward + t.backward_busy - (c.overlap_experts ? t.paired_gain : 0) : 0;
      body = std::max(body, (m - 1) * std::max(pace, t.forward_host + t.backward_host) + once + earlier);
      earlier += t.first_backward + (stage + 1 < c.pp ? own.hops[stage] : 0);
    }
  }
  return body;
}

StepTimes StepModel::times(const Choices& c, const Bound& least) {
  const Plan plan{job_, c};
  const Frame& own = frame(c);
  const auto m = static_cast<double>(plan.micro_batches());
  StepTimes result;
  result.lower_bound_s = least.step_s;
  all_stages(c, own, /*alone=*/false, &stages_);
  const std::vector<StageTimes>* stages = &stages_.times;
  double body = 0;
  if (own.geometry->replicas.empty()) {
    body = replica_seconds(plan, own, m, &stages);
    for (const StageTimes& t : stages_.times)
      result.compute_s += m * (t.forward_compute + t.backward_compute) / c.pp;
  } else {
    // Heterogeneous devices: each replica at its own pace; the last to finish decides.
    of_replicas_.clear();
    std::vector<double> most;
    for (const Geometry::Replicas& replicas : own.geometry->replicas) {
      std::vector<StageTimes>& times = of_replicas_.emplace_back();
      most.push_back(0);
      double samples = 0;
      for (const int member : replicas.members) {
        const auto share = static_cast<double>(plan.micro_batches_of(member));
        most.back() = std::max(most.back(), share);
        samples += share;
      }
      for (int stage = 0; stage < c.pp; ++stage) {
        const Standing& at = replicas.stages[stage];
        times.push_back(stage_times(c, own, at.shapes, at.key, stage, at.kind));
        times.back().scale(plan.wait_for_longest());
        result.compute_s +=
            samples * (times.back().forward_compute + times.back().backward_compute) / (c.dp * c.pp);
      }
    }
    std::size_t last = 0;
    for (std::size_t i = 0; i < of_replicas_.size(); ++i) {
      const std::vector<StageTimes>* of = &of_replicas_[i];
      const double seconds = replica_seconds(plan, own, most[i], &of);
      if (seconds > body) last = i;
      body = std::max(body, seconds);
    }
    stages = &of_replicas_[last];
    replica_seconds(plan, own, most[last], &stages);
  }
  endings_.clear();
  const double quickest = quickest_reduction(plan, own);
  for (int stage = 0; stage < c.pp; ++stage) {
    const int twin = own.cut->twin[stage];
    const StageTimes& t = (*stages)[stage];
    endings_.push_back(twin != stage ? endings_[twin]
                                     : ending(plan, own, stage, t, stages_.kinds[stage], quickest));
    result.compute_s += endings_[stage].optimizer / c.pp;
  }
  // Gradients, clipping, optimizer, parameters. Later stages are done earlier.
  double reduced = body;
  double done = body;
  const bool clips = job_->runtime.clip_gradients && c.world() > 1;
  const std::vector<double> earlier = done_earlier(c, own, *stages, m);
  if (quickest > 1) take_turns_at_ports(own, earlier, quickest);
  for (Ending& end : endings_) end.reduce += end.last;
  for (int stage = 0; stage < c.pp; ++stage)
    reduced = std::max(reduced, body - earlier[stage] + endings_[stage].reduce);
  for (int stage = 0; stage < c.pp; ++stage) {
    const double ready = clips ? reduced : body - earlier[stage] + endings_[stage].reduce;
    done = std::max(done, ready + endings_[stage].optimizer + endings_[stage].gather);
  }
  done = std::max(done, reading_s(plan, own));
  result.estimate_s = std::max(done + job_->runtime.step_overhead_s, result.lower_bound_s);
  return result;
}

std::uint64_t StepModel::buckets_key(const Choices& c) {
  return gradients_.buckets_key({job_, c}, *frame(c).cut);
}

double StepModel::stage_compute_s(const Choices& c, int stage) {
  all_stages(c, frame(c), /*alone=*/false, &stages_);
  return stages_.times[stage].forward_compute + stages_.times[stage].backward_compute;
}

std::vector<std::int64_t> StepModel::shares_by_speed(const Choices& c) {
  const Frame& own = frame(c);
  const std::int64_t batch = job_->training.global_batch;
  if (own.geometry->replicas.size() < 2 || !job_->training.divides_over(1, c.micro_batch)) return {};
  std::vector<double> seconds(static_cast<std::size_t>(c.dp));
  for (const Geometry::Replicas& replicas : own.geometry->replicas) {
    double slowest = 0;
    for (int stage = 0; stage < c.pp; ++stage) {
      const Standing& at = replicas.stages[stage];
      const StageTimes t = stage_times(c, own, at.shapes, at.key, stage, at.kind);
      slowest = std::max(slowest, t.forward_busy + t.backward_busy);
    }
    for (const int member : replicas.members) seconds[static_cast<std::size_t>(member)] = slowest;
  }
  const MicroBatchRule rule = micro_batch_rule(c.schedule, c.pp);
  std::vector<std::int64_t> shares = balanced_shares(seconds, batch / c.micro_batch, rule.unit);
  if (rule.unit == 1 && *std::min_element(shares.begin(), shares.end()) < rule.least) return {};
  if (std::all_of(shares.begin(), shares.end(), [&](auto share) { return share == shares.front(); }))
    return {};
  for (std::int64_t& share : shares) share *= c.micro_batch;
  return shares;
}

std::vector<int> StepModel::cut_by_speed(const Choices& c) {
  const Frame& own = frame(c);
  if (own.geometry->replicas.empty() || c.pp == 1 || c.interleave > 1) return {};
  const int layers = job_->workload.layers;
  std::vector<std::vector<double>> seconds;
  for (int stage = 0; stage < c.pp; ++stage) {
    std::vector<double> slowest(static_cast<std::size_t>(layers) + 1, 0);
    for (const Geometry::Replicas& replicas : own.geometry->replicas) {
      const Standing& at = replicas.stages[stage];
      const LayerSums& sums = sums_.of(c, c.recompute, at.shapes, at.key, at.kind);
      const auto until = [&](std::size_t part) { return sums.forward[part] + sums.backward[part]; };
      std::vector<double> own_sums = {0};
      for (int layer = 1; layer <= layers; ++layer) {
        // What stands before the first layer and after the last belongs to it.
        const std::size_t end =
            layer == layers ? sums.forward.size() - 1 : static_cast<std::size_t>(layer) + 1;
        own_sums.push_back(until(end));
      }
      if (own_sums.back() > slowest.back()) slowest = std::move(own_sums);
    }
    seconds.push_back(std::move(slowest));
  }
  return cut_by_stage_times(seconds);
}

std::vector<double> StepModel::layer_seconds(const Choices& c) {
  const Geometry& geometry = geometries_.of(c);
  const LayerSums& sums = sums_.of(c, c.recompute, geometry.shapes, inner_shapes_key(geometry.shapes),
                                   geometry.kinds.front().front());
  const int layers = job_->workload.layers;
  std::vector<double> seconds(static_cast<std::size_t>(layers), 0.0);
  for (int part = 0; part < sums_.parts().count(); ++part)
    seconds[static_cast<std::size_t>(std::clamp(part - 1, 0, layers - 1))] +=
        sums.forward[part + 1] - sums.forward[part] + sums.backward[part + 1] - sums.backward[part];
  return seconds;
}

double estimate_step_seconds(const Plan& plan) {
  return Estimator(plan.job).times(plan.choices).estimate_s;
}

}  // namespace orrery::planner
