// What a search begins with, before anything is simulated: an answer at a fraction of its time.
#pragma once

#include <memory>

#include "planner/evaluation/evaluation.h"
#include "planner/search/search.h"
#include "planner/space/pins.h"

namespace orrery::planner {

// The plan that the closed form puts first, not simulated, with its interval. Of `options` the objective and
// the probability to fit count. Throws what search() throws.
Evaluation guess(std::shared_ptr<const Job> job, const Pins& pins, const SearchOptions& options);

}  // namespace orrery::planner
