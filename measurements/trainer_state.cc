// trainer_state.json, which Hugging Face's Trainer keeps beside its checkpoints and at the end of a training
// (transformers/trainer_callback.py, TrainerState): train_runtime of each training in log_history, and behind
// which step that was. What was trained how stands in other files.
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "measurements/kinds.h"

namespace orrery::measurements {

bool is_trainer_state(std::string_view head) {
  const auto holds = [&](std::string_view word) { return head.find(word) != std::string_view::npos; };
  return begins_object(head) && holds("\"log_history\"") && holds("\"global_step\"");
}

void read_trainer_state(const Source& source, const Context& /*context*/, Measurements* measurements) {
  const std::string text = source.text();
  const Json state = parse_json(text, source.name());
  const auto history = state.find("log_history");
  if (history == state.end() || !history->is_array())
    throw UserError(source.name(), line_of_key(text, "log_history"), "log_history is no list",
                    "trainer_state.json as the Trainer writes it");
  std::vector<TimedLog> runs;
  // Of trainings that ended, which this one resumed. One that was cut off says no time: its steps look like
  // this one's, as in the Trainer's own train_steps_per_second.
  double before = 0;
  for (const Json& one : *history) {
    if (!one.is_object()) continue;
    const double seconds = number_in(one, "train_runtime"), step = number_in(one, "step");
    if (seconds <= 0 || step <= before) continue;
    const double steps = step - before;
    // The first steps warm up, and count: as if one took twice as long.
    runs.push_back({source.name(), {seconds / steps}, 0, 1 / steps});
    before = step;
  }
  if (runs.empty())
    return measurements->ignore(
        source.name(), 0,
        "trainer_state.json without train_runtime: of a checkpoint, before the training's end");
  add_timed_runs(source.name(), runs, measurements);
}

}  // namespace orrery::measurements
