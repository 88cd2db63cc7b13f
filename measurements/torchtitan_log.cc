// Logs of torchtitan: what it prints while it builds ("Building device mesh with parallelism: pp=1, …",
// "Trainer is initialized with local batch size …", torchtitan/distributed/parallel_dims.py, train.py), and a
// line every few steps ("step: 10  loss: …  tps: 5,756  …", torchtitan/components/metrics.py).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/parse.h"
#include "base/statistics.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kMesh = "device mesh with parallelism:";
constexpr std::string_view kTrainer = "Trainer is initialized with local batch size";
// Until autumn 2025: "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]", which leaves out what is 1,
// and "Training starts at step 1, with local batch size …". Until spring 2025 a rate was called wps.
constexpr std::string_view kOldMesh = "-D device mesh with [", kOldTrainer = "Training starts at step";
constexpr std::string_view kStep = "step: ", kTokenRate = "tps: ", kOldTokenRate = "wps: ";
constexpr std::size_t kMostTorchtitanSteps = 1 << 20;

// "5,756".
double grouped_number(std::string_view text) {
  return parse_number(without_grouping(text.substr(0, text.find(' ')))).value_or(0);
}

// torchtitan's names of models and flavors, "llama3" and "8B", in the words of everybody else: its "llama3"
// is what Llama 3.1 is.
std::string model_of(const std::string& name, const std::string& flavor) {
  if (name == "llama3") return "Llama-3.1-" + flavor;
  if (name == "llama2") return "Llama-2-" + flavor;
  return name + "-" + flavor;
}

// One run: a file may hold several, one behind the other.
class TorchtitanLog {
 public:
  const std::vector<LoggedStep>& steps() const { return steps_; }  // tokens a second and device
  int line() const { return line_; }
  std::string said(const std::string& name) const {
    const auto found = said_.find(name);
    return found == said_.end() ? std::string() : found->second;
  }
  int degree(const std::string& name) const {
    return static_cast<int>(std::clamp<std::int64_t>(parse_whole(said(name)).value_or(1), 1, 1 << 20));
  }
  std::int64_t devices() const {
    std::int64_t all = 1;
    for (const char* name : {"pp", "dp_replicate", "dp_shard", "cp", "tp"})
      all = std::min<std::int64_t>(all * degree(name), 1 << 20);
    return all;
  }

  // Whether the line is of another run that begins there: a mesh behind steps, behind what is printed once
  // all is built, or another mesh. Other ranks may print the same before that.
  bool ends_before(std::string_view line) const {
    const std::string_view mesh = mesh_in(line);
    return !mesh.empty() &&
           (!steps_.empty() || !said("global_batch").empty() || (!mesh_.empty() && mesh != mesh_));
  }

  void take(std::string_view line, int number) {
    if (line_ == 0) line_ = number;
    if (const std::string_view mesh = mesh_in(line); !mesh.empty()) mesh_ = mesh;
    const auto holds = [&](std::string_view word) { return line.find(word) != std::string_view::npos; };
    const std::string_view rate_label = holds(kTokenRate) ? kTokenRate : kOldTokenRate;
    if (holds(kStep) && holds(rate_label) && !holds("validate step")) {
      const std::string_view behind = line.substr(line.find(rate_label) + rate_label.size());
      if (steps_.size() < kMostTorchtitanSteps)
        steps_.push_back(
            {number, parse_whole(word_behind(line, kStep)).value_or(-1), grouped_number(trimmed(behind))});
      return;
    }
    take_configuration(line);
  }

 private:
  static std::string_view mesh_in(std::string_view line) {
    for (const std::string_view begin : {kMesh, kOldMesh})
      if (const std::size_t at = line.find(begin); at != std::string_view::npos) return line.substr(at);
    return {};
  }
  void say(const std::string& name, std::string_view value) {
    if (!value.empty()) said_[name] = value.substr(0, 64);
  }

