// What a device of each stage holds over a step: what stays, and activations as its timeline makes and frees
// them.
#pragma once

#include "base/json.h"
#include "program/plan.h"
#include "sim/simulator.h"

namespace orrery {

// Points of a curve.
constexpr int kMemoryPoints = 400;
constexpr std::size_t kMostMemoryStages = 32;

// step_s; parts: names; stages: stage, rank, capacity_bytes, bytes {weights gradients optimizer buffers kept
// transient margin}: kept and transient at their peaks, margin what the allocator and the device's context
// take beside; kept, transient: by point, in thousandths of those peaks, the most within it.
//
// Kept activations are those of planner/evaluation/memory_over_time.h; the curve's peak is what the memory
// model says (planner/closed_form/figures.h), which knows what a framework counts. Transient ones are there
// while a backward pass runs.
Json memory_json(const Plan& plan, const sim::Simulation& simulation);

}  // namespace orrery
