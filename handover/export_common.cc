#include "handover/export_common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "cost/precision.h"
#include "topologies/node_counts.h"

namespace orrery::planner {

namespace {

std::string counted_micro_batches(std::int64_t count) {
  return fmt::format("{} micro-batch{}", with_commas(count), count == 1 ? "" : "es");
}

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

std::string_view name_of(ExportTarget target) {
  return std::find_if(kTargets.begin(), kTargets.end(),
                      [target](const Target& one) { return one.target == target; })
      ->name;
}

// Software that trains in 8 and 4 bits stops on devices without such units; wider types it emulates.
void refuse_narrow(const Plan& plan) {
  const DType precision = plan.job->training.precision;
  if (!is_narrow(precision)) return;
  if (const auto missing = without_units(*plan.job); !missing.empty())
    throw UserError(fmt::format("`precision` {} cannot be exported: {}", name_of(precision), missing.front()),
                    "expected a precision that the device computes in");
}

// What is written starts PyTorch or TensorFlow on GPUs or processors.
void refuse_devices(const Plan& plan) {
  for (const DeviceProfile& device : plan.job->cluster.profiles)
    for (const std::string_view vendor : {"google", "amazon"})
      if (device.vendor == vendor)
        throw UserError(fmt::format("a plan for {} can be exported to chakra and simgrid alone", device.name),
                        "expected GPUs or processors for any other `to`");
}

// Every launcher starts as many processes on each node.
void refuse_unequal_nodes(const Plan& plan, ExportTarget target) {
  const auto& groups = plan.job->cluster.groups;
  for (const NodeGroup& group : groups)
    if (group.node.devices != groups.front().node.devices)
      throw UserError(
          fmt::format("{} cannot be exported to {}: its nodes have {} and {} devices", plan.job->cluster.name,
                      name_of(target), groups.front().node.devices, group.node.devices),
          "expected as many on each");
}

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
  if (target != ExportTarget::simgrid) {
    refuse_narrow(plan);
    refuse_devices(plan);
    refuse_unequal_nodes(plan, target);
  }
  if (target == ExportTarget::kubernetes) return export_kubernetes(plan, options.job);
  for (const Target& one : kTargets)
    if (target == one.target) return one.write(plan);
  throw InternalError("unknown export target");
}

namespace {

// As families.json says it of models whose norms are planned and not executed.
constexpr const char* kOffsetNorms = "norms by one more than their weights";

// Megatron Core's settings have some parts that dimensions alone do not say.
std::vector<std::string> parts_beyond_dimensions(const Transformer& t, ModelIs model) {
  const bool of_megatron_lm = model == ModelIs::by_flags;
  const bool of_megatron_core = of_megatron_lm || model == ModelIs::by_flags_and_adapters;
  const bool of_flavor = model == ModelIs::by_flavor;
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
  // Megatron-LM has a flag of all biases, which GPT-OSS has everywhere.
  const bool all_biased = of_megatron_lm && has_biases_everywhere(t);
  part(t.proj_bias && !has_linear_biases(t) && !all_biased, "a bias of attention's output alone");
  part(t.mlp_bias && !has_linear_biases(t), "biases of the MLP alone");
  part(t.head_bias, "a bias of the head");
  part(t.unbiased_norm, "layer norms without a bias");
  part(!t.final_norm, "no norm in front of the head");
  part(t.single_norm, "one norm for attention and MLP");
  part(t.position_offset > 0, "extra rows of positions");
  part(t.masked_share > 0, "a head that sees a share of the tokens");
  part(t.attention_softcap > 0 || t.final_softcap > 0, "soft caps");
  const bool of_yarn = t.mla && t.rotary_scaling.kind == RopeScaling::yarn;
  part(t.attention_scale > 0 && !(of_yarn && (of_megatron_lm || of_flavor)), "a scale of scores of its own");
  part(t.embedding_scale != 1, "scaled embeddings");
  part(t.norms_offset && !of_megatron_lm, kOffsetNorms);
  part(t.sliding_window_from_layer > 0, "a window from some layer on");
  part(t.rotary_scaling.kind == RopeScaling::dynamic ||
           (!of_megatron_core && t.rotary_scaling.kind == RopeScaling::linear),
       "scaled rotary positions");
  part(!of_megatron_core && t.dropouts.any(), "dropout");
  part(!of_megatron_core && t.moe && t.moe->shared_gate, "a gate of the shared expert");
  part(t.parallel_residual, "attention beside the MLP");
  part(t.qk_norm && (t.qk_norm_whole || t.qk_norm_absent_weights), "norms over all queries and keys");
  part(t.attention_gate, "a gate behind attention");
  part(t.attention_sinks && !of_megatron_lm, "attention sinks");
  part(t.mla && t.mla->index_heads > 0, "sparse attention");
  part(t.moe && (t.moe->expert_bias || t.moe->expert_up_bias) && !all_biased, "experts with biases");
  part(t.moe && t.moe->router_linear_bias && !all_biased, "a bias of the router's product");
  for (const std::string& what : t.unexecuted) {
    // The router's; choosing by a bias goes with experts that are balanced by it.
    const bool balanced = t.moe && t.moe->selection_bias;
    const bool flag = what.starts_with("routed_scaling_factor ") || what == "scoring_func sigmoid" ||
                      (balanced && what == "topk_method noaux_tc") ||
                      ((what.starts_with("n_group ") || what.starts_with("topk_group ")) && router_groups(t));
    const bool flag_of_lm = (what.starts_with("swiglu_limit ") && is_clamped_quick_geglu(t)) ||
                            (what.ends_with(" relu2") && is_squared_relu(t)) || what == kOffsetNorms;
    // How a checkpoint keeps its weights changes no loss; a script that reads one must know it.
    const bool of_files = what.ends_with("in one tensor") || what.ends_with("in one tensor each");
    if (((of_megatron_core || of_flavor) && flag) || (of_megatron_lm && flag_of_lm) ||
        (of_files && model != ModelIs::by_script))
      continue;
    parts.push_back(what);
  }
  return parts;
}

// All that a script needs to build it; parts_beyond_dimensions has the rest.
std::string dimensions_of(const Workload& workload) {
  if (!workload.transformer)
    return fmt::format("{}, {} operators, {} parameters", workload.name, workload.operators.size(),
                       workload.parameters());
  const Transformer& m = *workload.transformer;
  std::string text =
      fmt::format("{} layers of {}, {} heads ({} of keys and values) of {}, MLP of {} by {}{}, {} of {}",
                  m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn_hidden,
                  m.gated_ffn ? "gated " : "", name_of(m.activation), name_of(m.norm), m.norm_epsilon);
  text += has_no_positions(m) ? std::string(", no positions")
          : m.learned_positions
              ? fmt::format(", {} learned positions", m.max_positions)
              : fmt::format(", rotary positions of {:g} of each head to base {:g}, at most {}",
                            m.rotary_fraction, m.rope_theta, m.max_positions);
  const RotaryScaling& scaling = m.rotary_scaling;
  if (scaling.kind != RopeScaling::none)
    text +=
        fmt::format(" scaled by {} ({} from {}, {} to {}, {} to {}, scores by {})", scaling.factor,
                    name_of(scaling.kind), scaling.original_positions, scaling.low_frequency,
                    scaling.high_frequency, scaling.beta_fast, scaling.beta_slow, scaling.attention_factor);
  text += fmt::format(", {} tokens, {}", m.vocab,
                      m.tied_embeddings ? "one matrix for both ends" : "a head of its own");
  const auto part = [&](bool has, std::string_view what) {
    if (has) text += fmt::format(", {}", what);
  };
  part(m.qkv_bias, "biases of queries, keys and values");
  part(has_linear_biases(m), "biases of output projection and MLP");
  part(m.qk_norm, "norms of queries and keys");
  part(m.token_types > 0, fmt::format("{} token types", m.token_types));
  part(m.multi_token_layers > 0, fmt::format("{} modules that predict further tokens", m.multi_token_layers));
  if (m.sliding_window > 0) {
    int windows = 0;
    for (int layer = 0; layer < m.layers; ++layer) windows += m.layer_window(layer) > 0 ? 1 : 0;
    part(true, fmt::format("{} layers with a window of {}", windows, m.sliding_window));
  }
  if (m.mla)
    part(true, fmt::format("latent attention of ranks {} and {}, heads of {} + {} and {}", m.mla->q_lora_rank,
                           m.mla->kv_lora_rank, m.mla->qk_nope_head_dim, m.mla->qk_rope_head_dim,
                           m.mla->v_head_dim));
  if (m.moe) {
    int layers = 0;
    for (int layer = 0; layer < m.layers; ++layer) layers += m.layer_has_experts(layer) ? 1 : 0;
    part(true, fmt::format("{} layers of {} experts of {} ({} a token, {}), shared experts of {}", layers,
                           m.moe->experts, m.moe->expert_ffn_hidden, m.moe->experts_per_token,
                           m.moe->scaled_weights ? "weights of which add up to one" : "weights as they are",
                           m.moe->shared_ffn_hidden));
    part(m.moe->selection_bias, "a bias that balances them");
    part(m.moe->auxiliary_loss > 0, fmt::format("a balancing loss times {}", m.moe->auxiliary_loss));
    part(m.moe->latent > 0, fmt::format("experts on a width of {}", m.moe->latent));
  }
  return text;
}

}  // namespace

int ranks_per_node(const Plan& plan) {
  return std::min(plan.job->cluster.groups.front().node.devices, plan.choices.world());
}

int nodes_used(const Plan& plan) {
  return (plan.choices.world() + ranks_per_node(plan) - 1) / ranks_per_node(plan);
}

namespace {

std::int64_t trained_parameters(const Workload& workload) {
  std::int64_t sum = 0;
  for (const Operator& op : workload.operators)
    for (const ParameterTensor& tensor : op.parameters) sum += tensor.tied_to.empty() ? tensor.elements() : 0;
  return sum;
}

}  // namespace

std::string script_head(const Plan& plan, std::string_view target, const std::vector<std::string>& notes,
                        ModelIs model) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  const Workload& workload = plan.job->workload;
  const std::int64_t trained = trained_parameters(workload);
  std::string text = "#!/usr/bin/env bash\n";
  text += fmt::format("# {} on {}, for {}: written by orrery export.\n", plan.job->workload.name,
                      plan.job->cluster.name, target);
  text += fmt::format(
      "# {} ranks = tp {} x pp {} x dp {} x cp {}{}{}; {}{} of {}; global batch {}{}; "
      "{} parameters{}.\n",
      c.world(), c.tp, c.pp, c.dp, c.cp, c.ep > 1 ? fmt::format(", ep {}", c.ep) : "",
      c.etp > 1 ? fmt::format(", etp {}", c.etp) : "", c.replica_batches.empty() ? "" : "at most ",
      counted_micro_batches(plan.micro_batches()), counted(c.micro_batch, "sample"), t.global_batch,
      t.seq_len > 0 ? fmt::format(", sequences of {} tokens", t.seq_len) : "", workload.parameters(),
      trained < workload.parameters() ? fmt::format(", {} of them trained", trained) : "");
  if (const auto& groups = plan.job->cluster.groups; groups.size() > 1) {
    std::vector<std::string> kinds;
    for (const NodeGroup& group : groups)
      kinds.push_back(
          fmt::format("{} of {}", counted(group.count, "node"), name_of(plan.job->cluster, group)));
    text += fmt::format(
        "# NOTE: the plan lays its ranks over {}, in this order: keep it, by a list of hosts or by the "
        "hosts' "
        "names, which torchrun sorts\n",
        fmt::join(kinds, ", then "));
  }
  for (const std::string& note : notes) text += "# NOTE: " + note + "\n";
  const auto& transformer = plan.job->workload.transformer;
  if (model == ModelIs::by_script)
    text += fmt::format("# NOTE: your script builds the model and trains it in {} by {}{}: {}\n",
                        name_of(t.precision), name_of(t.optimizer),
                        !has_attention(workload) ? ""
                        : t.fused_attention      ? " with fused attention"
                                                 : " with unfused attention",
                        dimensions_of(workload));
  if (transformer && model != ModelIs::built)
    for (const std::string& part : parts_beyond_dimensions(*transformer, model))
      text += "# NOTE: the model has " + part +
              (model == ModelIs::by_script ? ", which your script must build\n"
                                           : ", which is left out here: losses differ\n");
  if (t.lengths.any())
    text += fmt::format("# NOTE: the plan is for sequences {}: your data loader pads or packs them\n",
                        describe(t.lengths));
  const bool of_adapters = model == ModelIs::built || model == ModelIs::by_flags_and_adapters ||
                           model == ModelIs::by_dimensions_and_adapters;
  if (transformer && transformer->fine_tuning.any() && !of_adapters)
    text += fmt::format(
        "# NOTE: the plan is for {}; this launches training of all weights until your script "
        "freezes them and adds adapters\n",
        text_of(transformer->fine_tuning));
  return text + "set -euo pipefail\n";
}

