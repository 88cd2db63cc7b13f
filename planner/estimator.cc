#include "planner/estimator.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/evaluation.h"
#include "program/compute_cost.h"
#include "program/operator_work.h"
#include "program/placement.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

// Stages over which loops of the 1F1B steady state are searched one by one; longer pipelines only look at
// loops that end at the last stage.
constexpr int kAllLoops = 32;

std::array<int, 5> order_of(const Choices& choices) {
  std::array<int, 5> order{};
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(choices.order[i]);
  return order;
}

// Ports that the devices of a node share are shared by all groups of one kind at work at once: with `inner`
// ranks of other groups between two members of one, that many groups leave the node together.
double share_of_ports(const GroupShape& shape, const NodeType& node, int groups_of_node) {
  if (shape.nodes <= 1 || groups_of_node <= 1 || shape.inter_bandwidth_bytes_per_s <= 0) return 1;
  const double all = node.nic.bandwidth_bytes_per_s * node.nic.count;
  return std::min(1.0, all / (shape.inter_bandwidth_bytes_per_s * groups_of_node));
}

// The memory transport of one host is shared by whatever its ranks send at once.
void share(GroupShape& shape, double fraction) {
  shape.inter_bandwidth_bytes_per_s *= fraction;
}

}  // namespace

Estimator::Estimator(std::shared_ptr<const Job> job)
    : job_(std::move(job)), network_(job_->cluster), sketch_(job_->workload) {
  uniform_ = job_->cluster.groups.size() == 1 && job_->cluster.overrides.empty();
  const auto& twin = sketch_.parts().twin;
  alike_ = uniform_ && std::all_of(twin.begin() + 1, twin.end() - 1, [](int other) { return other == 1; });
  for (int part = 0; part < sketch_.parts().count(); ++part)
    if (part == 0 || sketch_.stand_in(part) != sketch_.stand_in(part - 1)) runs_.push_back(part);
}

const Estimator::Geometry& Estimator::geometry(const Choices& c) {
  const auto order = order_of(c);
  const std::array<int, 11> key = {c.tp,     c.pp,     c.dp,     c.cp,     c.ep,    c.shard_group,
                                   order[0], order[1], order[2], order[3], order[4]};
  if (last_geometry_.second != nullptr && last_geometry_.first == key) return *last_geometry_.second;
  const auto [entry, fresh] = geometries_.try_emplace(key);
  Geometry& geometry = entry->second;
  last_geometry_ = {key, &geometry};
  if (!fresh) return geometry;
  const Plan plan{job_, c};
  const auto shape_of = [&](const Group& group) {
    std::vector<int> devices;
    for (const int rank : group.ranks) devices.push_back(device_of(plan, rank));
    GroupShape shape = group_shape(network_, devices);
    const NodeType& node = job_->cluster.groups.front().node;
    share(shape, share_of_ports(shape, node, node.devices / std::max(1, shape.ranks_per_node)));
    return shape;
  };
  std::vector<Group> groups = {tensor_group(plan, 0), data_group(plan, 0), context_group(plan, 0)};
  if (c.ep > 1) {
    groups.push_back(expert_group(plan, 0));
    groups.push_back(expert_data_group(plan, 0));
  }
  if (c.shard_group > 0) {
    groups.push_back(shard_group(plan, 0));
    groups.push_back(replicate_group(plan, 0));
  }
  for (const Group& group : groups)
    if (group.ranks.size() > 1) geometry.shapes[group.kind] = shape_of(group);
  Coordinates at = coordinates_of(plan, 0);
  for (int stage = 0; stage < c.pp && c.pp > 1; ++stage) {
    at.pp = stage;
    const int from = rank_of(plan, at);
    at.pp = (stage + 1) % c.pp;
    geometry.hops.push_back(shape_of({GroupKind::pipeline, {from, rank_of(plan, at)}}));
  }
  if (c.pp > 1) geometry.shapes[GroupKind::embedding] = geometry.hops.back();
  geometry.kinds.resize(static_cast<std::size_t>(c.pp));
  if (uniform_) {
    for (auto& kinds : geometry.kinds) kinds.push_back({job_->cluster.groups.front().node.profile, 1.0});
  } else {
    std::vector<std::set<Kind>> seen(static_cast<std::size_t>(c.pp));
    for (int rank = 0; rank < c.world(); ++rank) {
      const int device = device_of(plan, rank);
      const int profile = job_->cluster.groups[job_->cluster.place(device).group].node.profile;
      seen[coordinates_of(plan, rank).pp].insert({profile, job_->cluster.device_speed(device)});
    }
    for (int stage = 0; stage < c.pp; ++stage)
      geometry.kinds[stage].assign(seen[stage].begin(), seen[stage].end());
  }
  return geometry;
}

