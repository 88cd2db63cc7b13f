#include "handover/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/parse.h"
#include "handover/keys/known_keys.h"
#include "handover/settings.h"
#include "planner/space/balance.h"
#include "planner/space/tensor_overlap.h"

namespace orrery::planner {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  auto words = shell_words(text);
  if (!words)
    throw UserError("`from_megatron`: a quotation does not end", "expected a shell-quoted argument list");
  return *std::move(words);
}

constexpr std::array<DimensionFlag, 7> kDimensions = {{{"--num-layers", &Transformer::layers},
                                                       {"--hidden-size", &Transformer::hidden},
                                                       {"--ffn-hidden-size", &Transformer::ffn_hidden},
                                                       {"--num-attention-heads", &Transformer::heads},
                                                       {"--num-query-groups", &Transformer::kv_heads},
                                                       {"--kv-channels", &Transformer::head_dim},
                                                       {"--vocab-size", &Transformer::vocab}}};

constexpr int kMostCount = 1 << 24;
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

class Megatron {
 public:
  Megatron(std::vector<std::string> words, int layers, int devices, std::string source)
      : source_(std::move(source)), words_(std::move(words)), layers_(layers), devices_(devices) {
    result_.software = "megatron-core";
    // What Megatron-LM does unless told otherwise.
    Pins& p = result_.pins;
    p.tp = p.pp = p.cp = 1;
    p.sequence_parallel = false;
    p.recompute = Recompute::none;
    p.recompute_layers = 0;
    p.recompute_modules = 0;
    p.overlap_grad_reduce = p.overlap_experts = false;
  }

  Imported run() {
    for (const std::string& word : words_) result_.read += word.starts_with("--") ? 1 : 0;
    while (at_ < words_.size()) read(words_[at_++]);
    finish();
    return std::move(result_);
  }

 private:
  std::int64_t whole(const std::string& text, const std::string& flag, std::int64_t most,
                     std::int64_t least = 1) const {
    const auto value = parse_whole(text);
    if (!value || *value < least || *value > most)
      throw UserError(fmt::format("{}: {} has the value '{}'", source_, flag, text),
                      fmt::format("expected a whole number from {} to {}", least, most));
    return *value;
  }

  bool has_value() const { return at_ < words_.size() && !words_[at_].starts_with("--"); }

  std::string value(const std::string& flag) {
    if (inline_) return *std::exchange(inline_, std::nullopt);
    if (!has_value())
      throw UserError(fmt::format("{}: {} without its value", source_, flag), "expected a value after it");
    return words_[at_++];
  }
  int count(const std::string& flag) { return static_cast<int>(whole(value(flag), flag, kMostCount)); }

