// Logs of Hugging Face's Trainer, alone or with DeepSpeed: what it prints before training
// ("***** Running training *****", transformers/trainer.py), the model's configuration, and train_runtime at
// the end.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/parse.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::size_t kMostTrainerLineBytes = 65536;  // arguments are printed on one line

constexpr double kLeastTrained = 0.5;  // of the parameters: fewer is no training of the whole model

// The value behind `"name": `, `name=` or `name = `; empty where there is none.
std::string value_of(std::string_view line, std::string_view name) {
  for (std::size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
    const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    if (at > 0 && word(line[at - 1])) continue;
    std::size_t begin = at + name.size();
    bool assigned = false;
    for (; begin < line.size() && std::string_view("'\" :=.").find(line[begin]) != std::string_view::npos;
         ++begin)
      if (line[begin] != ' ') assigned = true;
    if (!assigned || begin >= line.size()) continue;
    return std::string(line.substr(begin, line.find_first_of(",})'\" |", begin) - begin));
  }
  return "";
}

// The same of a count; transformers prints "1,500" since 4.28.
std::string count_of(std::string_view line, std::string_view name) {
  const std::string first = value_of(line, name);
  if (first.empty()) return first;
  const std::size_t at = line.find(first, line.find(name) + name.size());
  return without_grouping(line.substr(at, line.find_first_not_of("0123456789,", at) - at));
}

// "0:01:30.25", "1 day, 2:03:04.50": as the Trainer writes its metrics at the end. 0: it is none.
double seconds_of_clock(std::string_view text) {
  double days = 0;
  if (const std::size_t day = text.find(" day"); day != std::string_view::npos) {
    days = parse_number(text.substr(0, day)).value_or(0);
    text = trimmed(text.substr(std::min(text.find(',', day) + 1, text.size())));
  }
  double seconds = 0;
  const std::vector<std::string> parts = split(text.substr(0, text.find(' ')), ':');
  if (parts.size() < 2 || parts.size() > 3) return 0;
  for (const std::string& part : parts) {
    const auto number = parse_number(part);
    if (!number || *number < 0 || *number > 1e6) return 0;
    seconds = 60 * seconds + *number;
  }
  return days >= 0 && days < 1e5 ? 86400 * days + seconds : 0;
}

// A place in a training, by its progress bar: "50/200 [01:20<04:00, 1.60s/it]".
struct Progress {
  double step = 0, of = 0, at_s = 0;
};
std::optional<Progress> progress_in(std::string_view line) {
  const std::size_t bracket = line.find(" [");
  if (bracket == std::string_view::npos || line.find("%|") == std::string_view::npos) return std::nullopt;
  const std::size_t end = line.find('<', bracket), begin = line.find_last_of(" |", bracket - 1) + 1;
  if (end == std::string_view::npos || bracket == 0 || begin > bracket) return std::nullopt;
  const std::vector<std::string> counts = split(line.substr(begin, bracket - begin), '/');
  const auto step = parse_whole(counts.front()), of = parse_whole(counts.back());
  if (counts.size() != 2 || !step || !of || *step < 0 || *step > *of) return std::nullopt;
  return Progress{static_cast<double>(*step), static_cast<double>(*of),
                  seconds_of_clock(line.substr(bracket + 2, end - bracket - 2))};
}

// Printed once before each training, behind its configuration, by one rank or by several.
constexpr std::string_view kTrains = "Instantaneous batch size per device";

// One training: a file may hold several, one behind the other.
class TrainerLog {
 public:
  // Those that a log holds, the last of which may not have begun.
  static std::vector<TrainerLog> all_of(const std::string& text) {
    std::vector<TrainerLog> runs(1);
    TrainerLog next;  // what is said behind the beginning of one is of the one behind it, if that begins
    for (const auto& [number, line] : lines_of(text)) {
      if (line.size() > kMostTrainerLineBytes) continue;
      TrainerLog& run = runs.back();
      if (line.find(kTrains) != std::string_view::npos) {
        // Of several ranks the last may print theirs behind the configuration of DeepSpeed.
        if (run.begun_ && (run.runtime_s_ > 0 || run.contradicts(next))) {
          // Where nothing was said in between the same model is trained on.
          TrainerLog again = next.said_.empty() ? run : next;
          again.begin_anew();
          runs.push_back(std::move(again));
          next = {};
        }
        runs.back().begun_ = true;
      }
      TrainerLog& now = runs.back();
      now.take_counts(line);
      (now.begun_ ? next : now).take(line);
      now.take_times(line, number);
      const double seconds = now.runtime_in(line);
      if (seconds <= 0) continue;
      now.adopt(next);
      next = {};
      now.runtime_s_ = seconds;
      ++now.ended_;
      now.line_ = number;
    }
    return runs;
  }

