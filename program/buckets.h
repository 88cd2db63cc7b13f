// Which of a stage's gradients are reduced together: asked by the lowering, which reduces them, and by the
// closed form, which counts them (docs/program.md, data parallelism and ZeRO).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace orrery {

// A parameter tensor of the workload: its operator and its index in Operator::parameters.
struct ParameterAt {
  int op = 0;
  int parameter = 0;
  auto operator<=>(const ParameterAt&) const = default;
};

// A tensor that has aliases.
struct TiedTensor {
  ParameterAt owner;
  std::vector<ParameterAt> aliases;
};
// By name.
using TiedTensors = std::map<std::string, TiedTensor>;
TiedTensors tied_tensors(const Workload& workload);

// What one rank holds of a parameter that has elements of its own on it, wherever that is laid.
struct HeldParameter {
  ParameterAt at;
  int layer = 0;
  std::int64_t elements = 0;
  bool partial = false;  // tensor ranks have parts of its gradient
  bool apart = false;    // other ranks hold it than hold the rest of the layer: experts, for one
};
// All of the model's, in the order of its operators, as a rank holds them that has their stage.
std::vector<HeldParameter> held_parameters(const Plan& plan);

struct LaidBucket {
  int begin = 0, end = 0;     // BucketLayout::parameters
  std::int64_t elements = 0;  // without padding
  int chunk = 0;
  bool apart = false;
  bool tied = false;  // one tensor, which another stage holds too
};

struct BucketLayout {
  std::vector<LaidBucket> buckets;  // in the order in which backward passes complete them
  std::vector<BucketParameter> parameters;
  std::vector<char> partial;  // by parameter: tensor ranks have parts of its gradient
  // Parameters without a place of their own, and where they are.
  std::vector<std::pair<ParameterAt, ParameterAt>> aliases;
};

// Of a rank of the stage. Per chunk, last first, in reverse operator order (an operator's parameters in their
// order), filled up to the plan's bucket bytes or, with ZeRO 3, the layer (a tensor, where the runtime
// gathers by tensor); then those that stand apart; then
// what is shared with other stages, each by itself. `ties` and `held` are of the plan.
BucketLayout bucket_layout(const Plan& plan, int stage, const TiedTensors& ties,
                           const std::vector<HeldParameter>& held);

// Over which a bucket is reduced.
GroupKind bucket_group(const Choices& choices, bool apart);

}  // namespace orrery
