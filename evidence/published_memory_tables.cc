#include "evidence/published_memory_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "evidence/published_fields.h"
#include "evidence/published_rows.h"
#include "planner/evaluation/evaluation.h"
#include "program/operator_work.h"
#include "program/schedule.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

namespace orrery::planner {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

int count_after(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + key.size());
}

// Why a test configuration is none that a plan expresses; empty where it is.
std::string_view beyond(const Fields& row) {
  const std::string& family = row.text("model_family");
  const std::string& name = row.text("test_case");
  const std::string& flags = row.text("other_flags");
  if (family == "mimo" || has(family, "multimodal")) return "an image encoder beside the language model";
  if (family == "nemotron") return "state-space layers";
  if (has(name, "distill")) return "distillation: a second model";
  if (has(name, "frozen")) return "a part of the model is frozen";
  if (has(flags, "optimizer=muon")) return "the optimizer is Muon";
  if (has(name, "offload")) return "activations are offloaded to the host";
  if (has(name, "hybrid") || has(name, "mamba") || has(name, "retro")) return "no plain transformer";
  const std::string& layout = row.text("vpp_setting");
  if (has(layout, "layout=") || has(layout, "decoder-first") || has(layout, "account-for-embedding"))
    return "an uneven pipeline whose layers a stage are not stated";
  return {};
}

// Megatron-LM's defaults (megatron/training/arguments.py @ d98e8a64dd) where the table has no column: GPT-2's
// 50,257 tokens (BERT: bert-large-cased's 28,996), padded to a multiple of 128 tp; dropout of 0.1.
Transformer transformer_of(const Fields& row) {
  const std::string& flags = row.text("other_flags");
  const std::string& name = row.text("test_case");
  const bool bert = row.text("model_family") == "bert";
  Transformer t;
  t.family = "megatron";
  t.layers = row.count("n_layers");
  t.hidden = row.count("hidden");
  t.heads = row.count("n_heads");
  if (t.layers <= 0 || t.hidden <= 0 || t.heads <= 0)
    throw Unreadable{"layers, hidden size or heads are not stated", true};
  const bool grouped = has(flags, "group-query-attention=True");
  t.kv_heads = grouped || bert ? row.count("n_kv_heads", t.heads) : t.heads;
  t.head_dim = t.hidden / t.heads;
  t.gated_ffn = has(flags, "swiglu=True");
  t.activation = t.gated_ffn ? Activation::silu : Activation::gelu;
  // With SwiGLU Megatron's default is 8/3 h, in multiples of 64.
  const int ffn = t.gated_ffn ? static_cast<int>(t.hidden * 4 * 2 / 3 / 64) * 64 : 4 * t.hidden;
  t.ffn_hidden = row.count("ffn_hidden", ffn);
  const int pad = 128 * std::max(1, row.count("tp"));
  const int vocab = row.count("vocab_or_tokenizer", bert ? 28996 : 50257);
  t.vocab = (vocab + pad - 1) / pad * pad;
  t.max_positions = row.count("seq_len_tokens");
  t.learned_positions = !has(name, "rope");
  t.tied_embeddings = !has(flags, "untie-embeddings-and-output-weights=True");
  t.linear_bias = t.qkv_bias = !has(flags, "disable-bias-linear=True");
  if (bert) {
    t.bidirectional = true;
    t.token_types = 2;
    t.pooler = t.mlm_head = true;
  }
  const int experts = row.count("num_experts");
  if (experts > 0) {
    MixtureOfExperts moe;
    moe.experts = experts;
    moe.experts_per_token = row.count("moe_topk", 2);
    moe.expert_ffn_hidden = row.count("moe_ffn_hidden", t.ffn_hidden);
    moe.shared_ffn_hidden = count_after(flags, "moe-shared-expert-intermediate-size=");
    moe.first_dense_layers = count_after(flags, "moe-layer-freq=([0]*");
    t.moe = moe;
  }
  // As in
  // tests/functional_tests/test_cases/moe/gpt3_mcore_te_tp2_pp2_ep4_etp1_memory_speed/model_config.yaml.
  if (has(flags, "multi-latent-attention=True")) t.mla = LatentAttention{1536, 512, 128, 64, 128};
  t.multi_token_layers = count_after(flags, "mtp-num-layers=");
  return t;
}

