// Logs of Megatron-LM, Megatron-DeepSpeed and what is made of them: the arguments that rank 0 prints at
// the start ("  name ..... value", megatron/training/arguments.py) and a line every log interval
// ("elapsed time per iteration (ms):", megatron/training/training.py).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/statistics.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kElapsed = "elapsed time per iteration (ms):";
constexpr std::size_t kMostArguments = 5000;

struct Iterations {
  int line = 0;
  double seconds = 0;
  std::int64_t batch = 0;  // 0: not printed
};

class MegatronLog {
 public:
  explicit MegatronLog(const std::string& text) {
    int number = 0;
    for (const std::string_view line : lines_of(text)) {
      ++number;
      if (line.size() < kMostLogLineBytes) take(line, number);
    }
  }

  const std::vector<Iterations>& iterations() const { return iterations_; }
  // Empty where it is not printed, or None.
  std::string argument(const std::string& name) const {
    const auto found = arguments_.find(name);
    return found == arguments_.end() || found->second == "None" ? std::string() : found->second;
  }
  // The first of these that is printed.
  std::string first(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      if (const std::string value = argument(name); !value.empty()) return value;
    return "";
  }
  bool is(const std::string& name) const { return argument(name) == "True"; }
  bool has_arguments() const { return !argument("num_layers").empty(); }

 private:
  void take(std::string_view line, int number) {
    if (const auto elapsed_ms = number_behind(line, kElapsed)) {
      if (*elapsed_ms > 0)
        iterations_.push_back({number, *elapsed_ms * 1e-3,
                               static_cast<std::int64_t>(std::clamp(
                                   number_behind(line, "global batch size:").value_or(0), 0.0, 1e12))});
      return;
    }
    // Sizes that follow from the arguments are printed beside them.
    if (const auto world = number_behind(line, "using world size:"))
      arguments_.try_emplace("world_size", fmt::format("{:.0f}", *world));
    if (line.find("padded vocab (size:") != std::string_view::npos)
      if (const auto vocabulary = number_behind(line, "(new size:"))
        arguments_.try_emplace("padded_vocab_size", fmt::format("{:.0f}", *vocabulary));
    take_argument(line);
  }

  void take_argument(std::string_view line) {
    const std::size_t dots = line.find(" ..");
    if (dots == std::string_view::npos || arguments_.size() > kMostArguments) return;
    const std::size_t end = line.find_first_not_of('.', dots + 1);
    if (end == std::string_view::npos || line[end] != ' ') return;
    const std::string_view name = trimmed(line.substr(0, dots));
    // Of another program's lists, "[…] [INFO] … name ....", nothing.
    if (name.empty() ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string_view::npos)
      return;
    arguments_.try_emplace(std::string(name), trimmed(line.substr(end)));
  }

  std::map<std::string, std::string> arguments_;
  std::vector<Iterations> iterations_;
};

// What is steady: without the first line, which warms up, and with the batch of the last.
std::vector<double> steady(const std::vector<Iterations>& all, int* line) {
  std::vector<double> seconds;
  for (std::size_t i = all.size() > 1 ? 1 : 0; i < all.size(); ++i) {
    if (all[i].batch != all.back().batch) continue;
    if (seconds.empty()) *line = all[i].line;
    seconds.push_back(all[i].seconds);
  }
  return seconds;
}

// Megatron-Core's models are an option until mid-2024, then what runs unless the old ones are asked for
// (use_legacy_models). Transformer Engine's layers are what Megatron-Core is made of, whoever calls them.
std::string framework_of(const MegatronLog& log) {
  if (log.is("deepspeed")) return "Megatron-DeepSpeed";
  const bool core = log.is("use_mcore_models") || log.argument("use_legacy_models") == "False" ||
                    log.argument("transformer_impl") == "transformer_engine";
  return core ? "Megatron-Core" : "Megatron-LM";
}

