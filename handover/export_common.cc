#include "handover/export_common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"

namespace orrery::planner {

namespace {

using Exporter = std::vector<ExportedFile> (*)(const Plan&);
struct Target {
  ExportTarget target;
  const char* name;
  Exporter write;  // none: takes options
};

constexpr std::array<Target, 13> kTargets = {{
    {ExportTarget::megatron, "megatron", export_megatron},
    {ExportTarget::deepspeed, "deepspeed", export_deepspeed},
    {ExportTarget::torchtitan, "torchtitan", export_torchtitan},
    {ExportTarget::torchrun, "torchrun", export_torchrun},
    {ExportTarget::nemo, "nemo", export_nemo},
    {ExportTarget::torchtune, "torchtune", export_torchtune},
    {ExportTarget::horovod, "horovod", export_horovod},
    {ExportTarget::tensorflow, "tensorflow", export_tensorflow},
    {ExportTarget::ray, "ray", export_ray},
    {ExportTarget::slurm, "slurm", export_slurm},
    {ExportTarget::kubernetes, "kubernetes", nullptr},
    {ExportTarget::chakra, "chakra", nullptr},
    {ExportTarget::simgrid, "simgrid", export_simgrid},
}};

}  // namespace

std::string names_of_targets() {
  std::string names;
  for (const Target& one : kTargets) names += (names.empty() ? "" : ", ") + std::string(one.name);
  return names;
}

ExportTarget export_target_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (const Target& one : kTargets) {
    if (lower_case(name) == one.name) return one.target;
    names.emplace_back(one.name);
  }
  throw UserError(fmt::format("`to` {}: unknown target", name), suggestion(name, names));
}

std::vector<ExportedFile> export_plan(const Plan& plan, ExportTarget target, const ExportOptions& options) {
  if (options.job != KubernetesJob::pytorch && target != ExportTarget::kubernetes)
    throw UserError("`job` says which of Kubernetes' jobs", "expected `to` kubernetes");
  if (target == ExportTarget::chakra) return export_chakra(plan, options);
  if (target == ExportTarget::kubernetes) return export_kubernetes(plan, options.job);
  for (const Target& one : kTargets)
    if (target == one.target) return one.write(plan);
  throw InternalError("unknown export target");
}

namespace {

std::vector<std::string> parts_beyond_dimensions(const Transformer& t) {
  std::vector<std::string> parts;
  const auto part = [&](bool has, const char* what) {
    if (has) parts.emplace_back(what);
  };
  part(!t.layer_pattern.empty(), "layers of several kinds");
  part(!t.attention_pattern.empty(), "attention of several kinds");
  part(t.branch_norms, "norms of what attention and MLP put out");
  part(t.no_input_norms || t.first_norm_absent || t.embedding_norm, "norms in other places");
  part(t.post_norm, "norms behind attention and MLP");
  part(t.bidirectional, "attention in both directions");
  part(t.token_types > 0, "token types");
  part(t.mlm_head || t.pooler, "BERT's heads");
  part(t.proj_bias && !t.linear_bias, "a bias of attention's output alone");
  part(t.mlp_bias && !t.linear_bias, "biases of the MLP alone");
  part(t.head_bias, "a bias of the head");
  part(t.unbiased_norm, "layer norms without a bias");
  part(!t.final_norm, "no norm in front of the head");
  part(t.single_norm, "one norm for attention and MLP");
  part(t.position_offset > 0, "extra rows of positions");
  part(t.masked_share > 0, "a head that sees a share of the tokens");
  part(t.dropouts.any(), "dropout");
  part(t.attention_softcap > 0 || t.final_softcap > 0, "soft caps");
  part(t.attention_scale > 0, "a scale of scores of its own");
  part(t.embedding_scale != 1, "scaled embeddings");
  part(t.norms_offset, "norms by one more than their weights");
  part(t.sliding_window_from_layer > 0, "a window from some layer on");
  part(t.rotary_scaling.kind == RopeScaling::linear || t.rotary_scaling.kind == RopeScaling::dynamic,
       "scaled rotary positions");
  part(t.parallel_residual, "attention beside the MLP");
  part(t.qk_norm && (t.qk_norm_whole || t.qk_norm_absent_weights), "norms over all queries and keys");
  part(t.attention_gate, "a gate behind attention");
  part(t.attention_sinks, "attention sinks");
  part(t.mla && t.mla->index_heads > 0, "sparse attention");
  part(t.moe && (t.moe->expert_bias || t.moe->expert_up_bias), "experts with biases");
  part(t.moe && t.moe->shared_gate, "a gate of the shared expert");
  for (const std::string& what : t.unexecuted) parts.push_back(what);
  return parts;
}

}  // namespace

int ranks_per_node(const Plan& plan) {
  return std::min(plan.job->cluster.groups.front().node.devices, plan.choices.world());
}

int nodes_used(const Plan& plan) {
  return (plan.choices.world() + ranks_per_node(plan) - 1) / ranks_per_node(plan);
}

