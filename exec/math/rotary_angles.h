// How far rotary positions turn, by the model's configuration.
#pragma once

#include "exec/device/device.h"
#include "workloads/workload.h"

namespace orrery::exec {

// Of sequences of `seq_len` tokens (dynamic scaling goes by them). Formulas: transformers'
// modeling_rope_utils, which the papers at RopeScaling describe.
RotaryAngles rotary_angles(const Transformer& model, int seq_len);

}  // namespace orrery::exec
