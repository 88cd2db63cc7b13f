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

struct LaidBucket {
  std::vector<BucketParameter> parameters;
  std::vector<BucketParameter> partial;  // those of them whose gradients tensor ranks have parts of
  std::int64_t elements = 0;             // without padding
  int chunk = 0;
  bool apart = false;  // what other ranks hold than have the rest of the layer: experts, for one
  bool tied = false;   // one tensor, which another stage holds too
};

struct BucketLayout {
  std::vector<LaidBucket> buckets;  // in the order in which backward passes complete them
  // Parameters without a place of their own, and where they are.
  std::vector<std::pair<ParameterAt, ParameterAt>> aliases;
};

// Of a rank of the stage. Per chunk, last first, in reverse operator order (an operator's parameters in their
// order), filled up to the plan's bucket bytes or, with ZeRO 3, the layer; then those that stand apart; then
// what is shared with other stages, each by itself.
BucketLayout bucket_layout(const Plan& plan, int stage, const TiedTensors& ties);

// Over which a bucket is reduced.
GroupKind bucket_group(const Choices& choices, bool apart);

}  // namespace orrery