std::vector<std::string> notes_in(const std::vector<ExportedFile>& files) {
  constexpr std::string_view kBegin = "# NOTE: ";
  std::vector<std::string> notes;
  for (const ExportedFile& file : files) {
    if (file.binary) continue;
    const std::string_view text = file.content;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      at = end + 1;
      if (!line.starts_with(kBegin)) continue;
      std::string note(line.substr(kBegin.size()));
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
    }
  }
  return notes;
}

std::string log_begins_with(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "# LOG: " + line + "\n";
  return text;
}

// Megatron's arguments check: overlap of tensor-parallel communication relies on one hardware queue before
// Blackwell. Experts' traffic beside another micro-batch needs several, and is then not checked.
std::string hardware_queues(const Plan& plan) {
  const Cluster& cluster = plan.job->cluster;
  if (cluster.communication.library != CommunicationLibrary::nccl) return {};
  const std::string& generation =
      cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)].generation;
  const bool asked = (plan.choices.tp > 1 || plan.choices.cp > 1) && plan.choices.zero < 2;
  if (!asked || generation == "blackwell") return "";
  return plan.choices.overlap_experts
             ? "export CUDA_DEVICE_MAX_CONNECTIONS=32  # experts' overlapped traffic needs several queues\n"
             : "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
}

