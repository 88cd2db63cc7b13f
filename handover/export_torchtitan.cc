// torchtitan v0.2.2 (the last release configured by TOML) and PyTorch's pipeline schedule CSV.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "handover/export_common.h"
#include "handover/torchtitan_flavor.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

std::string schedule_name(const Choices& c) {
  switch (c.schedule) {
    case Schedule::gpipe:
      return "GPipe";
    case Schedule::one_f_one_b:
      return "1F1B";
    case Schedule::interleaved:
      return "Interleaved1F1B";
    case Schedule::zero_bubble:
      return "1F1B";  // replaced by the CSV
    case Schedule::dualpipe_v:
      return "DualPipeV";
  }
  return "1F1B";
}

// One row a rank, cells in order: <virtual stage><F|B|I|W><micro-batch>.
std::string schedule_csv(const Plan& plan) {
  const Choices& c = plan.choices;
  std::string csv;
  for (int stage = 0; stage < c.pp; ++stage) {
    std::string row;
    for (const Slot& slot : schedule_slots(c.schedule, stage, c.pp, c.interleave,
                                           static_cast<int>(equal_micro_batches(plan, "torchtitan")))) {
      const char letter = slot.kind == SlotKind::forward          ? 'F'
                          : slot.kind == SlotKind::backward       ? 'B'
                          : slot.kind == SlotKind::backward_input ? 'I'
                                                                  : 'W';
      if (!row.empty()) row += ',';
      row += fmt::format("{}{}{}", part_of(c, stage, slot.chunk), letter, slot.micro_batch);
    }
    csv += row + "\n";
  }
  return csv;
}

std::string module_names(const Plan& plan) {
  const std::vector<int> layers = layers_by_part(plan);
  std::string text = "[\n";
  int next = 0;
  for (std::size_t part = 0; part < layers.size(); ++part) {
    std::string names;
    const auto add = [&](const std::string& name) { names += (names.empty() ? "\"" : ", \"") + name + "\""; };
    if (part == 0) add("tok_embeddings");
    for (int i = 0; i < layers[part]; ++i) add(fmt::format("layers.{}", next++));
    if (part + 1 == layers.size()) {
      add("norm");
      add("output");
    }
    text += "  [" + names + "],\n";
  }
  return text + "]";
}

// Products in float8: of all layers but the head, and of experts, which are matched by part of their names
// (components/quantization/float8.py).
std::string narrow_converters(const Plan& plan, const Transformer& model, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  const bool experts = model.moe && c.pp == 1 && c.cp == 1;
  if (model.moe && !experts)
    notes->emplace_back(
        "torchtitan's float8 experts take no pipeline and no context ranks: theirs run bf16, the plan's fp8");
  return fmt::format(
      "converters = [\"quantize.linear.float8\"{}]\n\n[quantize.linear.float8]\nfilter_fqns = "
      "[\"output\"{}]\n{}",
      experts ? ", \"quantize.grouped_mm.float8\"" : "", model.moe ? ", \"router.gate\"" : "",
      experts ? "\n[quantize.grouped_mm.float8]\nfqns = [\"experts\"]\n" : "");
}

// How many copies of the states there are, and how many replicas share one.
struct Replicas {
  int copies = 1, shards = 1;
};

