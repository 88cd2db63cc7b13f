// No field of a model, a training or a plan's choices is forgotten by an export: each is placed here, and
// what is said to be expressed, noted or refused changes what is written. A field that is added fails until
// it is placed.
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "handover/export.h"
#include "program/plan.h"
#include "proto/field_check.h"
#include "proto/plan.pb.h"
#include "proto/textproto.h"
#include "tests/support/jobs.h"

using namespace orrery;
using namespace orrery::planner;
using google::protobuf::Descriptor;

namespace {

// Textproto that changes the field, or why no export need say it ("free: …").
using Places = std::map<std::string, std::string>;

const Places& of_transformer() {
  static const Places places = {
      {"family", "free: names of tensors, which the script that builds the model gives"},
      {"layers", "layers: 12"},
      {"hidden", "hidden: 2048"},
      {"heads", "heads: 16"},
      {"kv_heads", "kv_heads: 4"},
      {"head_dim", "head_dim: 64"},
      {"ffn_hidden", "ffn_hidden: 4096"},
      {"vocab", "vocab: 32000"},
      {"max_positions", "max_positions: 131072"},
      {"learned_positions", "learned_positions: true"},
      {"gated_ffn", "gated_ffn: false activation: 'gelu'"},
      {"activation", "gated_ffn: false activation: 'gelu'"},
      {"norm", "norm: 'layernorm'"},
      {"post_norm", "post_norm: true"},
      {"tied_embeddings", "tied_embeddings: true"},
      {"qkv_bias", "qkv_bias: true"},
      {"linear_bias", "linear_bias: true"},
      {"qk_norm", "qk_norm: true"},
      {"parallel_residual", "parallel_residual: true"},
      {"bidirectional", "bidirectional: true"},
      {"sliding_window", "sliding_window: 256"},
      {"token_types", "token_types: 2"},
      {"pooler", "pooler: true"},
      {"mlm_head", "mlm_head: true"},
      {"multi_token_layers", "multi_token_layers: 1"},
      {"moe", "moe { experts: 8 experts_per_token: 2 expert_ffn_hidden: 1024 }"},
      {"mla",
       "head_dim: 0 mla { q_lora_rank: 64 kv_lora_rank: 64 qk_nope_head_dim: 64 qk_rope_head_dim: 32 "
       "v_head_dim: 64 }"},
      {"rope_theta", "rope_theta: 10000"},
      {"norm_epsilon", "norm_epsilon: 1e-6"},
      {"rotary_fraction", "rotary_fraction: 0.5"},
      {"final_norm_absent", "final_norm_absent: true"},
      {"single_norm", "parallel_residual: true single_norm: true"},
      {"sliding_window_from_layer", "sliding_window: 256 sliding_window_from_layer: 4"},
      {"full_attention_period", "sliding_window: 256 full_attention_period: 2"},
      {"proj_bias", "proj_bias: true"},
      {"mlp_bias", "mlp_bias: true"},
      {"head_bias", "head_bias: true"},
      {"position_offset", "learned_positions: true position_offset: 2"},
      {"layer_pattern", "layers: 4 layer_pattern: '*-*-'"},
      {"multi_token_pattern", "free: of a layer_pattern, which is noted"},
      {"state_space", "free: of a layer_pattern, which is noted"},
      {"fine_tuning", "fine_tuning { rank: 8 }"},
      {"rotary_scaling",
       "rotary_scaling { kind: 'llama3' factor: 8 original_positions: 8192 low_frequency: 1 high_frequency: "
       "4 }"},
      {"dropout", "dropout: 0.1"},
      {"dropouts", "dropouts { attention: 0.1 }"},
      {"attention_softcap", "attention_softcap: 50"},
      {"final_softcap", "final_softcap: 30"},
      {"attention_scale", "attention_scale: 0.0625"},
      {"embedding_scale", "embedding_scale: 48"},
      {"norms_offset", "norms_offset: true"},
      {"unexecuted", "unexecuted: 'attn_logit_softcapping 50'"},
      {"masked_share", "bidirectional: true mlm_head: true masked_share: 0.15"},
      {"attention_pattern", "sliding_window: 256 layers: 4 attention_pattern: 'wfwf'"},
      {"branch_norms", "branch_norms: true"},
      {"no_input_norms", "branch_norms: true no_input_norms: true"},
      {"first_norm_absent", "first_norm_absent: true"},
      {"embedding_norm", "embedding_norm: true"},
      {"unbiased_norm", "norm: 'layernorm' unbiased_norm: true"},
      {"qk_norm_whole", "qk_norm: true qk_norm_whole: true"},
      {"qk_norm_absent_weights", "qk_norm: true qk_norm_absent_weights: true"},
      {"attention_gate", "attention_gate: true"},
      {"attention_sinks", "attention_sinks: true"},
      {"unbiased_transform", "free: of mlm_head, which is noted"},
  };
  return places;
}

const Places& of_training() {
  static const Places places = {
      {"global_batch", "global_batch: 256"},
      {"seq_len", "seq_len: 1024"},
      {"precision", "precision: 'fp8'"},
      {"optimizer", "optimizer: 'sgd'"},
      {"attention", "attention: 'unfused'"},
      {"learning_rate",
       "free: an argument of Megatron-LM's launch; in the others' files where a target has one"},
      {"seed", "free: changes no time and no memory"},
      {"sample_bytes", "free: the data loader's own"},
      {"lengths", "lengths { tokens: [100, 200] }"},
  };
  return places;
}

const Places& of_choices() {
  static const Places places = {
      {"tp", "tp: 4 dp: 4"},
      {"pp", "pp: 4 dp: 2 stage_layers: [8, 8, 8, 8]"},
      {"dp", "dp: 4 tp: 4"},
      {"cp", "cp: 2 dp: 4"},
      {"ep", "free: of experts; tried with a model that has them below"},
      {"etp", "free: of experts; tried with a model that has them below"},
      {"micro_batch", "micro_batch: 2"},
      {"schedule", "schedule: 'gpipe'"},
      {"interleave", "schedule: 'interleaved' interleave: 2 stage_layers: []"},
      {"zero", "zero: 3"},
      {"recompute", "recompute: 'full'"},
      {"recompute_layers", "recompute: 'full' recompute_layers: 3"},
      {"shard_group", "zero: 1 shard_group: 4"},
      {"stage_layers", "stage_layers: [17, 15]"},
      {"order", "order: ['tp', 'cp', 'ep', 'pp', 'dp']"},
      {"sequence_parallel", "sequence_parallel: false"},
      {"overlap_grad_reduce", "overlap_grad_reduce: false"},
      {"bucket_bytes", "bucket_bytes: 5e7"},
      {"grad_compression", "grad_compression: 'topk' topk_ratio: 0.01"},
      {"topk_ratio", "free: of a compression that is noted"},
      {"sync", "sync: 'parameter-server' servers: 2"},
      {"servers", "free: of a synchronisation that is noted"},
      {"staleness", "free: of a synchronisation that is noted"},
      {"capacity_factor", "free: of experts; tried with a model that has them below"},
      {"replica_batches", "replica_batches: [20, 12, 16, 16, 16, 16, 16, 16]"},
      {"overlap_experts", "free: of experts; tried with a model that has them below"},
      {"degrees", "free: forms of parallelism that no release has"},
  };
  return places;
}

// Llama 3 8B on 32 H100.
proto::Plan base() {
  const auto job = test::make_job("llama3-8b", "dgx-h100", 32, 128, 2048);
  Plan plan{job, {}};
  plan.choices.tp = 2;
  plan.choices.pp = 2;
  plan.choices.dp = 8;
  plan.choices.sequence_parallel = true;
  plan.choices.zero = 1;
  proto::Plan message;
  to_proto(plan, &message);
  return message;
}

// The same without the forms that train.py, tune.py and the like do not have.
proto::Plan data_parallel() {
  const auto job = test::make_job("llama3-8b", "dgx-h100", 32, 128, 2048);
  Plan plan{job, {}};
  plan.choices.dp = 32;
  plan.choices.zero = 2;
  proto::Plan message;
  to_proto(plan, &message);
  return message;
}

// What is written or why not.
std::string exported(const proto::Plan& message, ExportTarget target) {
  try {
    std::string text;
    for (const ExportedFile& file : export_plan(plan_from_proto(message, "test", ""), target))
      text += file.content;
    return text;
  } catch (const UserError& error) {
    return error.what();
  }
}

void check_places(const Descriptor& type, const Places& places, const std::string& part,
                  const std::set<ExportTarget>& targets, const proto::Plan& base = ::base(),
                  const std::set<std::string>& meaningless = {}) {
  std::set<std::string> fields, placed;
  for (int i = 0; i < type.field_count(); ++i) fields.insert(type.field(i)->name());
  for (const auto& [name, change] : places) placed.insert(name);
  CHECK(fields == placed);
  for (const auto& [name, change] : places) {
    if (change.starts_with("free: ")) continue;
    if (meaningless.count(name) == 1) continue;
    proto::Plan changed = base;
    if (part.empty())
      merge_textproto("workload { transformer { " + change + " } }", "test", &changed);
    else
      merge_textproto(part + " { " + change + " }", "test", &changed);
    if (name == "interleave" || name == "stage_layers") changed.mutable_choices()->set_bucket_bytes(1e8);
    for (const ExportTarget target : targets) {
      // torchtitan's tables of positions are as long as the training's sequences.
      if (target == ExportTarget::torchtitan && name == "max_positions") continue;
      INFO(part << " " << name << " for target " << static_cast<int>(target));
      CHECK(exported(changed, target) != exported(base, target));
    }
  }
}

}  // namespace