std::string nccl_environment(const Plan& plan) {
  const Cluster& cluster = plan.job->cluster;
  if (cluster.communication.library != CommunicationLibrary::nccl) return {};
  std::string text;
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

void refuse_v(const Plan& plan, std::string_view target) {
  if (plan.choices.schedule == Schedule::dualpipe_v)
    throw UserError(
        fmt::format("`schedule` dualpipe-v cannot be exported to {}, whose stages hold no layers in "
                    "a V",
                    target),
        "expected another `schedule`, or torchtitan");
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

std::string text_of(const FineTuning& tuning) {
  return description_of(tuning) + (tuning.alpha > 0 ? fmt::format(", alpha {}", tuning.alpha) : "");
}

bool has_attention(const Workload& workload) {
  return workload.transformer || std::any_of(workload.operators.begin(), workload.operators.end(),
                                             [](const Operator& op) { return op.attention.has_value(); });
}

bool has_linear_biases(const Transformer& model) {
  return model.linear_bias || (model.proj_bias && model.mlp_bias);
}

bool has_biases_everywhere(const Transformer& m) {
  if (has_linear_biases(m)) return true;
  return m.qkv_bias && m.proj_bias && m.moe && m.moe->first_dense_layers == 0 && m.moe->layer_period == 1 &&
         m.moe->shared_ffn_hidden == 0 && m.moe->expert_bias && m.moe->expert_up_bias &&
         m.moe->router_linear_bias;
}

std::optional<std::string> unexecuted_setting(const Transformer& model, std::string_view key) {
  for (const std::string& what : model.unexecuted)
    if (what.size() > key.size() + 1 && what.starts_with(key) && what[key.size()] == ' ')
      return what.substr(key.size() + 1);
  return std::nullopt;
}

bool has_sigmoid_router(const Transformer& model) {
  return model.moe && (model.moe->selection_bias || unexecuted_setting(model, "scoring_func") == "sigmoid");
}

std::optional<std::pair<int, int>> router_groups(const Transformer& model) {
  const auto groups = unexecuted_setting(model, "n_group"), chosen = unexecuted_setting(model, "topk_group");
  if (!groups || !chosen) return std::nullopt;
  const auto all = parse_whole(*groups), some = parse_whole(*chosen);
  if (!all || !some || *some < 1 || *some > *all || *all > model.moe->experts) return std::nullopt;
  return std::pair{static_cast<int>(*all), static_cast<int>(*some)};
}

bool is_clamped_quick_geglu(const Transformer& model) {
  return model.family == "gpt_oss" && model.gated_ffn && unexecuted_setting(model, "swiglu_limit");
}

bool is_squared_relu(const Transformer& model) {
  for (const char* key : {"hidden_act", "mlp_hidden_act", "activation_function", "hidden_activation"})
    if (unexecuted_setting(model, key) == "relu2") return !model.gated_ffn;
  return false;
}

bool is_offset_norm(const Transformer& model) {
  return model.norms_offset ||
         std::find(model.unexecuted.begin(), model.unexecuted.end(), kOffsetNorms) != model.unexecuted.end();
}

bool has_no_positions(const Transformer& model) {
  return !model.learned_positions && !model.mla && model.rotary_fraction * model.head_dim < 1;
}

std::string what_runs_again(const Choices& c) {
  if (c.recompute != Recompute::full) return "the attention core";
  if (c.recompute_layers == 0) return "each layer";
  return fmt::format("each of the first {} layers{}", c.recompute_layers, c.pp > 1 ? " of each stage" : "");
}

std::vector<int> layers_by_stage(const Plan& plan) {
  const std::vector<int> parts = layers_by_part(plan);
  std::vector<int> of_stage(static_cast<std::size_t>(plan.choices.pp), 0);
  for (std::size_t part = 0; part < parts.size(); ++part)
    of_stage[static_cast<std::size_t>(place_of_part(plan.choices, static_cast<int>(part)).stage)] +=
        parts[part];
  return of_stage;
}

std::string cost_of_running_again(const Plan& plan, int planned, int runs) {
  // A layer that is run again takes four passes' worth of products, another three.
  const double of_stage = std::max(1.0, static_cast<double>(plan.job->workload.layers) / plan.choices.pp);
  const double share = (std::min<double>(runs, of_stage) - planned) / (3 * of_stage + planned);
  return fmt::format("{:.0f}% more computation, less memory", 100 * std::max(0.0, share));
}

int recomputed_layers_of_chunk(const Plan& plan, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  if (c.recompute_layers == 0) return 1;
  const int chunks = c.pp > 1 ? c.interleave : 1;
  const int of_each = (c.recompute_layers + chunks - 1) / chunks;
  if (of_each * chunks != c.recompute_layers)
    notes->push_back(
        fmt::format("the plan runs {} layers of each stage again; this {}, {} of each of its {} chunks: {}",
                    c.recompute_layers, of_each * chunks, of_each, chunks,
                    cost_of_running_again(plan, c.recompute_layers, of_each * chunks)));
  return of_each;
}

std::int64_t equal_micro_batches(const Plan& plan, std::string_view target) {
  const Choices& c = plan.choices;
  if (c.replica_batches.empty()) return plan.micro_batches();
  const std::int64_t batch = plan.job->training.global_batch, at_once = std::int64_t{c.dp} * c.micro_batch;
  if (batch % at_once != 0)
    throw UserError(fmt::format("shares of {} cannot be exported to {}, which gives all replicas the same: "
                                "{} samples are no multiple of {} replicas x micro-batch {}",
                                fmt::join(c.replica_batches, ", "), target, batch, c.dp, c.micro_batch),
                    fmt::format("expected a batch of a multiple of {}", at_once));
  return batch / at_once;
}

std::string note_on_rotary_scaling(const Transformer& model) {
  return fmt::format("rotary positions are not scaled by {}: losses differ, times do not",
                     name_of(model.rotary_scaling.kind));
}

std::vector<std::string> modules_of_megatron(const Plan& plan, std::string_view target) {
  const ModuleSet modules = modules_run_again(plan.choices, plan.job->runtime);
  if ((modules & module_bit("mlp_act")) != 0)
    throw UserError(
        fmt::format("`recompute` of mlp_act cannot be exported to {}: it runs a dense layer's MLP "
                    "again as a whole",
                    target),
        "expected mlp instead");
  return names_of(modules);
}

bool wants_current_scaling(const Plan& plan) {
  return plan.job->training.precision == DType::fp8 &&
         (modules_run_again(plan.choices, plan.job->runtime) &
          (module_bit("layernorm") | module_bit("moe_act"))) != 0;
}

std::string note_on_current_scaling(std::string_view setting) {
  return fmt::format(
      "fp8 by each tensor's own scale ({}): delayed scaling runs no norms or experts' activations again; "
      "Transformer Engine from 2.6 on",
      setting);
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
    notes.push_back(
        fmt::format("{} gives every replica the same share, {} of {}, and the slowest sets the pace; the "
                    "plan's shares are {}",
                    target, counted_micro_batches(equal_micro_batches(plan, target)),
                    counted(c.micro_batch, "sample"), fmt::join(c.replica_batches, ", ")));
  constexpr std::array<Dimension, 5> kUsual = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                                               Dimension::pp};
  constexpr std::array<Dimension, 5> kPipelineFirst = {Dimension::tp, Dimension::cp, Dimension::ep,
                                                       Dimension::pp, Dimension::dp};
  if (c.recompute_modules != 0 && target != "Megatron-LM" && target != "NeMo")
    notes.push_back(
        fmt::format("the plan runs {} again; {} cannot be told what selective recomputation runs again, and "
                    "memory may not suffice",
                    fmt::join(names_of(c.recompute_modules), ", "), target));
  if (c.order != kUsual && target != "Megatron-LM" && !(target == "NeMo" && c.order == kPipelineFirst))
    notes.push_back(fmt::format("{} lays ranks out its own way; the plan's order is innermost {}", target,
                                name_of(c.order.front())));
  if (c.zero == 0 && c.hybrid() && target != "Horovod")
    notes.push_back(
        fmt::format("the plan adds gradients up in groups of {} ranks first; {} leaves the way of an "
                    "all-reduce to its library",
                    c.shard_group, target));
  if (const int layers = std::min(plan.job->runtime.host_activation_layers, plan.job->workload.layers);
      layers > 0 && target != "DeepSpeed")
    notes.push_back(
        fmt::format("the plan keeps activations of {} layers of each stage in the hosts' memory; this keeps "
                    "them on the devices",
                    layers));
  const Offload offload = offload_of(plan.job->runtime);
  const bool expressed =
      target == "DeepSpeed" ||
      ((target == "torchtitan" || target == "torchtune") && offload == Offload::all) ||
      ((target == "Megatron-LM" || target == "NeMo") && offload == Offload::optimizer && c.zero == 1);
  if (offload != Offload::none && !expressed)
    notes.push_back(
        fmt::format("the plan keeps states in the hosts' memory (`offload` {}); this keeps them on "
                    "the devices, and may not fit",
                    name_of(offload)));
  return notes;
}

}  // namespace orrery::planner
