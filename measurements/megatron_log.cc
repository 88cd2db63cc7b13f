// Logs of Megatron-LM, Megatron-DeepSpeed and what is made of them: the arguments that rank 0 prints at
// the start ("  name ..... value", megatron/training/arguments.py) and a line every log interval
// ("elapsed time per iteration (ms):", megatron/training/training.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/parse.h"
#include "base/statistics.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"
#include "measurements/megatron_arguments.h"

namespace orrery::measurements {
namespace {

// BigScience's Megatron-DeepSpeed and what is made of it count seconds.
constexpr std::string_view kElapsed = "elapsed time per iteration (ms):",
                           kElapsedSeconds = "elapsed time per iteration (s):";

// What rank 0 prints when it begins, each once.
constexpr std::array<std::string_view, 2> kBegins = {"using world size:", "- arguments -"};

bool times(std::string_view line) {
  return line.find(kElapsed) != std::string_view::npos ||
         line.find(kElapsedSeconds) != std::string_view::npos;
}

// 0: none that is a number, or one that was cut off, for a bar follows.
double seconds_of(std::string_view line) {
  const bool milli = line.find(kElapsed) != std::string_view::npos;
  const std::string_view label = milli ? kElapsed : kElapsedSeconds;
  if (line.find('|', line.find(label)) == std::string_view::npos) return 0;
  return number_behind(line, label).value_or(0) * (milli ? 1e-3 : 1);
}

std::int64_t number_of_iteration(std::string_view line) {
  const std::size_t at = line.find("iteration ");
  if (at == std::string_view::npos) return -1;
  const std::string_view word = trimmed(line.substr(at + 10));
  return parse_whole(word.substr(0, word.find_first_of(" /|"))).value_or(-1);
}

// One run: a file may hold several, one behind the other (">> log").
class MegatronLog {
 public:
  int line() const { return line_; }
  const std::vector<LoggedStep>& iterations() const { return iterations_; }
  const MegatronArguments& arguments() const { return arguments_; }
  bool has_arguments() const { return !arguments_.argument("num_layers").empty(); }

  // Whether the line is of another run that begins there.
  bool ends_before(std::string_view line) const {
    if (times(line)) return counts_anew(iterations_, number_of_iteration(line));
    for (std::size_t i = 0; i < kBegins.size(); ++i)
      if (line.find(kBegins[i]) != std::string_view::npos) return begun_[i] || !iterations_.empty();
    return false;
  }

  void take(std::string_view line, int number) {
    if (line_ == 0) line_ = number;
    for (std::size_t i = 0; i < kBegins.size(); ++i)
      if (line.find(kBegins[i]) != std::string_view::npos) begun_[i] = true;
    if (times(line)) {
      iterations_.push_back({number, number_of_iteration(line), seconds_of(line),
                             static_cast<std::int64_t>(std::clamp(
                                 number_behind(line, "global batch size:").value_or(0), 0.0, 1e12))});
      return;
    }
    // Sizes that follow from the arguments are printed beside them.
    if (const auto world = number_behind(line, "using world size:"))
      arguments_.say("world_size", fmt::format("{:.0f}", *world));
    if (line.find("padded vocab (size:") != std::string_view::npos)
      if (const auto vocabulary = number_behind(line, "(new size:"))
        arguments_.say_at_last("padded_vocab_size", fmt::format("{:.0f}", *vocabulary));
    take_argument(line);
  }

 private:
  void take_argument(std::string_view line) {
    const std::size_t dots = line.find(" ..");
    if (dots == std::string_view::npos) return;
    const std::size_t end = line.find_first_not_of('.', dots + 1);
    if (end == std::string_view::npos || line[end] != ' ') return;
    const std::string_view name = trimmed(line.substr(0, dots));
    // Of another program's lists, "[…] [INFO] … name ....", nothing.
    if (name.empty() ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string_view::npos)
      return;
    arguments_.say(name, trimmed(line.substr(end)));
  }