  void read(std::string flag) {
    inline_.reset();
    if (const auto equals = flag.find('='); flag.starts_with("--") && equals != std::string::npos) {
      inline_ = flag.substr(equals + 1);
      flag.resize(equals);
    }
    Pins& p = result_.pins;
    if (flag == "--tensor-model-parallel-size")
      p.tp = count(flag);
    else if (flag == "--pipeline-model-parallel-size")
      p.pp = count(flag);
    else if (flag == "--context-parallel-size")
      p.cp = count(flag);
    else if (flag == "--num-experts")
      result_.experts = count(flag);
    else if (flag == "--expert-model-parallel-size")
      p.ep = count(flag);
    else if (flag == "--expert-tensor-parallel-size")
      p.etp = count(flag);
    else if (flag == "--micro-batch-size")
      p.micro_batch = count(flag);
    else if (flag == "--global-batch-size")
      result_.global_batch = whole(value(flag), flag, kMostCount);
    else if (flag == "--seq-length" || flag == "--encoder-seq-length")
      result_.seq_len = count(flag);
    else if (flag == "--sequence-parallel")
      p.sequence_parallel = true;
    else if (flag == "--num-virtual-stages-per-pipeline-rank")
      p.interleave = count(flag);
    else if (flag == "--num-layers-per-virtual-pipeline-stage")
      layers_of_chunk_ = count(flag);
    else if (flag == "--decoder-first-pipeline-num-layers")
      first_layers_ = count(flag);
    else if (flag == "--decoder-last-pipeline-num-layers")
      last_layers_ = count(flag);
    else if (flag == "--pipeline-model-parallel-layout")
      layout_ = value(flag);
    else if (flag == "--use-distributed-optimizer")
      distributed_ = true;
    else if (flag == "--use-megatron-fsdp")
      fsdp_ = true;
    else if (flag == "--use-torch-fsdp2")
      torch_fsdp_ = true;
    else if (flag == "--data-parallel-sharding-strategy")
      strategy_ = value(flag);
    else if (flag == "--num-distributed-optimizer-instances")
      instances_ = count(flag);
    else if (flag == "--overlap-grad-reduce")
      p.overlap_grad_reduce = true;
    else if (flag == "--torch-fsdp2-no-reshard-after-forward")
      keeps_gathered_ = true;
    else if (flag == "--account-for-embedding-in-pipeline-split")
      embedding_counts_ = 1;
    else if (flag == "--account-for-loss-in-pipeline-split")
      loss_counts_ = 1;
    else if (flag == "--overlap-moe-expert-parallel-comm")
      p.overlap_experts = true;
    else if (flag == "--ddp-bucket-size")
      bucket_elements_ = whole(value(flag), flag, kMostElements);
    else if (flag == "--grad-reduce-in-bf16")
      gradient_bytes_ = 2;
    else if (flag == "--accumulate-allreduce-grads-in-fp32")
      in_fp32_ = true;
    else if (flag == "--recompute-granularity")
      granularity_ = value(flag);
    else if (flag == "--recompute-activations")
      granularity_ = "selective";
    else if (flag == "--recompute-method")
      method_ = value(flag);
    else if (flag == "--recompute-num-layers")
      recomputed_ = count(flag);
    else if (flag == "--use-tp-pp-dp-mapping")
      p.order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::pp, Dimension::dp};
    else if (flag == "--bf16")
      result_.precision = result_.precision.value_or(DType::bf16);
    else if (flag == "--fp16")
      result_.precision = DType::fp16;
    else if (flag == "--fp8-format")
      value(flag), result_.precision = DType::fp8;
    else if (flag == "--fp4-format")
      value(flag), result_.precision = DType::fp4;
    else if (flag == "--optimizer")
      read_optimizer(value(flag));
    else if (flag == "--sgd-momentum")
      still_ = parse_number(value(flag)).value_or(0.9) == 0;
    else if (flag == "--attention-backend")
      read_attention(value(flag));
    else if (flag == "--cp-comm-type")
      read_exchange();
    else if (flag == "--use-flash-attn")
      result_.fused_attention = true;
    else if (flag == "--moe-expert-capacity-factor")
      p.capacity_factor = factor(flag);
    else if (!read_runtime(flag))
      ignore(flag);
  }

  // What the runtime profile has a field for.
  bool read_runtime(const std::string& flag) {
    ImportedRuntime& r = result_.runtime;
    if (flag == "--overlap-param-gather")
      r.overlap_param_gather = true;
    else if (flag == "--clip-grad")
      r.clip_gradients = number(flag, 0) > 0;
    else if (flag == "--tp-comm-overlap")
      r.overlap_tensor = true;
    else if (flag == "--no-overlap-p2p-communication")
      r.overlap_pipeline = false;
    else if (flag == "--no-gradient-accumulation-fusion")
      r.fused_gradient_accumulation = false;
    else if (flag == "--cross-entropy-loss-fusion")
      r.fused_loss = true;
    else if (flag == "--use-precision-aware-optimizer")
      narrow_moments_ = true;
    else if (flag == "--exp-avg-dtype" || flag == "--exp-avg-sq-dtype")
      moments_[flag == "--exp-avg-dtype" ? 0 : 1] = bytes_of_moment(flag, value(flag));
    else if (flag == "--optimizer-cpu-offload")
      result_.offload = Offload::optimizer;
    else if (flag == "--optimizer-offload-fraction")
      offloaded_ = number(flag, 1);
    else if (flag == "--cpu-offloading-num-layers")
      r.host_activation_layers = static_cast<int>(whole(value(flag), flag, kMostCount, 0));
    else if (flag == "--recompute-modules")
      read_modules();
    else
      return false;
    return true;
  }

  void read_optimizer(const std::string& name) {
    if (name == "sgd")
      result_.optimizer = Optimizer::momentum;
    else
      result_.optimizer = Optimizer::adam;
    if (name != "sgd" && name != "adam")
      result_.ignored.push_back(fmt::format("--optimizer: {} is not planned, Adam is", name.substr(0, 40)));
  }

  void read_attention(const std::string& backend) {
    if (backend != "flash" && backend != "fused" && backend != "unfused" && backend != "local" &&
        backend != "auto")
      throw UserError(fmt::format("{}: --attention-backend has the value '{}'", source_, backend),
                      "expected flash, fused, unfused, local or auto");
    result_.fused_attention = backend != "unfused" && backend != "local";
  }

  // Of context ranks, by layer where there are several: the ring is what is planned.
  void read_exchange() {
    bool ring = true;
    do {
      ring = value("--cp-comm-type") == "p2p" && ring;
    } while (has_value());
    if (ring) return;
    result_.ignored.push_back(ignored_because("megatron", "--cp-comm-type"));
    --result_.read;
  }

  double bytes_of_moment(const std::string& flag, const std::string& type) const {
    if (type == "fp32") return 4;
    if (type == "fp16" || type == "bf16") return 2;
    if (type == "fp8") return 1;
    throw UserError(fmt::format("{}: {} has the value '{}'", source_, flag, type),
                    "expected fp32, fp16, bf16 or fp8");
  }

  // Those that are planned; the others are said to be ignored.
  void read_modules() {
    ModuleSet planned = 0;
    while (inline_ || has_value()) {
      const std::string name = value("--recompute-modules");
      planned |= module_bit(name);
      if (module_bit(name) == 0)
        result_.ignored.push_back(fmt::format(
            "--recompute-modules: changes time or memory, and is not planned ({})", name.substr(0, 40)));
    }
    if (planned != 0) modules_ = planned;
  }

  double number(const std::string& flag, double most) {
    const std::string text = value(flag);
    const auto found = parse_number(text);
    if (!found || !(*found >= 0) || (most > 0 && *found > most))
      throw UserError(fmt::format("{}: {} has the value '{}'", source_, flag, text),
                      most > 0 ? "expected a share from 0 to 1" : "expected a number from 0");
    return *found;
  }

  double factor(const std::string& flag) {
    const std::string text = value(flag);
    const auto number = parse_number(text);
    if (!number || !(*number > 0) || *number > 1e6)
      throw UserError(fmt::format("{}: {} has the value '{}'", source_, flag, text),
                      "expected a positive number");
    return *number;
  }

  void ignore(const std::string& flag) {
    result_.ignored.push_back(ignored_because("megatron", flag));
    if (flag.starts_with("--")) --result_.read;
    if (const std::string meant = misspelt_plan_setting("megatron", flag); !meant.empty())
      result_.misspelt.push_back({flag, meant});
    for (const auto& [name, field] : kDimensions)
      if (name == flag && (inline_ || has_value()))
        if (const auto said = parse_whole(inline_ ? *inline_ : words_[at_]))
          result_.dimensions.push_back({flag, field, *said});
    while (flag.starts_with("--") && !inline_ && has_value()) ++at_;
  }

  void finish() {
    Pins& p = result_.pins;
    if (strategy_ && *strategy_ != "no_shard" && *strategy_ != "optim" && *strategy_ != "optim_grads" &&
        *strategy_ != "optim_grads_params")
      throw UserError(fmt::format("{}: --data-parallel-sharding-strategy {}", source_, *strategy_),
                      "expected no_shard, optim, optim_grads or optim_grads_params");
    const std::string strategy = strategy_.value_or("optim_grads_params");
    p.zero = fsdp_          ? (strategy == "no_shard"      ? 0
                               : strategy == "optim"       ? 1
                               : strategy == "optim_grads" ? 2
                                                           : 3)
             : torch_fsdp_  ? (keeps_gathered_ ? 2 : 3)
             : distributed_ ? 1
                            : 0;
    if (keeps_gathered_ && !torch_fsdp_)
      result_.ignored.emplace_back(
          "--torch-fsdp2-no-reshard-after-forward: says something of --use-torch-fsdp2 alone");
    if (strategy_ && !fsdp_)
      result_.ignored.emplace_back(
          "--data-parallel-sharding-strategy: says something of --use-megatron-fsdp alone");
    // arguments.py: sequence_parallel of one tensor rank is set to False, with a warning.
    if (*p.tp == 1 && *p.sequence_parallel) {
      p.sequence_parallel = false;
      result_.ignored.emplace_back(
          "--sequence-parallel: Megatron-LM turns it off where there is one tensor rank");
    }
    read_types();
    if (bucket_elements_) p.bucket_bytes = static_cast<double>(*bucket_elements_) * gradient_bytes_;
    // Experts are split as the rest is unless told otherwise (core/model_parallel_config.py:130).
    if ((result_.experts || p.ep.value_or(1) > 1) && !p.etp) p.etp = p.tp;
    if (still_ && result_.optimizer == Optimizer::momentum) result_.optimizer = Optimizer::sgd;
    read_instances();
    const int pp = *p.pp;
    if (layers_of_chunk_ && pp > 1 && layers_ % (pp * *layers_of_chunk_) == 0)
      p.interleave = layers_ / pp / *layers_of_chunk_;
    if (layout_) read_layout();
    if ((first_layers_ || last_layers_) && pp > 1) read_ends();
    if (embedding_counts_ + loss_counts_ > 0) read_counted_ends();
    if (pp > 1) p.schedule = p.interleave.value_or(1) > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
    read_recomputation();  // when the chunks are known
  }

  // Of gradients and moments.
  void read_types() {
    ImportedRuntime& r = result_.runtime;
    // bf16's are fp32 unless told otherwise, whatever else is; fp16's and fp32's are the weights' own.
    const bool fp32 = result_.precision == DType::fp16 ? in_fp32_ : gradient_bytes_ == 4;
    r.fp32_gradients = fp32;
    if (!fp32) gradient_bytes_ = 2;
    if (!r.overlap_param_gather) r.overlap_param_gather = false;
    if (moments_[0] + moments_[1] < 8) {
      if (narrow_moments_)
        r.moment_bytes = (moments_[0] + moments_[1]) / 2;
      else
        result_.ignored.emplace_back(
            "--exp-avg-dtype: says something of --use-precision-aware-optimizer alone");
    }
    if (result_.offload == Offload::optimizer && offloaded_ == 0) result_.offload = Offload::none;
    if (offloaded_) {
      if (!result_.offload)
        result_.ignored.emplace_back(
            "--optimizer-offload-fraction: says something of --optimizer-cpu-offload alone");
      else if (*offloaded_ > 0)
        result_.offloaded_share = *offloaded_;
    }
  }

  // Embedding and loss each count as a layer of the first and of the last part.
  void read_counted_ends() {
    Pins& p = result_.pins;
    const std::int64_t parts = std::int64_t{*p.pp} * p.interleave.value_or(1);
    if (parts == 1 || p.stage_layers) {
      result_.ignored.emplace_back(
          "--account-for-embedding-in-pipeline-split: the stages are given otherwise, or one");
      return;
    }
    const std::int64_t counted = layers_ + embedding_counts_ + loss_counts_;
    if (counted % parts != 0)
      throw UserError(fmt::format("{}: with embedding and loss counted there are {} layers for {} parts",
                                  source_, counted, parts),
                      "expected as many for each");
    p.stage_layers = ends_count_cut(layers_, static_cast<int>(parts), embedding_counts_, loss_counts_);
  }

  // Copies of the sharded states.
  void read_instances() {
    Pins& p = result_.pins;
    if (!instances_ || *instances_ == 1 || *p.zero == 0) return;
    const std::int64_t stages = std::int64_t{*p.tp} * *p.pp;
    if (devices_ > 0 && devices_ % (stages * *instances_) == 0)
      p.shard_group = static_cast<int>(devices_ / (stages * *instances_));
    else
      result_.ignored.emplace_back(
          "--num-distributed-optimizer-instances: is no divisor of the replicas, as far as they are known");
  }

  void read_recomputation() {
    Pins& p = result_.pins;
    if (modules_ && granularity_ == "selective")
      p.recompute_modules = modules_;
    else if (modules_)
      result_.ignored.emplace_back("--recompute-modules: says something of selective recomputation alone");
    if (!granularity_) return;
    if (*granularity_ != "selective" && *granularity_ != "full")
      throw UserError(fmt::format("{}: --recompute-granularity {}", source_, *granularity_),
                      "expected selective or full");
    p.recompute = *granularity_ == "full" ? Recompute::full : Recompute::selective;
    if (*granularity_ == "full" && method_.value_or("uniform") == "block" && recomputed_)
      // Said of each chunk; planned of the stage.
      // More than a stage has are all that it has.
      p.recompute_layers = static_cast<int>(
          std::min<std::int64_t>(p.stage_layers ? layers_ : (layers_ + *p.pp - 1) / *p.pp,
                                 std::int64_t{*recomputed_} * (*p.pp > 1 ? p.interleave.value_or(1) : 1)));
    else if (*granularity_ == "full" && recomputed_.value_or(1) > 1)
      result_.ignored.push_back(fmt::format(
          "--recompute-num-layers: keeps one input for {} layers; planned is one for each", *recomputed_));
  }

  // First and last stage of their own sizes, the others even.
  void read_ends() {
    Pins& p = result_.pins;
    const int pp = *p.pp;
    const int ends = first_layers_.value_or(0) + last_layers_.value_or(0);
    const int middle = pp - (first_layers_ ? 1 : 0) - (last_layers_ ? 1 : 0);
    if (middle < 0 || ends > layers_ || (middle > 0 ? (layers_ - ends) % middle != 0 : ends != layers_))
      throw UserError(
          fmt::format("`from_megatron`: first and last stage of {} layers in all leave {} for {} stages",
                      ends, layers_ - ends, middle),
          "expected an even rest");
    p.stage_layers.emplace();
    for (int stage = 0; stage < pp; ++stage)
      p.stage_layers->push_back(stage == 0 && first_layers_       ? *first_layers_
                                : stage == pp - 1 && last_layers_ ? *last_layers_
                                                                  : (layers_ - ends) / middle);
  }

  // "Et*3|(tt|)*6t*2L": decoder layers of each virtual stage.
  void read_layout() {
    Pins& p = result_.pins;
    std::size_t at = 0;
    std::string flat = expanded(*layout_, at, 0);
    p.stage_layers.emplace(1, 0);
    for (const char c : flat) {
      if (c == '|') p.stage_layers->push_back(0);
      if (c == 't') ++p.stage_layers->back();
    }
    const int parts = static_cast<int>(p.stage_layers->size());
    if (parts % *p.pp != 0)
      throw UserError(fmt::format("{}: --pipeline-model-parallel-layout has {} parts", source_, parts),
                      fmt::format("expected a multiple of the {} stages", *p.pp));
    p.interleave = parts / *p.pp;
  }

  // Repetitions written out.
  std::string expanded(const std::string& text, std::size_t& at, int depth) const {
    const auto refuse = [&] {
      return UserError(fmt::format("{}: --pipeline-model-parallel-layout '{}'", source_, text),
                       "expected E, t, m, L, |, and groups as (t|)*3");
    };
    if (depth > 8) throw refuse();
    std::string out;
    while (at < text.size() && text[at] != ')') {
      std::string unit;
      if (text[at] == '(') {
        ++at;
        unit = expanded(text, at, depth + 1);
        if (at >= text.size()) throw refuse();
        ++at;
      } else if (std::string_view("EtmL|,").find(text[at]) != std::string_view::npos) {
        unit = text[at] == ',' ? "" : std::string(1, text[at]);
        ++at;
      } else {
        throw refuse();
      }
      int times = 1;
      if (at < text.size() && text[at] == '*') {
        const auto [end, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), times);
        if (error != std::errc() || times < 1 || times > 10000) throw refuse();
        at = static_cast<std::size_t>(end - text.data());
      }
      if (out.size() + unit.size() * static_cast<std::size_t>(times) > 100'000) throw refuse();
      for (int i = 0; i < times; ++i) out += unit;
    }
    if (depth == 0 && at < text.size()) throw refuse();
    return out;
  }

  std::string source_;
  std::vector<std::string> words_;
  int layers_, devices_;
  std::size_t at_ = 0;
  std::optional<std::string> inline_;  // the value of --flag=value
  bool distributed_ = false, fsdp_ = false, torch_fsdp_ = false, keeps_gathered_ = false;
  bool still_ = false, in_fp32_ = false, narrow_moments_ = false;
  int embedding_counts_ = 0, loss_counts_ = 0;
  std::array<double, 2> moments_ = {4, 4};  // bytes of each
  std::optional<double> offloaded_;
  double gradient_bytes_ = 4;
  std::optional<std::string> strategy_, granularity_, method_, layout_;
  std::optional<ModuleSet> modules_;
  std::optional<int> instances_, layers_of_chunk_, first_layers_, last_layers_, recomputed_;
  std::optional<std::int64_t> bucket_elements_;
  Imported result_;
};