  void take_configuration(std::string_view line) {
    const auto holds = [&](std::string_view word) { return line.find(word) != std::string_view::npos; };
    if (holds(kMesh))
      for (const char* name : {"pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp"})
        say(name, word_behind(line, fmt::format("{}=", name)));
    if (holds(kOldMesh)) take_old_mesh(line);
    if (holds(kTrainer) || (holds(kOldTrainer) && holds("local batch size"))) {
      say("local_batch", word_behind(line, "local batch size"));
      say("global_batch", word_behind(line, "global batch size"));
      say("sequence", word_behind(line, "sequence length"));
    }
    if (holds("Model ") && holds(" size:") && holds("parameters")) {
      const std::string_view name = word_behind(line, "Model ");
      say("model", name);
      say("flavor", word_behind(line, fmt::format("Model {} ", name)));
      const std::string_view size = line.substr(line.find(" size:") + 6);
      say("parameters", fmt::format("{:.0f}", grouped_number(trimmed(size))));
    }
    if (holds(" capacity: ") && holds("GiB memory")) {
      const std::size_t at = line.find(" capacity: ") + 11;
      say("device", line.substr(at, line.find(" with ", at) - at));
    }
    if (holds("activation checkpointing to the model")) say("recompute", word_behind(line, "Applied "));
    if (holds("Compiling")) say("compiled", "True");
    if (holds("Float8") && (holds("Swapped") || holds("Converted"))) say("float8", "True");
    if (holds("Offloading to the model") || holds("CPU offload")) say("offloaded", "True");
  }

  // Names in quotation marks, then as many degrees.
  void take_old_mesh(std::string_view line) {
    const std::size_t begin = line.find(kOldMesh) + kOldMesh.size(), end = line.find(']', begin);
    const std::size_t degrees = end == std::string_view::npos ? end : line.find('[', end);
    if (degrees == std::string_view::npos) return;
    const std::vector<std::string> names = split(line.substr(begin, end - begin));
    const std::size_t last = line.find(']', degrees);
    const std::vector<std::string> numbers = split(line.substr(degrees + 1, last - degrees - 1));
    if (last == std::string_view::npos || names.size() != numbers.size()) return;
    std::map<std::string, std::int64_t> found;
    for (const char* name : {"pp", "dp_replicate", "dp_shard", "cp", "tp"}) found[name] = 1;
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::string name(trimmed(names[i]));
      std::erase(name, '\'');
      const std::int64_t degree = parse_whole(trimmed(numbers[i])).value_or(0);
      if (degree < 1 || degree > (1 << 20)) return;
      // What shards the rest beside experts, and experts: together as many as shard.
      if (name.ends_with("_ep")) say("experts", "True");
      if (name == "dp" || name == "dp_shard_mod_ep" || name == "dp_shard_in_ep") name = "dp_shard";
      if (found.count(name) == 0) return;
      found[name] = std::min<std::int64_t>(found[name] * degree, 1 << 20);
    }
    for (const auto& [name, degree] : found) say(name, std::to_string(degree));
  }

  std::map<std::string, std::string> said_;
  std::vector<LoggedStep> steps_;
  std::string mesh_;
  int line_ = 0;  // its first
};

std::vector<TorchtitanLog> torchtitan_runs(const std::string& text) {
  std::vector<TorchtitanLog> runs(1);
  for (const auto& [number, line] : lines_of(text)) {
    if (line.size() >= kMostLogLineBytes) continue;
    if (runs.back().ends_before(line)) runs.emplace_back();
    runs.back().take(line, number);
  }
  return runs;
}

// Whether the log is of this model, by all that it says of one whose flavor is somebody's own: how many
// parameters it has.
bool is_of(const TorchtitanLog& log, const Workload* model) {
  constexpr double kMostDiffers = 0.03;  // modules that are counted or left out: further tokens', biases
  const double parameters = parse_number(log.said("parameters")).value_or(0);
  return model != nullptr && model->transformer && parameters > 0 &&
         std::abs(parameters / static_cast<double>(model->parameters()) - 1) < kMostDiffers;
}

// A flavor that says how large it is, as torchtitan's own do: "8B", "17bx16e".
bool names_size(const std::string& flavor) {
  return flavor.find_first_of("0123456789") != std::string::npos;
}

std::string recomputation_of(const TorchtitanLog& log) {
  const std::string mode = lower_case(log.said("recompute"));
  if (mode.starts_with("full")) return "full";
  return mode.starts_with("selective") ? "selective" : "none";
}

