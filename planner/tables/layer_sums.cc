#include "planner/tables/layer_sums.h"

#include <bit>

#include "cost/host_cost.h"
#include "program/forms.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

std::uint64_t mixed(std::uint64_t seed, double value) {
  return planner::mixed(seed, std::bit_cast<std::uint64_t>(value));
}

std::uint64_t frame_key(const Choices& c, Recompute recompute, const DeviceKindAt& kind) {
  std::uint64_t key =
      planner::mixed(1, static_cast<std::uint64_t>(c.tp) << 32 | static_cast<std::uint32_t>(c.cp));
  key = planner::mixed(key, static_cast<std::uint64_t>(c.ep) << 32 | static_cast<std::uint32_t>(c.etp));
  const ModuleSet modules = recompute == Recompute::selective ? c.recompute_modules : ModuleSet{0};
  key = planner::mixed(key, static_cast<std::uint64_t>(c.micro_batch) << 32 |
                                static_cast<std::uint64_t>(modules) << 16 |
                                static_cast<std::uint64_t>(recompute) << 8 | (c.overlap_experts ? 2 : 0) |
                                (c.sequence_parallel ? 1 : 0));
  key = mixed(planner::mixed(key, degrees_key(c)), c.capacity_factor);
  return mixed(planner::mixed(key, static_cast<std::uint64_t>(kind.profile)), kind.speed);
}

}  // namespace

std::uint64_t shape_key(const GroupShape& s) {
  std::uint64_t key =
      planner::mixed(2, static_cast<std::uint64_t>(s.ranks) << 32 | static_cast<std::uint32_t>(s.nodes));
  key = planner::mixed(key, static_cast<std::uint64_t>(s.ranks_per_node) << 32 |
                                static_cast<std::uint32_t>(s.min_ranks_per_node));
  key = planner::mixed(key, static_cast<std::uint64_t>(s.intra) << 32 |
                                static_cast<std::uint64_t>(s.cores_per_node) << 2 | (s.direct ? 2 : 0) |
                                (s.in_network_reduction ? 1 : 0));
  for (const double value :
       {s.intra_bandwidth_bytes_per_s, s.intra_latency_s, s.all_pairs_bandwidth_bytes_per_s,
        s.to_one_bandwidth_bytes_per_s, s.neighbour_bandwidth_bytes_per_s, s.bridge_bandwidth_bytes_per_s,
        s.at_bridges, s.inter_bandwidth_bytes_per_s, s.inter_latency_s, s.port_bandwidth_bytes_per_s,
        s.pairs_share, s.rooms * s.wide_s})
    key = mixed(key, value);
  return key;
}

std::uint64_t inner_shapes_key(const GroupShapes& shapes) {
  std::uint64_t key = 3;
  for (const GroupRule& rule : group_rules()) {
    if (!rule.in_layers) continue;
    const auto at = shapes.find(rule.kind);
    key = planner::mixed(key, at == shapes.end() ? 0 : shape_key(at->second));
  }
  return key;
}

LayerSumsTable::LayerSumsTable(std::shared_ptr<const Job> job)
    : job_(std::move(job)), sketch_(job_->workload), small_(std::make_shared<Job>()) {
  small_->workload = sketch_.workload();
  small_->cluster = job_->cluster;
  small_->runtime = job_->runtime;
  small_->training = job_->training;
  small_->training.lengths.waits = false;  // who waits for whom is the whole plan's
}

const std::shared_ptr<Job>& LayerSumsTable::small_of(bool split) {
  if (!split) return small_;
  if (split_small_ == nullptr) {
    split_small_ = std::make_shared<Job>(*small_);
    split_small_->runtime.overlap_tensor_backward = false;  // as program/lower/tensor.cc has it
  }
  return split_small_;
}

const LayerSums& LayerSumsTable::of(const Choices& c, Recompute recompute, const GroupShapes& shapes,
                                    std::uint64_t shapes_key, const DeviceKindAt& kind) {
  const bool split = always_splits_backward(c.schedule) && job_->runtime.overlap_tensor_backward && c.tp > 1;
  const auto sharding = static_cast<std::uint64_t>(host_sharding(c, job_->runtime));
  const std::uint64_t frame = planner::mixed(frame_key(c, recompute, kind), sharding << 1 | (split ? 1 : 0));
  const auto [entry, fresh] = sums_.try_emplace(planner::mixed(frame, shapes_key));
  LayerSums& sums = entry->second;
  if (!fresh) return sums;
  auto at = sketches_.find(frame);
  if (at == sketches_.end()) {
    Choices choices = c;
    choices.recompute = recompute;
    const std::shared_ptr<Job>& small = small_of(split);
    const Choices sketched = sketch_choices(*small, choices);
    std::shared_ptr<const Program>& program =
        programs_[planner::mixed(frame_key(sketched, recompute, {}), split ? 1 : 0)];
    if (program == nullptr) program = lower_layers(small, sketched);
    at = sketches_
             .emplace(frame, sketch_layers(program, small, choices, job_->cluster.profiles[kind.profile],
                                           std::max(kind.speed, 1e-9)))
             .first;
  }
  const std::vector<LayerTime> times = layer_times(*job_, at->second, shapes);
  const int parts = sketch_.parts().count();
  for (auto* sum : {&sums.forward, &sums.backward, &sums.forward_compute, &sums.backward_compute,
                    &sums.forward_host, &sums.backward_host, &sums.forward_waiting, &sums.backward_waiting,
                    &sums.paired_gain, &sums.weight}) {
    sum->reserve(static_cast<std::size_t>(parts) + 1);
    sum->push_back(0);
  }
  for (int part = 0; part < parts; ++part) {
    // A run's last layer is measured before what follows the run, its first, going back, before what it
    // follows.
    const int first = sketch_.forward_stand_in(part), second = sketch_.backward_stand_in(part);
    const bool run = second == first + 1;
    const bool ends = run && part + 1 < parts && sketch_.forward_stand_in(part + 1) == second + 1;
    const bool begins = run && part > 0 && sketch_.backward_stand_in(part - 1) == first - 1;
    const PassTime& forward = times[ends ? second : first].forward;
    const PassTime& backward = times[begins ? first : second].backward;
    sums.forward.push_back(sums.forward.back() + forward.serial_s);
    sums.backward.push_back(sums.backward.back() + backward.serial_s);
    sums.forward_compute.push_back(sums.forward_compute.back() + forward.compute_s);
    sums.backward_compute.push_back(sums.backward_compute.back() + backward.compute_s);
    sums.forward_host.push_back(sums.forward_host.back() + forward.host_s);
    sums.backward_host.push_back(sums.backward_host.back() + backward.host_s);
    sums.forward_waiting.push_back(sums.forward_waiting.back() + forward.waiting_s);
    sums.backward_waiting.push_back(sums.backward_waiting.back() + backward.waiting_s);
    sums.paired_gain.push_back(sums.paired_gain.back() +
                               (c.overlap_experts ? paired_gain_s(forward, backward) : 0));
    sums.weight.push_back(sums.weight.back() + at->second.weight_s[sketch_.backward_stand_in(part)]);
    sums.host_leads =
        sums.host_leads && forward.host_s <= forward.serial_s && backward.host_s <= backward.serial_s;
    sums.forward_tail.push_back(forward.tail_s);
    sums.backward_tail.push_back(backward.tail_s);
  }
  return sums;
}

}  // namespace orrery::planner
