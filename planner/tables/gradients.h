// Data parallelism's traffic in closed form: which gradients a stage reduces together, and what their
// reduction, the gathering of parameters and the optimizer's share come to.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "planner/tables/cuts.h"
#include "planner/tables/geometry.h"
#include "program/buckets.h"

namespace orrery::planner {

// Of one stage of one plan, whatever the micro-batch.
struct Reductions {
  struct Step {  // one bucket, in the order of completion
    double seconds = 0;
    double across_s = 0;  // hybrid sharding: the sum over the copies of a shard, at the last micro-batch
    double gather_s = 0;  // of its parameters
    double again_s = 0;   // of that, between a layer's recomputation and its backward pass
    int part = 0;         // whose backward pass completes it
    int chunk = 0;
    // Of gather_s, what a backward pass wants: not frozen weights before all trained.
    double gather_back_s = 0;
    double gather_least_s = 0;  // never above what a simulation takes
  };
  // A bucket's parameters that are gathered beside the next forward pass, in the order of use.
  struct Use {
    int chunk = 0;
    int part = 0;                 // the first that waits for them: the last that the backward pass completes
    double gathered_s = 0;        // when they are there, alone on the data stream from the step's beginning
    double gathered_least_s = 0;  // never above what a simulation takes
  };
  std::vector<Step> steps;
  std::vector<Use> uses;
  std::vector<double> rest_s;              // of the steps from the i-th on
  std::vector<double> rest_gather_back_s;  // likewise; ZeRO-3, else empty
  double total_s = 0;                      // without across_s
  double last_s = 0;                       // tied and partial gradients, after the others
  double gather_s = 0;                     // of all parameters
  double owned = 0;                        // elements that the rank updates
  double gather_back_s = 0;                // of what backward passes want
  double again_s = 0;                      // of them, once more where layers are recomputed
  double widest_layer_s = 0;               // ZeRO-3: gather of the layer that takes longest
  double largest_layer = 0;                // ZeRO-3: elements of the layer that has most
  // Never above what a simulation takes; 0 where that cannot be said.
  double total_least_s = 0, gather_least_s = 0, final_least_s = 0;
  std::vector<double> rest_least_s;  // as rest_s
  double forward_only_least_s = 0;   // of gather_least_s, what no backward pass wants
};

class Gradients {
 public:
  Gradients(std::shared_ptr<const Job> job, const LayerParts& parts, Geometries& geometries);
  Gradients(const Gradients&) = delete;

  const Reductions& of(const Plan& plan, const Geometry& geometry, const Cut& cut, int stage);

  // Sizes in bytes of the buckets of a stage: plans with equal sizes reduce alike.
  std::uint64_t buckets_key(const Plan& plan, const Cut& cut);
  // Whether no stage has more than one: reduced beside the backward pass or after it is then the same.
  bool one_bucket(const Plan& plan, const Cut& cut);

 private:
  struct Bucket {
    double elements = 0;
    int part = 0;
    int chunk = 0;
    bool apart = false;  // reduced over the group of experts' data
    int tensors = 0;
    bool frozen = false;        // gathered alone
    bool forward_only = false;  // no backward pass reads it
    bool first_part = false;    // holds what the last instruction of the backward pass writes
    bool sparse = false;        // LaidBucket's
    double payload_bytes = 0, touched = 0;
  };
  struct Buckets {
    std::vector<Bucket> buckets;  // in the order of their completion
    double tied = 0;              // elements shared with another stage
    double partial = 0;           // elements whose gradients tensor ranks have parts of
  };
  const Buckets& buckets(const Plan& plan, const Cut& cut, int stage);
  static void in_order_of_completion(std::vector<Bucket>* buckets);
  bool read_backward(const HeldParameters& held, const LaidBucket& laid) const;  // frozen weights
  const HeldModel& held(const Plan& plan);
  void fill(const Plan& plan, const Geometry& geometry, const Cut& cut, int stage, Reductions& result);

  std::shared_ptr<const Job> job_;
  const LayerParts& parts_;
  Geometries& geometries_;
  TiedTensors ties_;
  std::unordered_map<std::uint64_t, HeldModel> held_;
  // What plans lay out apart, beside their degrees: rows of tables that each replica's samples touch.
  std::uint64_t sparse_key(const Plan& plan) const;
  int first_op_ = 0;  // that has parameters
  bool has_sparse_ = false;
  std::unordered_map<std::uint64_t, Buckets> buckets_;
  std::unordered_map<std::uint64_t, Reductions> reductions_;
  std::unordered_map<std::uint64_t, double> collectives_;
};

}  // namespace orrery::planner