// A DeepSpeed JSON, key by key.
class DeepSpeed {
 public:
  DeepSpeed(Settings settings, std::string file) : s_(std::move(settings)), file_(std::move(file)) {
    result_.software = "deepspeed";
    // What DeepSpeed does unless told otherwise.
    result_.pins.zero = 0;
    result_.pins.overlap_grad_reduce = false;
    accumulates_once_ = !s_.has(kAccumulation);
    s_.ignore_all("auto", "whoever starts it fills it in");
  }

  Imported run() {
    for (const char* table : {"fp16", "bf16", "bfloat16", "optimizer", "zero_optimization", "tensor_parallel",
                              "expert_parallel", "activation_checkpointing",
                              "zero_optimization.offload_param", "zero_optimization.offload_optimizer"})
      if (s_.has(table)) s_.refuse(table, "a table of settings");
    read_batch();
    read_precision();
    read_optimizer();
    read_zero();
    read_offload();
    read_experts();
    ImportedRuntime& runtime = result_.runtime;
    if (const auto norm = s_.number("gradient_clipping")) runtime.clip_gradients = *norm > 0;
    if (const auto ranks = s_.count("tensor_parallel.autotp_size", 0)) result_.pins.tp = std::max(1, *ranks);
    if (const auto beside = s_.flag("tensor_parallel.tp_overlap_comm"))
      runtime.overlap_tensor_backward = *beside;  // of all-reduces alone, beside weights' gradients
    if (s_.flag("activation_checkpointing.cpu_checkpointing").value_or(false))
      runtime.host_activation_layers = kMostCount;  // all there are
    // Turned off, as most files say it, it is nothing that is missing from the plan.
    constexpr const char* kShared = "activation_checkpointing.partition_activations";
    if (s_.flag(kShared).value_or(false)) {
      result_.ignored.push_back(ignored_because("deepspeed", kShared));
      --result_.read;
    }
    s_.tell_rest("deepspeed", &result_);
    return std::move(result_);
  }