  MegatronArguments arguments_;
  std::vector<LoggedStep> iterations_;
  std::array<bool, kBegins.size()> begun_{};
  int line_ = 0;  // its first
};

std::vector<MegatronLog> megatron_runs(const std::string& text) {
  std::vector<MegatronLog> runs(1);
  for (const auto& [number, line] : lines_of(text)) {
    if (line.size() >= kMostLogLineBytes) continue;
    if (runs.back().ends_before(line)) runs.emplace_back();
    runs.back().take(line, number);
  }
  return runs;
}

// With the batch of the last.
std::vector<double> steady_seconds(const std::vector<LoggedStep>& steps) {
  std::vector<double> seconds;
  for (const LoggedStep& one : steps)
    if (one.batch == steps.back().batch) seconds.push_back(one.value);
  return seconds;
}

std::string framework_of(const MegatronArguments& arguments) {
  if (arguments.is("deepspeed")) return "Megatron-DeepSpeed";
  return is_megatron_core(arguments) ? "Megatron-Core" : "Megatron-LM";
}

std::string sharding_of(const MegatronArguments& arguments) {
  if (arguments.is("use_distributed_optimizer")) return "ZeRO-1";
  const std::string stage = arguments.argument("zero_stage");
  return arguments.is("deepspeed") && !stage.empty() ? "ZeRO-" + stage : "";
}

std::string recomputation_of(const MegatronArguments& log) {
  if (log.is("checkpoint_activations")) return "full";
  const std::string granularity = log.argument("recompute_granularity");
  return granularity.empty() ? "none" : granularity;
}

std::string precision_of(const MegatronArguments& log) {
  for (const char* narrow : {"fp4", "fp8"})
    if (const std::string format = log.argument(narrow); !format.empty() && format != "False") return narrow;
  return log.is("bf16") ? "bf16" : log.is("fp16") ? "fp16" : "fp32";
}

std::string tied_embeddings_of(const MegatronArguments& log) {
  const std::string untied = log.argument("untie_embeddings_and_output_weights");
  return untied.empty() ? "" : untied == "True" ? "false" : "true";
}

std::vector<std::pair<std::string, std::string>> columns_of(const MegatronArguments& log, double seconds,
                                                            std::int64_t batch) {
  const bool grouped = log.is("group_query_attention");
  return {{"framework", framework_of(log)},
          {"model", log.is("swiglu") ? "Llama" : "GPT"},
          {"n_layers", log.argument("num_layers")},
          {"hidden", log.argument("hidden_size")},
          {"n_heads", log.argument("num_attention_heads")},
          {"n_kv_heads", grouped ? log.argument("num_query_groups") : ""},
          {"ffn_hidden", log.argument("ffn_hidden_size")},
          {"vocab", vocabulary_of(log)},
          {"head_dim", log.argument("kv_channels")},
          {"tied_embeddings", tied_embeddings_of(log)},
          {"seq_len_tokens", log.first({"seq_length", "encoder_seq_length"})},
          {"gpu", ""},
          {"n_gpus", log.argument("world_size")},
          {"precision", precision_of(log)},
          {"tp", log.first({"tensor_model_parallel_size", "model_parallel_size"})},
          {"pp", log.argument("pipeline_model_parallel_size")},
          {"vp_interleave", log.argument("virtual_pipeline_model_parallel_size")},
          {"cp", log.argument("context_parallel_size")},
          {"ep", log.argument("num_experts").empty() ? "" : log.argument("expert_model_parallel_size")},
          {"dp_sharding", sharding_of(log)},
          {"gbs_sequences", batch > 0 ? std::to_string(batch) : log.argument("global_batch_size")},
          {"mbs_sequences", log.argument("micro_batch_size")},
          {"act_recompute", recomputation_of(log)},
          {"step_time_s", fmt::format("{:.9g}", seconds)}};
}

void read_megatron_run(const MegatronLog& log, const std::string& file, const Context& context,
                       std::vector<TimedLog>* without_arguments, Measurements* measurements) {
  if (log.iterations().empty())
    return measurements->ignore(file, log.line() > 1 ? log.line() : 0,
                                "a log without a time of an iteration");
  const std::vector<LoggedStep> steps = steady(log.iterations());
  if (steps.empty()) return measurements->ignore(file, log.iterations().front().line, std::string(kWarmsUp));
  const std::vector<double> seconds = steady_seconds(steps);
  const std::int64_t batch = steps.back().batch;
  const int line =
      std::find_if(steps.begin(), steps.end(), [&](const auto& one) { return one.batch == batch; })->line;
  // Megatron-Bridge, or a script that prints them elsewhere: a table may say what it is of.
  if (!log.has_arguments()) return without_arguments->push_back({file, seconds, static_cast<double>(batch)});
  const MegatronSays says = says_of(log.arguments());
  if (!says.beyond.empty())
    return measurements->ignore(file, line, fmt::format("a run with {}, which no plan says", says.beyond));
  if (log.arguments().argument("pipeline_model_parallel_size").empty())
    return measurements->ignore(file, line, "a log that does not print pipeline_model_parallel_size");
  add_log(file, line, columns_of(log.arguments(), median(seconds), batch), spread_of_median(seconds), context,
          measurements, says.said, is_megatron_core(log.arguments()));
}

}  // namespace

bool is_megatron_log(std::string_view head) {
  return times(head) || (head.find("tensor_model_parallel_size ..") != std::string_view::npos &&
                         head.find("micro_batch_size ..") != std::string_view::npos);
}

void read_megatron_log(const Source& source, const Context& context, Measurements* measurements) {
  const std::string text = source.text();
  std::vector<TimedLog> without_arguments;
  for (const MegatronLog& log : megatron_runs(text))
    read_megatron_run(log, source.name(), context, &without_arguments, measurements);
  add_timed_runs(source.name(), without_arguments, measurements);
}

}  // namespace orrery::measurements
