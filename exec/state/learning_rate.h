// The learning rate of each step: linear scaling with the batch and linear warm-up (Goyal et al., arXiv
// 1706.02677, sections 2.1 and 2.2).
#pragma once

#include <algorithm>
#include <cstdint>

namespace orrery::exec {

struct LearningRate {
  double base = 0;                // 0: the plan's, or the executor's default for the optimizer
  std::int64_t base_batch = 0;    // samples that `base` was meant for; 0: the global batch
  std::int64_t warmup_steps = 0;  // over which the rate rises to its full value

  // `plain`: the rate where nothing is asked; `step` counts from 0.
  double at(std::int64_t step, double plain, std::int64_t global_batch) const {
    double rate = base > 0 ? base : plain;
    if (base_batch > 0) rate *= static_cast<double>(global_batch) / static_cast<double>(base_batch);
    if (warmup_steps <= 0) return rate;
    return rate * std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(warmup_steps));
  }
};

}  // namespace orrery::exec
