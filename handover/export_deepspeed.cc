// DeepSpeed 0.19.6: its JSON, the launch line, and for pipelines the PipelineModule that the JSON cannot
// carry.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "handover/export_common.h"

namespace orrery::planner {
namespace {

Json optimizer_json(const Training& t) {
  const char* type = t.optimizer == Optimizer::adam    ? "Adam"
                     : t.optimizer == Optimizer::adamw ? "AdamW"
                                                       : "SGD";
  Json params = Json::object();
  if (t.learning_rate > 0) params["lr"] = t.learning_rate;
  if (t.optimizer == Optimizer::momentum) params["momentum"] = 0.9;
  if (t.optimizer == Optimizer::adamw) params["weight_decay"] = 0.01;  // none unless said
  return {{"type", type}, {"params", params}};
}

Json zero_json(const Plan& plan) {
  const Choices& c = plan.choices;
  const double bucket_bytes = plan.bucket_bytes();
  Json zero = {{"stage", c.zero}, {"contiguous_gradients", true}, {"overlap_comm", c.overlap_grad_reduce}};
  if (bucket_bytes > 0) {  // DeepSpeed counts elements
    const long long elements = std::llround(bucket_bytes / bytes_of(plan.gradient_type()));
    zero["reduce_bucket_size"] = elements;
    zero["allgather_bucket_size"] = elements;
  }
  if (c.zero == 3 && c.hybrid()) zero["mics_shard_size"] = c.shard_group;
  const Offload offload = offload_of(plan.job->runtime);
  const Json host = {{"device", "cpu"}, {"pin_memory", true}};
  if (offload != Offload::none) zero["offload_optimizer"] = host;
  if (offload == Offload::all && c.zero == 3) zero["offload_param"] = host;
  return zero;
}

// What its PipelineEngine does not run (runtime/pipe/engine.py and topology.py).
void check_pipeline(const Plan& plan) {
  const Choices& c = plan.choices;
  if (c.pp == 1) return;
  if (c.zero >= 2)
    throw UserError(fmt::format("`zero` {} with `pp` {} cannot be exported to deepspeed: its PipelineEngine "
                                "takes no stage above 1",
                                c.zero, c.pp),
                    "expected `zero` 0 or 1, or `pp` 1");
  if (c.cp > 1)
    throw UserError(
        fmt::format("`cp` {} with `pp` {} cannot be exported to deepspeed: a pipeline's ranks are "
                    "of stages, replicas and tensor ranks alone",
                    c.cp, c.pp),
        "expected `cp` 1 or `pp` 1");
}

// What its AutoEP stops at (validate_folding_global of module_inject/auto_ep_folding.py).
void check_experts(const Plan& plan) {
  const Choices& c = plan.choices;
  if (c.etp > 1)
    throw UserError(fmt::format("`etp` {} cannot be exported to deepspeed: its AutoEP splits no expert over "
                                "tensor ranks (expert_tensor_parallel_size is 1)",
                                c.etp),
                    "expected `etp` 1");
  if (c.ep == 1 || c.tp == 1) return;
  const auto refuse = [&](const std::string& beside, const char* why, const char* expected) {
    throw UserError(fmt::format("`ep` {} with `tp` {} and {} cannot be exported to deepspeed: its AutoEP {}",
                                c.ep, c.tp, beside, why),
                    expected);
  };
  if (c.pp > 1)
    refuse(fmt::format("`pp` {}", c.pp), "takes no tensor ranks in a pipeline",
           "expected `ep`, `tp` or `pp` 1");
  if (c.cp > 1)
    refuse(fmt::format("`cp` {}", c.cp), "takes tensor ranks or split sequences",
           "expected `ep`, `tp` or `cp` 1");
  if (c.zero == 3)
    refuse("`zero` 3", "takes tensor ranks up to stage 2", "expected `zero` up to 2, or `ep` or `tp` 1");
  if (const Offload offload = offload_of(plan.job->runtime); offload != Offload::none)
    refuse(fmt::format("`offload` {}", name_of(offload)),
           "leaves no states with the hosts beside tensor ranks",
           "expected `offload` none, or `ep` or `tp` 1");
}

// First layer of each stage, and the end. Chunks of a stage, which it has not, lie together.
std::vector<int> stage_boundaries(const Plan& plan) {
  std::vector<int> first = {0};
  for (const int layers : layers_by_stage(plan)) first.push_back(first.back() + layers);
  return first;
}

// PipelineModule cuts by parameters or by the layers' class: neither is the plan's cut. Recomputed are the
// first of each stage's layers, and never the embedding, whose input has no gradient.
std::string pipeline_py(const Plan& plan) {
  const Choices& c = plan.choices;
  const std::vector<int> first = stage_boundaries(plan);
  const bool again = c.recompute == Recompute::full;
  std::string text =
      "# The plan's stages, for DeepSpeed's PipelineEngine.\n"
      "from deepspeed.pipe import PipelineModule\n";
  text += fmt::format("from deepspeed.runtime.pipe.topology import {}\n\n",
                      c.tp > 1 ? "PipeModelDataParallelTopology" : "PipeDataParallelTopology");
  text += fmt::format("# First transformer layer of each stage, and the end.\nFIRST = [{}]\n",
                      fmt::join(first, ", "));
  if (again)
    text += fmt::format("# Of each stage, the first so many layers are run again.\nAGAIN = {}\n",
                        c.recompute_layers > 0 ? c.recompute_layers : plan.job->workload.layers);
  text +=
      "\n\nclass Planned(PipelineModule):\n"
      "    def __init__(self, layers, before, **others):\n"
      "        self._before = before\n"
      "        super().__init__(layers=layers, **others)\n\n"
      "    def _partition_layers(self, method=None):\n"
      "        if self._num_layers < self._before + FIRST[-1]:\n"
      "            raise ValueError(f\"{self._num_layers} layers (expected {FIRST[-1]} behind the first "
      "{self._before})\")\n"
      "        self.parts = [0] + [self._before + layer for layer in FIRST[1:-1]] + [self._num_layers]\n"
      "        stage = self._topo.get_coord(self.global_rank).pipe\n"
      "        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])\n";
  if (again)
    text +=
        "\n    def _is_checkpointable(self, funcs):\n"
        "        first = max(self._local_start, self._before)\n"
        "        end = min(first + AGAIN, self._before + FIRST[-1])\n"
        "        return all(first <= self._local_start + self.forward_funcs.index(f) < end for f in funcs)\n";
  text += fmt::format(
      "\n\n# layers: what stands before the transformer layers ({}), those {}, and what stands behind them.\n"
      "def pipeline(layers, loss_fn, before=1):\n"
      "    return Planned(layers, before, loss_fn=loss_fn, activation_checkpoint_interval={},\n"
      "                   topology={})\n",
      "`before` of them", first.back(), again ? 1 : 0,
      c.tp > 1
          ? fmt::format("PipeModelDataParallelTopology(num_pp={}, num_mp={}, num_dp={})", c.pp, c.tp, c.dp)
          : fmt::format("PipeDataParallelTopology(num_pp={}, num_dp={})", c.pp, c.dp));
  return text;
}

}  // namespace

std::vector<ExportedFile> export_deepspeed(const Plan& plan) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  check_pipeline(plan);
  check_experts(plan);
  std::vector<std::string> notes = notes_on_rare_choices(plan, "DeepSpeed");
  const std::int64_t micro_batches = equal_micro_batches(plan, "DeepSpeed");
  Json config = {{"train_micro_batch_size_per_gpu", c.micro_batch},
                 {"gradient_accumulation_steps", micro_batches},
                 {"gradient_clipping", plan.job->runtime.clip_gradients ? 1.0 : 0.0},
                 {"optimizer", optimizer_json(t)},
                 {"fp16", {{"enabled", t.precision == DType::fp16}}},
                 {"bf16", {{"enabled", t.precision == DType::bf16 || is_narrow(t.precision)}}},
                 {"zero_optimization", zero_json(plan)},
                 {"wall_clock_breakdown", false}};
  // Checked against micro-batch x accumulation x ranks, of which DeepSpeed counts AutoTP's, too; in a
  // pipeline its topology says which are replicas (runtime/config.py, _batch_assertion).
  if (c.tp == 1 || c.pp > 1)
    config["train_batch_size"] = t.global_batch;
  else
    notes.push_back(
        fmt::format("train_batch_size is left to DeepSpeed, which may count other ranks than the plan's {} "
                    "replicas: its samples a second are then off by as much, the step is not",
                    c.dp));
  if (c.grad_compression == Compression::fp16)
    config["communication_data_type"] = "fp16";
  else if (plan.job->runtime.fp32_gradients)
    config["communication_data_type"] = "fp32";
  if (c.cp > 1) {
    config["sequence_parallel_size"] = c.cp;
    if (c.tp == 1) config["data_parallel_size"] = c.dp;  // the ranks that the batch is counted over
    notes.emplace_back("DeepSpeed splits sequences by Ulysses (all-to-all), the plan by ring attention");
  }
  if (c.hybrid() && c.zero > 0 && c.zero < 3)
    notes.push_back(
        fmt::format("DeepSpeed shards in groups under ZeRO-3 alone (MiCS); the plan's are of {} ranks, "
                    "this shards over all",
                    c.shard_group));
  if (c.tp > 1 && c.pp > 1) {
    notes.push_back(
        fmt::format("AutoTP does not run in a pipeline: your layers are to split themselves{} over {} tensor "
                    "ranks, those of "
                    "model.mpu().get_slice_parallel_group()",
                    c.sequence_parallel ? ", and the sequence between their products," : "", c.tp));
  } else if (c.tp > 1) {
    config["tensor_parallel"] = {{"autotp_size", c.tp}};
    if (plan.job->runtime.overlap_tensor_backward) config["tensor_parallel"]["tp_overlap_comm"] = true;
    if (c.sequence_parallel) notes.emplace_back("AutoTP has no Megatron-style sequence parallelism");
  }
  if (c.ep > 1) config["expert_parallel"] = {{"enabled", true}, {"autoep_size", c.ep}};
  const bool by_module = c.pp > 1 && c.recompute == Recompute::full;  // pipeline.py runs them again
  if (c.recompute != Recompute::none)
    config["activation_checkpointing"] = {{"partition_activations", false}, {"cpu_checkpointing", false}};
  if (c.recompute != Recompute::none && !by_module)
    notes.push_back(
        fmt::format("call deepspeed.checkpointing.checkpoint on {} in the model: the JSON only configures it",
                    what_runs_again(c)));
  if (plan.job->runtime.host_activation_layers > 0) {
    config["activation_checkpointing"] = {{"partition_activations", false}, {"cpu_checkpointing", true}};
    if (plan.job->runtime.host_activation_layers < plan.job->workload.layers)
      notes.push_back(fmt::format("what all layers keep waits in the hosts' memory; the plan's of {} layers",
                                  plan.job->runtime.host_activation_layers));
  }
  if (c.capacity_factor > 0)
    notes.push_back(
        fmt::format("experts take what comes; the plan's at most {} times an even share", c.capacity_factor));
  if (c.overlap_experts)
    notes.emplace_back("experts' traffic is not hidden behind another micro-batch; the plan's is");
  const Offload offload = offload_of(plan.job->runtime);
  if (offload != Offload::none && c.zero == 0)
    notes.emplace_back(
        "DeepSpeed keeps states in the host's memory with ZeRO alone: set stage 2 here, also for one device");
  if (offload == Offload::all && c.zero != 3)
    notes.emplace_back(
        "DeepSpeed leaves weights in the host's memory under ZeRO-3 alone; these stay on the devices");
  if (is_narrow(t.precision))
    notes.emplace_back(fmt::format("{} needs Transformer Engine modules in the model; the JSON runs bf16",
                                   name_of(t.precision)));

