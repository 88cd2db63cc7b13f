// The learning rate of each step: linear scaling with the batch and linear warm-up (Goyal et al., arXiv
// 1706.02677, sections 2.1 and 2.2), then a schedule down to the end.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace orrery::exec {

enum class RateSchedule : std::uint8_t {
  constant,
  linear,
  cosine,
  wsd,  // warm-up, stable, decay: linear over the last steps
};

struct LearningRate {
  double base = 0;                // 0: the plan's, or the executor's default for the optimizer
  std::int64_t base_batch = 0;    // samples that `base` was meant for; 0: the global batch
  std::int64_t warmup_steps = 0;  // over which the rate rises to its full value
  RateSchedule schedule = RateSchedule::constant;
  std::int64_t steps = 0;        // of the whole training: where a schedule ends
  std::int64_t decay_steps = 0;  // wsd: the last so many; 0: a tenth of all
  double least = 0;              // at the end, as a share of the full rate

  // `plain`: the rate where nothing is asked; `step` counts from 0.
  double at(std::int64_t step, double plain, std::int64_t global_batch) const {
    double rate = base > 0 ? base : plain;
    if (base_batch > 0) rate *= static_cast<double>(global_batch) / static_cast<double>(base_batch);
    if (step < warmup_steps) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    return rate * (least + (1 - least) * height(step));
  }

 private:
  // Of the schedule's way down: 1 at its beginning, 0 after the last step.
  double height(std::int64_t step) const {
    const std::int64_t last = decay_steps > 0 ? decay_steps : std::max<std::int64_t>(1, steps / 10);
    const std::int64_t from =
        schedule == RateSchedule::wsd ? std::max(warmup_steps, steps - last) : warmup_steps;
    if (schedule == RateSchedule::constant || step < from || steps <= from) return 1;
    const double gone = std::min(1.0, static_cast<double>(step - from) / static_cast<double>(steps - from));
    constexpr double kPi = 3.14159265358979323846;
    return schedule == RateSchedule::cosine ? (1 + std::cos(kPi * gone)) / 2 : 1 - gone;
  }
};

}  // namespace orrery::exec
