// How a plan's pipeline cuts the model: which parts (layer_kinds.h) each chunk of each stage holds, and which
// stages are alike.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "planner/tables/layer_kinds.h"
#include "program/plan.h"

namespace orrery::planner {

struct Cut {
  int id = 0;
  int stages = 1, chunks = 1;
  std::vector<LayerRange> parts;  // [stage * chunks + chunk]: parts [begin, end) of the model
  std::vector<int> layers;        // of each stage, all chunks
  std::vector<int> twin;          // by stage: the first stage that holds layers that cost the same, or itself
  std::vector<int> distinct;      // the stages that are their own twins
  bool alike = false;             // all layers of the model are of one kind, all devices too
  LayerRange part(int stage, int chunk) const { return parts[stage * chunks + chunk]; }
};

class Cuts {
 public:
  // `devices_alike`: stages on other devices are alike too.
  Cuts(std::shared_ptr<const Job> job, const LayerParts& parts, bool devices_alike);
  Cuts(const Cuts&) = delete;

  // Throws UserError where the choices' stage_layers do not add up. The reference stays valid.
  const Cut& of(const Choices& choices);

 private:
  std::shared_ptr<const Job> job_;
  bool twins(const Cut& cut, int stage, int other) const;

  std::vector<int> part_twin_;  // by part (layer_kinds.h)
  bool devices_alike_ = false;
  bool alike_ = false;  // all layers are twins, on one kind of device
  std::deque<Cut> all_;
  std::unordered_map<std::uint64_t, int> index_;
  std::uint64_t last_key_ = 0;
  const Cut* last_ = nullptr;
};

}  // namespace orrery::planner
