// The closed form itself, behind estimator.h: tables of what plans share, and what a step is summed from. Its
// parts are in step_model.cc (stages and what follows them), gather_pace.cc (ZeRO's traffic beside
// computation), bound.cc and slot_bound.cc (what no simulation goes below). Times are seconds.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/closed_form/shared_cores.h"
#include "planner/closed_form/slot_ends.h"
#include "planner/tables/cuts.h"
#include "planner/tables/geometry.h"
#include "planner/tables/gradients.h"
#include "planner/tables/layer_sums.h"
#include "program/plan.h"

namespace orrery::planner {

class StepModel {
 public:
  explicit StepModel(std::shared_ptr<const Job> job);
  StepModel(const StepModel&) = delete;

  // As estimator.h has them.
  StepTimes times(const Choices& choices, const Bound& least);
  Bound lower_bound(const Choices& choices);
  Bound slot_bound(const Choices& choices);
  Bound layout_bound(const Choices& choices);
  std::uint64_t buckets_key(const Choices& choices);
  std::vector<std::int64_t> shares_by_speed(const Choices& choices);
  std::vector<int> cut_by_speed(const Choices& choices);
  std::vector<double> layer_seconds(const Choices& choices);
  double stage_compute_s(const Choices& choices, int stage);

 private:
  // Of one stage and one micro-batch, all its chunks together.
  struct StageTimes {
    double forward = 0, backward = 0;            // until the output can be sent
    double forward_busy = 0, backward_busy = 0;  // until the next micro-batch may start
    double forward_compute = 0, backward_compute = 0;
    double forward_host = 0, backward_host = 0;  // the host issuing them
    double paired_gain = 0;                      // of a forward and a backward side by side
    double weight = 0;                           // of `backward`, the gradients of weights
    // Longer than `forward` and `backward` where the host, starting with the slot, is slower than the device.
    double forward_issued = 0, backward_issued = 0;
    // Of the first chunk alone; least_of_inputs: what gradients of inputs compute at least, without
    // embedding, head and first layer.
    double first_forward = 0, first_backward = 0, least_of_inputs = 0;
    double first_forward_compute = 0, first_backward_compute = 0;
    // Of all but compute and host, what does not grow with the work: collectives' waiting.
    double forward_waiting = 0, backward_waiting = 0;
    double first_forward_waiting = 0, first_backward_waiting = 0;
    // As many times the work.
    void scale(double factor) {
      for (double* time :
           {&forward, &backward, &forward_busy, &backward_busy, &forward_compute, &backward_compute,
            &paired_gain, &weight, &forward_issued, &backward_issued, &first_forward, &first_backward,
            &least_of_inputs, &first_forward_compute, &first_backward_compute})
        *time *= factor;
      for (double* time : {&forward, &forward_busy, &forward_issued}) *time -= (factor - 1) * forward_waiting;
      for (double* time : {&backward, &backward_busy, &backward_issued})
        *time -= (factor - 1) * backward_waiting;
      first_forward -= (factor - 1) * first_forward_waiting;
      first_backward -= (factor - 1) * first_backward_waiting;
    }
  };
  // The same of one chunk.
  struct ChunkTimes {
    double forward = 0, forward_busy = 0, forward_compute = 0;
    double backward = 0, backward_busy = 0, backward_compute = 0;
    double least_of_inputs = 0;  // as StageTimes has it
    double weight = 0, paired_gain = 0;
  };
  struct Stages {
    Choices of;
    bool valid = false;
    std::vector<StageTimes> times;
    std::vector<DeviceKindAt> kinds;  // the slowest of each stage, whose times these are
  };
  // Of stages_, chunk by chunk, nothing making their passes longer.
  struct Chunks {
    Choices of;
    bool valid = false;
    std::vector<StageTimes> stages;
    std::vector<std::vector<ChunkTimes>> times;  // [stage][chunk]
  };
  // What follows a stage's last backward pass.
  struct Ending {
    double reduce = 0;  // until all its gradients are reduced, but those that follow all others
    double last = 0;    // those: of tied and partial parameters
    // Of `reduce`, from where no computation holds it up any more; and the least of it, each collective at
    // most so much faster as ports alone make it.
    double streamed = 0, least = 0;
    double optimizer = 0;
    double gather = 0;  // of the updated parameters
  };
  // The tables that plans of one layout, micro-batch and cut share.
  struct Frame {
    Choices choices;  // that it was made for
    bool valid = false;
    const Geometry* geometry = nullptr;
    const Cut* cut = nullptr;
    std::uint64_t shapes_key = 0, alone_key = 0;
    std::vector<double> hops, hops_least;  // after each stage; with several chunks a mean, and the first's
    // Seconds that all ports of a node are busy with what its stages send for one micro-batch, of the busiest
    // node; 0 where that is not known.
    double ports_s = 0;
  };

