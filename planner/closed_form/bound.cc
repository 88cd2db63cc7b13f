// The lower bound of a step: no simulation takes less. Why each term may be counted is in docs/planner.md.
#include <algorithm>
#include <limits>

#include "planner/closed_form/step_model.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

// Ranks of the smallest group of the plan that communicates.
int smallest_group(const Choices& c) {
  if (c.cp > 1 || c.ep > 1 || c.etp > 1) return 2;
  int least = c.world();
  for (const int ranks : {c.tp, c.shard_group > 0 ? c.shard_group : c.dp})
    if (ranks > 1) least = std::min(least, ranks);
  return least;
}

}  // namespace

StepModel::DataLeast StepModel::data_least(const Plan& plan, const Frame& frame, int stage,
                                           double micro_batches) {
  const Choices& c = plan.choices;
  const Reductions& all = gradients_.of(plan, *frame.geometry, *frame.cut, stage);
  DataLeast least;
  least.optimizer = optimizer_s(all.owned, least_.kinds[stage]) / idle_speedup_;
  const bool shares_samples = !crossing_.empty() && c.tp > 1;  // tensor ranks of a general graph
  if (c.grad_compression != Compression::none || (c.dp * c.cp == 1 && !shares_samples)) return least;
  const double passes = c.zero >= 2 ? micro_batches : 1;  // after which gradients are reduced
  const double reduced = passes * all.total_least_s;
  // The last micro-batch's gradient leaves for the stage before while its own are still reduced.
  if (!c.overlap_grad_reduce) least.between = reduced - all.total_least_s;
  least.after = c.overlap_grad_reduce ? all.final_least_s : all.total_least_s;
  least.ending =
      std::max(least.after, stage == 0 && c.overlap_grad_reduce ? reduced_behind(c, frame, all) : 0);
  if (stage == 0 && c.zero < 3) least.late = gathered_late(c, frame, all);
  // A layer whose parameters are there still is not gathered again.
  const double gathered =
      c.zero == 3
          ? micro_batches * std::max(0.0, 2 * (all.gather_least_s - c.interleave * all.widest_layer_s) -
                                              all.forward_only_least_s)
          : 0;
  const double once = c.zero < 3 ? all.gather_least_s : 0;  // at the step's end or beginning
  if (c.zero >= 1 && c.zero <= 2 && !job_->runtime.overlap_param_gather) least.gather = once;
  least.beside = reduced - least.between - least.after + gathered + once - least.gather;
  return least;
}

double StepModel::gathered_late(const Choices& c, const Frame& frame, const Reductions& all) {
  if (all.uses.empty() || !geometries_.uniform() || idle_speedup_ != 1) return 0;
  const LayerSums& own =
      sums_.of(c, c.recompute, frame.geometry->alone, frame.alone_key, least_.kinds.front());
  const int begin = frame.cut->part(0, 0).begin;
  // What waits for a bucket may be its layer's last operator.
  double late = 0;
  for (const Reductions::Use& use : all.uses)
    if (use.chunk == 0)
      late = std::max(late, use.gathered_least_s - (own.forward[use.part + 1] - own.forward[begin]));
  return late;
}

double StepModel::reduced_behind(const Choices& c, const Frame& frame, const Reductions& all) {
  // What the last pass reduces, its stage's first chunk: known where it runs its layers in order by itself.
  if (c.overlap_experts || splits_backward(c.schedule) || !geometries_.uniform() || idle_speedup_ != 1)
    return 0;
  const bool partly = c.recompute == Recompute::full && c.recompute_layers > 0;
  const LayerSums& own = sums_.of(c, partly ? Recompute::full : c.recompute, frame.geometry->alone,
                                  frame.alone_key, least_.kinds.front());
  const int begin = frame.cut->part(0, 0).begin;
  // A bucket may be complete as soon as the layer's pass has begun.
  double most = 0;
  for (std::size_t i = 0; i < all.steps.size(); ++i)
    if (all.steps[i].chunk == 0)
      most =
          std::max(most, all.rest_least_s[i] - (own.backward[all.steps[i].part + 1] - own.backward[begin]));
  return most;
}

