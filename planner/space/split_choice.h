// Which operators of a model that is no transformer are worth splitting between tensor ranks.
//
// Split t ways, an operator's gradients are reduced over 1/t of the replicas and its weights updated by t
// ranks, for activations that travel instead: before it samples are gathered (again in the backward pass) and
// their gradients scattered; behind it outputs go back to their samples. Fully connected layers have many
// weights for few features: "one weird trick" (Krizhevsky, arXiv 1404.5997). Both sides are costed with the
// cluster's collectives on an idle network, for one step of the whole global batch:
//   saved = reduce(W, world) - reduce(W / t, world / t) + update(W) - update(W / t)
//   paid, split by column = 2 gather(R x in) + scatter(R x in) + 2 exchange(R x out / t)
//   paid, by column and the next by row = 2 gather(R x in) + scatter(R x in) + scatter(R x out) + gather(R x
//   out)
// with R samples a step of one tensor group and, of a table, no input to move. What the reduction hides
// behind computation is not known here: the search decides between plans with and without the split.
#pragma once

#include <memory>

#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

// Whether there is anything to choose: the workload is no transformer, does not say itself what is split, and
// has several devices.
bool leaves_splits_open(const Job& job);
// The job with those operators marked (Operator::split) that save more than they cost at the tensor
// parallelism at which all of them together gain most, or at the pinned one. Where one is pinned and nothing
// pays, those that cost least beyond what they save. The job itself where nothing is open, tensor parallelism
// is pinned to 1, nothing can be split, or all that could be would save less than a hundredth of the
// arithmetic's time.
std::shared_ptr<const Job> with_splits(const std::shared_ptr<const Job>& job, const Pins& pins);

}  // namespace orrery::planner