const Estimator::Sums& Estimator::sums(const Choices& c, const Geometry& geometry, Recompute recompute,
                                       const Kind& kind) {
  // Groups inside a layer depend on the whole layout, unless only tensor parallelism, innermost,
  // communicates.
  const auto order = order_of(c);
  const bool local = c.cp == 1 && c.ep == 1 && c.zero < 2 && c.order[0] == Dimension::tp;
  const int zero = c.zero < 2 ? 0 : c.zero;
  const std::array<int, 17> key = {c.tp,
                                   c.cp,
                                   c.ep,
                                   c.etp,
                                   c.micro_batch,
                                   c.sequence_parallel,
                                   static_cast<int>(recompute),
                                   zero,
                                   local ? 0 : c.pp,
                                   local ? 0 : c.dp,
                                   static_cast<int>(c.capacity_factor * 1e6),
                                   local ? 0 : c.shard_group,
                                   order[0],
                                   order[1],
                                   order[2],
                                   order[3],
                                   order[4]};
  if (last_sums_ != nullptr && last_sums_->first == std::pair{key, kind}) return last_sums_->second;
  const auto [entry, fresh] = sums_.try_emplace({key, kind});
  Sums& sums = entry->second;
  last_sums_ = &*entry;
  if (!fresh) return sums;
  Choices choices = c;
  choices.recompute = recompute;
  choices.recompute_layers = 0;
  const std::vector<LayerTime> times =
      layer_times(*job_, sketch_, choices, job_->cluster.profiles[kind.profile], std::max(kind.speed, 1e-9),
                  geometry.shapes);
  const int parts = sketch_.parts().count();
  for (auto* sum : {&sums.forward, &sums.backward, &sums.forward_compute, &sums.backward_compute,
                    &sums.forward_host, &sums.backward_host})
    sum->assign(1, 0.0);
  for (int part = 0; part < parts; ++part) {
    const LayerTime& time = times[sketch_.stand_in(part)];
    sums.forward.push_back(sums.forward.back() + time.forward.serial_s);
    sums.backward.push_back(sums.backward.back() + time.backward.serial_s);
    sums.forward_compute.push_back(sums.forward_compute.back() + time.forward.compute_s);
    sums.backward_compute.push_back(sums.backward_compute.back() + time.backward.compute_s);
    sums.forward_host.push_back(sums.forward_host.back() + time.forward.host_s);
    sums.backward_host.push_back(sums.backward_host.back() + time.backward.host_s);
    sums.host_leads &=
        time.forward.host_s <= time.forward.serial_s && time.backward.host_s <= time.backward.serial_s;
    sums.forward_tail.push_back(time.forward.tail_s);
    sums.backward_tail.push_back(time.backward.tail_s);
  }
  return sums;
}

std::pair<int, int> Estimator::parts_of(const Plan& plan, int stage, int chunk) const {
  const LayerRange layers = layers_of(plan, stage, chunk);
  const bool first = stage == 0 && chunk == 0;
  const bool last = stage == plan.choices.pp - 1 && chunk == plan.choices.interleave - 1;
  return {first ? 0 : 1 + layers.begin, last ? sketch_.parts().count() : 1 + layers.end};
}

