// NeMo's YAML files. Their settings are Megatron Core's under the same or other names, and are read as its
// flags are (import.cc).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "handover/import.h"
#include "handover/settings.h"

namespace orrery::planner {
namespace {

// Where each dialect keeps what it says.
struct Places {
  std::string parallel, model, batch, sequence, ddp, optimizer, adapters;
  bool old = false;  // NeMo 1
};

Places places_of(const Settings& s, const std::string& file) {
  if (s.has_under("trainer.strategy") || s.has_under("model.config"))
    return {"trainer.strategy.",
            "model.config.",
            "data.",
            s.one_of({"data.seq_length", "model.config.seq_length"}),
            "trainer.strategy.ddp.",
            "optim.config.",
            "peft."};
  if (s.has_under("train") && s.has_under("model"))
    return {"model.", "model.",
            "train.", s.one_of({"dataset.sequence_length", "dataset.seq_length", "model.seq_length"}),
            "ddp.",   "optimizer.",
            "peft."};
  if (s.has_under("model"))
    return {
        "model.",
        "model.",
        "model.",
        s.one_of({"model.encoder_seq_length", "model.data.train_ds.max_seq_length", "model.data.seq_length"}),
        "model.optim.",
        "model.optim.",
        "model.peft.lora_tuning.",
        true};
  throw UserError(file, 0, "says neither trainer.strategy nor model",
                  "expected a recipe of NeMo's or Megatron Bridge's configuration");
}

class Nemo {
 public:
  Nemo(Settings settings, const std::string& file, int layers, int devices)
      : s_(std::move(settings)), file_(file), at_(places_of(s_, file)), layers_(layers), devices_(devices) {}

  Imported run() {
    read_parallelism();
    read_batch();
    if (at_.old) {
      read_old_sharding();
    } else {
      read_sharding();
    }
    read_recomputation();
    read_runtime();
    Imported result = import_megatron_words(words_, layers_, devices_, file_);
    result.software = "nemo";
    // What a number that is not a default says of the precision stands in several places.
    result.precision = precision();
    if (const auto name = s_.text(at_.optimizer + (at_.old ? "name" : "optimizer"))) {
      const auto momentum = s_.number(at_.optimizer + (at_.old ? "momentum" : "sgd_momentum"));
      const bool still = at_.old ? momentum.value_or(0) == 0 : momentum.value_or(0.9) == 0;
      const bool sgd = name->find("sgd") != std::string::npos;
      result.optimizer = !sgd ? Optimizer::adam : still ? Optimizer::sgd : Optimizer::momentum;
      if (!sgd && name->find("adam") == std::string::npos && !name->starts_with("mcore"))
        more_ignored_.push_back(fmt::format("{}: {} is not planned, Adam is",
                                            at_.optimizer + (at_.old ? "name" : "optimizer"),
                                            name->substr(0, 40)));
    }
    result.tuning = adapters();
    result.dimensions = dimensions();
    result.ignored.insert(result.ignored.end(), more_ignored_.begin(), more_ignored_.end());
    s_.tell_rest("nemo", &result);
    return result;
  }

 private:
  void add(const char* flag) { words_.emplace_back(flag); }
  void add(const char* flag, const std::string& value) {
    words_.emplace_back(flag);
    words_.push_back(value);
  }
  void count(const std::string& name, const char* flag) {
    if (const auto value = s_.count(name)) add(flag, std::to_string(*value));
  }
  void flag(const std::string& name, const char* flag) {
    if (s_.flag(name).value_or(false)) add(flag);
  }

  // "flash", or {_target_: megatron.core.transformer.enums.AttnBackend.flash, _call_: false}: the last part.
  std::optional<std::string> named(const std::string& name) {
    auto said = s_.text(s_.has(name + "._target_") ? name + "._target_" : name);
    if (said && said->rfind('.') != std::string::npos) said->erase(0, said->rfind('.') + 1);
    if (s_.has(name + "._call_")) s_.flag(name + "._call_");
    return said;
  }

