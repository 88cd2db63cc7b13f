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
      {"multi_token_pattern", "free: of a layer_pattern, which is noted or refused"},
      {"state_space", "free: of a layer_pattern, which is noted or refused"},
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
      {"recompute_modules", "recompute: 'selective' recompute_modules: ['layernorm', 'mlp']"},
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

// Every target, with one plan's files for each framework that the starters start.
struct Case {
  ExportTarget target;
  const char* name;
  bool data_parallel = false;          // has no other form
  std::set<std::string> without = {};  // fields that say nothing there, for the reason beside it
};

// Of the training and the choices those fields change what is written; what a target computes from the
// sequence length alone (tables of positions) is no part of its model.
const std::vector<Case>& targets() {
  static const std::vector<Case> all = {
      {ExportTarget::megatron, "megatron"},
      {ExportTarget::torchtitan,
       "torchtitan",
       false,
       {"max_positions"}},  // tables are as long as the training's sequences
      {ExportTarget::nemo, "nemo", false, {"max_positions"}},  // the same
      {ExportTarget::deepspeed, "deepspeed"},
      {ExportTarget::slurm, "slurm"},
      {ExportTarget::kubernetes, "kubernetes"},
      {ExportTarget::ray, "ray"},
      {ExportTarget::torchrun, "torchrun", true, {"max_positions"}},  // worked out for as many as there are
      {ExportTarget::torchtune, "torchtune", true},
      {ExportTarget::tensorflow, "tensorflow", true},
      {ExportTarget::horovod, "horovod", true},
  };
  return all;
}

// `path`: where the fields are, "workload { transformer { moe {".
void check_places(const Descriptor& type, const Places& places, const std::string& path, const Case& of,
                  const proto::Plan& base, std::set<std::string> meaningless = {}) {
  std::set<std::string> fields, placed;
  for (int i = 0; i < type.field_count(); ++i) fields.insert(type.field(i)->name());
  for (const auto& [name, change] : places) placed.insert(name);
  CHECK(fields == placed);
  meaningless.insert(of.without.begin(), of.without.end());
  std::string end;
  for (const char letter : path)
    if (letter == '{') end += " }";
  for (const auto& [name, change] : places) {
    if (change.starts_with("free: ") || meaningless.count(name) == 1) continue;
    proto::Plan changed = base;
    merge_textproto(path + " " + change + end, "test", &changed);
    if (name == "interleave" || name == "stage_layers") changed.mutable_choices()->set_bucket_bytes(1e8);
    INFO(path << " " << name << " for " << of.name);
    const std::string before = exported(base, of.target);
    CHECK(before.find("#") != std::string::npos);  // the base itself is taken
    CHECK(exported(changed, of.target) != before);
  }
}

const proto::Plan& base_of(const Case& of) {
  static const proto::Plan whole = base(), data = data_parallel();
  return of.data_parallel ? data : whole;
}

// Mixtral on two ranks of tensor parallelism and eight replicas.
proto::Plan of_experts() {
  const auto job = test::make_job("mixtral-8x7b", "dgx-h100", 16, 64, 2048);
  Plan plan{job, {}};
  plan.choices.tp = 2;
  plan.choices.dp = 8;
  plan.choices.sequence_parallel = true;
  plan.choices.zero = 1;
  proto::Plan message;
  to_proto(plan, &message);
  return message;
}

}  // namespace

TEST_CASE("no field of a transformer is lost on the way to any target") {
  for (const Case& of : targets())
    check_places(*proto::Transformer::descriptor(), of_transformer(), "workload { transformer {", of,
                 base_of(of));
}

