// Of the ways to split a graph's operators between tensor ranks (planner/space/split_choice.h) the one whose
// plans are best by the closed form.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "planner/search/search.h"
#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

struct SplitJob {
  std::shared_ptr<const Job> job;  // its operators marked and in the order that suits (order_choice.h)
  // Each tensor parallelism has its own way, the one that it is planned with where it is pinned. Of the plans
  // of the ways that `job` does not have:
  std::int64_t others = 0;                                        // how many
  double others_bound = std::numeric_limits<double>::infinity();  // of the objective: none is below
};

// What is pinned has its own way alone. Transformers have none.
SplitJob with_best_splits(const std::shared_ptr<const Job>& job, const Pins& pins,
                          const SearchOptions& options);

// The plan with tensor ranks that the closed form puts first, whether the runtime has them or not; none where
// it puts one without first, or none fits.
std::optional<Plan> best_with_tensor_ranks(const std::shared_ptr<const Job>& job, const Pins& pins,
                                           const SearchOptions& options);

}  // namespace orrery::planner
