// Defaults and meanings: megatron/training/arguments.py, megatron/core/transformer/transformer_config.py,
// transformer_block.py (get_num_layers_to_build) and pipeline_parallel_layer_layout.py of core 0.20.
#include "measurements/megatron_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/parse.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::size_t kMostArguments = 5000;
constexpr int kMostOfAList = 10000;
constexpr std::int64_t kLargestArgument = 1 << 24;

// What is costed otherwise than any plan is, where they say anything but False.
constexpr std::array<std::string_view, 11> kBeyondPlans = {"fine_grained_activation_offloading",
                                                           "is_hybrid_model",
                                                           "hybrid_layer_pattern",
                                                           "hybrid_override_pattern",
                                                           "heterogeneous_layers_config_path",
                                                           "heterogeneous_layers_config_encoded_json",
                                                           "experimental_attention_variant",
                                                           "hybrid_context_parallel",
                                                           "use_layer_wise_distributed_optimizer",
                                                           "enable_mhc_connections",
                                                           "sft"};

// "['p2p', 'a2a']", "(4096, 0)": its words.
std::vector<std::string> words_of_list(std::string text) {
  for (const char c : {'[', ']', '(', ')', '\'', '"', ',', '\t'})
    std::replace(text.begin(), text.end(), c, ' ');
  std::vector<std::string> words;
  for (const std::string& word : split(text, ' '))
    if (!word.empty()) words.push_back(word);
  return words;
}

class ArgumentReader {
 public:
  explicit ArgumentReader(const MegatronArguments& arguments) : a_(arguments) {}

  MegatronSays run() {
    read_beyond();
    read_model();
    read_split();
    read_stages();
    read_sharding();
    read_recomputation();
    if (is_megatron_core(a_)) read_runtime();
    return std::move(says_);
  }

 private:
  planner::Pins& plan() { return says_.said.plan; }
  void model(std::string change) { says_.said.transformer.push_back(std::move(change)); }
  void runtime(std::string change) { says_.said.runtime.push_back(std::move(change)); }
  // The first reason counts.
  void beyond(std::string_view name, std::string_view value = "") {
    if (says_.beyond.empty())
      says_.beyond = value.empty() ? std::string(name) : fmt::format("{} {}", name, value.substr(0, 60));
  }
  // Of a flag that is printed.
  std::optional<bool> flag(std::string_view name) const {
    return a_.stated(name) ? std::optional(a_.is(name)) : std::nullopt;
  }

  void read_beyond() {
    for (const std::string_view name : kBeyondPlans)
      if (const std::string value = a_.argument(name); !value.empty() && value != "False")
        beyond(name, value == "True" ? "" : value);
    for (const char* name : {"gtp_weight_remat_size", "expert_gtp_weight_remat_size"})
      if (a_.count(name) > 1) beyond(name, a_.argument(name));
    if (const std::string kind = a_.argument("optimizer"); !kind.empty() && kind != "adam" && kind != "sgd")
      beyond("optimizer", kind);
    // A plan's context ranks send keys and values around a ring.
    if (a_.count("context_parallel_size") > 1)
      for (const std::string& kind : words_of_list(a_.argument("cp_comm_type")))
        if (kind != "p2p") beyond("cp_comm_type", kind);
    // Tokens go to their experts and back, not to all.
    if (a_.count("expert_model_parallel_size") > 1 && a_.argument("moe_token_dispatcher_type") == "allgather")
      beyond("moe_token_dispatcher_type", "allgather");
    if (a_.is("cpu_offloading") && a_.count("cpu_offloading_num_layers") == 0) beyond("cpu_offloading");
  }