std::vector<std::pair<std::string, std::string>> columns_of(const TorchtitanLog& log, double tokens_per_s) {
  const bool stages = log.degree("pp") > 1;
  std::string sharding = log.degree("dp_shard") > 1 ? "FSDP2" : "";
  if (log.degree("dp_shard") > 1 && log.degree("dp_replicate") > 1) sharding = "HSDP";
  return {{"framework", "torchtitan"},
          {"model", model_of(log.said("model"), log.said("flavor"))},
          {"seq_len_tokens", log.said("sequence")},
          {"gpu", log.said("device")},
          {"n_gpus", std::to_string(log.devices())},
          {"precision", log.said("float8").empty() ? "bf16" : "float8"},
          {"tp", std::to_string(log.degree("tp"))},
          {"pp", std::to_string(log.degree("pp"))},
          {"cp", std::to_string(log.degree("cp"))},
          {"ep", std::to_string(log.degree("ep"))},
          {"dp_sharding", sharding},
          {"gbs_sequences", log.said("global_batch")},
          // A pipeline cuts the local batch into micro-batches.
          {"mbs_sequences", (stages ? "local batch " : "") + log.said("local_batch")},
          {"act_recompute", recomputation_of(log)},
          {"tokens_per_s_per_gpu", fmt::format("{:.9g}", tokens_per_s)},
          {"notes", log.said("compiled").empty() ? "FSDP" : "FSDP + torch.compile"}};
}

void read_torchtitan_run(const TorchtitanLog& log, const std::string& file, const Context& context,
                         std::vector<TimedLog>* unnamed, Measurements* measurements) {
  const int begin = log.line() > 1 ? log.line() : 0;
  const auto ignore = [&](std::string_view why) { measurements->ignore(file, begin, std::string(why)); };
  if (log.steps().empty()) return ignore("a log without a step's tokens a second (tps)");
  if (log.said("dp_shard").empty()) return ignore("a log that does not print its device mesh");
  if (log.said("global_batch").empty()) return ignore("a log that does not print its batch and sequences");
  if (log.said("model").empty()) return ignore("a log that does not print its model");
  if (!log.said("experts").empty())
    return ignore("a log that does not print over how many experts are split");
  if (!log.said("offloaded").empty()) return ignore("a run that offloads to the host");
  // The first step compiles and warms up.
  std::vector<double> tokens_per_s, seconds;
  const std::vector<LoggedStep> steps = steady(log.steps());
  if (steps.empty()) return ignore(kWarmsUp);
  for (const LoggedStep& one : steps) {
    tokens_per_s.push_back(one.value);
    seconds.push_back(1 / one.value);
  }
  evidence::Said said;
  // Experts' own tensor ranks, which say something beside expert ranks alone.
  if (log.degree("ep") > 1 && !log.said("etp").empty()) said.plan.etp = log.degree("etp");
  if (is_of(log, context.model.get()))
    said.workload = context.model;
  else if (!names_size(log.said("flavor"))) {
    // What it is of a row may say.
    const double batch = parse_number(log.said("global_batch")).value_or(0),
                 tokens = batch * parse_number(log.said("sequence")).value_or(0);
    constexpr double kMostTokens = 1e15;
    if (!(batch >= 1 && tokens >= 1 && tokens <= kMostTokens))
      return ignore("a log that does not print its batch and sequences");
    for (double& one : seconds) one *= tokens / static_cast<double>(log.devices());
    return unnamed->push_back({file, seconds, batch});
  }
  add_log(file, steps.front().line, columns_of(log, median(tokens_per_s)), spread_of_median(seconds), context,
          measurements, said);
}

}  // namespace

bool is_torchtitan_log(std::string_view head) {
  const auto holds = [&](std::string_view word) { return head.find(word) != std::string_view::npos; };
  return holds(kMesh) || holds(kTrainer) || holds(kOldMesh) ||
         (holds(kOldTrainer) && holds("local batch size"));
}

void read_torchtitan_log(const Source& source, const Context& context, Measurements* measurements) {
  const std::string text = source.text();
  std::vector<TimedLog> unnamed;
  for (const TorchtitanLog& log : torchtitan_runs(text))
    read_torchtitan_run(log, source.name(), context, &unnamed, measurements);
  add_timed_runs(source.name(), unnamed, measurements);
}

}  // namespace orrery::measurements