Estimator::StageTimes Estimator::stage_times(const Plan& plan, const Geometry& geometry, int stage,
                                             const Kind& kind) {
  const Choices& c = plan.choices;
  const bool partly = c.recompute == Recompute::full && c.recompute_layers > 0;
  const Sums& own = sums(c, geometry, partly ? Recompute::none : c.recompute, kind);
  const Sums* again = partly ? &sums(c, geometry, Recompute::full, kind) : nullptr;
  StageTimes times;
  times.forward = times.forward_busy = times.forward_issued = job_->runtime.micro_batch_overhead_s;
  int left = c.recompute_layers;
  for (int chunk = 0; chunk < c.interleave; ++chunk) {
    const auto [begin, end] = parts_of(plan, stage, chunk);
    const double forward = own.forward[end] - own.forward[begin];
    times.forward += forward;
    times.forward_busy += forward - own.forward_tail[end - 1];
    times.forward_compute += own.forward_compute[end] - own.forward_compute[begin];
    double backward = own.backward[end] - own.backward[begin];
    times.backward_compute += own.backward_compute[end] - own.backward_compute[begin];
    double backward_host = own.backward_host[end] - own.backward_host[begin];
    double recomputed = 0;
    if (again != nullptr) {
      const int from = std::max(begin, 1);
      const int to = std::min({from + left, end, sketch_.parts().count() - 1});
      if (to > from) {
        left -= to - from;
        recomputed = again->backward[to] - again->backward[from] - own.backward[to] + own.backward[from];
        backward_host += again->backward_host[to] - again->backward_host[from] - own.backward_host[to] +
                         own.backward_host[from];
        times.backward_compute += again->backward_compute[to] - again->backward_compute[from] -
                                  own.backward_compute[to] + own.backward_compute[from];
      }
    }
    backward += recomputed;
    times.backward += backward;
    times.backward_busy += backward - own.backward_tail[begin];
    times.forward_host += own.forward_host[end] - own.forward_host[begin];
    times.backward_host += backward_host;
    // No kernel ends before it is issued: the longest way is the host's up to some part and the device's from
    // there on. In a run of equal parts it changes over at one end.
    double forward_issued = forward, backward_issued = backward;
    if (!own.host_leads) {
      const auto change_over = [&](int part) {
        forward_issued = std::max(forward_issued, own.forward_host[part] - own.forward_host[begin] +
                                                      own.forward[end] - own.forward[part]);
        backward_issued =
            std::max(backward_issued, own.backward_host[end] - own.backward_host[part] + own.backward[part] -
                                          own.backward[begin] + recomputed);
      };
      for (const int part : runs_)
        if (part > begin && part < end) change_over(part);
      forward_issued = std::max(forward_issued, own.forward_host[end] - own.forward_host[begin]);
      backward_issued = std::max(backward_issued, backward_host);
    }
    times.forward_issued += forward_issued;
    times.backward_issued += backward_issued;
  }
  return times;
}