  void read_model() {
    const bool gated = a_.is("swiglu") || a_.is("quick_geglu");
    model(fmt::format("gated_ffn: {} activation: '{}'", gated,
                      gated                   ? "silu"
                      : a_.is("squared_relu") ? "relu"
                                              : "gelu"));
    if (const std::string norm = a_.argument("normalization"); norm == "RMSNorm" || norm == "LayerNorm")
      model(fmt::format("norm: '{}'", norm == "RMSNorm" ? "rmsnorm" : "layernorm"));
    if (const std::string positions = a_.argument("position_embedding_type"); !positions.empty())
      model(fmt::format("learned_positions: {}",
                        positions == "learned_absolute" && !a_.is("use_rotary_position_embeddings")));
    const std::optional<bool> biased = flag("add_bias_linear");
    if (biased) model(fmt::format("linear_bias: {} qkv_bias: {}", *biased, *biased || a_.is("add_qkv_bias")));
    if (const auto normed = flag("qk_layernorm"); normed && !a_.is("multi_latent_attention"))
      model(fmt::format("qk_norm: {}", *normed));
    if (a_.argument("softmax_type") == "learnable") model("attention_sinks: true");
    if (const int modules = a_.count("mtp_num_layers"); modules > 0)
      model(fmt::format("multi_token_layers: {}", modules));
    read_window();
    if (a_.is("multi_latent_attention")) read_latent_attention();
    if (a_.count("num_experts") > 0) read_experts(biased.value_or(false));
  }

  void read_latent_attention() {
    model(
        fmt::format("mla {{ q_lora_rank: {} kv_lora_rank: {} qk_nope_head_dim: {} qk_rope_head_dim: {} "
                    "v_head_dim: {} }}",
                    a_.count("q_lora_rank"), a_.count("kv_lora_rank"), a_.count("qk_head_dim"),
                    a_.count("qk_pos_emb_head_dim"), a_.count("v_head_dim")));
    // Of its queries and keys; as wide as these are all that the heads come to.
    model(fmt::format("head_dim: {}", a_.count("qk_head_dim") + a_.count("qk_pos_emb_head_dim")));
  }

  void read_window() {
    const std::vector<std::string> window = words_of_list(a_.argument("window_size"));
    if (window.empty()) return;
    const std::int64_t width = parse_whole(window.front()).value_or(-1);
    if (width < 1 || width > kLargestArgument) return;
    model(fmt::format("sliding_window: {}", width));
    const std::string skip = a_.argument("window_attn_skip_freq");
    if (!skip.starts_with('[')) {
      if (const int period = a_.count("window_attn_skip_freq"); period > 0)
        model(fmt::format("full_attention_period: {}", period));
      return;
    }
    std::string pattern;
    for (const std::string& word : words_of_list(skip)) pattern += word == "0" ? 'f' : 'w';
    model(fmt::format("attention_pattern: '{}'", pattern));
  }

  void read_experts(bool biased) {
    const int own = a_.count("moe_ffn_hidden_size");
    std::string moe = fmt::format(
        "experts: {} experts_per_token: {} expert_ffn_hidden: {} shared_ffn_hidden: {} latent: {}",
        a_.count("num_experts"), std::max(1, a_.count("moe_router_topk")),
        own > 0 ? own : a_.count("ffn_hidden_size"), a_.count("moe_shared_expert_intermediate_size"),
        a_.count("moe_latent_size"));
    if (a_.is("moe_shared_expert_gate")) moe += " shared_gate: true";
    if (a_.is("moe_router_enable_expert_bias")) moe += " router_bias: true";
    if (a_.is("moe_router_pre_softmax")) moe += " unscaled_weights: true";
    if (const auto loss = parse_number(a_.argument("moe_aux_loss_coeff")); loss && *loss > 0 && *loss < 1e3)
      moe += fmt::format(" auxiliary_loss: {}", *loss);
    if (biased) moe += " expert_bias: true expert_up_bias: true router_linear_bias: true";
    model("moe { " + moe + layers_with_experts() + " }");
    const auto factor = parse_number(a_.argument("moe_expert_capacity_factor"));
    plan().capacity_factor = factor && *factor > 0 ? *factor : 0;
  }