TEST_CASE("no field of a transformer is lost on the way to Megatron-LM or torchtitan") {
  check_places(*proto::Transformer::descriptor(), of_transformer(), "",
               {ExportTarget::megatron, ExportTarget::torchtitan});
}

TEST_CASE("no field of a training is lost on the way to Megatron-LM") {
  check_places(*proto::Training::descriptor(), of_training(), "training", {ExportTarget::megatron});
}

TEST_CASE("no choice is lost on the way to Megatron-LM, torchtitan or DeepSpeed") {
  check_places(*proto::Choices::descriptor(), of_choices(), "choices",
               {ExportTarget::megatron, ExportTarget::torchtitan, ExportTarget::deepspeed,
                ExportTarget::slurm, ExportTarget::kubernetes});
}

TEST_CASE("no field of a model, a training or a plan is lost on the way to PyTorch alone") {
  const std::set<ExportTarget> target = {ExportTarget::torchrun};
  // Rotary positions are worked out for as many as there are.
  check_places(*proto::Transformer::descriptor(), of_transformer(), "", target, data_parallel(),
               {"max_positions"});
  check_places(*proto::Training::descriptor(), of_training(), "training", target, data_parallel());
  check_places(*proto::Choices::descriptor(), of_choices(), "choices", target, data_parallel(),
               {"interleave", "stage_layers", "schedule", "sequence_parallel"});  // there are no stages
}

TEST_CASE("no choice of experts is lost on the way to Megatron-LM") {
  const auto job = test::make_job("mixtral-8x7b", "dgx-h100", 16, 64, 2048);
  Plan plan{job, {}};
  plan.choices.tp = 2;
  plan.choices.dp = 8;
  plan.choices.sequence_parallel = true;
  plan.choices.zero = 1;
  proto::Plan message;
  to_proto(plan, &message);
  for (const char* change : {"ep: 4", "etp: 2", "capacity_factor: 1.5", "overlap_experts: true ep: 4"}) {
    proto::Plan changed = message;
    merge_textproto(std::string("choices { ") + change + " }", "test", &changed);
    INFO(change);
    CHECK(exported(changed, ExportTarget::megatron) != exported(message, ExportTarget::megatron));
  }
}
