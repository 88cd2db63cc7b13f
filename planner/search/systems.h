// Which kind of system suits a job: the best plan of each kind that people run, beside one another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/closed_form/estimator.h"
#include "planner/evaluation/evaluation.h"
#include "planner/search/candidates.h"
#include "planner/search/search.h"
#include "planner/search/system_kind.h"

namespace orrery::planner {

// One entry for each kind, in the order of the enumeration. The best plan of a kind comes from `candidates`
// where the search has one, else from that kind's own part of the space. Step times are not filled in but for
// the servers' bound.
std::vector<System> systems(const std::shared_ptr<const Job>& job, const Pins& pins,
                            const Candidates& candidates, Estimator& estimator, double fillable = 1);

// One sentence: the kind of the best plan, and what each of the others would take or why it cannot be.
std::string which_suits(const std::vector<System>& systems, const Evaluation& best);

}  // namespace orrery::planner