  // Every n-th from the first, or 0 and 1 for each layer.
  std::string layers_with_experts() {
    const std::string said = a_.argument("moe_layer_freq");
    if (!said.starts_with('[')) {
      const int period = a_.count("moe_layer_freq");
      return period > 1 ? fmt::format(" layer_period: {} layer_offset: 0", period) : "";
    }
    const std::vector<std::string> layers = words_of_list(said);
    const auto has = [&](std::size_t layer) { return layers[layer] != "0"; };
    std::size_t first = 0, period = 1;
    while (first < layers.size() && !has(first)) ++first;
    while (first + period < layers.size() && !has(first + period)) ++period;
    const auto is = [&](auto&& expected) {
      for (std::size_t i = 0; i < layers.size(); ++i)
        if (has(i) != expected(i)) return false;
      return true;
    };
    const bool all = layers.size() == static_cast<std::size_t>(a_.count("num_layers"));
    if (all && first < layers.size() && is([&](std::size_t i) { return i >= first; }))
      return first > 0 ? fmt::format(" first_dense_layers: {}", first) : "";
    if (all && first < period && is([&](std::size_t i) { return i % period == first; }))
      return fmt::format(" layer_period: {} layer_offset: {}", period, first);
    beyond("moe_layer_freq", said);
    return "";
  }

