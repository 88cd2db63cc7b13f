// What one layer of a model takes, forward and backward, on one rank: the small terms that closed forms add
// up.
//
// They are not restated here but read off the lowering itself: a model with one layer of each kind is lowered
// as a single stage with one micro-batch, and its instructions are laid on their streams with the costs of
// the instructions on an idle network. Whatever a lowering puts between two layers is thus in the figures.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cost/collective_cost.h"
#include "planner/tables/layer_kinds.h"
#include "program/plan.h"

namespace orrery::planner {

// A layer's way to its experts and back: tokens travel, then what is computed until the next travel.
struct ExpertStep {
  double traffic_s = 0, next_s = 0;
};

// Of one layer, one micro-batch, one direction.
struct PassTime {
  double serial_s = 0;   // from its first instruction to the next layer's first instruction
  double tail_s = 0;     // of that, communication after its last compute: hidden where other work follows
  double compute_s = 0;  // of that, the compute stream busy
  double host_s = 0;     // the host issuing all of it, beside the device
  double waiting_s = 0;  // of serial_s, what collectives cost however little they carry (waiting_seconds)
  std::vector<ExpertStep> experts;  // after the last, the next layer of the same kind begins
};

// By how much a layer's forward beside the backward of another micro-batch is shorter than one after the
// other, where each computes while the other's tokens travel (program/lower/pipeline.cc, run_pair).
double paired_gain_s(const PassTime& forward, const PassTime& backward);

struct LayerTime {
  PassTime forward, backward;  // backward: with recomputation where there is any
};

// The job's model cut down to two layers of each kind, one after the other: what stands between two layers is
// then measured between two layers, in both directions.
class ModelSketch {
 public:
  explicit ModelSketch(const Workload& whole);
  const Workload& workload() const { return workload_; }
  const LayerParts& parts() const { return parts_; }  // of the whole model
  // Parts of the sketch that stand for a part of the whole model (layer_kinds.h numbers both).
  int forward_stand_in(int part) const { return stand_in_[part]; }
  int backward_stand_in(int part) const { return second_[part]; }

 private:
  Workload workload_;
  LayerParts parts_;
  std::vector<int> stand_in_, second_;
  int begin_ = 0;  // of the part being appended, while the sketch is made
};

// Seconds of a collective, or of one message between two devices, on an idle network at the rate that the
// job's runtime reaches of the fabric's.
double collective_s(CollectiveKind kind, double bytes, const GroupShape& shape, const Job& job);
double transfer_s(double bytes, const GroupShape& shape, const Job& job);
double broadcasts_s(double bytes, int tensors, const GroupShape& shape, const Job& job);  // plan_broadcasts

// Shapes of the groups that a rank's collectives run over, by kind; an absent kind has one member.
using GroupShapes = std::map<GroupKind, GroupShape>;

// A sketch lowered for one way of running a layer, its instructions' own times known: what is left open is
// what the groups between ranks look like.
struct LayerSketch {
  std::shared_ptr<const Program> program;
  double scale = 1;              // of what is communicated, to that of the program's micro-batch
  std::vector<double> work_s;    // by instruction; 0 for communication
  std::vector<double> host_s;    // by instruction: the host issuing it
  std::vector<double> beside_s;  // by instruction: computation that a collective travels beside
  std::vector<int> part;         // by instruction: part of the sketch that it computes, -1 for none
  std::vector<double> weight_s;  // by part: of its backward pass, gradients of weights
  int parts = 0;
  double expert_exposed = 1;  // Plan::expert_exposed()
};
// The choices that a sketch is lowered with. Of `choices`, pp, dp, the schedule and what concerns the
// reduction of gradients do not matter, and `recompute_layers` is taken as 0 (all). Of a transformer one
// Program serves every micro-batch.
Choices sketch_choices(const Job& job, const Choices& choices);
// `job`: of the sketch's workload; its global batch is made to fit. `choices`: sketch_choices().
std::shared_ptr<const Program> lower_layers(const std::shared_ptr<Job>& job, const Choices& choices);
LayerSketch sketch_layers(std::shared_ptr<const Program> program, const std::shared_ptr<Job>& job,
                          const Choices& choices, const DeviceProfile& device, double speed);
// Times by part of the sketch. Groups without a shape cost nothing.
std::vector<LayerTime> layer_times(const Job& job, const LayerSketch& sketch, const GroupShapes& shapes);

}  // namespace orrery::planner
