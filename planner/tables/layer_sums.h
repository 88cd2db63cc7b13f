// Times of a model's layers summed from its beginning, so that any range of them costs two look-ups. One
// entry for each way of running a layer (tensor, context and expert parallelism, micro-batch, recomputation)
// on each kind of device and each shape of the groups that talk inside a layer.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "planner/tables/geometry.h"
#include "planner/tables/layer_times.h"

namespace orrery::planner {

// Over the parts of the model (layer_kinds.h), summed over those before each: entry i is of parts [0, i).
struct LayerSums {
  std::vector<double> forward, backward;                  // serial seconds of one micro-batch
  std::vector<double> forward_compute, backward_compute;  // of these, the compute stream busy
  std::vector<double> forward_host, backward_host;        // the host issuing them
  std::vector<double> forward_waiting, backward_waiting;  // of the serial seconds, PassTime::waiting_s
  std::vector<double> paired_gain;                        // Choices::overlap_experts
  std::vector<double> weight;                             // of backward_compute, gradients of weights
  std::vector<double> forward_tail, backward_tail;        // of each part alone, not summed
  bool host_leads = true;  // the device is the slower in every part: the host is never waited for
};

class LayerSumsTable {
 public:
  explicit LayerSumsTable(std::shared_ptr<const Job> job);
  LayerSumsTable(const LayerSumsTable&) = delete;

  const LayerParts& parts() const { return sketch_.parts(); }
  // `shapes`: of the groups inside a layer; a group without a shape costs nothing. Data parallelism's traffic
  // is not in the figures. The reference stays valid.
  const LayerSums& of(const Choices& choices, Recompute recompute, const GroupShapes& shapes,
                      std::uint64_t shapes_key, const DeviceKindAt& kind);

 private:
  const std::shared_ptr<Job>& small_of(bool split);

  std::shared_ptr<const Job> job_;
  ModelSketch sketch_;
  std::shared_ptr<Job> small_;        // of the sketch
  std::shared_ptr<Job> split_small_;  // where backward passes are split; made when first asked for
  std::unordered_map<std::uint64_t, std::shared_ptr<const Program>> programs_;  // whatever the micro-batch
  std::unordered_map<std::uint64_t, LayerSketch> sketches_;                     // whatever the shapes
  std::unordered_map<std::uint64_t, LayerSums> sums_;
};

std::uint64_t shape_key(const GroupShape& shape);  // of all that costs depend on, but the generation
// A key of what the shapes say of the groups inside a layer.
std::uint64_t inner_shapes_key(const GroupShapes& shapes);

}  // namespace orrery::planner
