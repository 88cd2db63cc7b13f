// Logs of NeMo and of MLPerf: "train_step_timing in s" (NeMo's progress bar and MLPerf's tracked_stats), or
// the samples that MLPerf's lines of losses count (":::MLLOG {…}", mlcommons/logging, mlperf_logging/mllog);
// of NeMo the configuration, where it is printed ("tensor_model_parallel_size: 4").
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/json.h"
#include "base/parse.h"
#include "base/statistics.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kLine = ":::MLLOG ", kTiming = "train_step_timing in s",
                           kConfiguration = "Experiment configuration";
constexpr std::size_t kMostNemoSteps = 1 << 20;
constexpr std::array<std::string_view, 16> kNames = {"tensor_model_parallel_size",
                                                     "pipeline_model_parallel_size",
                                                     "virtual_pipeline_model_parallel_size",
                                                     "context_parallel_size",
                                                     "expert_model_parallel_size",
                                                     "micro_batch_size",
                                                     "global_batch_size",
                                                     "encoder_seq_length",
                                                     "num_layers",
                                                     "hidden_size",
                                                     "ffn_hidden_size",
                                                     "num_attention_heads",
                                                     "num_query_groups",
                                                     "activations_checkpoint_granularity",
                                                     "num_nodes",
                                                     "precision"};

std::string benchmark_model(const std::string& name) {
  static const std::map<std::string, std::string> known = {
      {"gpt3", "GPT-3 175B"},
      {"llama2_70b_lora", "Llama 2 70B LoRA fine-tune (rank 16)"},
      {"llama31_405b", "Llama 3.1 405B"},
      {"llama31_8b", "Llama 3.1 8B"}};
  const auto found = known.find(name);
  return found == known.end() ? name : found->second;
}

// One run: a file may hold several, one behind the other.
class NemoLog {
 public:
  // Whether the line is of another run that begins there: the heading of its configuration, what is said once
  // is said again behind steps, or steps are counted anew.
  bool ends_before(std::string_view line) const {
    if (line.find(kConfiguration) != std::string_view::npos) return timed() || !said_.empty();
    if (!timed()) return false;
    if (const std::size_t at = line.find(kLine); at != std::string_view::npos) {
      const std::string_view event = line.substr(at);
      return !said("benchmark").empty() && event.find(R"("submission_benchmark")") != std::string_view::npos;
    }
    if (line.find(kTiming) != std::string_view::npos) return counts_anew(timed_, step_of(line));
    const std::string_view name = setting_of(line).first;
    return name != "precision" && said_.count(std::string(name)) > 0;  // a metric's name, too
  }

  void take_line(std::string_view line, int number) {
    if (const std::size_t at = line.find(kLine); at != std::string_view::npos)
      take_event(line.substr(at + kLine.size()), number);
    else
      take(line, number);
  }

  // Timings where they are printed, else by the counts of samples; without the first.
  std::vector<LoggedStep> steps() const { return steady(timed_.empty() ? counted_ : timed_); }
  bool timed() const { return !timed_.empty() || !counted_.empty(); }
  std::string said(std::string_view name) const {
    const auto found = said_.find(std::string(name));
    return found == said_.end() || found->second == "null" || found->second == "None" ? "" : found->second;
  }

 private:
  static void keep(std::vector<LoggedStep>* all, double seconds, int number, std::int64_t step = -1) {
    if (all->size() < kMostNemoSteps) all->push_back({number, step, seconds});
  }

  // "global_step=3.000" of the progress bar, "global_step: 3" of NeMo 2's lines.
  static std::int64_t step_of(std::string_view line) {
    const std::string_view label =
        line.find("global_step: ") != std::string_view::npos ? "global_step: " : "global_step=";
    const double step = number_behind(line, label).value_or(-1);
    return step >= 0 && step < 1e15 ? static_cast<std::int64_t>(step) : -1;
  }

  // "model.micro_batch_size: 1": a name of kNames and its value; else of nothing.
  static std::pair<std::string_view, std::string_view> setting_of(std::string_view line) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string_view::npos) return {};
    std::string_view name = trimmed(line.substr(0, colon));
    name = name.substr(name.find_last_of(". ") + 1);
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return {};
    return {name, trimmed(line.substr(colon + 2)).substr(0, 64)};
  }

  // NeMo's own lines: "… train_step_timing in s=5.52]", "  micro_batch_size: 1".
  void take(std::string_view line, int number) {
    if (line.find(kTiming) != std::string_view::npos) {
      std::string_view rest = line.substr(line.rfind(kTiming) + kTiming.size());
      rest.remove_prefix(std::min(rest.find_first_not_of("=: "), rest.size()));
      const double seconds = parse_number(rest.substr(0, rest.find_first_of(" ,]|"))).value_or(0);
      const std::int64_t step = step_of(line);
      // A progress bar is drawn anew while nothing is.
      const bool again =
          step >= 0 && !timed_.empty() && timed_.back().number == step && timed_.back().value == seconds;
      if (!again) keep(&timed_, seconds, number, step);
      return;
    }
    if (const auto [name, value] = setting_of(line); !name.empty())
      said_.try_emplace(std::string(name), value);
  }

  void take_event(std::string_view text, int number) {
    const Json event = Json::parse(text, nullptr, false);
    if (!event.is_object() || !event.contains("key") || !event.at("key").is_string()) return;
    const auto key = event.at("key").get<std::string>();
    const Json value = event.value("value", Json());
    const Json metadata = event.value("metadata", Json());
    if (key == "submission_benchmark" && value.is_string())
      said_.try_emplace("benchmark", benchmark_model(value));
    if (key == "submission_platform" && value.is_string())
      said_.try_emplace("platform", value.get<std::string>().substr(0, 64));
    if (value.is_number() && (key == "global_batch_size" || key == "max_sequence_length"))
      said_.try_emplace(key, fmt::format("{:.0f}", value.get<double>()));
    if (key == "tracked_stats" && value.is_object())
      if (const Json timing = value.value(std::string(kTiming), Json()); timing.is_number())
        keep(&timed_, timing.get<double>(), number);
    // Whatever stands between two losses takes time of its own, but for reports.
    if (key != "train_loss" && key != "tracked_stats") counted_from_ = {};
    const Json time = event.value("time_ms", Json());
    if (key != "train_loss" || !metadata.is_object() || !time.is_number()) return;
    const Json samples = metadata.value("samples_count", Json());
    if (!samples.is_number()) return;
    const Count now{time.get<double>() * 1e-3, samples.get<double>()};
    const double batch = parse_number(said("global_batch_size")).value_or(0);
    const double steps = batch > 0 ? (now.samples - counted_from_.samples) / batch : 0;
    if (counted_from_.samples > 0 && steps >= 1)
      keep(&counted_, (now.at_s - counted_from_.at_s) / steps, number);
    counted_from_ = now;
  }

  struct Count {
    double at_s = 0, samples = 0;
  };
  std::map<std::string, std::string> said_;
  std::vector<LoggedStep> timed_, counted_;
  Count counted_from_;
};