std::string script_head(const Plan& plan, std::string_view target, const std::vector<std::string>& notes,
                        ModelIs model) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  std::string text = "#!/usr/bin/env bash\n";
  text += fmt::format("# {} on {}, for {}: written by orrery export.\n", plan.job->workload.name,
                      plan.job->cluster.name, target);
  text += fmt::format(
      "# {} ranks = tp {} x pp {} x dp {} x cp {}; {} micro-batches of {}; global batch {}, sequence {}.\n",
      c.world(), c.tp, c.pp, c.dp, c.cp, plan.micro_batches(), c.micro_batch, t.global_batch, t.seq_len);
  for (const std::string& note : notes) text += "# NOTE: " + note + "\n";
  const auto& transformer = plan.job->workload.transformer;
  if (transformer && model != ModelIs::built)
    for (const std::string& part : parts_beyond_dimensions(*transformer))
      text += "# NOTE: the model has " + part + ", which your script must build\n";
  if (t.lengths.any())
    text += fmt::format("# NOTE: the plan is for sequences {}: your data loader pads or packs them\n",
                        describe(t.lengths));
  if (transformer && transformer->fine_tuning.any() && model == ModelIs::by_dimensions)
    text += fmt::format(
        "# NOTE: the plan is for {}; this launches training of all weights until your script "
        "freezes them and adds adapters\n",
        description_of(transformer->fine_tuning));
  return text + "set -euo pipefail\n";
}

std::string nccl_environment(const Plan& plan) {
  const Cluster& cluster = plan.job->cluster;
  if (cluster.communication.library != CommunicationLibrary::nccl) return {};
  std::string text;
  // Megatron's arguments check: overlap of tensor-parallel communication relies on one hardware queue before
  // Blackwell.
  const std::string& generation =
      cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)].generation;
  if ((plan.choices.tp > 1 || plan.choices.cp > 1) && plan.choices.zero < 2 && generation != "blackwell")
    text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  const NodeType& node = cluster.groups.front().node;
  if (nodes_used(plan) > 1) {
    if (cluster.fabric.transport == Transport::tcp) text += "export NCCL_IB_DISABLE=1  # plain Ethernet\n";
    if (cluster.fabric.kind == FabricKind::rail_fat_tree)
      text += "export NCCL_CROSS_NIC=0  # rails: a ring stays on its port\n";
    if (node.nic.direct) text += "export NCCL_NET_GDR_LEVEL=PHB\n";
  }
  if (node.intra.in_network_reduction) text += "export NCCL_NVLS_ENABLE=1\n";
  return text;
}

std::string torchrun_line(const Plan& plan) {
  const int nodes = nodes_used(plan);
  if (nodes == 1) return fmt::format("torchrun --standalone --nproc_per_node={} \\\n", ranks_per_node(plan));
  return fmt::format(
      "torchrun --nnodes={} --nproc_per_node={} --rdzv_backend=c10d "
      "--rdzv_endpoint=\"${{MASTER_ADDR:?host:port of the first "
      "node}}\" --rdzv_id=\"${{JOB_ID:-orrery}}\" \\\n",
      nodes, ranks_per_node(plan));
}

std::vector<int> layers_by_virtual_stage(const Plan& plan) {
  std::vector<int> layers;
  for (int chunk = 0; chunk < plan.choices.interleave; ++chunk) {
    for (int stage = 0; stage < plan.choices.pp; ++stage) {
      const LayerRange range = layers_of(plan, stage, chunk);
      layers.push_back(range.end - range.begin);
    }
  }
  return layers;
}

const Transformer& transformer_for(const Plan& plan, std::string_view target) {
  if (!plan.job->workload.transformer)
    throw UserError(fmt::format("{} cannot be exported to {}", plan.job->workload.name, target),
                    "expected a transformer");
  return *plan.job->workload.transformer;
}

std::string_view torch_type(DType precision) {
  return precision == DType::fp16                               ? "torch.float16"
         : precision == DType::fp32 || precision == DType::tf32 ? "torch.float32"
                                                                : "torch.bfloat16";
}

void refuse_forms(const std::vector<std::pair<std::string_view, int>>& forms, std::string_view target,
                  std::string_view expected) {
  for (const auto& [name, degree] : forms)
    if (degree > 1)
      throw UserError(
          fmt::format("a plan of {} parallelism {} cannot be exported to {}", name, degree, target),
          std::string(expected));
}

std::string note_on_rotary_scaling(const Transformer& model) {
  return fmt::format("rotary positions are not scaled by {}: losses differ, times do not",
                     name_of(model.rotary_scaling.kind));
}

std::vector<std::string> notes_on_rare_choices(const Plan& plan, std::string_view target) {
  const Choices& c = plan.choices;
  std::vector<std::string> notes;
  if (c.sync != Sync::all_reduce)
    notes.push_back(
        fmt::format("{} has no '{}' synchronisation; this launches all-reduce", target, name_of(c.sync)));
  if (c.grad_compression == Compression::int8 || c.grad_compression == Compression::topk)
    notes.push_back(fmt::format("{} cannot compress gradients by {}", target, name_of(c.grad_compression)));
  for (const auto& [form, degree] : c.degrees)
    if (degree > 1)
      notes.push_back(fmt::format("{} has no {} parallelism; the plan's is {}", target, form, degree));
  if (!c.replica_batches.empty())
    notes.push_back(fmt::format("{} gives every replica the same share; the plan's are {}", target,
                                fmt::join(c.replica_batches, ", ")));
  constexpr std::array<Dimension, 5> kUsual = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                                               Dimension::pp};
  if (c.order != kUsual && target != "Megatron-LM")
    notes.push_back(fmt::format("{} lays ranks out its own way; the plan's order is innermost {}", target,
                                name_of(c.order.front())));
  const Offload offload = offload_of(plan.job->runtime);
  const bool expressed = target == "DeepSpeed" || (target == "torchtitan" && offload == Offload::all);
  if (offload != Offload::none && !expressed)
    notes.push_back(
        fmt::format("the plan keeps states in the hosts' memory (`offload` {}); this keeps them on "
                    "the devices, and may not fit",
                    name_of(offload)));
  return notes;
}

}  // namespace orrery::planner