TEST_CASE("no field of a workload is lost on the way to any target") {
  const Places places = {
      {"name", "name: 'another'"},
      {"source", "free: where the model was read"},
      {"transformer", "free: field by field above"},
      {"graph", "graph { operators { name: 'a' kind: 'linear' rows: 1 n: 8 k: 8 output_elements: 8 } }"},
      {"published_parameters", "free: what somebody counted"},
      {"default_seq_len", "free: the training's counts"},
      {"ignored_keys", "free: of its file, said where it was read"},
      {"notes", "free: of its file, said where it was read"},
  };
  for (const Case& of : targets())
    check_places(*proto::Workload::descriptor(), places, "workload {", of, base_of(of));
}

TEST_CASE("no field of rotary scaling, dropout or fine-tuning is lost on the way to any target") {
  const Places rotary = {
      {"kind", "kind: 'dynamic' factor: 8"},
      {"factor", "factor: 4"},
      {"original_positions", "original_positions: 4096"},
      {"low_frequency", "low_frequency: 2"},
      {"high_frequency", "high_frequency: 8"},
      {"beta_fast", "kind: 'yarn' factor: 8 original_positions: 8192 beta_fast: 16"},
      {"beta_slow", "kind: 'yarn' factor: 8 original_positions: 8192 beta_slow: 2"},
      {"attention_factor", "kind: 'yarn' factor: 8 original_positions: 8192 attention_factor: 1.2"},
  };
  const Places dropouts = {{"embedding", "embedding: 0.1"},
                           {"attention", "attention: 0.1"},
                           {"attention_out", "attention_out: 0.1"},
                           {"mlp_out", "mlp_out: 0.1"}};
  const Places tuning = {{"rank", "rank: 16"},    {"targets", "targets: 'q,v'"},
                         {"alpha", "alpha: 64"},  {"dora", "dora: true"},
                         {"base", "base: 'nf4'"}, {"frozen_layers", "frozen_layers: 4"}};
  for (const Case& of : targets()) {
    proto::Plan scaled = base_of(of), tuned = base_of(of);
    merge_textproto(
        "workload { transformer { rotary_scaling { kind: 'llama3' factor: 8 original_positions: 8192 "
        "low_frequency: 1 "
        "high_frequency: 4 } } }",
        "test", &scaled);
    merge_textproto("workload { transformer { fine_tuning { rank: 8 } } }", "test", &tuned);
    // Where positions are not scaled at all, one note says so of all that the scaling has.
    const std::set<std::string> all = {"factor",    "original_positions", "low_frequency",   "high_frequency",
                                       "beta_fast", "beta_slow",          "attention_factor"};
    const bool noted =
        exported(scaled, of.target).find("positions are not scaled by llama3") != std::string::npos;
    check_places(*proto::RotaryScaling::descriptor(), rotary, "workload { transformer { rotary_scaling {", of,
                 scaled, noted ? all : std::set<std::string>{});
    check_places(*proto::Dropouts::descriptor(), dropouts, "workload { transformer { dropouts {", of,
                 base_of(of));
    check_places(*proto::FineTuning::descriptor(), tuning, "workload { transformer { fine_tuning {", of,
                 tuned);
  }
}

TEST_CASE("no field of a training is lost on the way to any target") {
  const Places lengths = {{"tokens", "tokens: [100, 300]"},
                          {"packed", "tokens: [100, 200] packed: true"},
                          {"balanced", "tokens: [100, 200] balanced: true"},
                          {"samples_each", "free: over how many steps lengths average"}};
  for (const Case& of : targets()) {
    check_places(*proto::Training::descriptor(), of_training(), "training {", of, base_of(of));
    proto::Plan some = base_of(of);
    merge_textproto("training { lengths { tokens: [100, 200] } }", "test", &some);
    check_places(*proto::SequenceLengths::descriptor(), lengths, "training { lengths {", of, some);
  }
}

