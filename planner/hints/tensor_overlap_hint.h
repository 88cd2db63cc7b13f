// Tensor ranks' collectives beside their products, where the software does that only when it is told:
// searched, it would double what a search looks at (each layer's passes are others with it), so the fastest
// plans with it are looked for beside the answer, by the closed form, and simulated.
#pragma once

#include "planner/search/search.h"

namespace orrery::planner {

// Fills `tensor_overlap` and `why_tensor_overlap` of a search's result where a plan with the setting is
// faster than all that were simulated without it. `search_s` grows by what that took; nothing else of it
// changes.
void hint_at_tensor_overlap(const Pins& pins, const SearchOptions& options, SearchResult* result);

}  // namespace orrery::planner