 private:
  std::optional<int> count(const char* name) { return s_.count(name, 1, std::numeric_limits<int>::max()); }

  // A whole number of elements, which people write as 5e8.
  std::optional<double> elements(const std::string& name) {
    const auto number = s_.number(name);
    if (number && (!(*number >= 1) || *number > 1e15 || *number != std::floor(*number)))
      s_.refuse(name, "a whole number from 1");
    return number;
  }

  void read_batch() {
    Pins& p = result_.pins;
    if (const auto samples = count("train_batch_size")) result_.global_batch = *samples;
    if (const auto samples = s_.count("train_micro_batch_size_per_gpu")) p.micro_batch = *samples;
    auto accumulated = s_.count(kAccumulation);
    if (const auto ranks = s_.count("sequence_parallel_size")) p.cp = *ranks;
    if (const auto ranks = s_.count("data_parallel_size")) p.dp = *ranks;
    // train_batch_size = micro-batch x accumulation x replicas, as DeepSpeed asserts.
    if (!p.dp && result_.global_batch && p.micro_batch && accumulated)
      p.dp = replicas(*result_.global_batch, std::int64_t{*p.micro_batch} * *accumulated);
    // The batch is what is left out, and the replicas are whoever asks's where the file has none.
    if (result_.global_batch) return;
    if (accumulates_once_) accumulated = 1;
    if (p.micro_batch)
      result_.accumulation = accumulated;
    else if (accumulated && !accumulates_once_)
      result_.ignored.push_back(
          fmt::format("{}: says nothing of the batch without train_micro_batch_size_per_gpu", kAccumulation));
  }

