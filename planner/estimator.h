// The closed form: what a step takes, from the layers' times, the schedule's formula and the collectives on
// an idle network. Memoised, so that the thousandth plan of a job costs about a microsecond.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/layer_times.h"
#include "program/plan.h"
#include "topologies/network.h"

namespace orrery::planner {

struct StepTimes {
  double estimate_s = 0;     // unbiased: orders plans
  double lower_bound_s = 0;  // never above the simulated step: prunes
  double compute_s = 0;      // the compute stream busy, mean over the stages
};

class Estimator {
 public:
  explicit Estimator(std::shared_ptr<const Job> job);
  Estimator(const Estimator&) = delete;

  // The choices must have passed check_plan.
  StepTimes times(const Choices& choices);
  // The lower bound alone, cheaper.
  double lower_bound_s(const Choices& choices);

 private:
  // Over the parts of the model (layer_kinds.h), summed over those before each: entry i is of parts [0, i).
  struct Sums {
    std::vector<double> forward, backward;                  // serial seconds of one micro-batch
    std::vector<double> forward_compute, backward_compute;  // of these, the compute stream busy
    std::vector<double> forward_host, backward_host;        // the host issuing them
    std::vector<double> forward_tail, backward_tail;        // of each part alone, not summed
    bool host_leads = true;  // the device is the slower in every part: the host is never waited for
  };
  // One kind of device at one speed.
  struct Kind {
    int profile = 0;
    double speed = 1;
    auto operator<=>(const Kind&) const = default;
  };
  // Where the ranks of a layout sit.
  struct Geometry {
    GroupShapes shapes;                    // of rank 0's groups
    std::vector<GroupShape> hops;          // from stage i to stage i + 1, and from the last to the first
    std::vector<std::vector<Kind>> kinds;  // of the devices of each stage
  };
  // Of one stage and one micro-batch, all its chunks together.
  struct StageTimes {
    double forward = 0, backward = 0;            // until the output can be sent
    double forward_busy = 0, backward_busy = 0;  // until the next micro-batch may start
    double forward_compute = 0, backward_compute = 0;
    double forward_host = 0, backward_host = 0;  // the host issuing them
    // Longer than `forward` and `backward` where the host, starting with the slot, is slower than the device.
    double forward_issued = 0, backward_issued = 0;
    double hop = 0;  // to the next stage
  };
  // Gradients reduced together. `part`: whose backward pass completes it.
  struct Bucket {
    double elements = 0;
    int part = 0;
    int chunk = 0;
    bool expert = false;
  };
  struct Buckets {
    std::vector<Bucket> buckets;  // in the order of their completion
    double tied = 0;              // elements shared with another stage
    double replicated = 0;        // elements whose gradients are partial under sequence parallelism
  };
  // The seconds of a stage's reductions, whatever the micro-batch.
  struct Reductions {
    struct Step {
      double seconds = 0;
      int part = 0;
      int chunk = 0;
    };
    std::vector<Step> steps;
    double last_s = 0;    // tied and partial gradients, after the others
    double gather_s = 0;  // of the updated parameters
    double owned = 0;     // elements that the rank updates
  };
  // What follows a stage's last backward pass.
  struct Ending {
    double reduce = 0;  // until all its gradients are reduced
    double optimizer = 0;
    double gather = 0;  // of the updated parameters
  };

  const Geometry& geometry(const Choices& choices);
  const Sums& sums(const Choices& choices, const Geometry& geometry, Recompute recompute, const Kind& kind);
  const Buckets& buckets(const Plan& plan, int stage);
  const Reductions& reductions(const Plan& plan, const Geometry& geometry, int stage);
  std::pair<int, int> parts_of(const Plan& plan, int stage, int chunk) const;
  StageTimes stage_times(const Plan& plan, const Geometry& geometry, int stage, const Kind& kind);
  // Middle stages are alike: what is known of stage 1 holds for the others.
  bool even(const Choices& choices) const;
  // Of all stages, each on its slowest kind of device; `which` are these kinds.
  void all_stages(const Plan& plan, const Geometry& geometry, std::vector<StageTimes>* stages,
                  std::vector<Kind>* which);
  const std::vector<double>& hop_seconds(const Plan& plan, const Geometry& geometry);
  double bound(const Plan& plan, const Geometry& geometry, const std::vector<StageTimes>& stages,
               const std::vector<Kind>& kinds);
  Ending ending(const Plan& plan, const Geometry& geometry, int stage, const Kind& kind);
  double collective_seconds(CollectiveKind kind, double bytes, const GroupShape& shape);

  std::shared_ptr<const Job> job_;
  Network network_;
  ModelSketch sketch_;
  bool uniform_ = true;  // one kind of device everywhere, nothing degraded
  bool alike_ = false;   // and all layers are twins
  std::vector<int> runs_;  // first parts of the runs of equal parts of the model
  std::pair<std::array<int, 11>, const Geometry*> last_geometry_{};
  const std::pair<const std::pair<std::array<int, 17>, Kind>, Sums>* last_sums_ = nullptr;
  std::map<std::pair<const Geometry*, double>, std::vector<double>> hops_;
  std::vector<StageTimes> stages_;  // of the plan being looked at: kept for their memory
  std::vector<Kind> kinds_;
  std::map<std::array<int, 11>, Geometry> geometries_;
  std::map<std::pair<std::array<int, 17>, Kind>, Sums> sums_;
  std::map<std::pair<std::array<int, 9>, double>, Buckets> buckets_;
  std::map<std::tuple<const Geometry*, const Buckets*, int>, Reductions> reductions_;
};

}  // namespace orrery::planner
