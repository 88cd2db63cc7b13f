// What a plan's figures rest on, each with where it is from.
#pragma once

#include "base/json.h"
#include "program/plan.h"

namespace orrery {

// A list: what, value (for people), rests_on (calibrated | fitted | datasheet | assumed | measured, where it
// is known), source.
Json assumptions_json(const Plan& plan);

}  // namespace orrery