  int replicas(std::int64_t batch, std::int64_t of_each) const {
    const Training training{.global_batch = batch};
    if (!training.divides_over(1, of_each))
      throw UserError(
          file_, 0, fmt::format("train_batch_size is {}", batch),
          fmt::format(
              "expected a multiple of train_micro_batch_size_per_gpu x gradient_accumulation_steps = {}",
              of_each));
    return static_cast<int>(std::min<std::int64_t>(training.samples_each(of_each), kMostCount));
  }

  void read_precision() {
    ImportedRuntime& runtime = result_.runtime;
    for (const auto& [table, type] :
         {std::pair{"fp16", DType::fp16}, {"bf16", DType::bf16}, {"bfloat16", DType::bf16}})
      if (s_.flag(std::string(table) + ".enabled").value_or(false)) result_.precision = type;
    for (const char* narrow : {"fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads"})
      if (s_.flag(narrow).value_or(false))
        runtime.updates_stored_weights = true, runtime.fp32_gradients = false;
    if (s_.flag("bf16.bf16_optimizer_states").value_or(false)) runtime.moment_bytes = 2;
    if (const auto type = s_.text("communication_data_type")) {
      if (*type != "fp32" && *type != "fp16" && *type != "bf16" && *type != "bfp16")
        s_.refuse("communication_data_type", "fp32, fp16 or bf16");
      gradient_bytes_ = *type == "fp32" ? 4 : 2;
      runtime.fp32_gradients = *type == "fp32";
    }
  }