  const Frame& frame(const Choices& choices);
  void hops_of_graph(const Choices& choices, Frame* frame) const;
  double ports_seconds(const Choices& choices, const Geometry& geometry, double bytes) const;
  static double shared_pace(const Choices& choices, const Frame& frame);
  // Times of all stages on their slowest kind of device; `alone`: for the bound.
  void all_stages(const Choices& choices, const Frame& frame, bool alone, Stages* stages);
  // Of a layer by itself; where only some layers of a stage are recomputed, of one that is not.
  const LayerSums& sums_of(const Choices& choices, const Frame& frame, const DeviceKindAt& kind);
  // Where the first layers of a stage alone run again: those of a chunk, parts [from, to), its chunks being
  // entered one after another.
  struct Again {
    const LayerSums* sums = nullptr;  // with their recomputation; null where none is partial
    int left = 0, head = 0;           // layers behind the chunk; the last part, which is no layer
    int from = 0, to = 0;
    void enter(LayerRange chunk);
    // What they take longer until `part`, in a backward pass of `own`.
    double more_s(const LayerSums& own, int part) const;
  };
  Again run_again(const Choices& choices, const GroupShapes& shapes, std::uint64_t shapes_key,
                  const DeviceKindAt& kind);
  StageTimes stage_times(const Choices& choices, const Frame& frame, const GroupShapes& shapes,
                         std::uint64_t shapes_key, int stage, const DeviceKindAt& kind,
                         std::vector<ChunkTimes>* chunks = nullptr);
  // Seconds from the first forward pass to the end of each stage's last backward pass, at least.
  std::vector<double> slot_ends(const Plan& plan, const Frame& frame);
  // Until a replica with these stages has run m micro-batches, the host issuing them; *stages becomes what
  // they take where the host or data parallelism's traffic sets the pace.
  double replica_seconds(const Plan& plan, const Frame& frame, double m,
                         const std::vector<StageTimes>** stages);
  // gather_pace.cc. Of `zero` 2 and 3: data's traffic sets the pace where it takes longer than the
  // computation beside it.
  void pace(const Plan& plan, const Frame& frame, std::vector<StageTimes>* stages);
  // What both streams take where groups inside layers and those of data share links.
  struct Shared {
    bool valid = false;  // of stages_
    int shard_group = 0;
    bool any = false;                // that are full
    std::vector<StageTimes> stages;  // all data's traffic beside them
    double lost = 0;                 // by data, for what those inside layers lose
  };
  const Shared& shared(const Plan& plan, const Frame& frame);
  // ZeRO-3, layer by layer: by how much a micro-batch's forward and backward passes through a stage are
  // longer than their computation.
  std::pair<double, double> waits_for_layers(const Plan& plan, const Frame& frame, int stage,
                                             const Reductions& all);
  // Whether a layer's parameters come while the one before computes.
  bool gathers_ahead(const Reductions& all) const;
  // Of a stage's layers.
  double recomputed_share(const Choices& choices, const Frame& frame, int stage) const;
  // What the first forward pass takes longer while parameters are gathered beside it.
  double lost_to_gathers(const Plan& plan, const Frame& frame);
  // What computation takes longer for `beside_s` of collectives beside it (DeviceProfile::overlap_slowdown):
  // they begin with work of `busy_s`, of which it computes for `compute_s`.
  double lost_beside(int stage, double beside_s, double busy_s, double compute_s) const;
  // By how much the first micro-batch is late because parameters are still being gathered.
  double gather_delay(const Plan& plan, const Frame& frame, const std::vector<StageTimes>& stages);
  double body_seconds(const Choices& choices, const Frame& frame, const std::vector<StageTimes>& stages,
                      double micro_batches);
  // Of several chunks a stage, when each stage has run its slots; kept for the next plan, whose passes may
  // take as long.
  const std::vector<double>& chunked_ends_of(const Choices& choices, const Frame& frame,
                                             const std::vector<StageTimes>& stages, double micro_batches);
  // Likewise of 1F1B and zero-bubble.
  const std::vector<double>& one_f_one_b_ends_of(const Choices& choices, const Frame& frame,
                                                 const std::vector<StageTimes>& stages, double micro_batches);
  // By how much each stage is done with its passes before the last is.
  std::vector<double> done_earlier(const Choices& choices, const Frame& frame,
                                   const std::vector<StageTimes>& stages, double micro_batches);
  // step_end.cc. `quickest`: quickest_reduction.
  Ending ending(const Plan& plan, const Frame& frame, int stage, const StageTimes& times,
                const DeviceKindAt& kind, double quickest);
  // How many times faster a stage's reductions are while those of the other stages of its nodes rest; 1 where
  // they share no ports, or that is not looked at.
  double quickest_reduction(const Plan& plan, const Frame& frame);
  // endings_, where stages of a node reduce at different times. `earlier`: done_earlier.
  void take_turns_at_ports(const Frame& frame, const std::vector<double>& earlier, double quickest);
  double optimizer_s(double elements, const DeviceKindAt& kind) const;
  // The next step's samples from the nodes' storage; where nodes are different, of the rank that reads most
  // at the fastest node's rate.
  double reading_s(const Plan& plan, const Frame& frame) const;
  Bound bound(const Plan& plan, const Frame& frame, bool with_data,
              const std::vector<double>* slots = nullptr);
  // Of data parallelism on one rank of a stage, never more than a simulation takes.
  struct DataLeast {
    double between = 0;  // reductions that stand between the passes
    double after = 0;    // reductions that follow the last pass
    double ending =
        0;  // from the end of stage 0's last pass until all is reduced, whatever went on beside it
    double optimizer = 0;
    double gather = 0;  // of the updated parameters, at the end
    double late = 0;    // of stage 0's first pass, whose parameters are still being gathered
    double beside = 0;  // all else of its data stream
  };
  DataLeast data_least(const Plan& plan, const Frame& frame, int stage, double micro_batches);
  double gathered_late(const Choices& choices, const Frame& frame, const Reductions& all);
  // Of the reductions beside stage 0's last backward pass, what is left when it ends.
  double reduced_behind(const Choices& choices, const Frame& frame, const Reductions& all);

