// Bytes that a plan's devices hold, for many plans of one job; what depends on layers alone is kept
// (memory_tables.h). Nothing is thrown; one model serves one thread. figures.h names parts.
#pragma once

#include <memory>
#include <vector>

#include "planner/closed_form/figures.h"
#include "program/plan.h"

namespace orrery::planner {

class MemoryTables;

// Of each layer, in bytes, for cuts: what stands before the first layer is counted with the first, what
// stands behind the last with the last. Without ZeRO and recomputation.
struct LayerBytes {
  std::vector<double> state;  // weights, gradients, optimizer's states
  std::vector<double> kept;   // of one micro-batch, for its backward
  double beside = 0;          // what a device holds beside them, at most
};

class MemoryModel {
 public:
  explicit MemoryModel(std::shared_ptr<const Job> job);
  ~MemoryModel();
  MemoryModel(const MemoryModel&) = delete;

  // Of the fullest device; planner/evaluation/evaluation.h has the formula. The choices must have passed
  // check_plan.
  Memory predict(const Choices& choices);
  Memory predict_stage(const Choices& choices, int stage);

  LayerBytes layer_bytes(const Choices& choices);

 private:
  std::unique_ptr<MemoryTables> tables_;
};

}  // namespace orrery::planner
