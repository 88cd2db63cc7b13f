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
  std::int64_t elements = 0;
  bool partial = false;  // tensor ranks have parts of its gradient
  // Its gradient is rows and their numbers (Operator::sparse): what a replica's takes, in bytes, and how many
  // elements all replicas' touch together.
  bool sparse = false;
  double payload_bytes = 0, touched = 0;
};

// Of `elements` of a table (Operator::sparse) cut into `columns` parts, a step of so many samples that
// `replicas` share: what one of these sends, rows and their numbers in bytes, and the elements that all touch
// together.
struct SparseRows {
  double payload_bytes = 0, touched = 0;
};
SparseRows sparse_rows(const Operator& table, double elements, int columns, double samples, double replicas,
                       double gradient_bytes);

// Whether gradients of tables are sent as the rows that were looked up: among equals that all-reduce, each
// with whole gradients, uncompressed.
bool keeps_rows_sparse(const Plan& plan);

// In the order in which buckets take them: operators from the last to the first, an operator's parameters in
// their order. Sums from the beginning make a bucket of many cost little more than one of few.
struct HeldParameters {
  std::vector<HeldParameter> parameters;
  std::vector<std::int64_t> elements_before;  // by parameter, and of all
  std::vector<std::int64_t> partial_before;   // of these, partial ones
  std::vector<int> layer_end;                 // by parameter: the first behind its layer
  int first_below(int op) const;              // index of the first parameter of an operator before `op`
};

// All of the model's, as a rank holds them that has their stage.
struct HeldModel {
  HeldParameters together;
  HeldParameters apart;  // that other ranks hold than hold the rest of the layer: experts, for one
  // Of frozen weights, for ZeRO-3, which gathers them, too: `parameter` counts in Operator::frozen, elements
  // are bytes in units of the parameters' type.
  HeldParameters frozen, frozen_apart;
  const HeldParameters& of_frozen(bool is_apart) const { return is_apart ? frozen_apart : frozen; }
  const HeldParameters& of(bool is_apart) const { return is_apart ? apart : together; }
};
HeldModel held_parameters(const Plan& plan);

struct LaidBucket {
  // In HeldModel::of(apart); the first and the last have their place here, others may have it elsewhere.
  int begin = 0, end = 0;
  std::int64_t elements = 0;  // without padding
  std::int64_t partial = 0;   // of these, what tensor ranks sum up
  int chunk = 0;
  bool apart = false;
  bool tied = false;    // one tensor, which another stage holds too
  bool frozen = false;  // begin and end are in HeldModel::of_frozen(apart)
  bool sparse = false;  // all of it, or nothing: sums of its parameters'
  double payload_bytes = 0, touched = 0;
};

struct BucketLayout {
  std::vector<LaidBucket> buckets;  // in the order in which backward passes complete them; frozen ones last
  // Parameters without a place of their own, and where they are.
  std::vector<std::pair<ParameterAt, ParameterAt>> aliases;
  std::vector<ParameterAt> shared;  // with other stages: each in a bucket by itself
};

// Of a rank of the stage. Per chunk, last first, filled up to the plan's bucket bytes or, with ZeRO 3, the
// layer (a tensor, where the runtime gathers by tensor); then those that stand apart; then what is shared
// with other stages, each by itself. `ties` and `held` are of the plan.
BucketLayout bucket_layout(const Plan& plan, int stage, const TiedTensors& ties, const HeldModel& held);

// What has its place in the bucket, in order; partial: such as tensor ranks sum up.
std::vector<HeldParameter> parameters_of(const BucketLayout& layout, const LaidBucket& bucket,
                                         const HeldModel& held);

// Over which a bucket is reduced: those that stand apart (but for tied ones), or the rest.
GroupKind bucket_group(const Choices& choices, bool apart);
inline bool is_reduced_apart(const LaidBucket& bucket) {
  return bucket.apart && !bucket.tied;
}

}  // namespace orrery
