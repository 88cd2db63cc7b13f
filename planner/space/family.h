// Plans that are looked at together: those of one layout, micro-batch, schedule and cut.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "planner/space/admission.h"
#include "planner/space/pins.h"
#include "planner/tables/cuts.h"
#include "planner/tables/geometry.h"
#include "planner/tables/gradients.h"
#include "program/plan.h"

namespace orrery::planner {

struct Recomputed {
  Recompute kind = Recompute::none;
  int layers = 0;         // with full: of a stage; 0: all
  ModuleSet modules = 0;  // with selective: none: the runtime's
};
struct Sharding {
  int zero = 0;
  int group = 0;  // ranks; 0: all of dp*cp
};
struct BucketSize {
  double bytes = 0;  // 0: the runtime's
  bool one = false;  // puts all gradients of a stage together: nothing is left to overlap
};

// Plans that share their layout, micro-batch, schedule and cut, and differ in the lists: every combination is
// a plan, but that ZeRO-3 has no buckets to choose, and one bucket nothing to overlap (the first of
// `overlaps` stands for both).
struct Family {
  Choices core;  // with the first of each list
  // Shared with the families that have the same.
  std::shared_ptr<const std::vector<Recomputed>>
      recomputes;  // by what they compute: none, selective, full for 1, 2, … layers, all
  std::shared_ptr<const std::vector<Sharding>> shardings;
  std::shared_ptr<const std::vector<bool>> overlaps;
  std::shared_ptr<const std::vector<BucketSize>> buckets;

  std::int64_t count() const;
  // Of `overlaps` x `buckets`, whether the pair is a plan of its own.
  bool distinct(int zero, std::size_t overlap, std::size_t bucket) const {
    return zero == 3 ? bucket == 0 : overlap == 0 || !(*buckets)[bucket].one;
  }
  Choices plan(const Recomputed& recomputed, const Sharding& sharding, bool overlap,
               double bucket_bytes) const;
};

// What the plans of a layout may differ in beside it, under the user's pins.
class FamilyLists {
 public:
  FamilyLists(std::shared_ptr<const Job> job, const Pins& pins, const LayerParts& parts,
              Geometries& geometries, Cuts& cuts, Admission& admission);
  FamilyLists(const FamilyLists&) = delete;

  // Nothing where none of its plans is admitted. `choices`: of the layout, micro-batch, schedule and cut.
  std::optional<Family> family_of(const Choices& choices);
  // What is admitted has changed.
  void forget();

 private:
  template <typename Element>
  using List = std::shared_ptr<const std::vector<Element>>;

  List<bool> overlaps(bool only_on, bool only_off);
  List<Recomputed> recomputes(const Choices& choices);
  List<Sharding> shardings(const Choices& choices);
  List<BucketSize> buckets(const Choices& choices);  // sizes that make different buckets

  std::shared_ptr<const Job> job_;
  const Pins& pins_;
  Cuts& cuts_;
  Admission& admission_;
  Gradients gradients_;
  std::vector<ModuleSet> module_sets_;  // that selective recomputation is searched with
  List<BucketSize> no_buckets_;
  std::map<std::pair<bool, bool>, List<bool>> overlap_lists_;
  std::map<std::array<int, 5>, List<Recomputed>> recompute_lists_;
  std::map<std::array<int, 9>, List<Sharding>> sharding_lists_;
  std::map<std::array<int, 5>, List<BucketSize>> bucket_lists_;
};

}  // namespace orrery::planner
