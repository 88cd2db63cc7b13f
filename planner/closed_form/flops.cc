#include <algorithm>
#include <cmath>

#include "planner/closed_form/figures.h"
#include "program/operator_work.h"

namespace orrery::planner {

namespace {

// Of a token, of the experts that it is at least not sent to: buffers of a factor below 1 are full.
double dropped_flops_per_token(const Plan& plan) {
  const double factor = plan.choices.capacity_factor;
  if (factor <= 0 || factor >= 1) return 0;
  double flops = 0;
  for (const Operator& op : plan.job->workload.operators)
    if (op.kind == OperatorKind::expert_linear)
      flops += op.training_flops_per_row(plan.job->training.seq_len);
  return (1 - factor) * flops;
}

}  // namespace

double model_flops(const Plan& plan) {
  const Training& training = plan.job->training;
  const auto batch = static_cast<double>(training.global_batch);
  const double dropped = dropped_flops_per_token(plan);
  if (!training.lengths.any())
    return (plan.job->workload.training_flops_per_sample(training.seq_len) -
            dropped * std::max(1, training.seq_len)) *
           batch;
  // By the token: linear but for the sequences that these stand in.
  const Extent each = content(training.lengths, training.seq_len);
  const auto attended = std::max(1, static_cast<int>(std::lround(each.attended)));
  return (plan.job->workload.training_flops_per_sample(attended) / attended - dropped) * each.tokens * batch;
}

double hardware_flops(const Plan& plan) {
  const Job& job = *plan.job;
  const Choices& c = plan.choices;
  double again = 0;  // forward FLOPs of one sample that are computed twice
  const ModuleSet modules = modules_run_again(c, job.runtime);
  if (c.recompute != Recompute::none) {
    Shard sample;
    sample.samples = 1;
    sample.seq_len = job.training.seq_len;
    sample.rows = std::max(1, job.training.seq_len);
    if (job.training.lengths.any()) {
      const Extent each = computed(job.training.lengths, job.training.seq_len, c.micro_batch);
      sample.seq_len = static_cast<int>(std::lround(each.attended));
      sample.rows = each.tokens;
    }
    sample.precision = job.training.precision;
    sample.fused_attention = job.training.fused_attention;
    sample.capacity_factor = std::min(1.0, c.capacity_factor);  // no padding: HFU counts what is of use
    for (int stage = 0; stage < c.pp; ++stage) {
      int before = 0;  // layers of the stage's earlier chunks
      for (int chunk = 0; chunk < c.interleave; ++chunk) {
        const LayerRange layers = layers_of(plan, stage, chunk);
        const LayerRange range = operators_of(plan, stage, chunk);
        for (int i = range.begin; i < range.end; ++i) {
          const Operator& op = job.workload.operators[i];
          if (op.layer < 0 || op.layer >= job.workload.layers) continue;
          const bool full =
              c.recompute == Recompute::full &&
              (c.recompute_layers == 0 || before + op.layer - layers.begin < c.recompute_layers);
          const bool selected = brought_back(job.workload.operators, i, modules);
          if (!works_backward(op)) continue;
          if (full || selected) again += operator_work(op, ComputeKind::recompute, sample, job.runtime).flops;
        }
        before += layers.end - layers.begin;
      }
    }
  }
  return model_flops(plan) + again * static_cast<double>(job.training.global_batch);
}

}  // namespace orrery::planner
