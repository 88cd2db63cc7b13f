// No setting falls through in silence: each that the descriptions of keys have is read with a value that is
// not its default. What changes the plan is then other than without it; everything else is listed with the
// reason that its description asks for, and changes nothing.
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/json.h"
#include "handover/import.h"
#include "handover/keys/known_keys.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

constexpr int kLayers = 24, kDevices = 64;

auto plan_part(const Imported& read) {
  return std::tie(read.pins, read.runtime, read.global_batch, read.accumulation, read.seq_len, read.precision,
                  read.offload, read.offloaded_share, read.optimizer, read.fused_attention, read.tuning);
}

// A setting's value, and what must stand beside it to have an effect: a file's leaves by their dotted names,
// as JSON; of Megatron-LM words.
struct Sample {
  std::string value, beside;
};
using Samples = std::map<std::string, Sample>;

// Tables out of leaves: {"a.b": 1} is {"a": {"b": 1}}.
Json nested(const Json& leaves) {
  Json root = Json::object();
  for (const auto& [name, value] : leaves.items()) {
    Json* at = &root;
    std::string rest = name;
    for (std::size_t dot; (dot = rest.find('.')) != std::string::npos; rest.erase(0, dot + 1))
      at = &(*at)[rest.substr(0, dot)];
    (*at)[rest] = value;
  }
  return root;
}

Json by_type(const std::string& type) {
  if (type == "count") return 3;
  if (type == "number") return 0.25;
  if (type == "flag") return true;
  if (type.starts_with("one:"))
    return type.substr(type.rfind('|') == std::string::npos ? 4 : type.rfind('|') + 1);
  if (type == "list") return Json::array({"some"});
  return "some";
}

std::string without_star(std::string name) {
  for (std::size_t star; (star = name.find('*')) != std::string::npos;) name.replace(star, 1, "some");
  return name;
}

std::string reason_of(KeyEffect effect) {
  switch (effect) {
    case KeyEffect::model:
      return "the workload says what the model is";
    case KeyEffect::runtime:
      return "the runtime profile says it";
    case KeyEffect::none:
      return "changes no time and no memory of a step";
    case KeyEffect::unplanned:
    case KeyEffect::plan:
      break;
  }
  return "";
}

// Lists the setting by its name, with this reason or, where it is empty, one of its own.
bool lists(const Imported& read, const std::string& name, const std::string& reason) {
  for (const std::string& one : read.ignored)
    if (one.starts_with(name + ":") && one.size() > name.size() + 12 &&
        one.find("not known here") == std::string::npos &&
        one.find("has no effect beside") == std::string::npos && one.find(reason) != std::string::npos)
      return true;
  return false;
}

template <class Read>
void walk(const char* system, const Samples& samples, const Read& read) {
  std::set<std::string> left;
  for (const auto& [name, sample] : samples) left.insert(name);
  int honoured = 0;
  for (const KnownKey& key : known_keys(system)) {
    const std::string name = without_star(std::string(key.name)), type(key.type);
    const auto found = samples.find(std::string(key.name));
    left.erase(std::string(key.name));
    const Sample sample = found == samples.end() ? Sample{} : found->second;
    INFO(system << " " << name << " " << sample.value << " beside " << sample.beside);
    const Imported before = read(std::string(), std::string(), type, sample.beside);
    const Imported after = read(name, sample.value, type, sample.beside);
    if (key.effect == KeyEffect::plan) {
      CHECK(plan_part(before) != plan_part(after));
      ++honoured;
    } else {
      CHECK(plan_part(before) == plan_part(after));
      CHECK(lists(after, name, reason_of(key.effect)));
    }
  }
  CHECK(left.empty());  // samples of what is no setting
  CHECK(honoured > 20);
}

// A file with `beside` and the setting.
Json file_of(const std::string& name, const std::string& value, const std::string& type,
             const std::string& beside) {
  Json leaves = parse_json(beside.empty() ? "{}" : beside, "beside");
  if (!name.empty()) leaves[name] = value.empty() ? by_type(type) : parse_json(value, "value");
  return nested(leaves);
}