// It replicates (DDP) where there is nothing but replicas, and shards over replicas and context ranks
// elsewhere; ranks that experts are spread over are among those who share, with tensor ranks
// (distributed/parallel_dims.py).
Replicas replicas_of(const Plan& plan, std::string_view family, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  const bool alone = c.tp * c.pp * c.cp * c.ep == 1;
  const bool stands_in = c.zero == 0 && !alone && c.dp * c.cp > 1;
  if (stands_in)
    notes->emplace_back(
        "torchtitan keeps whole states on replicas (DDP) beside no other form of parallelism; FSDP without "
        "resharding (ZeRO-2) stands in for ZeRO-0: less memory");
  Replicas found;
  found.shards = c.zero == 0         ? (stands_in ? c.dp : 1)
                 : c.shard_group > 0 ? std::max(1, c.shard_group / c.cp)
                                     : c.dp;
  found.copies = c.dp / found.shards;
  const std::int64_t sharing = std::int64_t{found.shards} * c.cp;
  if (c.ep > 1) {
    if (c.etp != 1 && c.etp != c.tp)
      throw UserError(
          fmt::format("`etp` {} of `tp` {} cannot be exported to torchtitan, which splits experts "
                      "over all tensor ranks or none",
                      c.etp, c.tp),
          fmt::format("expected `etp` 1 or {}", c.tp));
    if (sharing * c.tp / c.etp % c.ep != 0)
      throw UserError(
          fmt::format("`ep` {}: torchtitan spreads experts over ranks that share states, and {} do", c.ep,
                      sharing * c.tp / c.etp),
          "expected a divisor of them, or a larger `shard_group`");
    if (sharing == 1 && family == "deepseek_v3")
      throw UserError(fmt::format("`ep` {} of tensor ranks alone cannot be exported to torchtitan, whose {} "
                                  "shards experts over replicas or context ranks, too",
                                  c.ep, family),
                      "expected `dp` or `cp` above 1");
  }
  const DType type = plan.job->training.precision;
  if (sharing == 1 && c.tp * c.pp > 1 && type != DType::fp32 && type != DType::tf32)
    notes->emplace_back(
        "torchtitan leaves 16 bits to FSDP beside tensor and pipeline ranks, and nothing is sharded here: it "
        "trains in fp32 unless train.toml says training.dtype = \"bfloat16\", with which states are bf16, "
        "too");
  return found;
}

// Sequences are cut over tensor ranks and, in two pieces each, over context ranks.
void check_sequence(const Plan& plan) {
  const Choices& c = plan.choices;
  if (const int pieces = 2 * c.tp * c.cp; plan.job->training.seq_len % pieces != 0)
    throw UserError(
        fmt::format("`seq_len` {} cannot be exported to torchtitan: no multiple of 2 x tp x cp = {}",
                    plan.job->training.seq_len, pieces),
        "expected a multiple of it");
}

// It runs every N-th of a rank's layers again, counted over all of its chunks (activation_checkpoint.py): the
// N with which those are as many as the plan's, of like layers on every stage; none where there is none.
std::optional<int> every_layer_again(const Plan& plan, const Transformer& model) {
  const Choices& c = plan.choices;
  if (c.recompute != Recompute::full || c.recompute_layers == 0) return std::nullopt;
  for (int layer = 1; layer < model.layers; ++layer)
    if (model.layer_has_experts(layer) != model.layer_has_experts(0)) return std::nullopt;
  const std::vector<int> of_stage = layers_by_stage(plan);
  for (int every = 2; every <= model.layers; ++every)
    if (std::all_of(of_stage.begin(), of_stage.end(),
                    [&](int layers) { return layers / every == std::min(c.recompute_layers, layers); }))
      return every;
  return std::nullopt;
}

// PyTorch's schedules that split backward passes run no compiled modules (pytorch/pytorch#161904).
bool is_compiled(const Plan& plan, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  const bool planned = plan.job->runtime.fused_elementwise;
  if (c.pp == 1 || !splits_backward(c.schedule)) return planned;
  notes->push_back(fmt::format(
      "PyTorch splits no backward pass of compiled modules (pytorch/pytorch#161904): compile is off. The "
      "plan's time is {}",
      planned ? "that of compiled kernels: this is slower. `plan --schedule` plans without them"
              : "without what a compiler fuses; its products are as fast as those of compiled runs, "
                "which torchtitan was fitted to"));
  return false;
}

}  // namespace