Bound StepModel::bound(const Plan& plan, const Frame& frame, bool with_data,
                       const std::vector<double>* slots) {
  const Choices& c = plan.choices;
  const RuntimeProfile& runtime = job_->runtime;
  all_stages(c, frame, /*alone=*/true, &least_);
  double m = static_cast<double>(plan.micro_batches());
  for (std::size_t replica = 0; replica < c.replica_batches.size(); ++replica)
    m = std::min(m, static_cast<double>(plan.micro_batches_of(static_cast<int>(replica))));
  const bool split = splits_backward(c.schedule);
  // Who computes faster than assumed waits as long for what it waits for. Short messages over MPI may be
  // there before they are asked for.
  const bool waits = c.cp == 1 || job_->cluster.communication.library != CommunicationLibrary::mpi;
  const auto fastest = [&](double seconds, double compute_s) {
    return waits ? seconds - compute_s * (1 - 1 / idle_speedup_) : compute_s / idle_speedup_;
  };

  double there = 0, back = 0;  // through the stages before this one
  double last_backward = 0;    // of stage 0: everything has come back
  double split_end = 0;  // of a stage that computes gradients of weights when the inputs' have left: reduced
  double least_cycle = std::numeric_limits<double>::infinity();  // of one stage alone, from step to step
  double update = 0;   // of the stage that takes longest, after the norm of all gradients
  double traffic = 0;  // of one rank's data stream
  double own_end = 0;  // of a stage that waits for no other
  double reduce_0 = 0, after_0 = 0, update_0 = 0, late_0 = 0;
  double work = 0;            // of all stages' computation
  double idle = 0;            // of all stages' copying by hand
  bool frozen_stage = false;  // a stage has nothing to update: nobody's update waits for it
  slowed_.clear();
  double slowest_optimizer = 0;  // as slow as plans assume it at most
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = least_.times[stage];
    // Side by side with another micro-batch nothing but computation is sure to take its time.
    const bool paired = c.overlap_experts;
    const double forward =
        paired ? t.forward_compute / idle_speedup_ : fastest(t.forward_busy, t.forward_compute);
    const double backward =
        paired ? t.backward_compute / idle_speedup_ : fastest(t.backward_busy, t.backward_compute);
    // Those of heterogeneous layers may be all of weights.
    const double of_inputs = crossing_.empty() ? t.least_of_inputs / idle_speedup_ : 0;
    const bool twin = frame.cut->twin[stage] != stage;
    const DataLeast data =
        with_data && c.sync == Sync::all_reduce && !twin ? data_least(plan, frame, stage, m) : DataLeast{};
    frozen_stage |= with_data && c.sync == Sync::all_reduce && !twin && data.optimizer <= 0;
    const double own = m * (forward + backward + runtime.micro_batch_overhead_s) + data.between;
    const double compute = m * (t.forward_compute + t.backward_compute);
    const double all_data = data.between + data.after + data.gather + data.beside;
    traffic = std::max(traffic, all_data + data.optimizer);
    if (ranks_copy_ && waits && !paired) {
      const double inside = m * (t.forward_busy + t.backward_busy) - compute;
      idle += std::max(inside, data.beside) + all_data - data.beside;
    }
    least_cycle = std::min(least_cycle, own + data.optimizer);
    work += compute + data.optimizer * idle_speedup_;
    slowest_optimizer = std::max(slowest_optimizer, data.optimizer * idle_speedup_);
    if (split) {  // weights' gradients may wait until the inputs' have left
      last_backward = std::max(last_backward, there + m * (forward + of_inputs) + back);
      split_end = std::max(split_end, there + own + data.ending);
    } else {
      last_backward = std::max(last_backward, there + own + back);
    }
    own_end = std::max(own_end, there + own + data.optimizer);
    const double slowdown = job_->cluster.profiles[least_.kinds[stage].profile].overlap_slowdown;
    if (slowdown > 0 && all_data > 0)
      slowed_.push_back({compute, all_data, there + own + (split ? 0 : back), slowdown / (1 + slowdown)});
    if (slots != nullptr) {
      last_backward = std::max(last_backward, (*slots)[static_cast<std::size_t>(stage)]);
      own_end = std::max(own_end, (*slots)[static_cast<std::size_t>(stage)] + data.optimizer);
    }
    update = std::max(update, data.optimizer + data.gather);
    if (stage == 0) {
      reduce_0 = data.ending;
      after_0 = data.after;
      late_0 = data.late;
      update_0 = data.optimizer + data.gather;
    }
    const double hop = c.pp > 1 ? frame.hops_least[stage] : 0;
    there += fastest(t.first_forward, t.first_forward_compute) + hop;
    back += (split ? of_inputs : fastest(t.first_backward, t.first_backward_compute)) + hop;
  }
  const double compute_s = geometries_.uniform() ? work / c.pp / idle_speedup_ : 0;
  // A server is worked for by all, at paces of their own.
  const double together =
      c.asynchronous() ? 0 : shared_cores_.least_s(work / c.pp, idle / c.pp, smallest_group(c));
  // Where no collective over all ranks ends a step, the next begins before every rank has ended this one.
  const bool clips =
      c.sync == Sync::all_reduce && c.grad_compression == Compression::none && runtime.clip_gradients;
  if (c.pp > 1 && !clips) {
    // What ends last may be another stage. In a bare pipeline nothing but the optimizer follows a stage's
    // last backward pass (on processors, where no host lags behind), after which the first stage has its own
    // to do: it ends at most that much earlier, and then runs its whole next step, before whose beginning no
    // other stage's begins and in which everything comes back.
    const bool bare = c.world() == c.pp && !split && with_data;
    if (bare && job_->cluster.profiles[least_.kinds.front().profile].kind == DeviceKind::cpu)
      least_cycle =
          std::max(least_cycle, std::max(last_backward + update_0, together) + update_0 - slowest_optimizer);
    return {least_cycle + runtime.step_overhead_s, compute_s};
  }
  const double updates = clips ? update : update_0;
  const double ending = frozen_stage ? 0 : reduce_0 + updates;
  double end = late_0 + std::max({last_backward + ending, split_end + (frozen_stage ? 0 : updates), own_end});
  // Computation is slower beside a collective. What of the traffic finds no idle time of its stage has to go
  // on beside its computation. (What of the last reductions goes on behind the last pass is not added: it may
  // be the same traffic.)
  for (const Slowed& stage : slowed_) {
    const double least = stage.through_s + (split || frozen_stage ? 0 : after_0 + updates);
    end = std::max(end, least + stage.share * std::max(0.0, stage.traffic_s - (least - stage.compute_s)));
  }
  const double ports = m * frame.ports_s;  // what a node's stages send goes through its ports
  return {std::max({end, traffic, reading_s(plan, frame), together, ports}) + runtime.step_overhead_s,
          compute_s};
}

Bound StepModel::lower_bound(const Choices& c) {
  // A slow device does not hold up the others, who do more of the batches.
  if (c.asynchronous() && !geometries_.uniform()) return {};
  return bound({job_, c}, frame(c), /*with_data=*/true);
}

Bound StepModel::layout_bound(const Choices& c) {
  return bound({job_, c}, frame(c), /*with_data=*/false);
}

}  // namespace orrery::planner