std::string toml_of(const Json& json) {
  std::string text;
  for (const auto& [table, rows] : json.items())
    for (const auto& [key, value] : rows.items())
      if (value.is_object())
        for (const auto& [below, leaf] : value.items()) {
          if (leaf.is_object())
            for (const auto& [deepest, end] : leaf.items())
              text += table + "." + key + "." + below + "." + deepest + " = " + end.dump() + "\n";
          else
            text += table + "." + key + "." + below + " = " + leaf.dump() + "\n";
        }
      else
        text += table + "." + key + " = " + value.dump() + "\n";
  return text;
}

}  // namespace

TEST_CASE("every setting of DeepSpeed is honoured, or listed with its reason") {
  const Samples samples = {
      {"train_batch_size", {"96", ""}},
      {"gradient_accumulation_steps",
       {"4", R"({"train_batch_size": 96, "train_micro_batch_size_per_gpu": 2})"}},
      {"communication_data_type", {R"("fp32")", ""}},
      {"optimizer.type", {R"("SGD")", ""}},
      {"optimizer.params.momentum", {"0.9", R"({"optimizer.type": "SGD"})"}},
      {"zero_optimization.reduce_bucket_size", {"5e8", ""}},
      {"zero_optimization.offload_param.device", {R"("cpu")", R"({"zero_optimization.stage": 3})"}},
      {"zero_optimization.offload_optimizer.device", {R"("cpu")", R"({"zero_optimization.stage": 2})"}},
      {"zero_optimization.offload_optimizer.ratio",
       {"0.5", R"({"zero_optimization.offload_optimizer.device": "cpu"})"}},
      {"zero_optimization.stage3_max_live_parameters", {"1e9", R"({"zero_optimization.stage": 3})"}},
      {"zero_optimization.mics_shard_size", {"8", R"({"zero_optimization.stage": 3})"}},
      {"expert_parallel.enabled", {"true", R"({"expert_parallel.autoep_size": 4})"}},
      {"expert_parallel.autoep_size", {"4", R"({"expert_parallel.enabled": true})"}},
      {"expert_parallel.expert_tensor_parallel_size", {"2", R"({"expert_parallel.enabled": true})"}},
  };
  walk("deepspeed", samples, [](const auto& name, const auto& value, const auto& type, const auto& beside) {
    return import_deepspeed(file_of(name, value, type, beside).dump(), "ds.json");
  });
}

TEST_CASE("every setting of torchtitan is honoured, or listed with its reason") {
  const std::string stages = R"({"parallelism.pipeline_parallel_degree": 4, "training.local_batch_size": 8})";
  const std::string looped =
      R"({"parallelism.pipeline_parallel_degree": 2, "parallelism.pipeline_parallel_schedule": "Interleaved1F1B"})";
  const Samples samples = {
      {"model.converters", {R"(["quantize.linear.float8"])", ""}},
      {"optimizer.name", {R"("Adam")", ""}},
      {"training.local_batch_size", {"4", ""}},
      {"training.dtype", {R"("bfloat16")", R"({"training.mixed_precision_param": "float32"})"}},
      {"training.mixed_precision_param", {R"("float32")", ""}},
      {"parallelism.data_parallel_replicate_degree", {"2", ""}},
      {"parallelism.data_parallel_shard_degree", {"8", ""}},
      {"parallelism.fsdp_reshard_after_forward", {R"("never")", ""}},
      {"parallelism.tensor_parallel_degree", {"2", ""}},
      {"parallelism.pipeline_parallel_degree", {"2", ""}},
      {"parallelism.context_parallel_degree", {"2", ""}},
      {"parallelism.expert_tensor_parallel_degree",
       {"2", R"({"parallelism.tensor_parallel_degree": 2, "parallelism.expert_parallel_degree": 4})"}},
      {"parallelism.pipeline_parallel_first_stage_less_layers", {"2", stages}},
      {"parallelism.pipeline_parallel_last_stage_less_layers", {"2", stages}},
      {"parallelism.pipeline_parallel_layers_per_stage", {"5", looped}},
      {"parallelism.pipeline_parallel_schedule", {R"("GPipe")", stages}},
      {"parallelism.pipeline_parallel_schedule_csv", {R"("schedule.csv")", stages}},
      {"parallelism.pipeline_parallel_microbatch_size", {"2", stages}},
      {"parallelism.pipeline_parallel_expert_parallel_overlap",
       {"false",
        R"({"parallelism.pipeline_parallel_degree": 2, "parallelism.pipeline_parallel_schedule": "DualPipeV",
            "parallelism.expert_parallel_degree": 4})"}},
      {"parallelism.module_fqns_per_model_part",
       {R"([["tok_embeddings", "layers.0"], ["layers.1", "layers.2", "norm"]])",
        R"({"parallelism.pipeline_parallel_degree": 2})"}},
      {"activation_checkpoint.mode", {R"("full")", ""}},
      {"activation_checkpoint.selective_ac_option", {R"("op")", ""}},
      {"activation_checkpoint.memory_budget", {"0.25", R"({"activation_checkpoint.mode": "memory_budget"})"}},
  };
  walk("torchtitan", samples, [](const auto& name, const auto& value, const auto& type, const auto& beside) {
    return import_torchtitan(toml_of(file_of(name, value, type, beside)), "train.toml", kLayers, kDevices);
  });
}

