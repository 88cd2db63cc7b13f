// Every plan must train as one rank would: that proves that it was executed and not acted.
#include "equivalence.h"

#include <fmt/format.h>

#include <cmath>

#include "exec/collectives.h"
#include "exec/digest.h"
#include "exec/gather.h"
#include "exec/interpreter.h"
#include "program/lowering.h"
#include "test_plans.h"

namespace orrery::exec::test {
namespace {

constexpr int kSteps = 10;

struct Outcome {
  std::vector<double> loss;
  std::map<std::string, TensorDigest> digest;
};

Outcome train_plan(const Plan& plan, Communicator& world) {
  const Program program = lower(plan, world.rank());
  const auto device = make_cpu_device();
  const TextData data(kDefaultText, kSeqLen, plan.job->training.seed);
  Interpreter interpreter(plan, program, *device, world, data);
  std::vector<double> mine;
  for (int step = 0; step < kSteps; ++step) {
    interpreter.run_step(step);
    mine.push_back(interpreter.loss_sum() / (kGlobalBatch * kSeqLen));
  }
  Outcome outcome;
  outcome.loss.assign(kSteps, 0);
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  for (const std::string& part : gather_to_root(world, bytes))
    for (int step = 0; step < kSteps; ++step)
      outcome.loss[static_cast<std::size_t>(step)] += reinterpret_cast<const double*>(part.data())[step];
  outcome.digest = digest_parameters(plan, program, interpreter.parameters(), *device, world);
  return outcome;
}

Choices choices(int tp, int pp, int dp, int micro_batch, Schedule schedule = Schedule::one_f_one_b) {
  Choices c;
  c.tp = tp;
  c.pp = pp;
  c.dp = dp;
  c.micro_batch = micro_batch;
  c.schedule = schedule;
  return c;
}

Choices with(Choices c, const std::function<void(Choices&)>& change) {
  change(c);
  return c;
}

std::vector<PlanCase> all_cases() {
  const auto zero = [](Choices& c) { c.zero = 1; };
  const auto sp = [](Choices& c) { c.sequence_parallel = true; };
  const auto full = [](Choices& c) { c.recompute = Recompute::full; };
  const auto selective = [](Choices& c) { c.recompute = Recompute::selective; };
  const auto late = [](Choices& c) { c.overlap_grad_reduce = false; };
  std::vector<PlanCase> cases = {
      {"accumulation", false, choices(1, 1, 1, 2)},
      {"recompute full", true, with(choices(1, 1, 1, 4), full)},
      {"recompute selective", false, with(choices(1, 1, 1, 4), selective)},
      {"clipping", false, choices(1, 1, 1, 8), Optimizer::momentum, true},
      {"dp2", false, choices(1, 1, 2, 4)},
      {"dp2 llama momentum", true, choices(1, 1, 2, 2), Optimizer::momentum},
      {"dp2 no overlap", false, with(choices(1, 1, 2, 4), late)},
      {"dp2 zero1", false, with(choices(1, 1, 2, 2), zero)},
      {"dp2 zero1 adam", true, with(choices(1, 1, 2, 4), zero), Optimizer::adam},
      {"dp2 uneven", false, choices(1, 1, 2, 2), Optimizer::sgd, false, {6, 2}},
      {"tp2", false, choices(2, 1, 1, 4)},
      {"tp2 llama", true, choices(2, 1, 1, 8)},
      {"tp2 sp", false, with(choices(2, 1, 1, 4), sp)},
      {"tp2 sp llama recompute", true, with(with(choices(2, 1, 1, 2), sp), full)},
      {"pp2 gpipe", false, choices(1, 2, 1, 2, Schedule::gpipe)},
      {"pp2 1f1b llama", true, choices(1, 2, 1, 2)},
      {"pp2 1f1b adamw clipped", false, choices(1, 2, 1, 1), Optimizer::adamw, true},
      {"pp2 interleaved", false,
       with(choices(1, 2, 1, 2, Schedule::interleaved), [](Choices& c) { c.interleave = 2; })},
      {"pp2 uneven stages", false,
       with(choices(1, 2, 1, 2),
            [](Choices& c) {
              c.stage_layers = {1, 3};
            })},
      {"pp2 zero-bubble", false, choices(1, 2, 1, 2, Schedule::zero_bubble)},
      {"dp2 zero2", false, with(choices(1, 1, 2, 1), [](Choices& c) { c.zero = 2; })},
      {"dp2 zero3", true, with(choices(1, 1, 2, 2), [](Choices& c) { c.zero = 3; })},
      {"dp2 zero3 tied clipped", false, with(choices(1, 1, 2, 2), [](Choices& c) { c.zero = 3; }),
       Optimizer::momentum, true},
      {"dp4 zero3 hybrid recompute", false,
       with(choices(1, 1, 4, 1),
            [](Choices& c) {
              c.zero = 3;
              c.shard_group = 2;
              c.recompute = Recompute::full;
            })},
      {"dp4 zero1 hybrid clipped", true,
       with(choices(1, 1, 4, 1),
            [](Choices& c) {
              c.zero = 1;
              c.shard_group = 2;
            }),
       Optimizer::sgd, true},
      {"pp2 dp2 zero2", false, with(choices(1, 2, 2, 1), [](Choices& c) { c.zero = 2; })},
      {"tp2 sp dp2 zero3", false, with(with(choices(2, 1, 2, 2), sp), [](Choices& c) { c.zero = 3; })},
      {"tp2 sp pp2 zero-bubble", true, with(choices(2, 2, 1, 1, Schedule::zero_bubble), sp)},
      {"dp3", true, with(choices(1, 1, 3, 1), [](Choices&) {}), Optimizer::sgd, false, {3, 3, 2}},
      {"dp4 zero1 momentum", false, with(choices(1, 1, 4, 1), zero), Optimizer::momentum},
      {"tp2 dp2", false, choices(2, 1, 2, 2)},
      {"tp2 sp dp2 zero1", false, with(with(choices(2, 1, 2, 2), sp), zero)},
      {"tp2 pp2", false, choices(2, 2, 1, 2)},
      {"tp2 sp pp2 gpipe recompute", false, with(with(choices(2, 2, 1, 2, Schedule::gpipe), sp), full)},
      {"pp2 dp2 1f1b zero1", true, with(choices(1, 2, 2, 1), zero)},
      {"pp4 1f1b", false, choices(1, 4, 1, 1)},
      {"pp4 gpipe adam", true, choices(1, 4, 1, 2, Schedule::gpipe), Optimizer::adam},
      {"tp4", false, choices(4, 1, 1, 8)},
      {"tp2 pp2 dp2", false, choices(2, 2, 2, 1)},
      {"tp2 sp pp2 dp2 zero1 recompute clipped", false, with(with(with(choices(2, 2, 2, 1), sp), zero), full),
       Optimizer::sgd, true},
      {"tp2 pp2 dp2 llama gpipe", true, choices(2, 2, 2, 2, Schedule::gpipe)},
      {"pp4 dp2 zero1", false, with(choices(1, 4, 2, 1), zero)},
      {"dp8 zero1", true, with(choices(1, 1, 8, 1), zero)},
  };
  return cases;
}

// Empty where the two agree.
std::string compare(const Outcome& parallel, const Outcome& serial, bool parameters) {
  for (std::size_t step = 0; step < serial.loss.size(); ++step) {
    const double error = std::abs(parallel.loss[step] - serial.loss[step]) / std::abs(serial.loss[step]);
    if (!(error <= 1e-4))
      return fmt::format("loss of step {}: {} instead of {}", step, parallel.loss[step], serial.loss[step]);
  }
  if (!(serial.loss.back() < serial.loss.front())) return "the serial run does not learn";
  if (!parameters) return {};
  for (const auto& [name, expected] : serial.digest) {
    const TensorDigest& got = parallel.digest.at(name);
    double error = std::abs(got.norm - expected.norm);
    for (std::size_t k = 0; k < kProjections; ++k)
      error = std::max(error, std::abs(got.projections[k] - expected.projections[k]));
    if (!(error <= 1e-5 * expected.norm))
      return fmt::format("{} differs by {} of its norm", name, error / expected.norm);
  }
  return {};
}

}  // namespace

int check_equivalence(Communicator& world, bool smoke) {
  int faults = 0;
  int seen = 0;
  for (const PlanCase& c : all_cases()) {
    if (c.choices.world() != world.size()) continue;
    if (smoke && ++seen > 3) break;
    const Outcome parallel = train_plan(make_plan(c), world);
    if (world.rank() == 0) {
      const auto self = make_self_communicator();
      const Outcome serial = train_plan(make_plan(serial_of(c)), *self);
      // Adam divides by the gradient's own size: what is zero but for rounding moves by the learning rate.
      const bool parameters = c.optimizer == Optimizer::sgd || c.optimizer == Optimizer::momentum;
      const std::string fault = compare(parallel, serial, parameters);
      fmt::print("{:<45} loss {:.4f} -> {:.4f}  {}\n", c.name, serial.loss.front(), serial.loss.back(),
                 fault.empty() ? "equal" : fault);
      if (!fault.empty()) ++faults;
    }
    world.barrier();
  }
  return faults;
}

}  // namespace orrery::exec::test
