// What one layer of a model takes, forward and backward, on one rank: the small terms that closed forms add
// up.
//
// They are not restated here but read off the lowering itself: a model with one layer of each kind is lowered
// as a single stage with one micro-batch, and its instructions are laid on their streams with the costs of
// the instructions on an idle network. Whatever a lowering puts between two layers is thus in the figures.
#pragma once

#include <map>
#include <vector>

#include "planner/layer_kinds.h"
#include "program/collective_cost.h"
#include "program/plan.h"

namespace orrery::planner {

// Of one layer, one micro-batch, one direction.
struct PassTime {
  double serial_s = 0;   // from its first instruction to the next layer's first instruction
  double tail_s = 0;     // of that, communication after its last compute: hidden where other work follows
  double compute_s = 0;  // of that, the compute stream busy
  double host_s = 0;     // the host issuing all of it, beside the device
};

struct LayerTime {
  PassTime forward, backward;  // backward: with recomputation where there is any
};

// The job's model cut down to one layer of each kind.
class ModelSketch {
 public:
  explicit ModelSketch(const Workload& whole);
  const Workload& workload() const { return workload_; }
  const LayerParts& parts() const { return parts_; }  // of the whole model
  // Part of the sketch that stands for a part of the whole model (layer_kinds.h numbers both).
  int stand_in(int part) const { return stand_in_[part]; }

 private:
  Workload workload_;
  LayerParts parts_;
  std::vector<int> stand_in_;
};

// Shapes of the groups that a rank's collectives run over, by kind; an absent kind has one member.
using GroupShapes = std::map<GroupKind, GroupShape>;

// Seconds of a collective or transfer at the rate that the runtime reaches of the fabric's.
double achieved_seconds(const CollectivePlan& plan, double bytes, const RuntimeProfile& runtime);

// Times by part of the sketch. Of `choices`, pp, dp and the schedule do not matter, and `recompute_layers` is
// taken as 0 (all).
std::vector<LayerTime> layer_times(const Job& job, const ModelSketch& sketch, const Choices& choices,
                                   const DeviceProfile& device, double speed, const GroupShapes& shapes);

}  // namespace orrery::planner
