// Horovod: data parallelism by all-reduce, nothing else; the rest of the plan becomes comments.
#include <fmt/format.h>

#include <cmath>

#include "handover/export_common.h"

namespace orrery::planner {

std::vector<ExportedFile> export_horovod(const Plan& plan) {
  const Choices& c = plan.choices;
  std::vector<std::string> notes = notes_on_rare_choices(plan, "Horovod");
  const std::int64_t micro_batches = equal_micro_batches(plan, "Horovod");
  for (const auto& [name, size] :
       {std::pair{"tensor", c.tp}, {"pipeline", c.pp}, {"context", c.cp}, {"expert", c.ep}})
    if (size > 1) notes.push_back(fmt::format("Horovod has no {} parallelism; the plan's is {}", name, size));
  if (c.zero > 0)
    notes.push_back(fmt::format("Horovod shards no states; the plan's ZeRO stage is {}", c.zero));
  if (c.recompute != Recompute::none)
    notes.push_back(fmt::format("recomputation is the training script's (torch.utils.checkpoint around {})",
                                what_runs_again(c)));
  if (!c.overlap_grad_reduce && c.dp > 1)
    notes.emplace_back("Horovod reduces gradients while the backward pass runs; the plan behind it");
  if (micro_batches > 1)
    notes.push_back(fmt::format(
        "accumulate gradients: hvd.DistributedOptimizer(…, backward_passes_per_step={})", micro_batches));
  if (c.grad_compression == Compression::fp16)
    notes.emplace_back("compress gradients: hvd.DistributedOptimizer(…, compression=hvd.Compression.fp16)");
  notes.push_back(fmt::format("batch of one process and pass: {}", c.micro_batch));

  const double bucket_bytes = plan.bucket_bytes();
  // Horovod's default is 128 MiB; 0 switches fusion off, which is what "no overlap" is nearest to only at one
  // huge bucket.
  const long fusion_mb = bucket_bytes > 0 ? std::max(1L, std::lround(bucket_bytes / (1 << 20))) : 128;
  const std::string yaml = fmt::format(
      "# {} on {}: written by orrery export. horovodrun --config-file\nparams:\n  fusion_threshold_mb: {}\n  "
      "cycle_time_ms: 1\n"
      "  hierarchical_allreduce: {}\nautotune:\n  enabled: false\n",
      plan.job->workload.name, plan.job->cluster.name, fusion_mb, c.zero == 0 && c.hybrid());
  std::string script = script_head(plan, "Horovod", notes, ModelIs::by_script) + nccl_environment(plan);
  script += fmt::format("export HOROVOD_FUSION_THRESHOLD={}\n", fusion_mb << 20);
  script += fmt::format(
      "horovodrun -np {} -H \"${{HOSTS:?host:{} for each of {} nodes, with commas}}\" --config-file "
      "horovod.yaml \\\n",
      c.world(), ranks_per_node(plan), nodes_used(plan));
  script += "  python \"${TRAIN:?your training script}\" \"$@\"\n";
  return {{"launch.sh", script}, {"horovod.yaml", yaml}};
}

}  // namespace orrery::planner
