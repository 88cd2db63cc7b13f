// The lower bound of a step: no simulation takes less. Why each term may be counted is in docs/planner.md.
#include <algorithm>
#include <limits>

#include "planner/closed_form/estimator.h"

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

Estimator::DataLeast Estimator::data_least(const Plan& plan, const Frame& frame, int stage,
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

Bound Estimator::bound(const Plan& plan, const Frame& frame, bool with_data) {
  const Choices& c = plan.choices;
  const RuntimeProfile& runtime = job_->runtime;
  all_stages(c, frame, /*alone=*/true, &least_);
  double m = static_cast<double>(plan.micro_batches());
  for (std::size_t replica = 0; replica < c.replica_batches.size(); ++replica)
    m = std::min(m, static_cast<double>(plan.micro_batches_of(static_cast<int>(replica))));
  const bool split = c.schedule == Schedule::zero_bubble;
  // Who computes faster than assumed waits as long for what it waits for. Short messages over MPI may be
  // there before they are asked for.
  const bool waits = c.cp == 1 || job_->cluster.communication.library != CommunicationLibrary::mpi;
  const auto fastest = [&](double seconds, double compute_s) {
    return waits ? seconds - compute_s * (1 - 1 / idle_speedup_) : compute_s / idle_speedup_;
  };

  double there = 0, back = 0;                                    // through the stages before this one
  double last_backward = 0;                                      // of stage 0: everything has come back
  double least_cycle = std::numeric_limits<double>::infinity();  // of one stage alone, from step to step
  double update = 0;   // of the stage that takes longest, after the norm of all gradients
  double traffic = 0;  // of one rank's data stream
  double own_end = 0;  // of a stage that waits for no other
  double reduce_0 = 0, update_0 = 0;
  double work = 0;               // of all stages' computation
  double idle = 0;               // of all stages' copying by hand
  bool frozen_stage = false;     // a stage has nothing to update: nobody's update waits for it
  double slowest_optimizer = 0;  // as slow as plans assume it at most
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = least_.times[stage];
    // Side by side with another micro-batch nothing but computation is sure to take its time.
    const bool paired = c.overlap_experts;
    const double forward =
        paired ? t.forward_compute / idle_speedup_ : fastest(t.forward_busy, t.forward_compute);
    const double backward =
        paired ? t.backward_compute / idle_speedup_ : fastest(t.backward_busy, t.backward_compute);
    // Of a transformer's layer half at least is the gradients of inputs; those of unlike layers may be all of
    // weights.
    const double of_inputs = crossing_.empty() ? t.backward_of_layers / 2 / idle_speedup_ : 0;
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
    last_backward = std::max(last_backward, there + own + (split ? 0 : back));
    if (split)  // weights' gradients may wait until the inputs' have left
      last_backward = std::max(last_backward, there + m * (forward + of_inputs) + back);
    own_end = std::max(own_end, there + own + data.optimizer);
    update = std::max(update, data.optimizer + data.gather);
    if (stage == 0) {
      reduce_0 = data.after;
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
  const double ending = frozen_stage ? 0 : reduce_0 + (clips ? update : update_0);
  const double end = std::max(last_backward + ending, own_end);
  const double ports = m * frame.ports_s;  // what a node's stages send goes through its ports
  return {std::max({end, traffic, reading_s(plan, frame), together, ports}) + runtime.step_overhead_s,
          compute_s};
}

Bound Estimator::lower_bound(const Choices& c) {
  // A slow device does not hold up the others, who do more of the batches.
  if (c.asynchronous() && !geometries_.uniform()) return {};
  return bound({job_, c}, frame(c), /*with_data=*/true);
}

Bound Estimator::layout_bound(const Choices& c) {
  return bound({job_, c}, frame(c), /*with_data=*/false);
}

}  // namespace orrery::planner
