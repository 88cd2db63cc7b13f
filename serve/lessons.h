// The simulated truth beside the formulas of the teacher's tab: one question a lesson, with a few bounded
// numbers.
#pragma once

#include <functional>
#include <string_view>

#include "base/json.h"
#include "serve/http.h"

namespace orrery::serve {

// `lesson` names one; its other keys are numbers within a range, `schedule` a name:
//   amdahl (network: times): strong scaling of BERT-large over 1 to 64 servers of one V100
//   bubbles (stages, micro_batches, schedule): a pipeline of Megatron's 22 billion parameters
//   ring (servers, mebibytes): an all-reduce, each of its algorithms
//   servers (workers): ResNet-50 over 1, 2, 4 … parameter servers, and over a ring
//   zero (devices): Llama 2 7B's memory, by what ZeRO shards
//   failures (mtbf_device_hours, checkpoint_bandwidth): a run on 1,024 GPUs, by how often it saves
// Throws UserError on anything else.
void check_lesson(const Query& query);

// A line of JSON with `stage` lesson and what it has `told`, or, as answer() has it, what went wrong. Never
// throws.
void lesson(const Query& query, const std::function<void(std::string_view line)>& emit);

}  // namespace orrery::serve
