#include "planner/closed_form/memory_model.h"

#include <utility>

#include "planner/closed_form/memory_tables.h"

namespace orrery::planner {

MemoryModel::MemoryModel(std::shared_ptr<const Job> job)
    : tables_(std::make_unique<MemoryTables>(std::move(job))) {}

MemoryModel::~MemoryModel() = default;

Memory MemoryModel::predict(const Choices& choices) {
  return tables_->predict(choices);
}

Memory MemoryModel::predict_stage(const Choices& choices, int stage) {
  return tables_->predict_stage(choices, stage);
}

LayerBytes MemoryModel::layer_bytes(const Choices& choices) {
  return tables_->layer_bytes(choices);
}

}  // namespace orrery::planner
