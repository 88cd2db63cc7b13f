// A plan's figures without a simulation: memory, FLOPs, and the step's time in closed form.
#pragma once

#include "program/plan.h"

namespace orrery::planner {

struct Memory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0, total = 0, capacity = 0;
  double transient = 0;  // the part of `activations` that exists for a moment: gradients, the loss
  double allocated = 0;  // what a framework's allocator counts as allocated, at its peak
  double reserved = 0;   // what it took from the device for that
  // Of `total` what must be there at one moment: copies that the update makes take the place of activations
  // where the device is full, for an allocator that runs out gives back what it merely keeps and tries again
  // (PyTorch's CUDACachingAllocator: release_cached_blocks). This decides whether a plan fits.
  double needed = 0;
  int stage = 0;  // whose device is the fullest
  // `fillable`: the share of the capacity that may be predicted to be full.
  bool fits(double fillable = 1) const { return needed <= capacity * fillable; }
};
// Of the fullest device. allocated = weights + gradients + optimizer + activations + buffers; reserved =
// allocated * (1 + allocator margin); total = reserved + context. Activations: Korthikanti et al., arXiv
// 2205.05198, times the schedule's micro-batches in flight; docs/accuracy.md says what else counts.
Memory predict_memory(const Plan& plan);
Memory predict_memory_of_stage(const Plan& plan, int stage);

// Closed form, unbiased: orders plans. Microseconds to evaluate.
double estimate_step_seconds(const Plan& plan);

// FLOPs of the model in one step over the whole cluster: causal attention counted once, no recomputation.
double model_flops(const Plan& plan);
// With recomputation: what the devices really execute.
double hardware_flops(const Plan& plan);

}  // namespace orrery::planner