// What was asked for that would be learned as something else; empty: nothing.
std::string beyond_columns(const MegatronLog& log) {
  for (const char* name : {"optimizer_cpu_offload", "cpu_offloading", "use_torch_fsdp2", "use_megatron_fsdp",
                           "use_custom_fsdp", "multi_latent_attention"})
    if (log.is(name)) return name;
  const std::string sharding = log.argument("data_parallel_sharding_strategy");
  return sharding.empty() || sharding == "no_shard" ? "" : "data_parallel_sharding_strategy " + sharding;
}

std::string sharding_of(const MegatronLog& log) {
  if (log.is("use_distributed_optimizer")) return "ZeRO-1";
  const std::string stage = log.argument("zero_stage");
  return log.is("deepspeed") && !stage.empty() ? "ZeRO-" + stage : "";
}

std::string recomputation_of(const MegatronLog& log) {
  if (log.is("checkpoint_activations")) return "full";
  const std::string granularity = log.argument("recompute_granularity");
  return granularity.empty() ? "none" : granularity;
}

std::string precision_of(const MegatronLog& log) {
  if (!log.argument("fp8").empty() && !log.argument("fp8").starts_with("F")) return "fp8";
  return log.is("bf16") ? "bf16" : log.is("fp16") ? "fp16" : "fp32";
}

std::vector<std::pair<std::string, std::string>> columns_of(const MegatronLog& log, double seconds,
                                                            std::int64_t batch) {
  const bool grouped = log.is("group_query_attention");
  return {{"framework", framework_of(log)},
          {"model", log.is("swiglu") ? "Llama" : "GPT"},
          {"n_layers", log.argument("num_layers")},
          {"hidden", log.argument("hidden_size")},
          {"n_heads", log.argument("num_attention_heads")},
          {"n_kv_heads", grouped ? log.argument("num_query_groups") : ""},
          {"ffn_hidden", log.argument("ffn_hidden_size")},
          {"vocab", log.argument("padded_vocab_size")},
          {"seq_len_tokens", log.first({"seq_length", "encoder_seq_length"})},
          {"gpu", ""},
          {"n_gpus", log.argument("world_size")},
          {"precision", precision_of(log)},
          {"tp", log.first({"tensor_model_parallel_size", "model_parallel_size"})},
          {"pp", log.argument("pipeline_model_parallel_size")},
          {"vp_interleave", log.argument("virtual_pipeline_model_parallel_size")},
          {"cp", log.argument("context_parallel_size")},
          {"dp_sharding", sharding_of(log)},
          {"gbs_sequences", batch > 0 ? std::to_string(batch) : log.argument("global_batch_size")},
          {"mbs_sequences", log.argument("micro_batch_size")},
          {"act_recompute", recomputation_of(log)},
          {"step_time_s", fmt::format("{:.9g}", seconds)}};
}

}  // namespace

bool is_megatron_log(std::string_view head) {
  return head.find(kElapsed) != std::string_view::npos ||
         (head.find("tensor_model_parallel_size ..") != std::string_view::npos &&
          head.find("micro_batch_size ..") != std::string_view::npos);
}

void read_megatron_log(const Source& source, const Context& context, Measurements* measurements) {
  const std::string text = source.text();
  const MegatronLog log(text);
  const std::string& file = source.name();
  if (log.iterations().empty()) return measurements->ignore(file, 0, "a log without a time of an iteration");
  int line = 0;
  const std::vector<double> seconds = steady(log.iterations(), &line);
  // Megatron-Bridge, or a script that prints them elsewhere: a table may say what it is of.
  if (!log.has_arguments()) return measurements->logs.push_back({file, seconds});
  // What the columns of a table of steps cannot say.
  if (!log.argument("num_experts").empty())
    return measurements->ignore(file, line, "a log of a model with experts");
  if (const std::string what = beyond_columns(log); !what.empty())
    return measurements->ignore(file, line, fmt::format("a run with {}, which no column says", what));
  if (log.argument("pipeline_model_parallel_size").empty())
    return measurements->ignore(file, line, "a log that does not print pipeline_model_parallel_size");
  add_log(file, line, columns_of(log, median(seconds), log.iterations().back().batch),
          spread_of_median(seconds), context, measurements);
}

}  // namespace orrery::measurements