TEST_CASE("no choice is lost on the way to any target") {
  for (const Case& of : targets()) {
    std::set<std::string>
        meaningless;  // there are no stages, no tensor ranks and so no sequences split between them
    if (of.data_parallel) meaningless = {"interleave", "stage_layers", "schedule", "sequence_parallel"};
    check_places(*proto::Choices::descriptor(), of_choices(), "choices {", of, base_of(of), meaningless);
    // A hierarchical all-reduce.
    proto::Plan flat = base_of(of);
    merge_textproto("choices { zero: 0 }", "test", &flat);
    proto::Plan groups = flat;
    merge_textproto("choices { shard_group: 4 }", "test", &groups);
    INFO(of.name);
    CHECK(exported(flat, of.target) != exported(groups, of.target));
  }
}

TEST_CASE("what waits in the hosts' memory is not lost on the way to any target") {
  for (const Case& of : targets())
    for (const char* change :
         {"host_states: 1", "host_states: 1 host_parameters: true", "host_activation_layers: 4"}) {
      proto::Plan changed = base_of(of);
      merge_textproto(std::string("runtime { ") + change + " }", "test", &changed);
      INFO(of.name << " " << change);
      CHECK(exported(changed, of.target) != exported(base_of(of), of.target));
    }
}

TEST_CASE("no field of experts or latent attention is lost on the way to a target that has them") {
  const Places experts = {
      {"experts", "experts: 16"},
      {"experts_per_token", "experts_per_token: 4"},
      {"expert_ffn_hidden", "expert_ffn_hidden: 1024"},
      {"shared_ffn_hidden", "shared_ffn_hidden: 2048"},
      {"first_dense_layers", "first_dense_layers: 2"},
      {"layer_period", "layer_period: 2"},
      {"shared_gate", "shared_ffn_hidden: 2048 shared_gate: true"},
      {"router_bias", "router_bias: true"},
      {"router_linear_bias", "router_linear_bias: true"},
      {"unscaled_weights", "unscaled_weights: true"},
      {"auxiliary_loss", "auxiliary_loss: 0.02"},
      {"layer_offset", "layer_period: 2 layer_offset: 1"},
      {"expert_up_bias", "expert_up_bias: true"},
      {"expert_bias", "expert_bias: true"},
      {"latent", "latent: 512"},
  };
  const Places latent = {
      {"q_lora_rank", "q_lora_rank: 512"},
      {"kv_lora_rank", "kv_lora_rank: 256"},
      {"qk_nope_head_dim", "qk_nope_head_dim: 64"},
      {"qk_rope_head_dim", "qk_rope_head_dim: 32"},
      {"v_head_dim", "v_head_dim: 64"},
      {"index_heads", "index_heads: 4 index_head_dim: 64 index_top_k: 256"},
      {"index_head_dim", "free: of an indexer, which is noted or refused"},
      {"index_top_k", "free: of an indexer, which is noted or refused"},
  };
  const proto::Plan mixtral = of_experts();
  proto::Plan deepseek;
  {
    Plan plan{test::make_job("deepseek-v3", "dgx-h100", 64, 64, 2048), {}};
    plan.choices.dp = 64;
    plan.choices.ep = 64;
    plan.choices.zero = 1;
    to_proto(plan, &deepseek);
  }
  for (const Case& of : targets()) {
    if (of.data_parallel) {  // refused, or the script's
      INFO(of.name);
      CHECK(exported(mixtral, of.target) != exported(base_of(of), of.target));
      continue;
    }
    check_places(*proto::MixtureOfExperts::descriptor(), experts, "workload { transformer { moe {", of,
                 mixtral);
    if (of.target != ExportTarget::nemo)  // refused as a whole
      check_places(*proto::LatentAttention::descriptor(), latent, "workload { transformer { mla {", of,
                   deepseek);
    for (const char* change : {"ep: 4", "etp: 2", "capacity_factor: 1.5", "overlap_experts: true ep: 4"}) {
      proto::Plan changed = mixtral;
      merge_textproto(std::string("choices { ") + change + " }", "test", &changed);
      INFO(of.name << " " << change);
      CHECK(exported(changed, of.target) != exported(mixtral, of.target));
    }
  }
}
