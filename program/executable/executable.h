// What the executor can train today: asked by the planner before it proposes a plan for this machine, and by
// the executor before it starts one.
#pragma once

#include <optional>
#include <string>

#include "program/plan.h"

namespace orrery {

// Queries, keys and values of each head side by side (GPT-NeoX, Falcon, Megatron): one tensor in one part,
// where q | k | v are three parts or three tensors.
bool interleaves_heads(const Operator& op);

// Data without a file of its own is text, a token a byte.
constexpr int kByteVocabulary = 256;

// Why the executor cannot train `plan`, in one line ("what is wrong (what would do)"), or nothing; processors
// and GPUs do the same. The plan has passed check_plan. Cheap: looks at the model's and the plan's dimensions
// only.
std::optional<std::string> why_not_executable(const Plan& plan);

}  // namespace orrery