  void read_split() {
    planner::Pins& p = plan();
    p.sequence_parallel = flag("sequence_parallel");
    if (a_.count("num_experts") > 0)  // as the rest is, unless told otherwise
      p.etp = a_.count("expert_tensor_parallel_size") > 0
                  ? a_.count("expert_tensor_parallel_size")
                  : std::max(1, a_.count("tensor_model_parallel_size"));
    if (a_.is("overlap_moe_expert_parallel_comm")) p.overlap_experts = true;
    if (a_.is("use_tp_pp_dp_mapping"))
      p.order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::pp, Dimension::dp};
    const std::string backend = a_.argument("attention_backend");
    const std::string kind = backend.substr(backend.rfind('.') + 1);
    if (!kind.empty())
      says_.said.training.push_back(
          fmt::format("attention: '{}'", kind == "unfused" || kind == "local" ? "unfused" : "fused"));
    if (a_.argument("optimizer") == "sgd")
      says_.said.training.push_back(
          fmt::format("optimizer: '{}'",
                      parse_number(a_.argument("sgd_momentum")).value_or(0.9) == 0 ? "sgd" : "momentum"));
  }

  // Layers of each part of the model, where they are not even.
  void read_stages() {
    const int stages = std::max(1, a_.count("pipeline_model_parallel_size")),
              chunks = std::max(1, a_.count("virtual_pipeline_model_parallel_size")),
              layers = a_.count("num_layers");
    if (stages == 1 || stages > kMostOfAList || chunks > kMostOfAList / stages) return;
    if (const std::string layout = a_.argument("pipeline_model_parallel_layout"); !layout.empty())
      return read_layout(layout, stages * chunks);
    const std::size_t last = static_cast<std::size_t>(stages) - 1;
    std::vector<int> of_stage(static_cast<std::size_t>(stages), 0);
    const int first_layers = a_.count("decoder_first_pipeline_num_layers"),
              last_layers = a_.count("decoder_last_pipeline_num_layers");
    const int counted_first = a_.is("account_for_embedding_in_pipeline_split") ? 1 : 0,
              counted_last = a_.is("account_for_loss_in_pipeline_split") ? 1 : 0;
    if (first_layers + last_layers == 0 && counted_first + counted_last == 0) return;
    const std::int64_t others = stages - (first_layers > 0 ? 1 : 0) - (last_layers > 0 ? 1 : 0),
                       rest =
                           std::int64_t{layers} + counted_first + counted_last - first_layers - last_layers;
    if (rest < 0 || (others > 0 && rest % others != 0)) return beyond("decoder_first_pipeline_num_layers");
    if (others > 0) std::fill(of_stage.begin(), of_stage.end(), static_cast<int>(rest / others));
    if (first_layers > 0) of_stage.front() = first_layers;
    if (last_layers > 0) of_stage[last] = last_layers;
    std::vector<int> parts;
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (const int stage : of_stage) {
        if (stage % chunks != 0)
          return beyond("virtual_pipeline_model_parallel_size", fmt::to_string(chunks));
        parts.push_back(stage / chunks);
      }
    parts.front() -= counted_first;
    parts.back() -= counted_last;
    plan().stage_layers = std::move(parts);
  }

  // "Et*3|(tt|)*6t*2L": decoder layers are t, parts end at |. As it was given, or the list that it became.
  void read_layout(const std::string& layout, int parts) {
    std::size_t at = 0;
    const std::optional<std::string> flat = expanded(layout, &at, 0);
    std::vector<int> layers(1, 0);
    for (const char c : flat.value_or("")) {
      if (c == '|') layers.push_back(0);
      if (c == 't') ++layers.back();
    }
    if (!flat || at < layout.size() || static_cast<int>(layers.size()) != parts)
      return beyond("pipeline_model_parallel_layout", layout);
    plan().stage_layers = std::move(layers);
  }

  // Repetitions written out; none: it is no layout.
  static std::optional<std::string> expanded(const std::string& text, std::size_t* at, int depth) {
    constexpr int kDeepest = 8;
    constexpr std::string_view kLetters = "EtmL|, ";
    std::string out;
    while (depth <= kDeepest && *at < text.size() && text[*at] != ')') {
      std::string unit(1, text[*at]);
      ++*at;
      if (unit == "(") {
        const auto inside = expanded(text, at, depth + 1);
        if (!inside || *at >= text.size()) return std::nullopt;
        unit = *inside;
        ++*at;
      } else if (kLetters.find(unit) == std::string_view::npos) {
        return std::nullopt;
      }
      std::int64_t times = 1;
      if (*at < text.size() && text[*at] == '*') {
        const std::size_t end = std::min(text.find_first_not_of("0123456789", *at + 1), text.size());
        times = parse_whole(text.substr(*at + 1, end - *at - 1)).value_or(0);
        *at = end;
      }
      if (times < 1 || times > kMostOfAList ||
          out.size() + unit.size() * static_cast<std::size_t>(times) > 10 * kMostOfAList)
        return std::nullopt;
      for (std::int64_t i = 0; i < times; ++i) out += unit;
    }
    return depth > kDeepest ? std::nullopt : std::optional(out);
  }

  void read_sharding() {
    planner::Pins& p = plan();
    if (a_.is("use_megatron_fsdp") || a_.is("use_custom_fsdp")) {
      // Its default was no_shard until April 2026, and is printed beside runs without it, too.
      const std::string strategy = a_.argument("data_parallel_sharding_strategy");
      const std::array<std::string_view, 4> stages = {"no_shard", "optim", "optim_grads",
                                                      "optim_grads_params"};
      const auto* const found = std::find(stages.begin(), stages.end(), strategy);
      if (found == stages.end()) return beyond("data_parallel_sharding_strategy", strategy);
      p.zero = static_cast<int>(found - stages.begin());
    } else if (a_.is("use_torch_fsdp2")) {
      p.zero = a_.argument("torch_fsdp2_reshard_after_forward") == "False" ? 2 : 3;
    } else if (!a_.is("deepspeed")) {
      p.zero = a_.is("use_distributed_optimizer") ? 1 : 0;
    }
    const int copies = a_.count("num_distributed_optimizer_instances");
    if (copies <= 1 || p.zero.value_or(0) == 0) return;
    if (*p.zero > 1 && a_.argument("outer_dp_sharding_strategy") == "optim")
      return beyond("outer_dp_sharding_strategy", "optim");
    const std::int64_t stages = std::int64_t{std::max(1, a_.count("tensor_model_parallel_size"))} *
                                std::max(1, a_.count("pipeline_model_parallel_size"));
    const std::int64_t world = a_.count("world_size");
    if (stages > world || world % (stages * copies) != 0)
      return beyond("num_distributed_optimizer_instances", fmt::to_string(copies));
    p.shard_group = static_cast<int>(world / (stages * copies));
  }

  void read_recomputation() {
    planner::Pins& p = plan();
    const std::string granularity = a_.argument("recompute_granularity");
    if (granularity == "full" && a_.argument("recompute_method") == "block") {
      // Of each chunk; a plan says it of the stage. More than a stage has are all.
      const int each = a_.count("recompute_num_layers"), stages = a_.count("pipeline_model_parallel_size"),
                chunks = stages > 1 ? std::max(1, a_.count("virtual_pipeline_model_parallel_size")) : 1;
      const std::int64_t layers = std::int64_t{each} * chunks;
      const int of_stage = a_.count("num_layers") / std::max(1, stages);
      if (each > 0 && (p.stage_layers || layers < of_stage))
        p.recompute_layers = static_cast<int>(std::min<std::int64_t>(layers, a_.count("num_layers")));
    }
    if (granularity != "selective") return;
    ModuleSet modules = 0;
    for (const std::string& name : words_of_list(a_.argument("recompute_modules"))) {
      if (module_bit(name) == 0) beyond("recompute_modules", name);
      modules |= module_bit(name);
    }
    if (a_.is("moe_layer_recompute")) modules |= module_bit("moe");
    if (modules != 0) p.recompute_modules = modules;
  }

  void read_runtime() {
    planner::Pins& p = plan();
    p.overlap_grad_reduce = flag("overlap_grad_reduce");
    for (const auto& [argument, field] :
         {std::pair{"overlap_param_gather", "overlap_param_gather"}, {"tp_comm_overlap", "overlap_tensor"}})
      if (const auto on = flag(argument)) runtime(fmt::format("{}: {}", field, *on));
    if (const auto most = parse_number(a_.argument("clip_grad")))
      runtime(fmt::format("clip_gradients: {}", *most > 0));
    double gradient_bytes = 4;
    if (const auto narrow = flag("grad_reduce_in_bf16")) {
      // bf16's are fp32 unless told otherwise; fp16's and fp32's are the weights' own.
      const bool fp32 = a_.is("fp16") ? a_.is("accumulate_allreduce_grads_in_fp32") : !*narrow;
      runtime(fmt::format("fp32_gradients: {}", fp32));
      gradient_bytes = fp32 ? 4 : 2;
    }
    if (const auto elements = parse_number(a_.argument("ddp_bucket_size")); elements && *elements >= 1)
      p.bucket_bytes = *elements * gradient_bytes;
    if (a_.is("optimizer_cpu_offload")) {
      const double share = parse_number(a_.argument("optimizer_offload_fraction")).value_or(1);
      if (share > 0 && share <= 1) runtime(fmt::format("host_states: {} host_gradients: true", share));
    }
    if (const int layers = a_.count("cpu_offloading_num_layers"); layers > 0)
      runtime(fmt::format("host_activation_layers: {}", layers));
  }

  const MegatronArguments& a_;
  MegatronSays says_;
};

}  // namespace