const Estimator::Buckets& Estimator::buckets(const Plan& plan, int stage) {
  const Choices& c = plan.choices;
  const bool by_layer = c.zero == 3;
  const double limit = by_layer ? 0 : plan.bucket_bytes();
  // Uneven stages are of one pipeline at a time: their layers are told apart by hashing none, but by
  // clearing.
  const std::array<int, 9> key = {c.tp,
                                  c.pp,
                                  c.ep,
                                  c.etp,
                                  c.interleave,
                                  stage,
                                  by_layer,
                                  static_cast<int>(c.stage_layers.size()),
                                  c.stage_layers.empty() ? 0 : c.stage_layers[0]};
  const auto [entry, fresh] = buckets_.try_emplace({key, limit});
  Buckets& result = entry->second;
  if (!fresh) return result;
  const auto& operators = job_->workload.operators;
  const Shard shard = shard_of(plan);
  const double element_bytes = bytes_of(plan.gradient_type());
  for (int chunk = c.interleave - 1; chunk >= 0; --chunk) {
    const auto [begin, end] = parts_of(plan, stage, chunk);
    for (const bool expert : {false, true}) {
      Bucket open{0, 0, chunk, expert};
      const auto close = [&] {
        if (open.elements > 0) result.buckets.push_back(open);
        open.elements = 0;
      };
      for (int part = end - 1; part >= begin; --part) {
        if (by_layer) close();
        for (int i = sketch_.parts().begin[part + 1] - 1; i >= sketch_.parts().begin[part]; --i) {
          Operator single;
          single.kind = operators[i].kind;
          for (const ParameterTensor& tensor : operators[i].parameters) {
            if (tensor.expert != expert) continue;
            single.parameters.assign(1, tensor);
            const bool alias = !tensor.tied_to.empty();
            if (alias && c.pp == 1) continue;
            if (alias) single.parameters[0].tied_to.clear();
            const auto elements = static_cast<double>(local_parameters(single, shard));
            if (alias) {
              result.tied += elements;
              continue;
            }
            if (!expert && tensor.split_dim < 0) result.replicated += elements;
            if (limit > 0 && open.elements > 0 && (open.elements + elements) * element_bytes > limit) close();
            open.elements += elements;
            open.part = part;
          }
        }
      }
      close();
    }
  }
  return result;
}

double Estimator::collective_seconds(CollectiveKind kind, double bytes, const GroupShape& shape) {
  if (shape.ranks <= 1 || bytes <= 0) return 0;
  return achieved_seconds(plan_collective(kind, bytes, shape, job_->cluster), bytes, job_->runtime);
}

const Estimator::Reductions& Estimator::reductions(const Plan& plan, const Geometry& geometry, int stage) {
  const Choices& c = plan.choices;
  const Buckets& all = buckets(plan, stage);
  const int variant = c.zero * 4 + (c.sequence_parallel ? 2 : 0) + (stage == 0 || stage == c.pp - 1 ? 1 : 0);
  const auto [entry, fresh] = reductions_.try_emplace({&geometry, &all, variant});
  Reductions& result = entry->second;
  if (!fresh) return result;
  const double gradient_bytes = bytes_of(plan.gradient_type());
  const double weight_bytes = bytes_of(plan.parameter_type());
  const auto shape_of = [&](bool expert) -> const GroupShape* {
    const auto kind = expert && c.ep > 1             ? GroupKind::expert_data
                      : c.shard_group > 0 && !expert ? GroupKind::shard
                                                     : GroupKind::data;
    const auto at = geometry.shapes.find(kind);
    return at == geometry.shapes.end() ? nullptr : &at->second;
  };
  const CollectiveKind reduce = c.zero >= 1 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  for (const Bucket& bucket : all.buckets) {
    const GroupShape* shape = shape_of(bucket.expert);
    result.owned += bucket.elements / (c.zero >= 1 && shape != nullptr ? shape->ranks : 1);
    if (shape == nullptr) continue;
    result.steps.push_back(
        {collective_seconds(reduce, bucket.elements * gradient_bytes, *shape), bucket.part, bucket.chunk});
    if (c.zero >= 1)
      result.gather_s +=
          collective_seconds(CollectiveKind::all_gather, bucket.elements * weight_bytes, *shape);
  }
  if (c.pp > 1 && (stage == 0 || stage == c.pp - 1)) {
    const double tied = buckets(plan, c.pp - 1).tied;
    result.last_s += collective_seconds(CollectiveKind::all_reduce, tied * gradient_bytes,
                                        geometry.shapes.at(GroupKind::embedding));
    if (stage > 0) result.owned += tied;
  }
  const auto tensor = geometry.shapes.find(GroupKind::tensor);
  if (c.sequence_parallel && tensor != geometry.shapes.end()) {
    const GroupShape* shape = shape_of(false);
    const double shards = c.zero >= 1 && shape != nullptr ? shape->ranks : 1;
    result.last_s += collective_seconds(CollectiveKind::all_reduce, all.replicated / shards * gradient_bytes,
                                        tensor->second);
  }
  return result;
}