  std::string said(const std::string& name) const {
    const auto found = said_.find(name);
    return found == said_.end() || found->second == "null" || found->second == "None" ? "" : found->second;
  }
  std::string first(const std::string& one, const std::string& other) const {
    return said(one).empty() ? said(other) : said(one);
  }
  double number(const std::string& name) const { return parse_number(said(name)).value_or(0); }
  // Of training, without its evaluations: each rank that says how long it trained says theirs, too.
  double trained_s() const { return runtime_s_ > 0 ? runtime_s_ - evaluated_s_ / ended_ : 0; }
  // Of a training that did not end, by its progress bar: steps, and how long they took. 0: it says nothing.
  std::pair<double, double> progressed() const {
    if (last_.step <= first_.step) return {0, 0};
    return {last_.step - first_.step, last_.at_s - first_.at_s - evaluated_between_s_};
  }
  int line() const { return line_; }

 private:
  void begin_anew() {
    begun_ = false;
    runtime_s_ = evaluated_s_ = evaluated_between_s_ = 0;
    ended_ = 0;
    first_ = last_ = {};
  }

  // "'train_runtime': 90.0", or, of a log without that line, "train_runtime = 0:01:30.00"; 0: another line.
  double runtime_in(std::string_view line) const {
    constexpr std::string_view kRuntime = "train_runtime";
    const std::size_t at = line.find(kRuntime);
    if (at == std::string_view::npos) return 0;
    const std::string_view behind = trimmed(line.substr(at + kRuntime.size()));
    if (behind.starts_with('='))
      if (const double seconds = seconds_of_clock(trimmed(behind.substr(1))); seconds > 0)
        return runtime_s_ > 0 ? 0 : seconds;
    return parse_number(value_of(line, kRuntime)).value_or(0);
  }

  void take_times(std::string_view line, int number) {
    if (runtime_s_ > 0) return;
    const auto evaluated = parse_number(value_of(line, "eval_runtime"));
    if (evaluated && *evaluated > 0) evaluated_s_ += *evaluated;
    if (evaluated && *evaluated > 0 && first_.step > 0) evaluated_between_s_ += *evaluated;
    const auto progress = progress_in(line);
    if (!progress || progress->step < 1 || progress->of != this->number("Total optimization steps")) return;
    if (first_.step == 0) first_ = *progress;
    if (progress->step <= last_.step) return;
    last_ = *progress;
    line_ = number;
  }

  bool contradicts(const TrainerLog& other) const {
    return std::any_of(other.said_.begin(), other.said_.end(), [&](const auto& one) {
      const auto own = said_.find(one.first);
      return own != said_.end() && own->second != one.second;
    });
  }
  void adopt(const TrainerLog& other) {
    for (const auto& [name, value] : other.said_) said_[name] = value;
  }

  void take_counts(std::string_view line) {
    static constexpr std::array<std::string_view, 5> kCounts = {
        "Number of trainable parameters", "Total train batch size (w. parallel, distributed & accumulation)",
        kTrains, "Gradient Accumulation steps", "Total optimization steps"};
    for (const std::string_view name : kCounts)
      if (const std::size_t at = line.find(name); at != std::string_view::npos)
        if (const std::string value = count_of(line.substr(at), name); !value.empty())
          said_[std::string(name)] = value;
  }

