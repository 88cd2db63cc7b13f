// Every plan must train as one rank would: that proves that it was executed and not acted.
#include "equivalence.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "exec/communicators/collectives.h"
#include "tests/support/walked.h"
#include "training_runs.h"
namespace orrery::exec::test {
namespace {

bool trains_exactly(const PlanCase& c) {
  return c.precision == DType::fp32 && c.lossy == 0;
}

// What is beyond the tolerance is as far from one rank's run as that is from itself.
bool as_far_as_rounding(const Comparison& seen, const Comparison& own, const PlanCase& c) {
  constexpr double kTimes = 2;
  return seen.loss <= std::max(kLossTolerance, kTimes * own.loss) &&
         seen.parameters <= std::max(c.parameter_tolerance, kTimes * own.parameters);
}

// How far one rank's run is from itself where it is rounded differently, at worst, until that is as far as
// what was seen. Where a ReLU's input is zero but for rounding (the norm of a dead channel), its gradient
// goes either way, and twenty steps make much of that: such a model says nothing to the last digits, on one
// rank as on many.
Comparison own_rounding(const Comparison& seen, const PlanCase& c, const Outcome& serial,
                        Communicator& self) {
  constexpr std::uint64_t kMost = 32;
  Comparison worst;
  for (std::uint64_t rounding = 1; rounding <= kMost && !as_far_as_rounding(seen, worst, c); ++rounding) {
    const Comparison other = compare(train_plan(make_plan(serial_of(c)), self, c.steps, rounding), serial, c);
    worst.loss = worse(worst.loss, other.loss);
    worst.parameters = worse(worst.parameters, other.parameters);
  }
  return worst;
}

}  // namespace

std::unique_ptr<Communicator> beneath_device(Communicator& world) {
  constexpr int kKey = 1;
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return world.split(everyone, kKey);
}

int check_equivalence(Communicator& world, const std::string& which, std::uint64_t series) {
  int faults = 0;
  std::size_t known = 0;
  int sensitive = 0;
  const int random_plans = walks_all() ? 12 : 8;
  const bool random = which == "random";
  const std::vector<PlanCase> cases = random ? random_cases(world.size(), random_plans, series)
                                      : which == "rehearsal" ? rehearsal_cases(world.size())
                                      : which == "vit"       ? patch_cases()
                                      : which == "v"         ? v_cases()
                                                             : all_cases();
  for (const PlanCase& c : cases) {
    if (c.choices.world() != world.size()) continue;
    ++known;
    if (which == "smoke" && known > 3) break;
    if (which == "equivalence" && !walked(known + series, 2)) continue;
    const Outcome parallel = train_plan(make_plan(c), world, c.steps);
    if (world.rank() == 0) {
      const auto self = make_self_communicator();
      const Outcome serial = train_plan(make_plan(serial_of(c)), *self, c.steps);
      Comparison seen = compare(parallel, serial, c);
      std::string verdict = "equal";
      if (random && !seen.fault.empty() && trains_exactly(c)) {
        const Comparison own = own_rounding(seen, c, serial, *self);
        verdict =
            fmt::format("one rank rounded differently: {:.0e}, parameters {:.0e}", own.loss, own.parameters);
        if (as_far_as_rounding(seen, own, c)) {
          seen.fault.clear();
          ++sensitive;
        } else {
          seen.fault += "; " + verdict;
        }
      }
      if (c.learns && !(mean_of_last(serial.loss) < serial.loss.front()))
        seen.fault = "the serial run does not learn";
      fmt::print("{:<42} loss {:.4f} -> {:.4f}  differs by {:.0e}{}  {}\n", c.name, serial.loss.front(),
                 serial.loss.back(), seen.loss,
                 seen.parameters > 0 ? fmt::format(", parameters {:.0e}", seen.parameters) : "",
                 seen.fault.empty() ? verdict : seen.fault);
      if (!seen.fault.empty()) ++faults;
    }
    world.barrier();
  }
  // Else the draws would prove nothing.
  if (4 * sensitive > random_plans) {
    fmt::print("{} of {} random models are as good as rounding\n", sensitive, random_plans);
    ++faults;
  }
  return faults;
}

}  // namespace orrery::exec::test