void MegatronArguments::say(std::string_view name, std::string_view value) {
  if (value != "None" && arguments_.size() <= kMostArguments)
    arguments_.try_emplace(std::string(name), value);
}

std::string MegatronArguments::argument(std::string_view name) const {
  const auto found = arguments_.find(name);
  return found == arguments_.end() ? std::string() : found->second;
}

std::string MegatronArguments::first(const std::vector<std::string_view>& names) const {
  for (const std::string_view name : names)
    if (std::string value = argument(name); !value.empty()) return value;
  return "";
}

int MegatronArguments::count(std::string_view name) const {
  const std::int64_t value = parse_whole(argument(name)).value_or(0);
  return value < 1 || value > kLargestArgument ? 0 : static_cast<int>(value);
}

bool is_megatron_core(const MegatronArguments& arguments) {
  return !arguments.is("deepspeed") &&
         (arguments.is("use_mcore_models") || arguments.argument("use_legacy_models") == "False" ||
          arguments.argument("transformer_impl") == "transformer_engine");
}

// Filled up to a multiple of so many for each tensor rank (training/vocab_utils.py).
std::string vocabulary_of(const MegatronArguments& arguments) {
  if (arguments.count("padded_vocab_size") > 0) return arguments.argument("padded_vocab_size");
  if (arguments.count("vocab_size") == 0) return "";
  return fmt::to_string(evidence::padded(arguments.count("vocab_size"),
                                         arguments.count("make_vocab_size_divisible_by"),
                                         std::max(1, arguments.count("tensor_model_parallel_size"))));
}

MegatronSays says_of(const MegatronArguments& arguments) {
  return ArgumentReader(arguments).run();
}

}  // namespace orrery::measurements