  std::shared_ptr<const Job> job_;
  LayerSumsTable sums_;
  Geometries geometries_;
  Cuts cuts_;
  Gradients gradients_;
  std::vector<std::vector<int>> crossing_;  // of general graphs (workloads/layer_graph.h)
  std::vector<int> runs_;                   // first parts of the runs of equal parts of the model
  std::vector<double> slowest_;             // by device profile: slowest_of (cost/compute_cost.h)
  double idle_speedup_ = 1;  // by how much a device may be faster than assumed, its neighbours being idle
  SharedCores shared_cores_;
  bool ranks_copy_ = false;  // all communication is copying by the ranks, which then do not compute
  Frame frame_;
  struct Slowed {                                        // of a stage, for the bound
    double compute_s = 0, traffic_s = 0, through_s = 0;  // the last: there, through it and back
    double share = 0;                                    // of overlapped time that is lost
  };
  std::vector<Slowed> slowed_;
  std::vector<std::pair<Choices, std::vector<double>>> slot_ends_;  // by what they depend on
  Stages stages_, least_;  // of the plan being looked at: kept for the next, which is often much alike
  Shared shared_;
  std::vector<StageTimes> paced_;
  std::vector<std::vector<StageTimes>> of_replicas_;
  std::vector<Ending> endings_;
  std::vector<StageSlot> slots_, slots_laid_;  // the latter with what follows it: laid last
  double laid_micro_batches_ = 0;
  bool laid_weights_wait_ = false;
  std::vector<double> laid_ends_;
  Chunks chunks_;
  std::vector<double> chunked_key_, chunked_ends_;
  SlotOrders slot_orders_;
};

}  // namespace orrery::planner