  void read_optimizer() {
    const auto said = s_.text("optimizer.type");
    const auto momentum = s_.number("optimizer.params.momentum");
    if (!said) return;
    const std::string type = lower_case(*said);
    if (type == "adam" || type == "adamw" || type == "fusedadam" || type == "deepspeedcpuadam")
      result_.optimizer = type == "adamw" ? Optimizer::adamw : Optimizer::adam;
    else if (type == "sgd")
      result_.optimizer = momentum ? Optimizer::momentum : Optimizer::sgd;
    else
      result_.ignored.push_back(
          fmt::format("optimizer.type: {} is not planned, Adam is", type.substr(0, 40)));
  }

  void read_zero() {
    Pins& p = result_.pins;
    if (const auto stage = s_.count("zero_optimization.stage", 0, 3)) p.zero = *stage;
    const auto overlap = s_.flag("zero_optimization.overlap_comm");
    p.overlap_grad_reduce = overlap.value_or(p.zero == 3);
    if (const auto bucket = elements("zero_optimization.reduce_bucket_size"))
      p.bucket_bytes = *bucket * gradient_bytes_;
    if (const auto live = elements("zero_optimization.stage3_max_live_parameters"))
      result_.runtime.live_parameters = *live;
    if (const auto ranks = s_.number("zero_optimization.mics_shard_size"); ranks && *ranks > 0)
      p.shard_group = s_.count("zero_optimization.mics_shard_size");
  }