Estimator::Ending Estimator::ending(const Plan& plan, const Geometry& geometry, int stage, const Kind& kind) {
  const Choices& c = plan.choices;
  const Reductions& all = reductions(plan, geometry, stage);
  Ending ending;
  // ZeRO-3 keeps shards; gathered beside the next step's forward passes, parameters cost nothing here.
  const bool gathers = c.zero >= 1 && c.zero <= 2 && !job_->runtime.overlap_param_gather;
  ending.gather = gathers ? all.gather_s : 0;
  if (!all.steps.empty()) {
    const bool partly = c.recompute == Recompute::full && c.recompute_layers > 0;
    const Sums& own = sums(c, geometry, partly ? Recompute::none : c.recompute, kind);
    const int begin = parts_of(plan, stage, 0).first;
    double at_s = -1e300;  // on the data stream, from the end of the last backward pass
    for (const Reductions::Step& step : all.steps) {
      const double ready = !c.overlap_grad_reduce ? 0
                           : step.chunk > 0       ? -own.backward[begin + 1] + own.backward[begin]
                                                  : own.backward[begin] - own.backward[step.part];
      at_s = std::max(at_s, ready) + step.seconds;
    }
    ending.reduce = std::max(0.0, at_s);
  }
  ending.reduce += all.last_s;
  const double traffic =
      optimizer_traffic_per_parameter(job_->training.optimizer, job_->training.precision, job_->runtime);
  ending.optimizer = optimizer_seconds(all.owned * traffic, job_->cluster.profiles[kind.profile]) /
                     job_->runtime.memory_bound_efficiency / kind.speed;
  return ending;
}

namespace {

// Seconds that a 1F1B pipeline takes for one more micro-batch. Any run of stages [s, e] is a loop: the
// backward pass comes back from e to s, which answers with a forward pass that e needs; e - s + 1
// micro-batches are in it.
template <typename Stage>
double period_1f1b(const std::vector<Stage>& stages) {
  const int count = static_cast<int>(stages.size());
  double longest = 0;
  for (int first = 0; first < count; ++first) {
    double loop = 0;
    for (int last = first; last < count; ++last) {
      const Stage& stage = stages[last];
      if (last > first) loop += 2 * stages[last - 1].hop;
      const double alone = stage.forward_busy + stage.backward_busy;
      longest = std::max(longest, alone);
      loop += stage.forward + stage.backward;
      if (count > kAllLoops && last != count - 1 && last != first + 1) continue;
      if (last > first) longest = std::max(longest, loop / (last - first + 1));
    }
  }
  return longest;
}

}  // namespace

bool Estimator::even(const Choices& c) const {
  return alike_ && c.stage_layers.empty() && job_->workload.layers % (c.pp * c.interleave) == 0;
}

void Estimator::all_stages(const Plan& plan, const Geometry& geometry, std::vector<StageTimes>* stages,
                           std::vector<Kind>* which) {
  const Choices& c = plan.choices;
  stages->clear();
  which->clear();
  for (int stage = 0; stage < c.pp; ++stage) {
    if (even(c) && stage > 1 && stage < c.pp - 1) {
      stages->push_back((*stages)[1]);
      which->push_back((*which)[1]);
      continue;
    }
    const auto& kinds = geometry.kinds[stage];
    StageTimes slowest;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const StageTimes one = stage_times(plan, geometry, stage, kinds[k]);
      if (k > 0 && one.forward + one.backward <= slowest.forward + slowest.backward) continue;
      slowest = one;
      which->resize(static_cast<std::size_t>(stage) + 1);
      which->back() = kinds[k];
    }
    stages->push_back(slowest);
  }
}