  // Later configurations replace earlier ones, and what overrides them all.
  void take(std::string_view line) {
    static constexpr std::array<std::string_view, 22> kNames = {"fsdp",
                                                                "n_embd",
                                                                "hidden_size",
                                                                "n_layer",
                                                                "num_hidden_layers",
                                                                "n_head",
                                                                "num_attention_heads",
                                                                "num_key_value_heads",
                                                                "intermediate_size",
                                                                "n_inner",
                                                                "vocab_size",
                                                                "n_positions",
                                                                "block_size",
                                                                "gradient_checkpointing",
                                                                "zero_optimization_stage",
                                                                "model_type",
                                                                "fp16",
                                                                "bf16",
                                                                "max_seq_length",
                                                                "offload_optimizer",
                                                                "tie_word_embeddings",
                                                                "head_dim"};
    for (const std::string_view name : kNames) {
      if (line.find(name) == std::string_view::npos) continue;
      const std::string value = value_of(line, name);
      if (value.empty() || value == "{") continue;
      const bool overrides = line.find("Overriding config") != std::string_view::npos;
      if (overrides || !overridden_[std::string(name)]) said_[std::string(name)] = value;
      if (overrides) overridden_[std::string(name)] = true;
    }
    take_deepspeed(line);
    // DeepSpeed's configuration: "offload_param": { "device": "cpu", …
    if (line.find("\"offload_") != std::string_view::npos) offload_lines_ = 3;
    if (offload_lines_ > 0 && value_of(line, "device") == "cpu") said_["offloaded"] = "True";
    offload_lines_ = std::max(0, offload_lines_ - 1);
  }

  // TrainingArguments' "deepspeed=ds_config.json", or the configuration itself.
  void take_deepspeed(std::string_view line) {
    constexpr std::string_view kArgument = "deepspeed=", kStages = "zero_optimization'";
    const std::size_t at = line.find(kArgument);
    if (at == std::string_view::npos) return;
    const std::string_view value = line.substr(at + kArgument.size());
    if (value.empty() || value.starts_with("None") || value.starts_with(",")) return;
    said_["deepspeed"] = "True";
    const std::size_t stages = value.find(kStages);
    if (stages == std::string_view::npos) return;
    const std::string stage = value_of(value.substr(stages), "stage");
    if (!stage.empty()) said_["zero_optimization_stage"] = stage;
  }

  std::map<std::string, std::string> said_;
  std::map<std::string, bool> overridden_;
  bool begun_ = false;
  double runtime_s_ = 0, evaluated_s_ = 0, evaluated_between_s_ = 0;
  Progress first_, last_;
  int line_ = 0, ended_ = 0, offload_lines_ = 0;
};

bool yes(const std::string& word) {
  return word == "True" || word == "true";
}

// "fsdp=[]" where there is none, else "fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>, …".
bool is_sharded(const TrainerLog& log) {
  return log.said("fsdp").find_first_of("abcdefghijklmnopqrstuvwxyz_") != std::string::npos;
}
bool is_fully_sharded(const TrainerLog& log) {
  return lower_case(log.said("fsdp")).ends_with("full_shard:");
}

bool is_under_deepspeed(const TrainerLog& log) {
  return !log.said("zero_optimization_stage").empty() || !log.said("deepspeed").empty();
}

std::vector<std::pair<std::string, std::string>> columns_of(const TrainerLog& log, double devices,
                                                            double seconds) {
  const std::string stage = log.said("zero_optimization_stage");
  const auto whole = [](double value) { return value >= 1 ? fmt::format("{:.0f}", value) : std::string(); };
  return {{"framework", is_under_deepspeed(log) ? "DeepSpeed" : "Hugging Face Trainer"},
          {"model", log.said("model_type")},
          {"n_layers", log.first("n_layer", "num_hidden_layers")},
          {"hidden", log.first("n_embd", "hidden_size")},
          {"n_heads", log.first("n_head", "num_attention_heads")},
          {"n_kv_heads", log.said("num_key_value_heads")},
          {"ffn_hidden", log.first("intermediate_size", "n_inner")},
          {"vocab", log.said("vocab_size")},
          {"head_dim", log.said("head_dim")},
          {"tied_embeddings", lower_case(log.said("tie_word_embeddings"))},
          {"seq_len_tokens",
           log.first("block_size", log.said("n_positions").empty() ? "max_seq_length" : "n_positions")},
          {"gpu", ""},
          {"n_gpus", whole(devices)},
          {"precision", yes(log.said("bf16"))   ? "bf16"
                        : yes(log.said("fp16")) ? "fp16"
                                                : "fp32"},
          {"tp", "1"},
          {"pp", "1"},
          {"dp_sharding", !stage.empty()          ? "ZeRO-" + stage
                          : is_fully_sharded(log) ? "FSDP full"
                                                  : ""},
          {"gbs_sequences", log.said("Total train batch size (w. parallel, distributed & accumulation)")},
          {"mbs_sequences", log.said("Instantaneous batch size per device")},
          {"act_recompute", yes(log.said("gradient_checkpointing")) ? "full" : "none"},
          {"step_time_s", fmt::format("{:.9g}", seconds)}};
}