std::vector<NemoLog> nemo_runs(const std::string& text) {
  std::vector<NemoLog> runs(1);
  for (const auto& [number, line] : lines_of(text)) {
    if (line.size() > kMostLogLineBytes) continue;
    if (runs.back().ends_before(line)) runs.emplace_back();
    runs.back().take_line(line, number);
  }
  return runs;
}

// "64xNVIDIA DGX H100": so many nodes of the cluster's.
std::string devices_of(const NemoLog& log, const Context& context) {
  std::string nodes = log.said("num_nodes");
  const std::string platform = log.said("platform");
  if (nodes.empty()) nodes = platform.substr(0, platform.find('x'));
  const auto number = parse_whole(nodes);
  if (!number || *number < 1 || *number > (1 << 18) || context.cluster.groups.empty()) return "";
  return std::to_string(*number * context.cluster.groups.front().node.devices);
}

std::string precision_of(const NemoLog& log) {
  const std::string said = log.said("precision");
  if (said.find("fp8") != std::string::npos) return "fp8";
  return said.starts_with("16") && said.find("mixed") != std::string::npos ? "fp16" : "bf16";
}

std::vector<std::pair<std::string, std::string>> columns_of(const NemoLog& log, const Context& context,
                                                            double seconds) {
  const std::string granularity = log.said("activations_checkpoint_granularity");
  const std::string length = log.said("max_sequence_length");
  return {{"framework", "NeMo"},
          {"model", log.said("benchmark").empty() ? "GPT" : log.said("benchmark")},
          {"n_layers", log.said("num_layers")},
          {"hidden", log.said("hidden_size")},
          {"n_heads", log.said("num_attention_heads")},
          {"n_kv_heads", log.said("num_query_groups")},
          {"ffn_hidden", log.said("ffn_hidden_size")},
          {"seq_len_tokens", length.empty() ? log.said("encoder_seq_length") : length},
          {"gpu", ""},
          {"n_gpus", devices_of(log, context)},
          {"precision", precision_of(log)},
          {"tp", log.said("tensor_model_parallel_size")},
          {"pp", log.said("pipeline_model_parallel_size")},
          {"vp_interleave", log.said("virtual_pipeline_model_parallel_size")},
          {"cp", log.said("context_parallel_size")},
          {"ep", log.said("expert_model_parallel_size")},
          {"gbs_sequences", log.said("global_batch_size")},
          {"mbs_sequences", log.said("micro_batch_size")},
          {"act_recompute", granularity.empty() ? "none" : granularity},
          {"step_time_s", fmt::format("{:.9g}", seconds)}};
}

}  // namespace

bool is_nemo_log(std::string_view head) {
  return head.find(kLine) != std::string_view::npos || head.find(kTiming) != std::string_view::npos;
}

void read_nemo_log(const Source& source, const Context& context, Measurements* measurements) {
  const std::string text = source.text();
  std::vector<TimedLog> without_layout;
  for (const NemoLog& log : nemo_runs(text)) {
    if (!log.timed()) {
      measurements->ignore(source.name(), 0, "a log without a time of a step");
      continue;
    }
    const std::vector<LoggedStep> steps = log.steps();
    if (steps.empty()) {
      measurements->ignore(source.name(), 0, std::string(kWarmsUp));
      continue;
    }
    std::vector<double> seconds;
    for (const LoggedStep& one : steps) seconds.push_back(one.value);
    // With the layout its step is a row by itself.
    if (!log.said("tensor_model_parallel_size").empty() && !log.said("micro_batch_size").empty() &&
        !devices_of(log, context).empty())
      add_log(source.name(), steps.front().line, columns_of(log, context, median(seconds)),
              spread_of_median(seconds), context, measurements);
    else
      without_layout.push_back(
          {source.name(), seconds, parse_number(log.said("global_batch_size")).value_or(0)});
  }
  add_timed_runs(source.name(), without_layout, measurements);
}

}  // namespace orrery::measurements
