// What follows a step's last backward passes: gradients that are still to be reduced, the optimizer,
// parameters.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cost/compute_cost.h"
#include "cost/host_cost.h"
#include "planner/closed_form/step_model.h"

namespace orrery::planner {

double StepModel::optimizer_s(double elements, const DeviceKindAt& kind) const {
  const DeviceProfile& device = job_->cluster.profiles[kind.profile];
  return parameter_update_seconds(elements, *job_, device) /
         kept_speed(job_->cluster.devices(), job_->cluster, device) * slowest_[kind.profile] / kind.speed;
}

double StepModel::reading_s(const Plan& plan, const Frame& frame) const {
  if (job_->training.sample_bytes == 0) return 0;
  double rate = 0;
  for (const NodeGroup& group : job_->cluster.groups)
    rate = std::max(rate, group.node.storage_read_bytes_per_s);
  const bool one_process = plan.choices.sync == Sync::single_process;
  const int readers = one_process ? 1 : frame.geometry->first_stage_on_node;
  const auto most =
      std::max_element(plan.choices.replica_batches.begin(), plan.choices.replica_batches.end());
  const auto replica = static_cast<int>(most - plan.choices.replica_batches.begin());
  const bool even = plan.choices.replica_batches.empty();
  return plan.read_ahead_bytes(even ? 0 : replica) * readers / rate;
}

StepModel::Ending StepModel::ending(const Plan& plan, const Frame& frame, int stage, const StageTimes& times,
                                    const DeviceKindAt& kind, double quickest) {
  const Choices& c = plan.choices;
  const Reductions& all = gradients_.of(plan, *frame.geometry, *frame.cut, stage);
  Ending ending;
  // ZeRO-3 keeps shards; gathered beside the next step's forward passes, parameters cost nothing here.
  const bool gathers = c.zero >= 1 && c.zero <= 2 && !job_->runtime.overlap_param_gather;
  ending.gather = gathers || c.has_servers() ? all.gather_s : 0;
  if (!all.steps.empty()) {
    if (!c.overlap_grad_reduce) {
      // From ZeRO-2 on, what each micro-batch reduces stands between the passes.
      ending.reduce = all.rest_s.front() - (c.zero >= 2 ? all.total_s : 0);
      ending.streamed = ending.reduce;
      ending.least = ending.reduce / quickest;
    } else {
      const LayerSums& own = sums_of(c, frame, kind);
      const int begin = frame.cut->part(stage, 0).begin;
      Again again = run_again(c, frame.geometry->shapes, frame.shapes_key, kind);
      again.enter(frame.cut->part(stage, 0));
      const auto back = [&](int part) {
        return own.backward[part] - own.backward[begin] + again.more_s(own, part);
      };
      // On the data stream, from the end of the last backward pass: each bucket and those behind it.
      const double alone = back(frame.cut->part(stage, 0).end);
      // ZeRO-2 and 3: the passes may be longer than the computation in them (pace).
      // Where gradients of weights have passes of their own, the last of these completes all, and takes less.
      const bool weights_wait = splits_backward(c.schedule) && c.interleave == 1;
      const double last_pass_s = weights_wait ? times.weight : c.zero >= 2 ? times.first_backward : alone;
      const double paced = alone > 0 ? last_pass_s / alone : 1;
      // Interleaved, the last group of micro-batches goes back through the last chunk first, then through the
      // one before: a chunk's gradients are complete while those before it still compute. Of ZeRO 2 and 3,
      // whose reductions stand beside all passes, that is not looked at.
      const auto m = plan.micro_batches();
      const auto last_group = static_cast<double>(m % c.pp == 0 ? c.pp : m % c.pp);
      const double of_chunk =
          c.schedule == Schedule::interleaved && c.zero < 2 ? last_group * times.backward / c.interleave : 0;
      const auto after = [&](std::size_t i, double rate) {
        const Reductions::Step& step = all.steps[i];
        const double ready = step.chunk > 0 ? -std::max(times.first_backward, step.chunk * of_chunk)
                                            : -paced * back(step.part);
        // ZeRO-3: between them later layers are gathered; the next one is when this bucket is ready.
        const double gathers_s = i + 2 < all.rest_gather_back_s.size() ? all.rest_gather_back_s[i + 2] : 0;
        return ready + all.rest_s[i] / rate + gathers_s;
      };
      // What comes due and what is left to do both run evenly over layers that are alike: the first, the last
      // and those where a chunk begins decide. Layers that are not are looked at one by one.
      const std::size_t count = all.steps.size();
      const std::size_t stride =
          frame.cut->alike || c.pp == 1 ? std::max<std::size_t>(1, count / 8) : std::size_t{1};
      // `lost` by the end of the backward pass: a bucket is ready the later, the more of it lies before.
      const auto longest = [&](double lost, double rate = 1) {
        const double each = count > 1 ? lost / static_cast<double>(count - 1) : 0;
        double most = lost;
        const auto look_at = [&](std::size_t i) {
          const double until = after(i, rate) + each * static_cast<double>(i);
          if (until < most) return;
          most = until;
          if (rate == 1) ending.streamed = all.rest_s[i];
        };
        for (std::size_t i = 1; i < count; ++i)
          if (i % stride == 1 % stride || all.steps[i].chunk != all.steps[i - 1].chunk) look_at(i);
        look_at(count - 1);
        look_at(0);
        return most;
      };
      ending.reduce = longest(0);
      // What computation loses beside the sums within a group is in its passes already (pace).
      const double within_s = c.zero >= 2 ? all.total_s : 0;
      const double beside_s = std::max(0.0, all.rest_s.front() - within_s - ending.reduce);
      if (beside_s > 0)
        ending.reduce = longest(lost_beside(stage, beside_s, times.backward, times.backward_compute));
      ending.least = quickest > 1 ? longest(0, quickest) : ending.reduce;
    }
  }
  ending.last = all.last_s;
  ending.optimizer = optimizer_s(all.owned, kind);
  return ending;
}

double StepModel::quickest_reduction(const Plan& plan, const Frame& frame) {
  const Choices& c = plan.choices;
  const Geometry& geometry = *frame.geometry;
  // From ZeRO-2 on there are reductions between the passes too; where a step is moved in other ways it does
  // not wait for ports alone.
  if (c.pp == 1 || geometry.node_of_stage.empty() || c.zero >= 2 || c.hybrid() || c.ep > 1 ||
      c.sync != Sync::all_reduce || c.grad_compression != Compression::none)
    return 1;
  const auto data = geometry.shapes.find(bucket_group(c, /*apart=*/false));
  if (data == geometry.shapes.end() || data->second.nodes <= 1) return 1;
  const int of_stage = geometry.first_stage_on_node;
  const int on_node = job_->cluster.groups.front().node.devices;
  const Reductions& first = gradients_.of(plan, geometry, *frame.cut, 0);
  if (of_stage >= on_node || first.total_least_s <= 0) return 1;
  return std::clamp(first.total_s / first.total_least_s, 1.0, 1.0 * on_node / of_stage);
}

// Each stage's reductions were taken to share the ports with those of all stages of its node for as long as
// they last. They do with those that are at it at that moment: a stage that ends earlier has the ports for
// itself.
void StepModel::take_turns_at_ports(const Frame& frame, const std::vector<double>& earlier, double quickest) {
  const Geometry& geometry = *frame.geometry;
  const double of_stage = geometry.first_stage_on_node;
  const double on_node = job_->cluster.groups.front().node.devices;
  struct Stream {
    int stage = 0;
    double from_s = 0, left_s = 0;  // of what it takes at its even share
  };
  std::vector<Stream> streams;
  const auto stages = static_cast<int>(geometry.node_of_stage.size());
  std::vector<bool> seen(static_cast<std::size_t>(stages), false);
  for (int first = 0; first < stages; ++first) {
    if (seen[first]) continue;
    streams.clear();
    for (int stage = first; stage < stages; ++stage) {
      if (geometry.node_of_stage[stage] != geometry.node_of_stage[first]) continue;
      seen[stage] = true;
      const Ending& end = endings_[stage];
      streams.push_back({stage, end.reduce - end.streamed - earlier[stage], end.streamed});
    }
    if (streams.size() < 2) continue;
    double now_s = -std::numeric_limits<double>::infinity();
    while (!streams.empty()) {
      // Who is at it, and until when that stays so.
      int active = 0;
      double next_s = std::numeric_limits<double>::infinity();
      for (const Stream& stream : streams)
        if (stream.from_s > now_s) next_s = std::min(next_s, stream.from_s);
      for (const Stream& stream : streams) active += stream.from_s <= now_s ? 1 : 0;
      const double rate = active > 0 ? std::min(quickest, std::max(1.0, on_node / (of_stage * active))) : 1;
      for (const Stream& stream : streams)
        if (stream.from_s <= now_s) next_s = std::min(next_s, now_s + stream.left_s / rate);
      for (std::size_t i = 0; i < streams.size();) {
        Stream& stream = streams[i];
        if (stream.from_s <= now_s) stream.left_s -= (next_s - now_s) * rate;
        if (stream.from_s <= now_s && stream.left_s <= 1e-12 * (1 + std::abs(next_s))) {
          Ending& end = endings_[stream.stage];
          end.reduce = std::min(end.reduce, std::max(end.least, next_s + earlier[stream.stage]));
          streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      now_s = next_s;
    }
  }
}

}  // namespace orrery::planner
