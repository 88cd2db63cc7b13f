// torchtune 0.7 (its main branch; 0.6 has no data_parallel_shard_dim, no context ranks, no Qwen3): a recipe's
// YAML for `tune run`, of models whose builders it has.
#include <fmt/format.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "handover/export_common.h"
#include "handover/settings.h"

namespace orrery::planner {
namespace {

// The builder of torchtune.models, "llama3.llama3", behind "lora_" where there are adapters, and the
// ModelType by which a Hugging Face checkpoint becomes its weights: LLAMA3's and LLAMA3_2's queries and keys
// are reordered for a rotation of neighbours, QWEN2's and QWEN3's rotate halves, as Hugging Face's do.
struct Builder {
  std::string module, name, type;
};

Builder builder_of(const Plan& plan, const Transformer& m) {
  const auto refuse = [&](const char* what) {
    throw UserError(fmt::format("{} cannot be exported to torchtune: none of its builders has {}",
                                plan.job->workload.name, what),
                    "expected a model as its llama3, llama3_1, llama3_2, qwen2 or qwen3 are");
  };
  if (m.moe || m.mla || m.state_space || !m.layer_pattern.empty())
    refuse("experts or layers of several kinds");
  if (m.norm != NormKind::rms_norm || m.post_norm || m.branch_norms || m.no_input_norms || m.embedding_norm ||
      m.first_norm_absent || !m.final_norm)
    refuse("other norms than RMS norms before attention and MLP");
  if (!m.gated_ffn || m.activation != Activation::silu) refuse("an MLP that is not SwiGLU");
  if (m.learned_positions || m.rotary_fraction != 1) refuse("such positions");
  if (m.bidirectional || m.mlm_head || m.pooler || m.token_types > 0) refuse("an encoder");
  if (m.parallel_residual || m.linear_bias || m.proj_bias || m.mlp_bias || m.head_bias)
    refuse("biases or branches side by side");
  if (m.sliding_window > 0 || !m.attention_pattern.empty() || m.attention_gate || m.attention_sinks ||
      m.multi_token_layers > 0)
    refuse("windows, gates, sinks or several tokens ahead");
  if (m.qk_norm && (m.qk_norm_whole || m.qk_norm_absent_weights)) refuse("norms over all queries and keys");
  if (m.qk_norm) return {"qwen3._component_builders", "qwen3", "QWEN3"};
  const bool own_width = m.head_dim * m.heads != m.hidden;  // which Llama's builders cannot be told
  if (m.rotary_scaling.kind == RopeScaling::llama3 && !m.qkv_bias && !own_width) {
    if (m.tied_embeddings) return {"llama3_2", "llama3_2", "LLAMA3_2"};
    return {"llama3_1", "llama3_1", "LLAMA3"};
  }
  if (m.qkv_bias || m.tied_embeddings || own_width) return {"qwen2", "qwen2", "QWEN2"};
  return {"llama3", "llama3", "LLAMA3"};
}

bool has_scaled_positions(const Builder& builder) {
  return builder.name == "llama3_1" || builder.name == "llama3_2";
}

// That of the model's family, as far as dimensions tell; a placeholder beside the checkpoint's.
Json tokenizer_of(const Transformer& m, int seq_len) {
  const auto sentencepiece = [&](const char* component) {
    return Json{{"_component_", component}, {"path", "checkpoint/tokenizer.model"}, {"max_seq_len", seq_len}};
  };
  const auto byte_pairs = [&](const char* component) {
    return Json{{"_component_", component},
                {"path", "checkpoint/vocab.json"},
                {"merges_file", "checkpoint/merges.txt"},
                {"max_seq_len", seq_len}};
  };
  if (m.family.starts_with("qwen3")) return byte_pairs("torchtune.models.qwen3.qwen3_tokenizer");
  if (m.family.starts_with("qwen2")) return byte_pairs("torchtune.models.qwen2_5.qwen2_5_tokenizer");
  if (m.family == "mistral") return sentencepiece("torchtune.models.mistral.mistral_tokenizer");
  constexpr int kLlama2Vocab = 32000;
  if (m.vocab == kLlama2Vocab) return sentencepiece("torchtune.models.llama2.llama2_tokenizer");
  return sentencepiece("torchtune.models.llama3.llama3_tokenizer");
}

Json torchtune_model_of(const Plan& plan, const Transformer& m, const Builder& builder,
                        std::vector<std::string>* notes) {
  const FineTuning& tuning = m.fine_tuning;
  Json model = {{"_component_", fmt::format("torchtune.models.{}.{}{}", builder.module,
                                            tuning.rank > 0 ? "lora_" : "", builder.name)}};
  if (tuning.rank > 0) {
    Json attention = Json::array();
    for (const auto& [bit, name] :
         {std::pair{kQuery, "q_proj"}, {kKey, "k_proj"}, {kValue, "v_proj"}, {kOutput, "output_proj"}})
      if (tuning.targets & bit) attention.push_back(name);
    const int mlp = tuning.targets & (kGate | kUp | kDown);
    if (attention.empty())
      notes->emplace_back("torchtune puts adapters beside an MLP only where attention has some, too");
    if (mlp != 0 && mlp != (kGate | kUp | kDown))
      notes->emplace_back("adapters stand beside all three products of the MLP; the plan has fewer");
    model.update({{"lora_attn_modules", attention},
                  {"apply_lora_to_mlp", mlp != 0},
                  {"apply_lora_to_output", false},
                  {"lora_rank", tuning.rank},
                  {"lora_alpha", tuning.alpha > 0 ? tuning.alpha : tuning.rank},
                  {"lora_dropout", 0.0},
                  {"use_dora", tuning.dora},
                  {"quantize_base", tuning.base != BaseType::none}});
    if (tuning.base == BaseType::int8)
      notes->emplace_back("torchtune quantises to nf4; the plan's base is int8");
    if (tuning.base == BaseType::nf4)
      notes->emplace_back("torchtune's nf4 keeps its scales in 8 bits; the plan in 32: a little less memory");
  }
  if (m.dropouts.embedding > 0 || m.dropouts.attention_out > 0 || m.dropouts.mlp_out > 0)
    notes->push_back(
        fmt::format("only attention drops out; the model's embeddings, attention and MLP do by {}, {} and {}",
                    m.dropouts.embedding, m.dropouts.attention_out, m.dropouts.mlp_out));
  if (tuning.frozen_layers > 0)
    notes->push_back(fmt::format("the first {} layers are not left as they are", tuning.frozen_layers));
  model.update({{"vocab_size", m.vocab},
                {"num_layers", m.layers},
                {"num_heads", m.heads},
                {"num_kv_heads", m.kv_heads},
                {"embed_dim", m.hidden},
                {"intermediate_dim", m.ffn_hidden},
                {"max_seq_len", std::max(m.max_positions, plan.job->training.seq_len)},
                {"attn_dropout", m.dropouts.attention},
                {"norm_eps", m.norm_epsilon},
                {"rope_base", static_cast<long>(m.rope_theta)}});
  const RotaryScaling& scaling = m.rotary_scaling;
  if (has_scaled_positions(builder)) {
    model["scale_factor"] = static_cast<int>(scaling.factor);
    if (scaling.original_positions != 8192 || scaling.low_frequency != 1 || scaling.high_frequency != 4)
      notes->push_back(
          fmt::format("positions are scaled from 8192 between 1 and 4 turns; the model's from {} between {} "
                      "and {}: losses "
                      "differ, times do not",
                      scaling.original_positions, scaling.low_frequency, scaling.high_frequency));
  }
  if (builder.name == "qwen2" || builder.name == "qwen3") {
    model["head_dim"] = m.head_dim;
    model["tie_word_embeddings"] = m.tied_embeddings;
    for (const char* bias : {"q_proj_bias", "k_proj_bias", "v_proj_bias"}) model[bias] = m.qkv_bias;
    for (const char* norm : {"q_norm", "k_norm"}) model[norm] = m.qk_norm;
  }
  if (m.rotary_scaling.kind != RopeScaling::none && !has_scaled_positions(builder))
    notes->push_back(note_on_rotary_scaling(m));
  return model;
}

Json optimizer_of(const Training& t) {
  Json optimizer = {{"_component_", t.optimizer == Optimizer::adam    ? "torch.optim.Adam"
                                    : t.optimizer == Optimizer::adamw ? "torch.optim.AdamW"
                                                                      : "torch.optim.SGD"},
                    {"lr", t.learning_rate > 0 ? t.learning_rate : 1e-4}};
  if (t.optimizer == Optimizer::momentum) optimizer["momentum"] = 0.9;
  if (t.optimizer == Optimizer::adam || t.optimizer == Optimizer::adamw) optimizer["fused"] = true;
  return optimizer;
}

void check_recipe_has(const Choices& c, bool adapters) {
  refuse_forms({{"pipeline", c.pp}, {"expert", c.ep}}, "torchtune",
               "expected tensor, context and data parallelism and sharding alone");
  if (adapters && c.tp > 1)
    throw UserError(
        fmt::format("`tp` {}: torchtune's lora_finetune_distributed has no tensor parallelism", c.tp),
        "expected `tp` 1 beside adapters");
}

}  // namespace

std::vector<ExportedFile> export_torchtune(const Plan& plan) {
  const Transformer& m = transformer_for(plan, "torchtune");
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  const bool adapters = m.fine_tuning.rank > 0;
  check_recipe_has(c, adapters);
  std::vector<std::string> notes = notes_on_rare_choices(plan, "torchtune");
  const Builder builder = builder_of(plan, m);
  const int shards = c.zero == 0 ? 1 : c.shard_group > 0 ? std::max(1, c.shard_group / c.cp) : c.dp;
  Json config = {{"output_dir", "out"}, {"model", torchtune_model_of(plan, m, builder, &notes)}};
  config["tokenizer"] = tokenizer_of(m, t.seq_len);
  config["checkpointer"] = {{"_component_", "torchtune.training.FullModelHFCheckpointer"},
                            {"checkpoint_dir", "checkpoint"},
                            {"checkpoint_files", Json::array({"model.safetensors"})},
                            {"recipe_checkpoint", nullptr},
                            {"output_dir", "out"},
                            {"model_type", builder.type}};
  config["dataset"] = {{"_component_", "torchtune.datasets.alpaca_cleaned_dataset"}, {"packed", true}};
  notes.emplace_back(
      "tokenizer, checkpoint and data are placeholders: say yours in config.yaml or behind launch.sh, "
      "checkpointer.checkpoint_dir=…");
  config.update({{"resume_from_checkpoint", false},
                 {"seed", 1},
                 {"shuffle", true},
                 {"optimizer", optimizer_of(t)},
                 {"loss", {{"_component_", "torchtune.modules.loss.LinearCrossEntropyLoss"}}},
                 {"epochs", 1},
                 {"max_steps_per_epoch", 50},
                 {"batch_size", c.micro_batch},
                 {"gradient_accumulation_steps", equal_micro_batches(plan, "torchtune")},
                 {"clip_grad_norm", plan.job->runtime.clip_gradients ? Json(1.0) : Json()},
                 {"compile", plan.job->runtime.fused_elementwise},
                 {"device", "cuda"},
                 {"dtype", t.precision == DType::fp32 || t.precision == DType::tf32 ? "fp32" : "bf16"},
                 {"enable_activation_checkpointing", c.recompute == Recompute::full},
                 {"enable_activation_offloading", false},
                 {"fsdp_cpu_offload", offload_of(plan.job->runtime) == Offload::all},
                 {"tensor_parallel_dim", c.tp},
                 {"context_parallel_dim", c.cp},
                 {"data_parallel_shard_dim", shards},
                 {"data_parallel_replicate_dim", c.dp / shards},
                 {"fsdp_reshard_after_forward", c.zero == 3},
                 {"metric_logger",
                  {{"_component_", "torchtune.training.metric_logging.DiskLogger"}, {"log_dir", "out/logs"}}},
                 {"log_every_n_steps", 1},
                 {"log_peak_memory_stats", true},
                 {"log_level", "INFO"}});
  if (adapters) {
    config["save_adapter_weights_only"] = true;
    config["lr_scheduler"] = {
        {"_component_", "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup"},
        {"num_warmup_steps", 100}};
  } else if (c.tp > 1) {
    config["tensor_parallel_plan"] = {{"_component_", "torchtune.models.llama3.base_llama_tp_plan"}};
  }
  const bool fp8 = t.precision == DType::fp8 && !adapters;  // its LoRA recipe has none
  if (fp8) config["enable_fp8_training"] = true;
  if (c.recompute == Recompute::selective)
    notes.emplace_back("torchtune recomputes whole layers or none; this recomputes none, the plan attention");
  if (c.recompute == Recompute::full && c.recompute_layers > 0)
    notes.push_back(fmt::format("all layers are recomputed; the plan's first {} of each stage only: {}",
                                c.recompute_layers,
                                cost_of_running_again(plan, c.recompute_layers, m.layers)));
  if (c.zero == 1)
    notes.emplace_back("torchtune has no ZeRO-1; FSDP without resharding (ZeRO-2) stands in for it");
  if (!c.overlap_grad_reduce && c.dp > 1)
    notes.emplace_back("FSDP overlaps the reduction of gradients; the plan does not");
  if (c.bucket_bytes > 0)
    notes.push_back(
        fmt::format("FSDP reduces layer by layer; the plan's buckets are of {:.0f} bytes", c.bucket_bytes));
  if (!c.sequence_parallel && c.tp > 1)  // base_llama_tp_plan: torchtune/models/llama3/_parallelism.py
    notes.emplace_back("torchtune's tensor parallelism always splits the sequence, too; the plan's does not");
  if (c.grad_compression == Compression::fp16)
    notes.emplace_back("torchtune cannot compress gradients by fp16");
  if ((is_narrow(t.precision) && !fp8) || t.precision == DType::fp16)
    notes.push_back(fmt::format("torchtune trains in bf16, not {}", name_of(t.precision)));
  if (t.precision == DType::tf32) notes.emplace_back("tf32 is PyTorch's setting; this runs fp32");
  if (t.precision != DType::fp32)
    notes.emplace_back(
        "weights, gradients and optimizer states are all of that type; the plan keeps those of its runtime "
        "in "
        "fp32: less memory here");
  if (!t.fused_attention)
    notes.emplace_back("torchtune always uses PyTorch's fused attention; the plan does not");

  std::string script =
      script_head(plan, "torchtune 0.7", notes, ModelIs::by_dimensions_and_adapters) + nccl_environment(plan);
  std::string line = torchrun_line(plan);
  line.replace(0, std::string("torchrun").size(), "tune run");
  script += line + fmt::format("  {}_finetune_distributed --config config.yaml \"$@\"\n",
                               adapters ? "lora" : "full");
  const std::string head = fmt::format("# {} on {}: written by orrery export, for torchtune 0.7.\n",
                                       plan.job->workload.name, plan.job->cluster.name);
  return {{"launch.sh", script}, {"config.yaml", head + yaml_of(config.dump())}};
}

}  // namespace orrery::planner