TEST_CASE("every flag of Megatron-LM is honoured, or listed with its reason") {
  const std::string stages = "--pipeline-model-parallel-size 4";
  const Samples samples = {
      {"--num-experts", {"8", "--tensor-model-parallel-size 2"}},
      {"--sequence-parallel", {"", "--tensor-model-parallel-size 2"}},
      {"--num-virtual-stages-per-pipeline-rank", {"2", stages}},
      {"--num-layers-per-virtual-pipeline-stage", {"3", stages}},
      {"--decoder-first-pipeline-num-layers", {"3", stages}},
      {"--decoder-last-pipeline-num-layers", {"3", stages}},
      {"--account-for-embedding-in-pipeline-split", {"", "--pipeline-model-parallel-size 5"}},
      {"--account-for-loss-in-pipeline-split", {"", "--pipeline-model-parallel-size 5"}},
      {"--pipeline-model-parallel-layout", {"Et*5|t*7|t*6|t*6L", stages}},
      {"--torch-fsdp2-no-reshard-after-forward", {"", "--use-torch-fsdp2"}},
      {"--data-parallel-sharding-strategy", {"optim_grads", "--use-megatron-fsdp"}},
      {"--num-distributed-optimizer-instances", {"2", "--use-distributed-optimizer"}},
      {"--grad-reduce-in-bf16", {"", "--bf16"}},
      {"--accumulate-allreduce-grads-in-fp32", {"", "--fp16"}},
      {"--recompute-method", {"block", "--recompute-granularity full --recompute-num-layers 2"}},
      {"--recompute-num-layers", {"2", "--recompute-granularity full --recompute-method block"}},
      {"--recompute-modules", {"layernorm mlp", "--recompute-granularity selective"}},
      {"--fp8-format", {"hybrid", "--bf16"}},
      {"--fp4-format", {"e2m1", "--bf16"}},
      {"--optimizer", {"sgd", ""}},
      {"--sgd-momentum", {"0", "--optimizer sgd"}},
      {"--attention-backend", {"unfused", ""}},
      {"--clip-grad", {"0", ""}},
      {"--use-precision-aware-optimizer", {"", "--exp-avg-dtype bf16"}},
      {"--exp-avg-dtype", {"bf16", "--use-precision-aware-optimizer"}},
      {"--exp-avg-sq-dtype", {"bf16", "--use-precision-aware-optimizer"}},
      {"--optimizer-offload-fraction", {"0.5", "--optimizer-cpu-offload"}},
  };
  walk("megatron", samples, [](const auto& name, const auto& value, const auto& type, const auto& beside) {
    std::string flags = beside + " " + name;
    if (!name.empty() && type != "flag") {
      const Json made = by_type(type);
      flags += " " + (!value.empty()     ? value
                      : made.is_array()  ? std::string("some")
                      : made.is_string() ? made.template get<std::string>()
                                         : made.dump());
    }
    return import_megatron(flags, kLayers, kDevices);
  });
}

