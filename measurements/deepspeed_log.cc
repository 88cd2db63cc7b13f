// Logs of DeepSpeed by itself: its pipeline's "steps: 10 loss: … iter time (s): 0.320 samples/sec: 800.2"
// (deepspeed/runtime/pipe/engine.py), or "CurrSamplesPerSec=" (deepspeed/utils/timer.py) with the batch of
// its configuration ("train_batch_size .... 256"). What is trained only the program knows that calls it.
#include <cmath>

#include "measurements/kinds.h"
#include "measurements/log_lines.h"

namespace orrery::measurements {
namespace {

constexpr std::string_view kIteration = "iter time (s):", kRate = "CurrSamplesPerSec=";
constexpr std::size_t kMostSteps = 1 << 20;

struct Found {
  std::vector<double> seconds, rates;
  double batch = 0;
};

Found look(const std::string& text) {
  Found found;
  for (const std::string_view line : lines_of(text)) {
    if (line.size() > kMostLogLineBytes) continue;
    const auto keep = [&](std::string_view label, std::vector<double>* all) {
      const auto value = number_behind(line, label);
      if (value && *value > 0 && std::isfinite(*value) && all->size() < kMostSteps) all->push_back(*value);
    };
    keep(kIteration, &found.seconds);
    keep(kRate, &found.rates);
    if (const std::size_t at = line.find("train_batch_size .."); at != std::string_view::npos) {
      const std::size_t end = line.find_first_not_of('.', at + 17);
      if (end != std::string_view::npos)
        if (const auto batch = number_behind(line.substr(end), " "); batch && *batch >= 1)
          found.batch = *batch;
    }
  }
  return found;
}

}  // namespace

bool is_deepspeed_log(std::string_view head) {
  const auto holds = [&](std::string_view word) { return head.find(word) != std::string_view::npos; };
  return holds("DeepSpeedEngine configuration") || (holds("steps: ") && holds(kIteration)) || holds(kRate);
}

void read_deepspeed_log(const Source& source, const Context& /*context*/, Measurements* measurements) {
  const Found found = look(source.text());
  std::vector<double> steps_s = found.seconds;
  if (steps_s.empty() && !found.rates.empty()) {
    if (found.batch <= 0)
      return measurements->ignore(source.name(), 0, "a log that does not print its train_batch_size");
    for (const double rate : found.rates) steps_s.push_back(found.batch / rate);
  }
  if (steps_s.empty()) return measurements->ignore(source.name(), 0, "a log without a time of a step");
  if (steps_s.size() > 1) steps_s.erase(steps_s.begin());  // warms up
  measurements->logs.push_back({source.name(), steps_s});
}

}  // namespace orrery::measurements