std::shared_ptr<Job> job_of(const Fields& row, int devices) {
  auto job = std::make_shared<Job>();
  Workload& workload = job->workload;
  workload.name = row.text("test_case");
  workload.transformer = transformer_of(row);
  workload.layers = workload.transformer->layers;
  workload.default_seq_len = row.count("seq_len_tokens");
  workload.operators = transformer_operators(*workload.transformer);
  const std::string& gpu = row.text("gpu");
  const char* cluster = gpu == "A100" ? "dgx-a100" : gpu == "H100" ? "dgx-h100" : "gb200-nvl72";
  job->cluster = with_devices(load_cluster(cluster), devices);
  job->runtime = catalog_runtime("megatron-core");
  job->runtime.dropout = !workload.transformer->mla;  // these recipes set it to 0
  if (has(row.text("other_flags"), "transformer-impl=local")) job->runtime.dummy_weight_gradients = false;
  Training& training = job->training;
  training.global_batch = row.count("gbs_sequences");
  training.seq_len = workload.default_seq_len;
  const std::string& precision = row.text("precision");
  training.precision = precision == "fp32"     ? DType::fp32
                       : precision == "fp16"   ? DType::fp16
                       : has(precision, "fp8") ? DType::fp8
                                               : DType::bf16;
  const std::string& flags = row.text("other_flags");
  training.fused_attention = !has(flags, "attention-backend=unfused") &&
                             !has(flags, "attention-backend=local") &&
                             !has(flags, "transformer-impl=local") &&
                             // An older Transformer Engine, whose deterministic attention is not fused (but
                             // under context parallelism, which needs a fused core).
                             (row.count("cp") > 1 || !has(row.text("golden_file"), "dracooci"));
  return job;
}

// Korthikanti et al., tables 3: micro-batch, tp, pp, model chunks.
struct Configuration {
  std::string_view name, catalog;
  int micro_batch, tp, pp, interleave, batch;
};
constexpr std::array<Configuration, 4> kKorthikanti = {{
    {"megatron-22B", "megatron-22b", 4, 8, 1, 1, 4},
    {"gpt3-175B", "megatron-175b", 1, 8, 8, 3, 64},
    {"turing-530B", "megatron-530b", 1, 8, 35, 3, 280},
    {"megatron-1T", "megatron-1t", 1, 8, 64, 1, 512},
}};

// Of the layers alone, as figures 1 and 7 have it: without the embedding's mask of dropout.
double activations(const Plan& plan) {
  const Memory memory = predict_memory_of_stage(plan, 0);
  const int in_flight = peak_in_flight(plan.choices.schedule, 0, plan.choices.pp, plan.choices.interleave,
                                       static_cast<int>(plan.micro_batches()));
  const double mask = saved_bytes(plan.job->workload.operators.front(), shard_of(plan), plan.job->runtime);
  return memory.activations - memory.transient -
         mask * (plan.choices.pp > 1 ? static_cast<double>(in_flight) / plan.choices.interleave : 1);
}

// 18 bytes a parameter of the layers.
double states(const Plan& plan) {
  const Memory memory = predict_memory_of_stage(plan, plan.choices.pp / 2);
  double all = memory.weights + memory.gradients + memory.optimizer;
  if (plan.choices.pp == 1) {
    for (const Operator& op : plan.job->workload.operators)
      if (op.layer < 0 || op.layer >= plan.job->workload.layers)
        all -= 18 * static_cast<double>(local_parameters(op, shard_of(plan)));
  }
  return all;
}

}  // namespace

bool is_megatron_ci_table(const CsvTable& table) {
  return table.column("mem_max_allocated_bytes") >= 0 && table.column("test_case") >= 0;
}

bool is_korthikanti_table(const CsvTable& table) {
  return table.column("quantity") >= 0 && table.column("value") >= 0 && table.column("unit") >= 0 &&
         table.column("model") >= 0 && table.column("metric") < 0;
}