TEST_CASE("every setting of NeMo is honoured, or listed with its reason") {
  // A recipe; a file without a strategy would be of another release.
  const std::string recipe = R"("trainer.strategy.progress_interval": 1)";
  const auto beside = [&](const std::string& more) {
    return "{" + recipe + (more.empty() ? "" : ", ") + more + "}";
  };
  const std::string stages = R"("trainer.strategy.pipeline_model_parallel_size": 4)";
  const std::string five = R"("trainer.strategy.pipeline_model_parallel_size": 5)";
  const std::string fsdp = R"("trainer.strategy.fsdp": "megatron")";
  const std::string lora = R"("peft._target_": "nemo.collections.llm.peft.lora.LoRA")";
  Samples samples = {
      {"trainer.strategy.sequence_parallel", {"true", R"("trainer.strategy.tensor_model_parallel_size": 2)"}},
      {"trainer.strategy.num_layers_in_first_pipeline_stage", {"3", stages}},
      {"trainer.strategy.num_layers_in_last_pipeline_stage", {"3", stages}},
      {"trainer.strategy.virtual_pipeline_model_parallel_size", {"2", stages}},
      {"trainer.strategy.account_for_embedding_in_pipeline_split", {"true", five}},
      {"trainer.strategy.account_for_loss_in_pipeline_split", {"true", five}},
      {"trainer.strategy.pipeline_model_parallel_layout", {R"("Et*5|t*7|t*6|t*6L")", stages}},
      {"trainer.strategy.num_distributed_optimizer_instances",
       {"2", R"("optim.config.use_distributed_optimizer": true)"}},
      {"trainer.strategy.ddp.num_distributed_optimizer_instances",
       {"2", R"("optim.config.use_distributed_optimizer": true)"}},
      {"trainer.strategy.ddp.grad_reduce_in_fp32", {"false", ""}},
      {"trainer.strategy.ddp.data_parallel_sharding_strategy", {R"("optim_grads")", fsdp}},
      {"trainer.plugins.grad_reduce_in_fp32", {"false", ""}},
      {"trainer.plugins.precision", {R"("16-mixed")", ""}},
      {"trainer.plugins.fp8", {R"("hybrid")", ""}},
      {"trainer.precision", {R"("bf16-mixed")", ""}},
      {"model.config.fp8", {R"("hybrid")", ""}},
      {"model.config.recompute_granularity", {R"("selective")", ""}},
      {"model.config.recompute_modules",
       {R"(["layernorm"])", R"("model.config.recompute_granularity": "selective")"}},
      {"model.config.recompute_method",
       {R"("block")",
        R"("model.config.recompute_granularity": "full", "model.config.recompute_num_layers": 2)"}},
      {"model.config.recompute_num_layers",
       {"2", R"("model.config.recompute_granularity": "full", "model.config.recompute_method": "block")"}},
      {"model.config.num_moe_experts", {"8", R"("trainer.strategy.tensor_model_parallel_size": 2)"}},
      {"model.config.attention_backend", {R"("unfused")", ""}},
      {"model.config.gradient_accumulation_fusion", {"false", ""}},
      {"model.config.overlap_p2p_comm", {"false", ""}},
      {"model.config.cpu_offloading", {"true", R"("model.config.cpu_offloading_num_layers": 3)"}},
      {"model.config.cpu_offloading_num_layers", {"3", R"("model.config.cpu_offloading": true)"}},
      {"optim.config.optimizer", {R"("sgd")", ""}},
      {"optim.config.sgd_momentum", {"0.0", R"("optim.config.optimizer": "sgd")"}},
      {"optim.config.use_precision_aware_optimizer", {"true", R"("optim.config.exp_avg_dtype": "bf16")"}},
      {"optim.config.exp_avg_dtype", {R"("bf16")", R"("optim.config.use_precision_aware_optimizer": true)"}},
      {"optim.config.exp_avg_sq_dtype",
       {R"("torch.bfloat16")", R"("optim.config.use_precision_aware_optimizer": true)"}},
      {"optim.config.optimizer_offload_fraction", {"0.5", R"("optim.config.optimizer_cpu_offload": true)"}},
      {"peft._target_", {R"("nemo.collections.llm.peft.lora.LoRA")", ""}},
      {"peft.dim", {"16", lora}},
      {"peft.alpha", {"64", lora}},
      {"peft.target_modules", {R"(["linear_qkv"])", lora}},
  };
  for (auto& [name, sample] : samples) sample.beside = beside(sample.beside);
  walk("nemo", samples, [&](const auto& name, const auto& value, const auto& type, const auto& said) {
    return import_nemo(file_of(name, value, type, said.empty() ? beside("") : said).dump(), "recipe.yaml",
                       kLayers, kDevices);
  });
}