  // "bfloat16" or "torch.bfloat16", as a flag has it.
  void type(const std::string& name, const char* flag) {
    const auto said = named(name);
    if (!said) return;
    add(flag, *said == "float32"    ? "fp32"
              : *said == "bfloat16" ? "bf16"
              : *said == "float16"  ? "fp16"
              : *said == "uint8"    ? "fp8"
                                    : *said);
  }

  // What is on unless a file says no.
  void unless(const std::string& name, const char* flag) {
    if (!s_.flag(name).value_or(true)) add(flag);
  }

  void read_runtime() {
    const std::string& m = at_.model;
    const std::string& o = at_.optimizer;
    flag(m + "tp_comm_overlap", "--tp-comm-overlap");
    if (at_.old) flag(m + "ub_tp_comm_overlap", "--tp-comm-overlap");
    flag(m + "cross_entropy_loss_fusion", "--cross-entropy-loss-fusion");
    unless(m + "gradient_accumulation_fusion", "--no-gradient-accumulation-fusion");
    unless(m + "overlap_p2p_comm", "--no-overlap-p2p-communication");
    flag(m + "overlap_moe_expert_parallel_comm", "--overlap-moe-expert-parallel-comm");
    // Layers say how much only where it is on.
    const auto layers = s_.count(m + "cpu_offloading_num_layers", 0);
    if (s_.flag(m + "cpu_offloading").value_or(false)) {
      if (layers)
        add("--cpu-offloading-num-layers", std::to_string(*layers));
      else
        more_ignored_.push_back(m +
                                "cpu_offloading: says not of how many layers (cpu_offloading_num_layers)");
    } else if (layers) {
      more_ignored_.push_back(m + "cpu_offloading_num_layers: says something with cpu_offloading alone");
    }
    for (const std::string& name : {std::string("trainer.gradient_clip_val"), o + "clip_grad"})
      if (const auto norm = s_.number(name)) add("--clip-grad", fmt::format("{}", *norm));
    if (at_.old) return;
    flag(o + "use_precision_aware_optimizer", "--use-precision-aware-optimizer");
    type(o + "exp_avg_dtype", "--exp-avg-dtype");
    type(o + "exp_avg_sq_dtype", "--exp-avg-sq-dtype");
    flag(o + "optimizer_cpu_offload", "--optimizer-cpu-offload");
    if (const auto share = s_.number(o + "optimizer_offload_fraction"))
      add("--optimizer-offload-fraction", fmt::format("{}", *share));
  }

  void read_parallelism() {
    const std::string& p = at_.parallel;
    flag(p + "account_for_embedding_in_pipeline_split", "--account-for-embedding-in-pipeline-split");
    flag(p + "account_for_loss_in_pipeline_split", "--account-for-loss-in-pipeline-split");
    count(p + "tensor_model_parallel_size", "--tensor-model-parallel-size");
    count(p + "pipeline_model_parallel_size", "--pipeline-model-parallel-size");
    count(p + "virtual_pipeline_model_parallel_size", "--num-virtual-stages-per-pipeline-rank");
    count(p + "context_parallel_size", "--context-parallel-size");
    count(p + "expert_model_parallel_size", "--expert-model-parallel-size");
    count(p + "expert_tensor_parallel_size", "--expert-tensor-parallel-size");
    count(p + "num_layers_in_first_pipeline_stage", "--decoder-first-pipeline-num-layers");
    count(p + "num_layers_in_last_pipeline_stage", "--decoder-last-pipeline-num-layers");
    count(p + "num_distributed_optimizer_instances", "--num-distributed-optimizer-instances");
    read_sequence_parallelism();
    flag(p + "use_tp_pp_dp_mapping", "--use-tp-pp-dp-mapping");
    if (const std::string name = p + "pipeline_model_parallel_layout"; s_.has(name)) {
      if (const auto layout = s_.text(name)) add("--pipeline-model-parallel-layout", *layout);
    }
    if (const std::string name = at_.model + "moe_expert_capacity_factor"; s_.has(name)) {
      if (const auto factor = s_.number(name))
        add("--moe-expert-capacity-factor", fmt::format("{}", *factor));
    }
    for (const char* experts : {"num_moe_experts", "num_experts"})
      if (s_.has(at_.model + experts)) count(at_.model + experts, "--num-experts");
    if (const auto backend = named(at_.model + "attention_backend")) add("--attention-backend", *backend);
  }

