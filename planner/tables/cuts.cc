#include "planner/tables/cuts.h"

#include <algorithm>

#include "planner/tables/geometry.h"

namespace orrery::planner {

Cuts::Cuts(std::shared_ptr<const Job> job, const LayerParts& parts, bool devices_alike)
    : job_(std::move(job)),
      part_twin_(parts.twin),
      devices_alike_(devices_alike),
      alike_(devices_alike && parts.layers_alike()) {}

// Whether both stages hold, chunk by chunk, layers of the same kinds in the same order.
bool Cuts::twins(const Cut& cut, int stage, int other) const {
  for (int chunk = 0; chunk < cut.chunks; ++chunk) {
    const LayerRange a = cut.part(stage, chunk);
    const LayerRange b = cut.part(other, chunk);
    if (a.end - a.begin != b.end - b.begin) return false;
    if (!alike_ &&
        !std::equal(part_twin_.begin() + a.begin, part_twin_.begin() + a.end, part_twin_.begin() + b.begin))
      return false;
  }
  return true;
}

const Cut& Cuts::of(const Choices& c) {
  std::uint64_t key = mixed(static_cast<std::uint64_t>(c.pp), static_cast<std::uint64_t>(c.interleave));
  if (c.schedule == Schedule::dualpipe_v) key = mixed(key, 0);  // chunks lie elsewhere
  for (const int layers : c.stage_layers) key = mixed(key, static_cast<std::uint64_t>(layers));
  if (last_ != nullptr && key == last_key_) return *last_;
  const auto [entry, fresh] = index_.try_emplace(key, static_cast<int>(all_.size()));
  if (fresh) {
    all_.emplace_back();
    Cut& cut = all_.back();
    cut.id = entry->second;
    cut.stages = c.pp;
    cut.chunks = c.interleave;
    cut.alike = alike_;
    Choices choices;
    choices.pp = c.pp;
    choices.interleave = c.interleave;
    choices.schedule = c.schedule;
    choices.stage_layers = c.stage_layers;
    const Plan plan{job_, choices};
    for (int stage = 0; stage < c.pp; ++stage) {
      int count = 0;
      for (int chunk = 0; chunk < c.interleave; ++chunk) {
        const LayerRange layers = layers_of(plan, stage, chunk);
        const bool first = holds_first_part(c, stage, chunk);
        const bool last = holds_last_part(c, stage, chunk);
        cut.parts.push_back(
            {first ? 0 : 1 + layers.begin, last ? static_cast<int>(part_twin_.size()) : 1 + layers.end});
        count += layers.end - layers.begin;
      }
      cut.layers.push_back(count);
      int twin = stage;
      if (devices_alike_ && stage > 1 && stage < c.pp - 1) {
        for (const int other : cut.distinct) {
          if (other == 0 || !twins(cut, stage, other)) continue;
          twin = other;
          break;
        }
      }
      cut.twin.push_back(twin);
      if (twin == stage) cut.distinct.push_back(stage);
    }
  }
  last_key_ = key;
  last_ = &all_[entry->second];
  return *last_;
}

}  // namespace orrery::planner
