// Small models whose operators are timed on this machine: what `calibrate` fits a device to, and the
// reference by which a later run tells how much faster or slower the machine has become.
#pragma once

#include <memory>

#include "exec/communicators/communicator.h"
#include "exec/run/interpreter.h"
#include "program/plan.h"

namespace orrery::exec {

struct Probe {
  bool llama;  // else as GPT-2
  int hidden, heads, layers, vocab, seq_len, micro_batch;
};

// The reference: products of everyday widths, and a vocabulary that does not outweigh them.
constexpr Probe kReferenceProbe{false, 768, 12, 1, 2048, 128, 2};

// To train on one core of this machine, with SGD, two micro-batches a step.
Plan plan_of(const Probe& probe);

// Trains the plan for some steps on this rank alone and tells the times of the operators of all but the
// first.
void run_observed(const Plan& plan, Interpreter::OperatorObserver observer);

// Seconds of the reference while `busy` ranks run it, each on a core, and the others sleep.
struct BusySeconds {
  double mean = 0;  // over those ranks
  // Stretches of some operators, about what lies between two reductions of a tensor-parallel layer, each as
  // long as on the rank that is slowest at it: the others wait for that one.
  double slowest = 0;
};

// The reference, kept ready to be run again and again between other work.
class Reference {
 public:
  explicit Reference(Communicator& world);  // warms up
  ~Reference();
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  // Collective; about 0.3 s.
  BusySeconds seconds(int busy);
  // How fast this machine is now beside the day of its calibration: 1 as fast, 0.8 a fifth slower. `device`
  // is the profile that was measured here, with a reference_s; the ranks of `world` are all on this machine.
  // Collective; about 0.3 s.
  double pace(const DeviceProfile& device);

 private:
  struct Observed;

  Communicator& world_;
  std::unique_ptr<Observed> observed_;
};

}  // namespace orrery::exec