  // NeMo 1 turns it off where there is one tensor rank; Megatron Core's own settings, which the others hand
  // it, are refused by it.
  void read_sequence_parallelism() {
    const std::string name = at_.parallel + "sequence_parallel";
    if (!s_.flag(name).value_or(false)) return;
    if (s_.count(at_.parallel + "tensor_model_parallel_size").value_or(1) > 1)
      add("--sequence-parallel");
    else if (at_.old)
      more_ignored_.push_back(name + ": NeMo turns it off where there is one tensor rank");
    else
      s_.refuse(name, "false where tensor_model_parallel_size is 1");
  }

  void read_batch() {
    count(at_.batch + "micro_batch_size", "--micro-batch-size");
    count(at_.batch + "global_batch_size", "--global-batch-size");
    if (const auto tokens = s_.count(at_.sequence)) add("--seq-length", std::to_string(*tokens));
    if (s_.has(at_.batch + "rampup_batch_size"))
      s_.ignore(at_.batch + "rampup_batch_size", "planned is the full batch");
    // What recipes say of what Megatron counts itself; another number is listed as not planned.
    if (constexpr const char* kAgain = "trainer.accumulate_grad_batches"; s_.peek(kAgain) == 1)
      s_.ignore(kAgain, "changes no time and no memory of a step");
    // Said twice.
    for (const char* again : {"model.config.seq_length", "model.seq_length", "data.seq_length"})
      if (again != at_.sequence) s_.ignore(again, "the data's sequences count");
    for (const char* again : {"data.global_batch_size", "data.micro_batch_size"})
      if (at_.batch != "data.") s_.ignore(again, "the training's batch counts");
  }

  void read_sharding() {
    const std::string& d = at_.ddp;
    const std::string& p = at_.parallel;
    const bool distributed = s_.flag(d + "use_distributed_optimizer").value_or(false);
    const bool also = s_.flag(at_.optimizer + "use_distributed_optimizer").value_or(false);
    if (distributed || also) add("--use-distributed-optimizer");
    bool fsdp = false;
    for (const char* name : {"use_megatron_fsdp", "use_custom_fsdp"})
      if (s_.flag(d + name).value_or(false)) fsdp = true;
    if (p != "model.") {
      if (const auto kind = s_.text(p + "fsdp")) fsdp = fsdp || *kind == "megatron" || *kind == "pytorch";
    }
    const auto strategy = s_.has(d + "data_parallel_sharding_strategy")
                              ? s_.text(d + "data_parallel_sharding_strategy")
                              : std::nullopt;
    if (fsdp) {
      add("--use-megatron-fsdp");
      if (strategy) add("--data-parallel-sharding-strategy", *strategy);
    }
    flag(d + "overlap_grad_reduce", "--overlap-grad-reduce");
    flag(d + "overlap_param_gather", "--overlap-param-gather");
    if (p != d) count(d + "num_distributed_optimizer_instances", "--num-distributed-optimizer-instances");
    if (const auto elements = s_.count(d + "bucket_size", 1, std::numeric_limits<int>::max()))
      add("--ddp-bucket-size", std::to_string(*elements));
    const bool fp32 = s_.flag(d + "grad_reduce_in_fp32").value_or(true);
    const bool plugin = s_.flag("trainer.plugins.grad_reduce_in_fp32").value_or(true);
    if (!fp32 || !plugin) add("--grad-reduce-in-bf16");
  }

