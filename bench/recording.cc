// What it costs to record when each instruction ran: steps with and without it by turns, in one run; the
// median of the ratios of neighbours. Beside it the same ratio of steps that both do without, which is what
// noise makes of 1.
//   mpirun -np RANKS recording PLAN [PAIRS]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/statistics.h"
#include "exec/communicators/clock.h"
#include "exec/communicators/collectives.h"
#include "exec/mpi/mpi_transport.h"
#include "exec/run/interpreter.h"
#include "exec/run/recorder.h"
#include "program/lower/lowering.h"
#include "program/plan.h"

namespace orrery::exec {
namespace {

constexpr int kWarmUpSteps = 20;
constexpr int kDefaultPairs = 500;

class Bench {
 public:
  Bench(const Plan& plan, Communicator& world)
      : plan_(plan),
        world_(world),
        program_(lower(plan, world.rank())),
        device_(make_cpu_device()),
        text_(kDefaultText, plan.job->training.seq_len, 1, plan.job->training.global_batch),
        interpreter_(plan_, program_, *device_, world, text_) {}

  // Seconds from all ranks' begin to all ranks' end.
  double step(bool recorded) {
    interpreter_.record(recorded);
    world_.barrier();
    const double begin_s = steady_seconds();
    interpreter_.run_step(step_++);
    if (recorded) kept_.keep(interpreter_.intervals());
    world_.barrier();
    return steady_seconds() - begin_s;
  }
  std::size_t instructions() const { return program_.instructions.size(); }

 private:
  const Plan& plan_;
  Communicator& world_;
  const Program program_;
  const std::unique_ptr<Device> device_;
  const TextData text_;
  Interpreter interpreter_;
  KeptSteps kept_;
  std::int64_t step_ = 0;
};

// Of neighbours, one of each kind, each kind first by turns.
double ratio(Bench& bench, int pairs, bool recorded, std::vector<double>& plain_s) {
  std::vector<double> ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    double with_s = 0;
    double without_s = 0;
    if (pair % 2 == 0) with_s = bench.step(recorded);
    without_s = bench.step(false);
    if (pair % 2 != 0) with_s = bench.step(recorded);
    ratios.push_back(with_s / without_s);
    plain_s.push_back(without_s);
  }
  return median(ratios);
}

int main(int argc, char** argv) {
  const MpiWorld mpi(&argc, &argv);
  try {
    if (argc < 2) throw UserError("no plan", "recording PLAN [PAIRS]");
    const Plan plan = load_plan(argv[1]);
    const int pairs = argc > 2 ? std::atoi(argv[2]) : kDefaultPairs;
    const auto world = make_communicator(mpi.transport(Cutting::never));
    Bench bench(plan, *world);
    for (int step = 0; step < kWarmUpSteps; ++step) bench.step(step % 2 == 0);
    std::vector<double> plain_s;
    const double recorded = ratio(bench, pairs, true, plain_s);
    const double noise = ratio(bench, pairs, false, plain_s);
    if (mpi.rank() == 0)
      fmt::print(
          "{} instructions of rank 0, steps of {:.3f} ms: recording {:+.2f}%, nothing {:+.2f}% ({} pairs "
          "each)\n",
          bench.instructions(), 1e3 * median(plain_s), 100 * (recorded - 1), 100 * (noise - 1), pairs);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "recording: {}\n", error.what());
    mpi.abort(1);
  }
}

}  // namespace
}  // namespace orrery::exec

int main(int argc, char** argv) {
  return orrery::exec::main(argc, argv);
}
