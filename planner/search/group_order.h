// In which order the kinds of nodes of a mixed cluster take ranks.
#pragma once

#include <memory>
#include <string>

#include "planner/search/search.h"
#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

// The job on a cluster that lists its node groups in the order whose best plan the closed form makes fastest
// (or cheapest, as the objective says), in the file's where no other gains kWorthMoving. Ranks fill nodes in
// that order and stages stand one behind the other, so that a head on the slowest devices would hold up all.
// The job itself where all nodes are of one group, `pp` is pinned to 1, layers are dealt to the stages by a
// pin, overrides name nodes by their numbers, or there are more than kMostGroups.
std::shared_ptr<const Job> with_group_order(const std::shared_ptr<const Job>& job, const Pins& pins,
                                            const SearchOptions& options);
constexpr double kWorthMoving = 0.01;  // of the objective: the closed form errs by more
constexpr std::size_t kMostGroups = 3;

// Both clusters list the same groups: where in another order, the sentence that says so.
std::string moved_groups(const Cluster& file, const Cluster& chosen);

}  // namespace orrery::planner
