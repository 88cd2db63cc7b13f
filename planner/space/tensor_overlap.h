// Tensor ranks' collectives beside the products that they come from or go to: a setting of the software, as
// its runtime profile has it (proto/runtime_profile.proto: overlap_tensor, tensor_overlap_setting).
#pragma once

#include "program/plan.h"

namespace orrery::planner {

// Whether the software cuts no product into pieces beside them unless its user turns that on.
bool may_turn_on_tensor_overlap(const RuntimeProfile& runtime);

// Sets the runtime so; on, what goes back overlaps, too (overlap_tensor_backward).
void set_tensor_overlap(bool on, RuntimeProfile* runtime);
// The same of the job's. Throws UserError where the software has no such setting, unless `any_runtime`.
void set_tensor_overlap(bool on, bool any_runtime, Job* job);

// Whether the setting does something to a plan: collectives of tensor ranks that split the sequence and share
// a node, in whose memory they write to one another.
bool tensor_overlap_reaches(const Job& job, const Choices& choices);

}  // namespace orrery::planner
