// The lower bound of a step: no simulation takes less. Why each term may be counted is in docs/planner.md.
#include <algorithm>
#include <limits>

#include "planner/estimator.h"

namespace orrery::planner {

Bound Estimator::bound(const Plan& plan, const Frame& frame, bool with_data) {
  const Choices& c = plan.choices;
  const RuntimeProfile& runtime = job_->runtime;
  all_stages(c, frame, /*alone=*/true, &least_);
  double m = static_cast<double>(plan.micro_batches());
  for (std::size_t replica = 0; replica < c.replica_batches.size(); ++replica)
    m = std::min(m, static_cast<double>(plan.micro_batches_of(static_cast<int>(replica))));
  const bool collective = c.sync == Sync::all_reduce && c.grad_compression == Compression::none;
  const bool shares_samples = !crossing_.empty() && c.tp > 1;  // tensor ranks of a general graph
  const bool reduces = with_data && collective && (c.dp * c.cp > 1 || shares_samples);
  const bool split = c.schedule == Schedule::zero_bubble;
  const bool gathers = c.zero >= 1 && c.zero <= 2 && !runtime.overlap_param_gather;
  const bool every = c.zero >= 2;

  double there = 0, back = 0;                                    // through the stages before this one
  double last_backward = 0;                                      // of stage 0: everything has come back
  double least_cycle = std::numeric_limits<double>::infinity();  // of one stage alone, from step to step
  double update = 0;   // of the stage that takes longest, after the norm of all gradients
  double traffic = 0;  // of one rank's data stream
  double own_end = 0;  // of a stage that waits for no other
  double reduce_0 = 0, update_0 = 0;
  double work = 0;               // of all stages' computation
  double slowest_optimizer = 0;  // as slow as plans assume it at most
  for (int stage = 0; stage < c.pp; ++stage) {
    const StageTimes& t = least_.times[stage];
    const bool fast = haste_ > 1;
    const double forward = fast ? t.forward_compute / haste_ : t.forward_busy;
    const double backward = fast ? t.backward_compute / haste_ : t.backward_busy;
    // Of a transformer's layer half at least is the gradients of inputs; those of unlike layers may be all of
    // weights.
    const double of_inputs = crossing_.empty() ? t.backward_of_layers / 2 / haste_ : 0;
    double own = m * (forward + backward + runtime.micro_batch_overhead_s);
    double after = 0, optimizer = 0, gather = 0;
    const bool twin = frame.cut->twin[stage] != stage;
    if (with_data && c.sync == Sync::all_reduce && !twin) {
      const Reductions& all = gradients_.of(plan, *frame.geometry, *frame.cut, stage);
      optimizer = optimizer_s(all.owned, least_.kinds[stage]) / haste_;
      if (reduces) {
        if (gathers) gather = all.gather_least_s;
        // The last micro-batch's gradient leaves for the stage before while its own are still reduced.
        if (!c.overlap_grad_reduce && every) own += (m - 1) * all.total_least_s;
        after = c.overlap_grad_reduce ? all.final_least_s : all.total_least_s;
        // A layer whose parameters are there still is not gathered again.
        const double gathered =
            c.zero == 3 ? m * std::max(0.0, 2 * (all.gather_least_s - c.interleave * all.widest_layer_s)) : 0;
        const double once = c.zero < 3 ? all.gather_least_s : 0;  // at the step's end or beginning
        traffic = std::max(traffic, (every ? m : 1) * all.total_least_s + gathered + optimizer + once);
      }
    }
    least_cycle = std::min(least_cycle, own + optimizer);
    work += m * (t.forward_compute + t.backward_compute) + optimizer * haste_;
    slowest_optimizer = std::max(slowest_optimizer, optimizer * haste_);
    last_backward = std::max(last_backward, there + own + (split ? 0 : back));
    if (split)  // weights' gradients may wait until the inputs' have left
      last_backward = std::max(last_backward, there + m * (forward + of_inputs) + back);
    own_end = std::max(own_end, there + own + optimizer);
    update = std::max(update, optimizer + gather);
    if (stage == 0) {
      reduce_0 = after;
      update_0 = optimizer + gather;
    }
    there += (fast ? t.first_forward_compute / haste_ : t.first_forward) +
             (c.pp > 1 ? frame.hops_least[stage] : 0);
    back += (split  ? of_inputs
             : fast ? t.backward_of_layers / haste_
                    : t.first_backward) +
            (c.pp > 1 ? frame.hops_least[stage] : 0);
  }
  const double compute_s = geometries_.uniform() ? work / c.pp / haste_ : 0;
  // Where no collective over all ranks ends a step, the next begins before every rank has ended this one.
  const bool world = c.pp == 1 || (collective && runtime.clip_gradients);
  if (!world) {
    // What ends last may be another stage. In a bare pipeline nothing but the optimizer follows a stage's
    // last backward pass (on processors, where no host lags behind), after which the first stage has its own
    // to do: it ends at most that much earlier, and then runs its whole next step, in which everything comes
    // back.
    const bool bare = c.world() == c.pp && !split && with_data;
    if (bare && job_->cluster.profiles[least_.kinds.front().profile].kind == DeviceKind::cpu)
      least_cycle = std::max(least_cycle, last_backward + 2 * update_0 - slowest_optimizer);
    return {least_cycle + runtime.step_overhead_s, compute_s};
  }
  const bool clips = collective && runtime.clip_gradients;
  const double end = std::max(last_backward + reduce_0 + (clips ? update : update_0), own_end);
  double least = std::max({end, traffic, reading_s(plan, frame)});
  if (c.world() == job_->cluster.devices()) least = std::max(least, work / c.pp * shared_pace_);
  return {least + runtime.step_overhead_s, compute_s};
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