// A log of a script that prints no configuration.
bool says_model(const TrainerLog& log) {
  return !log.said("model_type").empty() || !log.first("n_embd", "hidden_size").empty();
}

// What says no model goes to `untold`, for rows of tables.
void read_training(const TrainerLog& log, const std::string& file, const Context& context,
                   Measurements* measurements, std::vector<TimedLog>* untold) {
  double steps = log.number("Total optimization steps"), trained_s = log.trained_s();
  // The first steps warm up, and count: as if one took twice as long.
  double spread = steps >= 1 ? 1 / steps : 0;
  if (trained_s <= 0) {
    // A bar says whole seconds.
    constexpr double kLeastSeconds = 10;
    std::tie(steps, trained_s) = log.progressed();
    if (trained_s < kLeastSeconds)
      return measurements->ignore(file, 0, "a log without train_runtime: it did not end");
    spread = 1 / trained_s;
  }
  if (steps < 1) return measurements->ignore(file, log.line(), "a log that does not print its steps");
  if (yes(log.said("offloaded")))
    return measurements->ignore(file, log.line(), "a run that offloads to the host");
  if (is_sharded(log) && !is_fully_sharded(log))
    return measurements->ignore(file, log.line(), "a run with FSDP that does not shard everything");
  const double each = log.number("Instantaneous batch size per device") *
                      std::max(1.0, log.number("Gradient Accumulation steps"));
  const double all = log.number("Total train batch size (w. parallel, distributed & accumulation)");
  if (each < 1 || all < each)
    return measurements->ignore(file, log.line(), "a log that does not print its batch");
  if (!says_model(log)) {
    untold->push_back({file, {trained_s / steps}, all, spread});
    return;
  }
  const std::size_t before = measurements->steps.size();
  add_log(file, log.line(), columns_of(log, all / each, trained_s / steps), spread, context, measurements);
  if (measurements->steps.size() == before) return;
  // Under FSDP each rank counts its own share.
  const double trained = log.number("Number of trainable parameters") * all / each;
  const double parameters = measurements->steps.back().row.plan.job->workload.parameters();
  if (trained <= 0 || trained >= kLeastTrained * parameters) {
    if (is_under_deepspeed(log) && log.said("zero_optimization_stage").empty())
      measurements->doubt(
          file, log.line(), "deepspeed",
          fmt::format("DeepSpeed's configuration is not in the log: taken as ZeRO-{} without offloading "
                      "(expected 'zero_optimization_stage', as DeepSpeed prints it at the level 'info')",
                      measurements->steps.back().row.plan.choices.zero));
    return;
  }
  measurements->steps.pop_back();
  measurements->ignore(file, log.line(),
                       fmt::format("a run that trains {:.3g} of {:.3g} parameters (LoRA, or frozen layers)",
                                   log.number("Number of trainable parameters"), parameters));
}

}  // namespace

bool is_trainer_log(std::string_view head) {
  const auto holds = [&](std::string_view word) { return head.find(word) != std::string_view::npos; };
  return holds("Instantaneous batch size per device") || holds("'train_runtime':") ||
         (holds("***** train metrics *****") && holds("train_runtime"));
}

void read_trainer_log(const Source& source, const Context& context, Measurements* measurements) {
  const std::string text = source.text();
  std::vector<TimedLog> untold;
  for (const TrainerLog& log : TrainerLog::all_of(text))
    read_training(log, source.name(), context, measurements, &untold);
  add_timed_runs(source.name(), untold, measurements);
}

}  // namespace orrery::measurements