  void read_offload() {
    const auto moved = [&](Offload what) {
      result_.offload = std::max(result_.offload.value_or(Offload::none), what);
    };
    for (const auto& [table, what] : {std::pair{"zero_optimization.offload_param", Offload::all},
                                      {"zero_optimization.offload_optimizer", Offload::optimizer}}) {
      const std::string name = std::string(table) + ".device";
      const auto device = s_.text(name);
      if (!device || *device == "none") continue;
      if (*device == "cpu")
        moved(what);
      else if (*device == "nvme")
        result_.ignored.push_back(std::string(table) + ": nothing is predicted of drives");
      else
        s_.refuse(name, "none, cpu or nvme");
    }
    if (s_.flag("zero_optimization.cpu_offload").value_or(false)) moved(Offload::optimizer);
    if (s_.flag("zero_optimization.cpu_offload_param").value_or(false)) moved(Offload::all);
    const std::string ratio = "zero_optimization.offload_optimizer.ratio";
    if (const auto share = s_.number(ratio)) {
      if (!(*share >= 0 && *share <= 1)) s_.refuse(ratio, "a share from 0 to 1");
      if (*share > 0) result_.offloaded_share = *share;
      if (*share == 0 && result_.offload == Offload::optimizer) result_.offload = Offload::none;
    }
  }