const std::vector<double>& Estimator::hop_seconds(const Plan& plan, const Geometry& geometry) {
  const int boundary = parts_of(plan, 0, 0).second;
  const double bytes =
      output_bytes(job_->workload.operators[sketch_.parts().begin[boundary] - 1], shard_of(plan));
  const auto [entry, fresh] = hops_.try_emplace({&geometry, bytes});
  if (fresh) {
    for (const GroupShape& hop : geometry.hops)
      entry->second.push_back(
          achieved_seconds(plan_transfer(bytes, hop, job_->cluster), bytes, job_->runtime));
  }
  return entry->second;
}

double Estimator::bound(const Plan& plan, const Geometry& geometry, const std::vector<StageTimes>& stages,
                        const std::vector<Kind>& kinds) {
  const Choices& c = plan.choices;
  const auto m = static_cast<double>(plan.micro_batches());
  const double traffic =
      optimizer_traffic_per_parameter(job_->training.optimizer, job_->training.precision, job_->runtime);
  // Nothing reaches a stage before the stages before it have run their first chunk, nor does the step end
  // before what left it last has come back through them. Compute only: no communication is counted.
  const double first = optimizer_seconds(reductions(plan, geometry, 0).owned * traffic,
                                         job_->cluster.profiles[kinds[0].profile]) /
                       job_->runtime.memory_bound_efficiency / kinds[0].speed;
  double there = 0, back = 0, least = 0;
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = stages[stage];
    const double own = m * (t.forward_compute + t.backward_compute);
    least = std::max(least, there + own + back + first);
    there += t.forward_compute / c.interleave;
    // A weight gradient may wait until the input's has left: half of the backward pass is not in the way.
    back += t.backward_compute / c.interleave / (c.schedule == Schedule::zero_bubble ? 2 : 1);
  }
  return least;
}

double Estimator::lower_bound_s(const Choices& choices) {
  const Plan plan{job_, choices};
  const Geometry& place = geometry(choices);
  all_stages(plan, place, &stages_, &kinds_);
  return bound(plan, place, stages_, kinds_);
}