  void read_old_sharding() {
    const std::string name = s_.has("model.optim.name") ? s_.text("model.optim.name").value_or("") : "";
    if (name.starts_with("distributed") || name == "mcore_distributed_optim") {
      add("--use-distributed-optimizer");
      const bool overlap = s_.flag("model.optim.overlap_grad_sync").value_or(true);
      if (overlap) add("--overlap-grad-reduce");
      if (s_.flag("model.optim.overlap_param_sync").value_or(false)) add("--overlap-param-gather");
    } else {
      s_.ignore("model.optim.overlap_grad_sync", "only the distributed optimizer overlaps");
    }
    if (s_.flag("model.fsdp").value_or(false)) {
      add("--use-megatron-fsdp");
      const std::string strategy = s_.text("model.fsdp_sharding_strategy").value_or("full");
      if (strategy != "full" && strategy != "hybrid" && strategy != "grad")
        s_.refuse("model.fsdp_sharding_strategy", "full, hybrid or grad");
      add("--data-parallel-sharding-strategy", strategy == "grad" ? "optim_grads" : "optim_grads_params");
      if (strategy == "hybrid")
        more_ignored_.emplace_back(
            "model.fsdp_sharding_strategy hybrid: groups are nodes; say --shard-group, planned is over all");
    } else {
      s_.ignore("model.fsdp_sharding_strategy", "FSDP is off");
    }
  }

  void read_recomputation() {
    const std::string& m = at_.model;
    const auto name = [&](const char* now, const char* old) { return m + (at_.old ? old : now); };
    const auto kind = s_.text(name("recompute_granularity", "activations_checkpoint_granularity"));
    const auto method = s_.text(name("recompute_method", "activations_checkpoint_method"));
    const auto layers = s_.count(name("recompute_num_layers", "activations_checkpoint_num_layers"));
    const auto modules = at_.old ? std::nullopt : s_.list(m + "recompute_modules");
    if (!kind) {
      for (const auto& [name, there] : {std::pair{"method", method.has_value()},
                                        {"num_layers", layers.has_value()},
                                        {"modules", modules.has_value()}})
        if (there) more_ignored_.push_back(fmt::format("{}recompute_{}: nothing is recomputed", m, name));
      return;
    }
    add("--recompute-granularity", *kind);
    if (modules && *kind == "selective") {
      add("--recompute-modules");
      words_.insert(words_.end(), modules->begin(), modules->end());
    } else if (modules) {
      more_ignored_.push_back(m + "recompute_modules: whole layers are recomputed");
    }
    if (method) add("--recompute-method", *method);
    if (layers) add("--recompute-num-layers", std::to_string(*layers));
  }

  // trainer.precision and its plugin's, "bf16-mixed", 16, "bf16_with_fp8_delayed_scaling_mixed".
  std::optional<DType> precision() {
    std::optional<DType> found;
    for (const char* name : {"trainer.precision", "trainer.plugins.precision", "mixed_precision"}) {
      if (!s_.has(name)) continue;
      const std::string said = s_.text(name).value_or("");
      if (said.find("fp8") != std::string::npos)
        found = DType::fp8;
      else if (said.find("fp4") != std::string::npos)
        found = DType::fp4;
      else if (said.find("bf16") != std::string::npos)
        found = DType::bf16;
      else if (said.find("16") != std::string::npos)
        found = DType::fp16;
      else if (said.find("32") != std::string::npos)
        found = DType::fp32;
      else
        s_.refuse(name, "bf16, 16 or 32, mixed or not");
    }
    for (const char* narrow : {"trainer.plugins.fp8", "model.config.fp8", "model.fp8", "mixed_precision.fp8"})
      if (s_.has(narrow)) {
        if (at_.old ? s_.flag(narrow).value_or(false) : s_.text(narrow).has_value()) found = DType::fp8;
      }
    return found;
  }