std::vector<ExportedFile> export_torchtitan(const Plan& plan) {
  const Transformer& model = transformer_for(plan, "torchtitan");
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  const TorchtitanFlavor flavor = torchtitan_flavor(plan);
  std::vector<std::string> notes = notes_on_rare_choices(plan, "torchtitan");
  notes.insert(notes.end(), flavor.notes.begin(), flavor.notes.end());
  notes.emplace_back("torchtitan dropped TOML on 2026-02-23: check out tag v0.2.2");
  if (c.zero == 1)
    notes.emplace_back("torchtitan has no ZeRO-1; FSDP without resharding (ZeRO-2) stands in for it");
  if (!c.sequence_parallel && c.tp > 1)
    notes.emplace_back(
        "torchtitan's tensor parallelism always splits the sequence, too; the plan's does not");
  if (!c.overlap_grad_reduce && c.dp > 1)
    notes.emplace_back("FSDP overlaps the reduction of gradients; the plan does not");
  if (c.bucket_bytes > 0)
    notes.push_back(
        fmt::format("FSDP reduces layer by layer; the plan's buckets are of {:.0f} bytes", c.bucket_bytes));
  if (c.sequence_parallel && c.tp == 1)
    notes.emplace_back("sequence parallelism is part of tensor parallelism");
  if (!t.fused_attention)
    notes.emplace_back("torchtitan always uses PyTorch's fused attention; the plan does not");
  if (!plan.job->runtime.clip_gradients)
    notes.emplace_back(
        "torchtitan works the norm of the gradients out whatever its bound; the plan does not");
  if (c.grad_compression == Compression::fp16)
    notes.emplace_back("torchtitan cannot compress gradients by fp16");
  if (c.capacity_factor > 0)
    notes.push_back(
        fmt::format("torchtitan's experts take what comes; the plan's at most {} times an even share",
                    c.capacity_factor));
  if (model.moe && model.moe->auxiliary_loss > 0)
    notes.push_back(
        fmt::format("torchtitan balances experts by a bias; the model by a loss times {}: losses differ",
                    model.moe->auxiliary_loss));
  const bool in_a_v = c.schedule == Schedule::dualpipe_v;
  if (c.overlap_experts && !in_a_v)
    notes.emplace_back("experts' traffic is not hidden behind another micro-batch; the plan's is");
  if (t.precision == DType::tf32)
    notes.emplace_back("tf32 is PyTorch's setting: torch.backends.cuda.matmul.allow_tf32 = True");
  const std::optional<int> every = every_layer_again(plan, model);
  if (c.recompute == Recompute::full && c.recompute_layers > 0 && !every)
    notes.push_back(fmt::format(
        "the plan runs {} layers of each stage again, which is no whole share of them; this all: {}",
        c.recompute_layers, cost_of_running_again(plan, c.recompute_layers, plan.job->workload.layers)));

  check_sequence(plan);
  const Replicas replicas = replicas_of(plan, flavor.family, &notes);
  std::string toml = fmt::format("# {} on {}: written by orrery export, for torchtitan v0.2.2.\n",
                                 plan.job->workload.name, plan.job->cluster.name);
  toml += fmt::format("[model]\nname = \"{}\"\nflavor = \"orrery\"  # of flavor.py\n", flavor.family);
  if (t.precision == DType::fp8) toml += narrow_converters(plan, model, &notes);
  toml += fmt::format(
      "\n[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\nmax_norm = {}\n",
      c.pp > 1 ? t.global_batch / c.dp : c.micro_batch, t.global_batch, t.seq_len,
      plan.job->runtime.clip_gradients ? "1.0" : "inf");
  if (offload_of(plan.job->runtime) == Offload::all) toml += "enable_cpu_offload = true\n";
  toml += fmt::format("mixed_precision_param = \"{}\"\nmixed_precision_reduce = \"float32\"\n",
                      t.precision == DType::fp32 || t.precision == DType::tf32 ? "float32" : "bfloat16");
  if (!plan.job->runtime.fp32_gradients && t.precision != DType::fp32 && t.precision != DType::tf32)
    notes.emplace_back("torchtitan reduces gradients in fp32, the plan in half the bytes");
  if (t.precision == DType::fp4) notes.emplace_back("torchtitan has no fp4 training; this runs bf16");
  if (t.precision == DType::fp16) notes.emplace_back("torchtitan trains in bf16, not fp16");
  toml += fmt::format(
      "\n[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n"
      "fsdp_reshard_after_forward = \"{}\"\ntensor_parallel_degree = {}\ncontext_parallel_degree = {}\n"
      "pipeline_parallel_degree = {}\n",
      replicas.copies, replicas.shards, c.zero == 3 ? "always" : "never", c.tp, c.cp, c.pp);
  if (model.moe) {
    toml += fmt::format("expert_parallel_degree = {}\nexpert_tensor_parallel_degree = {}\n", c.ep, c.etp);
    if (c.ep == 1 && c.etp != c.tp)
      notes.push_back(fmt::format(
          "torchtitan splits each expert over the {} tensor ranks where there are no expert ranks; "
          "the plan's are split over {}: less memory, and another time",
          c.tp, c.etp));
  }
  if (c.tp > 1 && plan.job->runtime.overlap_tensor) {
    if (plan.job->runtime.fused_elementwise)
      toml += "enable_async_tensor_parallel = true\n";
    else  // which its compiler does
      notes.emplace_back(
          "tensor ranks' communication is not hidden beside their products without torch.compile; the plan's "
          "is");
  }
  std::vector<ExportedFile> extra;
  if (c.pp > 1) {
    toml += fmt::format("pipeline_parallel_schedule = \"{}\"\npipeline_parallel_microbatch_size = {}\n",
                        schedule_name(c), c.micro_batch);
    toml += "module_fqns_per_model_part = " + module_names(plan) + "\n";
    // Which it refuses where anything is run again (distributed/dual_pipe_v.py).
    const bool overlaps = c.overlap_experts && c.recompute == Recompute::none;
    if (in_a_v) toml += fmt::format("pipeline_parallel_expert_parallel_overlap = {}\n", overlaps);
    if (in_a_v && c.overlap_experts && !overlaps)
      notes.emplace_back(
          "DualPipeV hides experts' traffic behind another micro-batch only where nothing is recomputed; the "
          "plan does");
    if (c.schedule == Schedule::zero_bubble) {
      toml += "pipeline_parallel_schedule_csv = \"schedule.csv\"\n";
      extra.push_back({"schedule.csv", schedule_csv(plan)});
    }
  }
  toml += fmt::format("\n[compile]\nenable = {}\n", is_compiled(plan, &notes));  // off unless said
  toml += "\n[experimental]\ncustom_import = \"flavor\"\n";
  toml += fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n",
                      name_of(every ? Recompute::selective : c.recompute));
  if (every)
    toml += fmt::format("selective_ac_option = \"{}\"  # every such layer: {} of each stage, as planned\n",
                        *every, c.recompute_layers);
  else if (c.recompute == Recompute::selective)
    toml += "selective_ac_option = \"op\"\n";
  toml += fmt::format("\n[optimizer]\nname = \"{}\"\n", t.optimizer == Optimizer::adam ? "Adam" : "AdamW");
  toml +=
      fmt::format("weight_decay = {}\n", t.optimizer == Optimizer::adam ? "0.0" : "0.01");  // 0.1 unless said
  if (t.optimizer == Optimizer::sgd || t.optimizer == Optimizer::momentum)
    notes.emplace_back("torchtitan has no SGD; this trains with AdamW");
  if (t.learning_rate > 0) toml += fmt::format("lr = {}\n", t.learning_rate);

  std::string script = script_head(plan, "torchtitan v0.2.2", notes, ModelIs::by_flavor);
  const std::int64_t local = c.pp > 1 ? t.global_batch / c.dp : c.micro_batch;
  script += log_begins_with({fmt::format("Building device mesh with parallelism: pp={}, dp_replicate={}, "
                                         "dp_shard={}, cp={}, tp={}, ep={}, etp={}",
                                         c.pp, replicas.copies, replicas.shards, c.cp, c.tp, c.ep, c.etp),
                             fmt::format("Trainer is initialized with local batch size {}, global batch size "
                                         "{}, gradient accumulation steps {}, "
                                         "sequence length {}, total steps …",
                                         local, t.global_batch, t.global_batch / (local * c.dp), t.seq_len)});
  script += nccl_environment(plan);
  script += "export PYTHONPATH=\"$PWD${PYTHONPATH:+:$PYTHONPATH}\"  # flavor.py\n";
  script += torchrun_line(plan) + "  -m torchtitan.train --job.config_file train.toml \"$@\"\n";
  std::vector<ExportedFile> files = {
      {"launch.sh", script}, {"train.toml", toml}, {"flavor.py", flavor.python}};
  files.insert(files.end(), extra.begin(), extra.end());
  return files;
}

}  // namespace orrery::planner
