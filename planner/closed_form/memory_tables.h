// What memory_model.h answers from, kept by (tp, cp, ep, micro-batch, …). Bytes, unless a line says
// otherwise.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/closed_form/figures.h"
#include "planner/closed_form/memory_model.h"
#include "planner/tables/cuts.h"
#include "planner/tables/layer_kinds.h"
#include "program/operator_work.h"

namespace orrery::planner {

class MemoryTables {
 public:
  explicit MemoryTables(std::shared_ptr<const Job> job);

  // As memory_model.h has them.
  Memory predict(const Choices& choices);
  Memory predict_stage(const Choices& choices, int stage);
  LayerBytes layer_bytes(const Choices& choices);

 private:
  // By the group over which ZeRO-3 shards them; copies: with aliases counted.
  struct FrozenBytes {
    double dense = 0, expert = 0, dense_copy = 0;
  };
  // Of one part of the model (layer_kinds.h), for one micro-batch on one rank. Bytes; of parameters and
  // weights their number.
  struct PartBytes {
    double saved = 0;            // kept for the backward pass
    double saved_selective = 0;  // the same without what selective recomputation brings back
    double flow = 0;             // gradients of the operator at work, most at once
    double loss = 0;             // of logits while the loss is computed, beyond what is saved
    double logits = 0;           // one copy of them
    double logit_elements = 0;
    double product_gradient = 0;             // of the largest product's weights, where it stands by itself
    double last = 0;                         // output of the last operator
    double crossing = 0;                     // what a cut before the part carries (general graphs)
    double dense = 0, expert = 0;            // parameters; tied aliases count 0
    double largest_tensor = 0;               // of them
    double dense_copy = 0, expert_copy = 0;  // parameters with aliases counted: a stage that holds a copy
    FrozenBytes frozen;                      // weights that are not trained
    double dequantised = 0;                  // of the largest of them, turned back for a product
    std::vector<double> weights;             // distinct products' weights
  };
  using Table = std::vector<PartBytes>;
  struct Activations;
  // Of one stage, all its chunks: what sharding has nothing to do with.
  struct StageSums {
    int stage = 0;
    double dense = 0, expert = 0;  // parameters
    FrozenBytes frozen;            // weights that are not trained
    double largest_layer = 0;      // parameters, for ZeRO-3's gathered copies; or a tensor's
    double largest_frozen = 0;     // bytes, likewise
    double dequantised = 0;
    // What one micro-batch leaves until its backward, and what is there for a moment.
    double kept = 0, embedding = 0, head = 0;
    double flow = 0, loss = 0, head_backward = 0, embedding_backward = 0;
    double logits = 0;   // elements of one micro-batch's
    double dummies = 0;  // elements of weight gradients' placeholders
    double sent = 0;     // one micro-batch's output of the first chunk
  };

  const Table& table(const Plan& plan);
  PartBytes part_bytes(int part, const Shard& shard, const Choices& choices) const;
  Activations activations_of(const Plan& plan, int begin, int end, const Table& parts,
                             int* layer_of_stage) const;
  double placeholders(int begin, int end, const Table& parts) const;
  StageSums stage_sums(const Plan& plan, int stage, const Table& parts) const;
  // Of the stages that may be the fullest.
  const std::vector<StageSums>& sums_of(const Plan& plan, const Table& parts);
  Memory stage_memory(const Plan& plan, const StageSums& sums);

  const DeviceProfile& smallest_device(const Plan& plan, int stage);
  double communicators(const Plan& plan);  // bytes

  std::shared_ptr<const Job> job_;
  LayerParts parts_;
  Cuts cuts_;
  std::vector<std::vector<int>> crossing_;  // of general graphs (workloads/layer_graph.h)
  bool alike_ = false;                      // all layers are twins, on one kind of device
  using Layout = std::tuple<int, int, int, int, std::array<Dimension, 5>>;  // tp, pp, dp, cp, order
  std::map<Layout, std::vector<const DeviceProfile*>> smallest_;            // by stage
  std::map<Layout, double> communicators_;
  // tp, cp, ep, etp, micro-batch, sequence parallel, what is run again and whether the plan says so;
  // degrees_key().
  using TableKey = std::pair<std::array<int, 8>, std::uint64_t>;
  TableKey last_key_;
  const Table* last_ = nullptr;
  std::map<TableKey, Table> tables_;
  // Plans that differ in sharding alone are asked for one after another.
  struct LastSums {
    const Table* table = nullptr;
    Choices of;  // pp, interleave, stage_layers and recomputation
    std::vector<StageSums> stages;
  };
  LastSums last_sums_;
};

}  // namespace orrery::planner
