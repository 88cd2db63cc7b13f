// Logs of DeepSpeed by itself: its pipeline's "steps: 10 loss: … iter time (s): 0.320 samples/sec: 800.2"
// (deepspeed/runtime/pipe/engine.py), or "CurrSamplesPerSec=" (deepspeed/utils/timer.py) with the batch of
// its configuration ("train_batch_size .... 256"). What is trained only the program knows that calls it.
#include "base/parse.h"
#include "measurements/kinds.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kIteration = "iter time (s):", kRate = "CurrSamplesPerSec=",
                           kEngine = "DeepSpeedEngine configuration";
constexpr std::size_t kMostSteps = 1 << 20;

// One run: a file may hold several, one behind the other.
class DeepSpeedLog {
 public:
  // Whether the line is of another run that begins there. A run may have several engines.
  bool ends_before(std::string_view line) const {
    if (line.find(kIteration) != std::string_view::npos)
      return counts_anew(seconds_, step_of(line, "steps: "));
    if (line.find(kRate) != std::string_view::npos) return counts_anew(rates_, step_of(line, "global_step="));
    return line.find(kEngine) != std::string_view::npos && timed();
  }

  void take(std::string_view line, int number) {
    keep(line, number, kIteration, "steps: ", &seconds_);
    keep(line, number, kRate, "global_step=", &rates_);
    if (const std::size_t at = line.find("train_batch_size .."); at != std::string_view::npos) {
      const std::size_t end = line.find_first_not_of('.', at + 17);
      if (end != std::string_view::npos)
        if (const auto batch = number_behind(line.substr(end), " "); batch && *batch >= 1) batch_ = *batch;
    }
  }

  bool timed() const { return !seconds_.empty() || !rates_.empty(); }
  bool lacks_batch() const { return seconds_.empty() && batch_ <= 0; }
  double batch() const { return batch_; }
  std::vector<double> steps_s() const {
    std::vector<double> found;
    for (const LoggedStep& one : steady(seconds_)) found.push_back(one.value);
    if (seconds_.empty())
      for (const LoggedStep& one : steady(rates_)) found.push_back(batch_ / one.value);
    return found;
  }

 private:
  static std::int64_t step_of(std::string_view line, std::string_view label) {
    return parse_whole(word_behind(line, label)).value_or(-1);
  }
  static void keep(std::string_view line, int number, std::string_view label, std::string_view step,
                   std::vector<LoggedStep>* all) {
    if (line.find(label) != std::string_view::npos && all->size() < kMostSteps)
      all->push_back({number, step_of(line, step), number_behind(line, label).value_or(0)});
  }

  std::vector<LoggedStep> seconds_, rates_;
  double batch_ = 0;
};

std::vector<DeepSpeedLog> deepspeed_runs(const std::string& text) {
  std::vector<DeepSpeedLog> runs(1);
  for (const auto& [number, line] : lines_of(text)) {
    if (line.size() > kMostLogLineBytes) continue;
    if (runs.back().ends_before(line)) runs.emplace_back();
    runs.back().take(line, number);
  }
  return runs;
}

}  // namespace

bool is_deepspeed_log(std::string_view head) {
  const auto holds = [&](std::string_view word) { return head.find(word) != std::string_view::npos; };
  return holds(kEngine) || (holds("steps: ") && holds(kIteration)) || holds(kRate);
}

void read_deepspeed_log(const Source& source, const Context& /*context*/, Measurements* measurements) {
  const std::string text = source.text();
  std::vector<TimedLog> runs;
  for (const DeepSpeedLog& log : deepspeed_runs(text)) {
    const auto ignore = [&](std::string_view why) {
      measurements->ignore(source.name(), 0, std::string(why));
    };
    const std::vector<double> steps_s = log.steps_s();
    if (!log.timed())
      ignore("a log without a time of a step");
    else if (log.lacks_batch())
      ignore("a log that does not print its train_batch_size");
    else if (steps_s.empty())
      ignore(kWarmsUp);
    else
      runs.push_back({source.name(), steps_s, log.batch()});
  }
  add_timed_runs(source.name(), runs, measurements);
}

}  // namespace orrery::measurements