  std::vector<ExportedFile> files;
  refuse_v(plan, "DeepSpeed");
  if (c.pp > 1) {
    notes.emplace_back(
        "pipeline.stages in the JSON is never read by the engine: pipeline.py builds the PipelineModule");
    if (c.schedule != Schedule::one_f_one_b)
      notes.emplace_back("DeepSpeed runs 1F1B whatever the plan's schedule");
    if (c.dp > 1 && c.overlap_grad_reduce)
      notes.emplace_back("a pipeline's gradients are reduced behind its last backward; the plan's beside it");
  }
  std::string script = script_head(plan, "DeepSpeed 0.19.6", notes, ModelIs::by_script);
  std::vector<std::string> lines = {fmt::format("gradient_accumulation_steps .. {}", micro_batches)};
  if (config.contains("train_batch_size"))
    lines.push_back(fmt::format("train_batch_size ............. {}", t.global_batch));
  lines.push_back(fmt::format("train_micro_batch_size_per_gpu  {}", c.micro_batch));
  script += log_begins_with(lines) + nccl_environment(plan);
  script += "# hostfile: one line a node, \"HOST slots=" + std::to_string(ranks_per_node(plan)) + "\"\n";
  script += fmt::format("deepspeed --hostfile \"${{HOSTFILE:-hostfile}}\" --num_nodes {} --num_gpus {} \\\n",
                        nodes_used(plan), ranks_per_node(plan));
  script += "  \"${TRAIN:?your training script}\" --deepspeed_config ds_config.json \"$@\"\n";
  files.push_back({"launch.sh", script});
  files.push_back({"ds_config.json", config.dump(2) + "\n"});
  if (c.pp > 1) files.push_back({"pipeline.py", pipeline_py(plan)});
  return files;
}

}  // namespace orrery::planner
