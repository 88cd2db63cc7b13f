#include "planner/evaluation/evaluation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/format.h"
#include "workloads/graph_split.h"

namespace orrery::planner {
namespace {

// A part of the step is named as the bound from this share of the step on.
constexpr double kNotablePart = 0.2;
// A host that takes so much of a step to launch its kernels is what the device waits for: it cannot run
// ahead.
constexpr double kHostBound = 0.8;

}  // namespace

Evaluation evaluate(Plan plan) {
  check_plan(plan);
  Evaluation evaluation;
  evaluation.memory = predict_memory(plan);
  evaluation.estimate_s = estimate_step_seconds(plan);
  evaluation.plan = std::move(plan);
  return evaluation;
}

Throughput throughput(const Evaluation& evaluation) {
  const Job& job = *evaluation.plan.job;
  const double step_s = evaluation.step_time_s();
  Throughput rate;
  rate.model_flops = model_flops(evaluation.plan);
  if (step_s <= 0) return rate;
  double peak = 0;
  for (const NodeGroup& group : job.cluster.groups)
    peak += job.cluster.profiles[group.node.profile].peak(job.training.precision) * group.node.devices *
            group.count;
  rate.samples_per_s = static_cast<double>(job.training.global_batch) / step_s;
  rate.tokens_per_s = rate.samples_per_s * job.training.tokens_each();
  const double flops_per_s = rate.model_flops / step_s;
  rate.model_tflops_per_gpu = flops_per_s / evaluation.plan.choices.world() * 1e-12;
  rate.mfu = peak > 0 ? flops_per_s / peak : 0;
  rate.hfu = peak > 0 ? hardware_flops(evaluation.plan) / step_s / peak : 0;
  return rate;
}

std::vector<std::pair<std::string, double>> parts_of(const Breakdown& b) {
  return {{"compute", b.compute},
          {"recompute", b.recompute},
          {"tensor_comm", b.tensor_comm},
          {"data_comm", b.data_comm},
          {"pipeline_comm", b.pipeline_comm},
          {"expert_comm", b.expert_comm},
          {"context_comm", b.context_comm},
          {"bubble", b.bubble},
          {"optimizer", b.optimizer},
          {"input", b.input},
          {"other", b.other}};
}

std::string unequal_sequences(const Plan& plan) {
  if (!plan.job->training.lengths.any()) return "";
  const double longer = plan.wait_for_longest() - 1;
  std::string text =
      plan.job->training.lengths.packed
          ? std::string("Rows are full")
          : fmt::format("{:.0f}% of the tokens computed are padding", 100 * plan.padded_share());
  if (longer > 0.0005)
    text += fmt::format("; the slowest replica computes {:.1f}% more than the mean", 100 * longer);
  return text + ".";
}

double host_share(const Evaluation& evaluation) {
  if (!evaluation.simulation || evaluation.step_time_s() <= 0) return 0;
  const double share = evaluation.simulation->host_s / evaluation.step_time_s();
  return share >= kHostBound ? share : 0;
}

std::string bound_by(const Evaluation& evaluation) {
  if (!evaluation.simulation) return "";
  if (const double host = host_share(evaluation); host > 0) return fmt::format("host {:.0f}%", 100 * host);
  const Breakdown& breakdown = evaluation.simulation->breakdown;
  const double total = breakdown.total();
  if (total <= 0) return "";
  const auto parts = parts_of(breakdown);
  // The first is useful compute; the largest of the others is what is lost to most.
  const auto largest = std::max_element(parts.begin() + 1, parts.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto& shown = largest->second >= kNotablePart * total ? *largest : parts.front();
  return fmt::format("{} {:.0f}%", shown.first, 100 * shown.second / total);
}

namespace {

// What of a cut by hand, or by the search, one would not guess.
std::string cut_in_words(const Choices& c) {
  if (c.pp == 1 || c.stage_layers.empty()) return {};
  std::string text;
  const char* part = c.interleave > 1 ? "chunk" : "stage";
  const bool embedding = c.stage_layers.front() == 0, head = c.stage_layers.back() == 0;
  const auto begin = c.stage_layers.begin() + embedding, end = c.stage_layers.end() - head;
  const auto [least, most] = std::minmax_element(begin, end);
  if (*most - *least > 1) text += fmt::format(", {} to {} layers a {}", *least, *most, part);
  if (embedding && head)
    text += fmt::format(", embedding and head {}s of their own", part);
  else if (embedding || head)
    text += fmt::format(", {} a {} of its own", embedding ? "embedding" : "head", part);
  return text;
}

}  // namespace

std::string describe(const Plan& plan) {
  const Choices& c = plan.choices;
  std::string text = fmt::format("TP {} x PP {} x DP {}", c.tp, c.pp, c.dp);
  if (c.cp > 1) text += fmt::format(" x CP {}", c.cp);
  if (c.ep > 1) text += fmt::format(", EP {}", c.ep);
  if (c.etp > 1) text += fmt::format(", ETP {}", c.etp);
  for (const auto& [form, degree] : c.degrees)
    if (degree > 1) text += fmt::format(", {} {}", form, degree);
  text += fmt::format(", micro-batch {}", c.micro_batch);
  if (c.pp > 1) text += fmt::format(", {}", name_of(c.schedule));
  if (c.schedule == Schedule::interleaved) text += fmt::format(" {}", c.interleave);
  if (c.recompute == Recompute::full && c.recompute_layers > 0)
    text += fmt::format(", full recomputation of {} a stage", counted(c.recompute_layers, "layer"));
  else if (c.recompute != Recompute::none)
    text += fmt::format(", {} recomputation", name_of(c.recompute));
  if (c.recompute_modules != 0) text += fmt::format(" of {}", fmt::join(names_of(c.recompute_modules), ", "));
  if (c.zero > 0) text += fmt::format(", ZeRO-{}", c.zero);
  if (c.zero > 0 && c.hybrid()) text += fmt::format(" in groups of {}", c.shard_group);
  if (c.zero == 0 && c.hybrid())
    text += fmt::format(", gradients summed in groups of {} first", c.shard_group);
  if (const auto split = split_operators(plan.job->workload); c.tp > 1 && !split.empty())
    text += fmt::format(", {} split", counted(static_cast<std::int64_t>(split.size()), "operator"));
  else if (c.sequence_parallel)
    text += ", sequence parallel";
  if (c.overlap_experts) text += ", experts' traffic overlapped";
  if (c.grad_compression != Compression::none)
    text += fmt::format(", {} gradients", name_of(c.grad_compression));
  const bool servers = c.sync == Sync::parameter_server || c.sync == Sync::async_parameter_server;
  if (servers)
    text += ", " + counted(c.servers, c.sync == Sync::async_parameter_server ? "asynchronous parameter server"
                                                                             : "parameter server");
  if (c.staleness > 0) text += fmt::format(", at most {} ahead", counted(c.staleness, "step"));
  if (!servers && c.sync != Sync::all_reduce) text += fmt::format(", {}", name_of(c.sync));
  if (!c.replica_batches.empty()) {
    const auto [least, most] = std::minmax_element(c.replica_batches.begin(), c.replica_batches.end());
    text += fmt::format(", {} to {} samples a replica", *least, *most);
  }
  return text + cut_in_words(c);
}

}  // namespace orrery::planner
