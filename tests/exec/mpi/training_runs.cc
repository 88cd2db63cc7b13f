#include "training_runs.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <optional>

#include "base/random.h"
#include "exec/communicators/gather.h"
#include "exec/math/objective.h"
#include "exec/run/interpreter.h"
#include "program/lower/lowering.h"

namespace orrery::exec::test {
namespace {

constexpr std::size_t kLastSteps = 5;

// Every weight to one of its neighbours, by a seed: as if the whole run had been rounded differently.
// Weights in host memory.
void round_otherwise(Parameters& parameters, std::uint64_t seed) {
  const CounterRandom random(seed, 0x726F756E);
  std::uint64_t next = 0;
  for (const HeldTensor& tensor : parameters.held()) {
    float* weights = parameters.weights(tensor.bucket) + tensor.offset;
    for (std::int64_t i = 0; i < tensor.elements; ++i)
      weights[i] = std::nextafter(weights[i], random.uniform(next++) < 0.5 ? -HUGE_VALF : HUGE_VALF);
  }
}

}  // namespace

Outcome train_plan_on(Device& device, const Plan& plan, Communicator& world, Communicator& control, int steps,
                      std::uint64_t rounding) {
  const Program program = lower(plan, world.rank());
  const Workload& workload = plan.job->workload;
  const std::uint64_t seed = plan.job->training.seed;
  std::optional<TextData> text;
  std::optional<ImageData> images;
  std::optional<Interpreter> chosen;
  if (workload.transformer) {
    chosen.emplace(plan, program, device, world, text.emplace(kDefaultText, kSeqLen, seed));
  } else {
    const ImageOperator& first = *workload.operators.front().image;
    chosen.emplace(plan, program, device, world, images.emplace("", first.input, 10, seed, kGlobalBatch));
  }
  Interpreter& interpreter = *chosen;
  if (rounding != 0) round_otherwise(interpreter.parameters(), rounding);
  std::vector<double> mine;
  for (int step = 0; step < steps; ++step) {
    interpreter.run_step(step);
    mine.push_back(interpreter.loss_sum() /
                   static_cast<double>(kGlobalBatch * predictions_per_sample(*plan.job)));
  }
  Outcome outcome;
  outcome.loss.assign(static_cast<std::size_t>(steps), 0);
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  for (const std::string& part : gather_to_root(control, bytes))
    for (int step = 0; step < steps; ++step)
      outcome.loss[static_cast<std::size_t>(step)] += reinterpret_cast<const double*>(part.data())[step];
  outcome.digest = digest_parameters(plan, interpreter.parameters(), device, control);
  return outcome;
}

Outcome train_plan(const Plan& plan, Communicator& world, int steps, std::uint64_t rounding) {
  const auto device = make_cpu_device();
  return train_plan_on(*device, plan, world, world, steps, rounding);
}

double mean_of_last(const std::vector<double>& loss) {
  return std::accumulate(loss.end() - kLastSteps, loss.end(), 0.0) / kLastSteps;
}

double worse(double a, double b) {
  return b > a || std::isnan(b) ? b : a;
}

Comparison compare(const Outcome& parallel, const Outcome& serial, const PlanCase& c) {
  // Adam divides by the gradient's own size: what is zero but for rounding moves by the learning rate.
  const bool exact = c.precision == DType::fp32;
  const bool parameters = exact && (c.optimizer == Optimizer::sgd || c.optimizer == Optimizer::momentum);
  const double tolerance = exact ? kLossTolerance : 1e-2;
  const double lossy = c.lossy;
  Comparison result;
  if (lossy > 0) {
    const double expected = mean_of_last(serial.loss);
    result.loss = std::abs(mean_of_last(parallel.loss) - expected) / expected;
    if (!(result.loss <= lossy)) result.fault = "the last losses' mean is too far away";
    return result;
  }
  for (std::size_t step = 0; step < serial.loss.size(); ++step) {
    const double error = std::abs(parallel.loss[step] - serial.loss[step]) / std::abs(serial.loss[step]);
    result.loss = worse(result.loss, error);
    if (!(error <= tolerance))
      result.fault =
          fmt::format("loss of step {}: {} instead of {}", step, parallel.loss[step], serial.loss[step]);
  }
  if (!parameters) return result;
  // Softmax does not see a bias that all keys have: what such a tensor holds is rounding, and nothing else.
  double largest = 0;
  for (const auto& [name, expected] : serial.digest) largest = std::max(largest, expected.norm);
  const double rounding = 1e-8 * largest;
  for (const auto& [name, expected] : serial.digest) {
    const TensorDigest& got = parallel.digest.at(name);
    double error = std::abs(got.norm - expected.norm);
    for (std::size_t k = 0; k < kProjections; ++k)
      error = std::max(error, std::abs(got.projections[k] - expected.projections[k]));
    if (error <= rounding) continue;
    result.parameters = worse(result.parameters, error / expected.norm);
    if (!(error <= c.parameter_tolerance * expected.norm))
      result.fault = fmt::format("{} differs by {} of its norm", name, error / expected.norm);
  }
  return result;
}

}  // namespace orrery::exec::test
