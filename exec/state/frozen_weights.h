// The weights of a rank that are not trained: whole beside its adapters, in 8 or 4 bits, or, under ZeRO-3, as
// shards in the Program's frozen buckets (Bucket::frozen), which are gathered like any other.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "exec/device/device.h"
#include "exec/state/held_tensor.h"
#include "exec/state/quantised.h"
#include "program/plan.h"
#include "program/program.h"
#include "program/tensor_shard.h"

namespace orrery::exec {

class Parameters;

class FrozenWeights {
 public:
  // Initialised from the plan's seed, as a model that is trained is. Keeps references.
  FrozenWeights(const Plan& plan, const Program& program, Parameters& parameters, Device& device);
  ~FrozenWeights();
  FrozenWeights(const FrozenWeights&) = delete;
  FrozenWeights& operator=(const FrozenWeights&) = delete;

  // `index` in Operator::frozen. Follows ties. Null where this rank has no such tensor.
  const HeldTensor* find(int op, int index) const;
  const std::vector<HeldTensor>& held() const { return held_; }
  bool quantised(const HeldTensor& tensor) const;
  // Of one that is whole on this rank and not quantised.
  float* weights(const HeldTensor& tensor) const { return whole_ + tensor.offset; }
  void dequantise(const HeldTensor& tensor, float* into) const;  // into host memory
  // This rank's part from all of the tensor, rounded to what weights are stored in.
  void set_from_whole(const HeldTensor& tensor, std::span<const float> whole);
  // What all of a tensor says once it is stored as the plan says: quantised and turned back, or rounded.
  std::vector<float> as_stored(const HeldTensor& tensor, std::span<const float> whole) const;
  // Elements [begin, end) of the rank's part that it alone answers for, and their values.
  struct Part {
    std::int64_t begin = 0, end = 0;
  };
  Part answers_for(const HeldTensor& tensor) const;
  std::vector<float> values(const HeldTensor& tensor, Part part) const;

 private:
  void hold(int op, int index, int bucket, std::int64_t offset);
  void hold_gathered();
  void hold_whole();

  const Plan& plan_;
  const Program& program_;
  Parameters& parameters_;
  Device& device_;
  ShardPlace place_;
  DType type_;
  bool answers_ = false;  // for what is whole on all replicas
  std::vector<HeldTensor> held_;
  std::map<std::pair<int, int>, std::size_t> by_operator_;  // also aliases
  float* whole_ = nullptr;
  std::map<std::pair<int, int>, Quantised> quantised_;
};

// Lengths of a weight's rows of inputs, one for each of its outputs (DoRA's magnitudes at the beginning).
std::vector<float> output_lengths(const Operator& op, const ParameterTensor& weight,
                                  std::span<const float> whole);
// Whether a linear operator's weight is stored outputs x inputs, as torch.nn.Linear's, or the other way.
bool is_out_by_in(const Operator& op, const ParameterTensor& weight);

}  // namespace orrery::exec