StepTimes Estimator::times(const Choices& c) {
  const Plan plan{job_, c};
  const Geometry& place = geometry(c);
  const auto m = static_cast<double>(plan.micro_batches());
  std::vector<StageTimes>& stages = stages_;
  all_stages(plan, place, &stages, &kinds_);
  std::vector<Ending> endings;
  for (int stage = 0; stage < c.pp; ++stage) {
    const bool twin = even(c) && stage > 1 && stage < c.pp - 1;
    endings.push_back(twin ? endings[1] : ending(plan, place, stage, kinds_[stage]));
  }
  if (c.pp > 1) {
    const std::vector<double>& hops = hop_seconds(plan, place);
    for (int stage = 0; stage < c.pp; ++stage) stages[stage].hop = hops[stage];
  }

  // Where the host waits for every pass it starts each with the device; else it runs ahead of it through the
  // whole step.
  const bool host_waits = pipeline_blocks(plan) || job_->runtime.synchronous_passes;
  for (StageTimes& t : stages) {
    if (!host_waits) break;
    t.forward_busy += t.forward_issued - t.forward;
    t.backward_busy += t.backward_issued - t.backward;
    t.forward = t.forward_issued;
    t.backward = t.backward_issued;
  }

  // From ZeRO-2 on every micro-batch's gradients are reduced, with ZeRO-3 parameters are gathered for each
  // pass: where that takes longer than the computation beside it, it sets the pace.
  for (int stage = 0; stage < c.pp && c.zero >= 2; ++stage) {
    if (even(c) && stage > 1 && stage < c.pp - 1) {
      stages[stage].backward_busy = stages[1].backward_busy;
      continue;
    }
    const Reductions& all = reductions(plan, place, stage);
    double data = c.zero == 3 ? 2 * all.gather_s : 0;
    for (const Reductions::Step& step : all.steps) data += step.seconds;
    StageTimes& t = stages[stage];
    const double beside = c.overlap_grad_reduce ? t.forward_busy + t.backward_busy : 0;
    t.backward_busy += std::max(0.0, data - beside);
  }

  // The pipeline: until stage 0 has run its last backward pass.
  double through = 0;  // one micro-batch, there and back
  double busiest = 0, busiest_forward = 0, busiest_backward = 0;
  StepTimes result;
  result.lower_bound_s = bound(plan, place, stages, kinds_);
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = stages[stage];
    const bool sends = stage + 1 < c.pp;
    through += t.forward + t.backward + (sends ? 2 * t.hop : 0);
    busiest = std::max(busiest, t.forward_busy + t.backward_busy);
    busiest_forward = std::max({busiest_forward, t.forward_busy, sends ? t.hop : 0});
    busiest_backward = std::max({busiest_backward, t.backward_busy, sends ? t.hop : 0});
    result.compute_s += (m * (t.forward_compute + t.backward_compute) + endings[stage].optimizer) / c.pp;
  }
  double body = 0;
  switch (c.schedule) {
    case Schedule::gpipe:
      body = through + (m - 1) * (busiest_forward + busiest_backward);
      break;
    case Schedule::one_f_one_b:
      body = c.pp == 1 ? stages[0].forward + stages[0].backward +
                             (m - 1) * (stages[0].forward + stages[0].backward_busy)
                       : through + (m - 1) * (m < c.pp ? busiest : period_1f1b(stages));
      break;
    case Schedule::interleaved: {
      // Each stage's work, and the way through the first chunks of the others and back.
      double hops = 0;
      for (int stage = 0; stage + 1 < c.pp; ++stage) hops += 2 * stages[stage].hop;
      const StageTimes& last = stages.back();
      body = m * busiest + (through - hops - last.forward - last.backward) / c.interleave + hops;
      break;
    }
    case Schedule::zero_bubble: {
      double weights = 0;
      for (const StageTimes& t : stages) weights = std::max(weights, t.backward_busy / 2);
      body = through + (m - 1) * period_1f1b(stages) - (c.pp - 1) * weights;
      break;
    }
  }
  if (!host_waits) {
    // The host's way through the step: all that it issues, and what the device still has to do then.
    double earlier = 0;
    for (int stage = 0; stage < c.pp; ++stage) {
      const StageTimes& t = stages[stage];
      const double once = std::max(t.forward_issued + t.backward, t.forward_host + t.backward_issued);
      const double pace = c.pp == 1 ? t.forward + t.backward_busy : 0;
      body = std::max(body, (m - 1) * std::max(pace, t.forward_host + t.backward_host) + once + earlier);
      earlier += t.backward / c.interleave + t.hop;
    }
  }
  // Gradients, clipping, optimizer, parameters. Later stages are done earlier.
  double reduced = body;
  double done = body;
  const bool clips = job_->runtime.clip_gradients && c.world() > 1;
  double earlier = 0;
  for (int stage = 0; stage < c.pp; ++stage) {
    reduced = std::max(reduced, body - earlier + endings[stage].reduce);
    earlier += stages[stage].backward / c.interleave + stages[stage].hop;
  }
  earlier = 0;
  for (int stage = 0; stage < c.pp; ++stage) {
    const double ready = clips ? reduced : body - earlier + endings[stage].reduce;
    done = std::max(done, ready + endings[stage].optimizer + endings[stage].gather);
    earlier += stages[stage].backward / c.interleave + stages[stage].hop;
  }
  result.estimate_s = done + job_->runtime.step_overhead_s;
  return result;
}

double estimate_step_seconds(const Plan& plan) {
  return Estimator(plan.job).times(plan.choices).estimate_s;
}

double lower_bound_step_seconds(const Plan& plan) {
  return Estimator(plan.job).times(plan.choices).lower_bound_s;
}

}  // namespace orrery::planner