MemoryRow read_megatron_ci_row(const CsvTable& table, const CsvRow& fields) {
  const Fields row(table, fields);
  MemoryRow result;
  result.measured = row.real("mem_max_allocated_bytes");
  if (result.measured <= 0) throw Unreadable{"no peak of memory is stated", true};
  const std::string_view why = beyond(row);
  if (!why.empty()) throw Unreadable{std::string(why), false};
  int devices = row.count("n_gpus");
  if (devices <= 0) {
    if (row.text("gpu") == "GB200" || has(row.text("n_gpus_basis"), "multi-node"))
      throw Unreadable{"the number of devices is not stated", true};
    devices = 8;  // n_gpus_basis: "CI default is 1 node x 8"
  }
  Plan plan;
  const auto job = job_of(row, devices);
  plan.job = job;
  Choices& c = plan.choices;
  c.tp = row.count("tp", 1);
  c.pp = row.count("pp", 1);
  c.cp = row.count("cp", 1);
  c.ep = row.count("ep", 1);
  c.etp = row.count("etp", c.tp);
  c.micro_batch = row.count("mbs_sequences", 1);
  const int model = c.tp * c.pp * c.cp;
  if (devices % model != 0)
    throw Unreadable{fmt::format("{} devices for tp pp cp {}", devices, model), false};
  c.dp = devices / model;
  if (job->workload.transformer->moe && (c.dp * c.cp * c.tp) % (c.ep * c.etp) != 0)
    throw Unreadable{"expert parallelism does not divide the devices", false};
  if (!job->workload.transformer->moe) c.ep = c.etp = 1;
  const std::string& sharding = row.text("dist_optimizer_or_fsdp");
  c.zero = has(sharding, "optim_grads_params") ? 3 : has(sharding, "use-distributed-optimizer") ? 1 : 0;
  if (c.dp * c.cp == 1) c.zero = 0;
  // --num-distributed-optimizer-instances 2
  if (has(row.text("test_case"), "multi_dist_opt") && c.dp * c.cp > 1) c.shard_group = c.dp * c.cp / 2;
  c.sequence_parallel = row.text("sequence_parallel") == "True" && c.tp > 1;
  const std::string& recompute = row.text("recompute");
  if (has(recompute, "full")) c.recompute = Recompute::full;
  const int per_chunk = count_after(row.text("vpp_setting"), "num-layers-per-virtual-pipeline-stage=");
  const int chunks = count_after(row.text("vpp_setting"), "num-virtual-stages-per-pipeline-rank=");
  if (c.pp > 1 && (per_chunk > 0 || chunks > 0)) {
    c.schedule = Schedule::interleaved;
    c.interleave = chunks > 0 ? chunks : job->workload.layers / c.pp / per_chunk;
  }
  // The last rank writes the log: the last stage's.
  result.predicted = predict_memory_of_stage(plan, c.pp - 1).allocated;
  const double logits = static_cast<double>(c.micro_batch) * job->training.seq_len / c.cp *
                        job->workload.transformer->vocab / c.tp;
  // Megatron's own fused cross entropy is not in place: an fp32 copy more. A deferred weight gradient of the
  // head keeps the gradients of the logits of pp micro-batches.
  if (has(row.text("other_flags"), "cross-entropy-loss-fusion=True") ||
      has(row.text("test_case"), "cross_entropy"))
    result.predicted += 4 * logits;
  if (has(row.text("overlap_flags"), "defer-embedding-wgrad")) result.predicted += 2 * logits * c.pp;
  result.group =
      fmt::format("{}|{}|{}|{}", row.text("model_family"), row.text("gpu"), devices, row.text("golden_file"));
  result.label =
      fmt::format("tp{} pp{} dp{} cp{} ep{} v{} mb{} zero{} {}{}{}", c.tp, c.pp, c.dp, c.cp, c.ep,
                  c.interleave, c.micro_batch, c.zero, name_of(c.recompute), c.sequence_parallel ? " sp" : "",
                  job->training.fused_attention ? "" : " unfused");
  return result;
}

MemoryRow read_korthikanti_row(const CsvTable& table, const CsvRow& fields) {
  const Fields row(table, fields);
  const Configuration* known = nullptr;
  for (const Configuration& configuration : kKorthikanti)
    if (row.text("model") == configuration.name) known = &configuration;
  if (known == nullptr) throw Unreadable{"no configuration of '" + row.text("model") + "'", false};
  auto job = std::make_shared<Job>();
  job->workload = load_workload(std::string(known->catalog));
  job->cluster = with_devices(load_cluster("dgx-a100"), known->tp * known->pp);
  job->runtime = catalog_runtime("megatron-lm-2022");
  job->training.global_batch = known->batch;
  job->training.seq_len = 2048;
  job->training.precision = DType::fp16;
  job->training.fused_attention = false;
  Plan plan;
  plan.job = job;
  Choices& c = plan.choices;
  c.tp = known->tp;
  c.pp = known->pp;
  c.micro_batch = known->micro_batch;
  c.interleave = known->interleave;
  if (c.interleave > 1) c.schedule = Schedule::interleaved;
  const std::string& quantity = row.text("quantity");
  MemoryRow result;
  result.group = row.text("model");
  result.label = quantity;
  const double whole = activations(plan);  // tensor parallelism alone, nothing computed again
  c.sequence_parallel = has(quantity, "sequence");
  if (has(quantity, "selective")) c.recompute = Recompute::selective;
  if (has(quantity, "full")) c.recompute = Recompute::full;
  if (row.text("unit") == "GiB") {
    result.measured = row.real("value") * 1073741824.0;
    result.predicted = has(quantity, "params") ? states(plan) : activations(plan);
  } else {
    result.measured = row.real("value");
    result.predicted = 100 * activations(plan) / whole;
  }
  if (result.measured <= 0) throw Unreadable{"no value", true};
  return result;
}

}  // namespace orrery::planner
