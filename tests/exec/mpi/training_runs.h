// Plans trained for real, and how far two runs are apart.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "exec/state/digest.h"
#include "test_plans.h"

namespace orrery::exec::test {

constexpr double kLossTolerance = 1e-4;  // in fp32

struct Outcome {
  std::vector<double> loss;
  std::map<std::string, TensorDigest> digest;
};

// `control` works on host memory, `world` on the device's; they have the same ranks. `rounding`: a seed to
// round the initial weights by; 0: as they are.
Outcome train_plan_on(Device& device, const Plan& plan, Communicator& world, Communicator& control, int steps,
                      std::uint64_t rounding = 0);
// On processors.
Outcome train_plan(const Plan& plan, Communicator& world, int steps, std::uint64_t rounding = 0);

// Over the five last: how a lossy run's loss is averaged.
double mean_of_last(const std::vector<double>& loss);

// The larger, and not a number if either is not.
double worse(double a, double b);

struct Comparison {
  double loss = 0;        // largest relative difference
  double parameters = 0;  // largest, by tensor's norm
  std::string fault;      // empty where the two agree
};

Comparison compare(const Outcome& parallel, const Outcome& serial, const PlanCase& c);

}  // namespace orrery::exec::test
