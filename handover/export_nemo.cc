// NeMo 2 (2.4, nemo.collections.llm): a recipe as NeMo-Run writes it, and the few lines that build and run
// it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/parse.h"
#include "handover/export_common.h"
#include "handover/settings.h"

namespace orrery::planner {
namespace {

constexpr const char* kTrainPy =
    R"(# Builds what recipe.yaml says and trains it: each table is an object of its _target_. launch.sh starts it.
import importlib
import sys

import yaml


def build(node):
    if isinstance(node, list):
        return [build(item) for item in node]
    if not isinstance(node, dict):
        return node
    arguments = {key: build(value) for key, value in node.items() if not key.startswith("_")}
    if "_target_" not in node:
        return arguments
    parts = node["_target_"].split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            target = importlib.import_module(".".join(parts[:cut]))
            break
        except ModuleNotFoundError:
            continue
    for part in parts[cut:]:
        target = getattr(target, part)
    return target(**arguments) if node.get("_call_", True) else target


if __name__ == "__main__":
    recipe = yaml.safe_load(open("recipe.yaml"))
    if len(sys.argv) > 1:
        recipe["trainer"]["max_steps"] = int(sys.argv[1])
    build(recipe)
)";

Json object_of(const char* target) {
  return {{"_target_", target}};
}
// A function or a type, not called.
Json itself(std::string_view target) {
  return {{"_target_", target}, {"_call_", false}};
}

Json torch_type_of(DType precision) {
  return itself(torch_type(precision));
}

void add_experts(const Plan& plan, const MixtureOfExperts& moe, const Transformer& m, Json* config,
                 std::vector<std::string>* notes) {
  Json& c = *config;
  if (moe.shared_gate) notes->emplace_back("NeMo 2.4 has no gate of the shared experts; losses differ");
  if (moe.latent > 0)
    notes->push_back(
        fmt::format("NeMo 2.4's experts work on the whole width; the model's on {}", moe.latent));
  if (const auto groups = router_groups(m)) {
    c["moe_router_num_groups"] = groups->first;
    c["moe_router_group_topk"] = groups->second;
  } else if (unexecuted_setting(m, "n_group")) {  // in plans from before topk_group was kept
    notes->emplace_back(
        "the router looks at all experts; the model's at groups of them: say moe_router_num_groups and "
        "moe_router_group_topk in recipe.yaml");
  }
  if (const auto factor = unexecuted_setting(m, "routed_scaling_factor"))
    c["moe_router_topk_scaling_factor"] = parse_number(*factor).value_or(1);
  if (plan.choices.overlap_experts) c["overlap_moe_expert_parallel_comm"] = true;
  c["num_moe_experts"] = moe.experts;
  c["moe_router_topk"] = moe.experts_per_token;
  c["moe_ffn_hidden_size"] = moe.expert_ffn_hidden;
  if (moe.shared_ffn_hidden > 0) c["moe_shared_expert_intermediate_size"] = moe.shared_ffn_hidden;
  Json layers = Json::array();
  for (int layer = 0; layer < m.layers; ++layer) layers.push_back(m.layer_has_experts(layer) ? 1 : 0);
  if (std::find(layers.begin(), layers.end(), 0) != layers.end()) c["moe_layer_freq"] = layers;
  if (has_sigmoid_router(m)) c["moe_router_score_function"] = "sigmoid";
  if (moe.selection_bias) {
    c["moe_router_enable_expert_bias"] = true;
    c["moe_router_load_balancing_type"] = "none";
  } else if (moe.auxiliary_loss > 0) {
    c["moe_router_load_balancing_type"] = "aux_loss";
    c["moe_aux_loss_coeff"] = moe.auxiliary_loss;
  }
  c["moe_router_pre_softmax"] = !moe.scaled_weights;
  c["moe_token_dispatcher_type"] = "alltoall";
  c["moe_grouped_gemm"] = true;
  if (plan.choices.capacity_factor > 0) c["moe_expert_capacity_factor"] = plan.choices.capacity_factor;
}

Json nemo_model_of(const Plan& plan, const Transformer& m, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  Json config = object_of("nemo.collections.llm.gpt.model.base.GPTConfig");
  config.update({{"num_layers", m.layers},
                 {"hidden_size", m.hidden},
                 {"ffn_hidden_size", m.ffn_hidden},
                 {"num_attention_heads", m.heads},
                 {"num_query_groups", m.kv_heads},
                 {"kv_channels", m.head_dim},
                 {"vocab_size", m.vocab},
                 {"make_vocab_size_divisible_by", 1},
                 {"seq_length", plan.job->training.seq_len},
                 {"normalization", m.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm"},
                 {"layernorm_epsilon", m.norm_epsilon},
                 {"gated_linear_unit", m.gated_ffn},
                 {"activation_func", itself(m.activation == Activation::silu   ? "torch.nn.functional.silu"
                                            : m.activation == Activation::relu ? "torch.nn.functional.relu"
                                                                               : "torch.nn.functional.gelu")},
                 {"add_bias_linear", has_linear_biases(m)},
                 {"add_qkv_bias", m.qkv_bias},
                 {"qk_layernorm", m.qk_norm && !m.qk_norm_whole && !m.qk_norm_absent_weights},
                 {"position_embedding_type", has_no_positions(m)   ? "none"
                                             : m.learned_positions ? "learned_absolute"
                                                                   : "rope"},
                 {"share_embeddings_and_output_weights", m.tied_embeddings},
                 {"hidden_dropout", m.dropouts.attention_out},
                 {"attention_dropout", m.dropouts.attention},
                 {"attention_backend", itself(plan.job->training.fused_attention
                                                  ? "megatron.core.transformer.enums.AttnBackend.flash"
                                                  : "megatron.core.transformer.enums.AttnBackend.unfused")}});
  if (!m.learned_positions && !has_no_positions(m)) {
    config["rotary_base"] = static_cast<long>(m.rope_theta);
    config["rotary_percent"] = m.rotary_fraction;
    if (m.rotary_scaling.kind == RopeScaling::linear)
      config["seq_len_interpolation_factor"] = m.rotary_scaling.factor;
    else if (m.rotary_scaling.kind != RopeScaling::none)
      notes->push_back(note_on_rotary_scaling(m));
  }
  if (m.dropouts.embedding != m.dropouts.attention_out || m.dropouts.mlp_out != m.dropouts.attention_out)
    notes->push_back(fmt::format(
        "one hidden_dropout stands for embeddings, attention and MLP; the model's are {}, {} and {}",
        m.dropouts.embedding, m.dropouts.attention_out, m.dropouts.mlp_out));
  if (m.activation == Activation::gelu)
    notes->emplace_back("gelu is computed exactly, not by its tanh form: losses differ in their last digits");
  if (m.sliding_window > 0) config["window_size"] = Json::array({m.sliding_window, 0});
  if (m.sliding_window > 0 && m.full_attention_period > 1 && m.attention_pattern.empty())
    notes->push_back(
        fmt::format("NeMo 2.4 gives every layer the window; in the model every {}. layer sees all",
                    m.full_attention_period));
  if (m.multi_token_layers > 0) config["mtp_num_layers"] = m.multi_token_layers;
  if (m.moe) add_experts(plan, *m.moe, m, &config, notes);
  if (c.recompute == Recompute::selective) {
    config["recompute_granularity"] = "selective";
    config["recompute_modules"] = modules_of_megatron(plan, "NeMo");
  } else if (c.recompute == Recompute::full) {
    config["recompute_granularity"] = "full";
    config["recompute_method"] = c.recompute_layers > 0 ? "block" : "uniform";
    config["recompute_num_layers"] = recomputed_layers_of_chunk(plan, notes);
  }
  Json model = object_of("nemo.collections.llm.gpt.model.base.GPTModel");
  model["config"] = config;
  return model;
}

Json strategy_of(const Plan& plan, std::vector<std::string>* notes) {
  const Choices& c = plan.choices;
  Json strategy = object_of("nemo.lightning.pytorch.strategies.MegatronStrategy");
  strategy.update({{"tensor_model_parallel_size", c.tp},
                   {"pipeline_model_parallel_size", c.pp},
                   {"context_parallel_size", c.cp},
                   {"sequence_parallel", c.sequence_parallel && c.tp > 1}});
  refuse_v(plan, "NeMo");
  if (c.pp > 1) {
    strategy["pipeline_dtype"] = torch_type_of(plan.job->training.precision);
    const std::vector<int> layers = layers_by_part(plan);
    const bool even = std::all_of(layers.begin(), layers.end(), [&](int n) { return n == layers.front(); });
    if (!even)
      strategy["pipeline_model_parallel_layout"] = megatron_layout(plan);
    else if (c.interleave > 1)
      strategy["virtual_pipeline_model_parallel_size"] = c.interleave;
    if (c.schedule == Schedule::gpipe || c.schedule == Schedule::zero_bubble)
      notes->push_back(fmt::format("NeMo has no {} schedule; this runs 1F1B", name_of(c.schedule)));
  }
  if (plan.job->workload.transformer->moe) {
    strategy["expert_model_parallel_size"] = c.ep;
    strategy["expert_tensor_parallel_size"] = c.etp;
  }
  if (c.zero >= 1 && c.hybrid())
    strategy["num_distributed_optimizer_instances"] = c.dp * c.cp / c.shard_group;
  constexpr std::array<Dimension, 5> kPipelineFirst = {Dimension::tp, Dimension::cp, Dimension::ep,
                                                       Dimension::pp, Dimension::dp};
  if (c.order == kPipelineFirst) strategy["use_tp_pp_dp_mapping"] = true;
  Json ddp =
      object_of("megatron.core.distributed.distributed_data_parallel_config.DistributedDataParallelConfig");
  ddp.update({{"use_distributed_optimizer", c.zero >= 1},
              {"overlap_grad_reduce", c.overlap_grad_reduce},
              {"overlap_param_gather",
               c.zero >= 1 && c.overlap_grad_reduce && plan.job->runtime.overlap_param_gather},
              {"grad_reduce_in_fp32", plan.job->runtime.fp32_gradients}});
  if (const double bucket = plan.bucket_bytes(); bucket > 0)
    ddp["bucket_size"] = std::llround(bucket / bytes_of(plan.gradient_type()));
  if (c.zero >= 2) {
    strategy["fsdp"] = "megatron";
    strategy["save_ckpt_format"] = "fsdp_dtensor";
    ddp["use_megatron_fsdp"] = true;
    ddp["data_parallel_sharding_strategy"] = c.zero == 2 ? "optim_grads" : "optim_grads_params";
  }
  strategy["ddp"] = ddp;
  return strategy;
}

Json precision_of(const Plan& plan, std::vector<std::string>* notes) {
  const DType precision = plan.job->training.precision;
  Json plugin = object_of("nemo.lightning.pytorch.plugins.MegatronMixedPrecision");
  const bool full = precision == DType::fp32 || precision == DType::tf32;
  plugin.update({{"precision", full                       ? "32"
                               : precision == DType::fp16 ? "16-mixed"
                                                          : "bf16-mixed"},
                 {"params_dtype", torch_type_of(precision)},
                 {"pipeline_dtype", torch_type_of(precision)},
                 {"autocast_enabled", false},
                 {"grad_reduce_in_fp32", plan.job->runtime.fp32_gradients}});
  if (precision == DType::fp8) plugin["fp8"] = "hybrid";
  if (wants_current_scaling(plan)) {
    plugin["fp8_recipe"] = "tensorwise";
    notes->push_back(note_on_current_scaling("fp8_recipe tensorwise"));
  }
  if (precision == DType::fp4) notes->emplace_back("NeMo 2.4 has no fp4; this runs bf16");
  if (precision == DType::tf32)
    notes->emplace_back("tf32 is PyTorch's setting: torch.backends.cuda.matmul.allow_tf32 = True");
  return plugin;
}

Json adapters_of(const FineTuning& tuning, std::vector<std::string>* notes) {
  const auto some = [&](int parts) { return (tuning.targets & parts) != 0; };
  const auto all = [&](int parts) { return (tuning.targets & parts) == parts; };
  constexpr int kQkv = kQuery | kKey | kValue, kFirst = kGate | kUp;
  // Fused matrices have one adapter; parts of them need the canonical form.
  const bool parts = (some(kQkv) && !all(kQkv)) || (some(kFirst) && !all(kFirst));
  Json modules = Json::array();
  const auto add = [&](bool has, const char* name) {
    if (has) modules.push_back(name);
  };
  const bool canonical = parts && !tuning.dora;
  if (canonical) {
    for (const auto& [bit, name] :
         {std::pair{+kQuery, "linear_q"}, {+kKey, "linear_k"}, {+kValue, "linear_v"}})
      add(some(bit), name);
    add(some(kOutput), "linear_proj");
    add(some(kUp), "linear_fc1_up");
    add(some(kGate), "linear_fc1_gate");
    add(some(kDown), "linear_fc2");
  } else {
    add(some(kQkv), "linear_qkv");
    add(some(kOutput), "linear_proj");
    add(some(kFirst), "linear_fc1");
    add(some(kDown), "linear_fc2");
    if (parts) notes->emplace_back("DoRA takes fused matrices whole: more adapters than the plan's");
    // One A for queries, keys and values, where the plan counts one each.
    if (all(kQkv))
      notes->emplace_back("queries, keys and values share one A of the adapter, gate and up another");
  }
  Json peft = object_of(tuning.dora ? "nemo.collections.llm.peft.dora.DoRA"
                        : canonical ? "nemo.collections.llm.peft.canonical_lora.CanonicalLoRA"
                                    : "nemo.collections.llm.peft.lora.LoRA");
  peft.update({{"target_modules", modules},
               {"dim", tuning.rank},
               {"alpha", tuning.alpha > 0 ? tuning.alpha : tuning.rank},
               {"dropout", 0.0}});
  if (tuning.base != BaseType::none)
    notes->push_back(fmt::format("NeMo keeps the frozen base in the precision's own type; the plan in {}",
                                 name_of(tuning.base)));
  if (tuning.frozen_layers > 0)
    notes->push_back(fmt::format("adapters stand in all layers; the plan's begin behind the first {}",
                                 tuning.frozen_layers));
  return peft;
}

}  // namespace

std::vector<ExportedFile> export_nemo(const Plan& plan) {
  const Transformer& model = transformer_for(plan, "NeMo");
  if (model.mla || model.state_space || !model.layer_pattern.empty() || model.bidirectional)
    throw UserError(
        fmt::format("{} cannot be exported to nemo: its GPTModel has no {}", plan.job->workload.name,
                    model.mla             ? "latent attention"
                    : model.bidirectional ? "encoder"
                                          : "layers of several kinds"),
        "expected a decoder; megatron takes latent attention");
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  std::vector<std::string> notes = notes_on_rare_choices(plan, "NeMo");
  const FineTuning& tuning = model.fine_tuning;
  Json recipe =
      object_of(tuning.rank > 0 ? "nemo.collections.llm.api.finetune" : "nemo.collections.llm.api.pretrain");
  recipe["model"] = nemo_model_of(plan, model, &notes);
  Json data = object_of("nemo.collections.llm.gpt.data.mock.MockDataModule");
  data.update({{"seq_length", t.seq_len},
               {"micro_batch_size", c.micro_batch},
               {"global_batch_size", t.global_batch}});
  recipe["data"] = data;
  Json trainer = object_of("nemo.lightning.pytorch.trainer.Trainer");
  trainer.update({{"accelerator", "gpu"},
                  {"devices", ranks_per_node(plan)},
                  {"num_nodes", nodes_used(plan)},
                  {"max_steps", 50},
                  {"limit_val_batches", 0},
                  {"log_every_n_steps", 1},
                  {"use_distributed_sampler", false},
                  {"accumulate_grad_batches", 1},
                  {"plugins", precision_of(plan, &notes)},
                  {"strategy", strategy_of(plan, &notes)}});
  recipe["trainer"] = trainer;
  const bool plain = t.optimizer == Optimizer::sgd || t.optimizer == Optimizer::momentum;
  Json optimizer = object_of("megatron.core.optimizer.optimizer_config.OptimizerConfig");
  optimizer.update({{"optimizer", plain ? "sgd" : "adam"},
                    {"lr", t.learning_rate > 0 ? t.learning_rate : 1e-4},
                    {"bf16", t.precision == DType::bf16 || is_narrow(t.precision)},
                    {"fp16", t.precision == DType::fp16},
                    {"use_distributed_optimizer", c.zero >= 1},
                    {"clip_grad", plan.job->runtime.clip_gradients ? 1.0 : 0.0}});
  if (const RuntimeProfile& runtime = plan.job->runtime;
      offload_of(runtime) == Offload::optimizer && c.zero == 1)
    optimizer.update({{"use_precision_aware_optimizer", true},  // which it rests on
                      {"optimizer_cpu_offload", true},
                      {"optimizer_offload_fraction", runtime.host_states}});
  // Megatron-Core's Adam is AdamW, which decays weights by 0.01 unless told otherwise.
  if (t.optimizer == Optimizer::adam) optimizer["weight_decay"] = 0.0;
  if (plain) optimizer["sgd_momentum"] = t.optimizer == Optimizer::momentum ? 0.9 : 0.0;
  recipe["optim"] = object_of("nemo.lightning.pytorch.optim.megatron.MegatronOptimizerModule");
  recipe["optim"]["config"] = optimizer;
  if (tuning.rank > 0) {
    recipe["peft"] = adapters_of(tuning, &notes);
    notes.emplace_back("adapters stand beside random weights until recipe.yaml's resume names a checkpoint");
  } else if (tuning.any()) {
    notes.push_back(fmt::format("all weights are trained; the plan is for {}", description_of(tuning)));
  }
  notes.emplace_back("the data are random tokens until recipe.yaml names others");
  if (c.sequence_parallel && c.tp > 1 && plan.job->runtime.overlap_tensor)
    notes.emplace_back(
        "tensor ranks' communication is not hidden beside their products until trainer.callbacks has "
        "MegatronCommOverlapCallback with tp_comm_overlap; the plan's is");
  if (c.grad_compression == Compression::fp16)
    notes.emplace_back("fp16 gradient compression is expressed as the reduction's type only");

  std::vector<int> beside;  // of rank 0
  for (int rank = 0; rank < c.tp; ++rank) beside.push_back(rank);
  std::string script = script_head(plan, "NeMo 2.4", notes, ModelIs::by_flags_and_adapters);
  script +=
      log_begins_with({fmt::format("Rank 0 has tensor model parallel group: [{}]", fmt::join(beside, ", ")),
                       "Rank 0 has pipeline model parallel rank 0"});
  script += hardware_queues(plan) + nccl_environment(plan);
  script += torchrun_line(plan) + "  train.py \"$@\"  # the number of steps\n";
  const std::string head = fmt::format("# {} on {}: written by orrery export, for NeMo 2.4.\n",
                                       plan.job->workload.name, plan.job->cluster.name);
  return {{"launch.sh", script}, {"recipe.yaml", head + yaml_of(recipe.dump())}, {"train.py", kTrainPy}};
}

}  // namespace orrery::planner