  // "hidden_size" is --hidden-size.
  std::vector<SaidDimension> dimensions() const {
    std::vector<SaidDimension> said;
    for (const auto& [flag, field] : dimension_flags()) {
      std::string name = at_.model + std::string(flag.substr(2));
      std::replace(name.begin(), name.end(), '-', '_');
      if (const auto value = s_.peek(name)) said.push_back({name, field, *value});
    }
    return said;
  }

  std::optional<FineTuning> adapters() {
    const std::string kind_name = at_.old ? "model.peft.peft_scheme" : "peft._target_";
    if (!s_.has(kind_name)) return std::nullopt;
    std::string kind = s_.text(kind_name).value_or("");
    kind = lower_case(kind.substr(kind.rfind('.') == std::string::npos ? 0 : kind.rfind('.') + 1));
    if (kind == "none" || kind.empty()) return std::nullopt;
    if (kind != "lora" && kind != "dora" && kind != "canonicallora")
      s_.refuse(kind_name, "low-rank adapters (lora, dora)");
    FineTuning tuning;
    tuning.dora = kind == "dora";
    const std::string rank = at_.adapters + (at_.old ? "adapter_dim" : "dim");
    tuning.rank = s_.count(rank).value_or(32);
    if (tuning.rank > kLargestAdapterRank) s_.refuse(rank, fmt::format("at most {}", kLargestAdapterRank));
    const std::string alpha = at_.adapters + "alpha";
    if (s_.has(alpha)) {
      // "${model.peft.lora_tuning.adapter_dim}" is a number elsewhere.
      const std::optional<double> said = number_or_reference(alpha, tuning.rank);
      if (!(*said > 0)) s_.refuse(alpha, "a number above 0");
      tuning.alpha = *said;
    } else if (!at_.old) {
      tuning.alpha = 32;
    }
    tuning.targets = static_cast<std::uint8_t>(at_.old ? kQuery | kKey | kValue : +kAllProjections);
    const std::string modules = at_.adapters + "target_modules";
    if (const auto list = s_.list(modules)) tuning.targets = targets_of(*list, modules);
    return tuning;
  }

  std::optional<double> number_or_reference(const std::string& name, int referred) {
    if (s_.is_reference(name)) {
      s_.text(name);
      return referred;
    }
    return s_.number(name);
  }

  std::uint8_t targets_of(const std::vector<std::string>& list, const std::string& modules) {
    static const std::vector<std::pair<std::string_view, std::string_view>> old = {
        {"attention_qkv", "qkv"},
        {"attention_dense", "linear_proj"},
        {"mlp_fc1", "linear_fc1"},
        {"mlp_fc2", "linear_fc2"},
        {"attention", "qkv,linear_proj"},
        {"mlp", "linear_fc1,linear_fc2"},
        {"linear_q", "q"},
        {"linear_k", "k"},
        {"linear_v", "v"},
        {"linear_fc1_gate", "gate"},
        {"linear_fc1_up", "up"},
        {"all", "all"},
    };
    std::uint8_t targets = 0;
    for (std::string name : list) {
      for (const auto& [theirs, ours] : old)
        if (name == theirs) name = ours;
      try {
        targets |= projections_from(name);
      } catch (const UserError&) {
        more_ignored_.push_back(
            fmt::format("{}: {} is no projection that is known", modules, name.substr(0, 40)));
      }
    }
    if (targets == 0) s_.refuse(modules, "linear_qkv, linear_proj, linear_fc1, linear_fc2");
    return targets;
  }

  Settings s_;
  std::string file_;
  Places at_;
  int layers_, devices_;
  std::vector<std::string> words_, more_ignored_;
};

}  // namespace

Imported import_nemo(std::string_view text, const std::string& file, int layers, int devices) {
  return Nemo(Settings::from_yaml(text, file), file, layers, devices).run();
}

}  // namespace orrery::planner