  void read_experts() {
    Pins& p = result_.pins;
    const bool enabled = s_.flag("expert_parallel.enabled").value_or(false);
    const auto ranks = s_.count("expert_parallel.autoep_size");
    const auto tensor = s_.count("expert_parallel.expert_tensor_parallel_size");
    if (!enabled) return;
    if (ranks) p.ep = *ranks;
    if (tensor) p.etp = *tensor;
  }

  static constexpr const char* kAccumulation = "gradient_accumulation_steps";
  Settings s_;
  std::string file_;
  double gradient_bytes_ = 2;
  bool accumulates_once_ = false;  // nothing says how often
  Imported result_;
};

}  // namespace

Imported import_megatron(std::string_view flags, int layers, int devices) {
  return import_megatron_words(words_of(flags), layers, devices, "`from_megatron`");
}

Imported import_megatron_words(std::vector<std::string> words, int layers, int devices, std::string source) {
  return Megatron(std::move(words), layers, devices, std::move(source)).run();
}

Imported import_deepspeed(std::string_view text, const std::string& file) {
  return DeepSpeed(Settings::from_json(text, file), file).run();
}

std::span<const DimensionFlag> dimension_flags() {
  return kDimensions;
}

std::vector<std::string> other_dimensions(const Imported& imported, const Transformer& model) {
  std::vector<std::string> others;
  for (const auto& [name, field, said] : imported.dimensions) {
    // Latent attention has no such heads, and experts have a width of their own.
    if ((model.mla && (field == &Transformer::head_dim || field == &Transformer::kv_heads)) ||
        (model.moe && field == &Transformer::ffn_hidden))
      continue;
    const int has = model.*field;
    if (said != has) others.push_back(fmt::format("{} {} (it has {})", name, said, has));
  }
  return others;
}

std::string settle_batch(Imported* imported, Pins* pins, int devices) {
  if (!imported->accumulation || imported->global_batch || !pins->micro_batch) return {};
  std::string assumed;
  if (!pins->dp) {
    std::vector<std::string> one;
    std::int64_t others = 1;
    for (const auto& [name, degree] :
         {std::pair{"`tp` 1", &pins->tp}, {"`pp` 1", &pins->pp}, {"`cp` 1", &pins->cp}}) {
      if (!*degree) one.emplace_back(name);
      if (!*degree) *degree = 1;
      others *= **degree;
      if (devices % others != 0)
        throw UserError(
            fmt::format("tensor, pipeline and context ranks of {} in all on {} devices", others, devices),
            "expected a divisor of the devices");
    }
    pins->dp = static_cast<int>(devices / others);
    if (!one.empty())
      assumed =
          fmt::format("{}, which the settings do not say, so {} replicas", fmt::join(one, ", "), *pins->dp);
  }
  const std::int64_t each = std::int64_t{*pins->micro_batch} * *imported->accumulation;
  if (each > std::numeric_limits<int>::max() / *pins->dp)
    throw UserError(fmt::format("{} samples of each of {} replicas", each, *pins->dp),
                    fmt::format("expected at most {} in all", std::numeric_limits<int>::max()));
  imported->global_batch = each * *pins->dp;
  return assumed;
}

void apply(const ImportedRuntime& imported, RuntimeProfile* runtime) {
  const auto set = [](const auto& said, auto* field) {
    if (said) *field = *said;
  };
  set(imported.overlap_param_gather, &runtime->overlap_param_gather);
  if (imported.overlap_tensor) set_tensor_overlap(*imported.overlap_tensor, runtime);
  set(imported.overlap_tensor_backward, &runtime->overlap_tensor_backward);
  set(imported.overlap_pipeline, &runtime->overlap_pipeline);
  set(imported.fp32_gradients, &runtime->fp32_gradients);
  set(imported.clip_gradients, &runtime->clip_gradients);
  set(imported.updates_stored_weights, &runtime->updates_stored_weights);
  set(imported.fused_elementwise, &runtime->fused_elementwise);
  set(imported.fused_gradient_accumulation, &runtime->fused_gradient_accumulation);
  set(imported.fused_loss, &runtime->fused_loss);
  set(imported.moment_bytes, &runtime->moment_bytes);
  set(imported.live_parameters, &runtime->live_parameters);
  set(imported.host_activation_layers, &runtime->host_activation_layers);
}

}  // namespace orrery::planner
