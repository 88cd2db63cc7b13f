// The transformers that Hugging Face's classes describe, by `model_type`.
#pragma once

#include <map>
#include <string_view>

#include "workloads/readers/huggingface_config.h"
#include "workloads/workload.h"

namespace orrery::internal {

using ReadModel = void (*)(Config&, Transformer*);

// What any class may say of its mathematics beside shapes: how rotary positions are scaled, dropout, and what
// the executor does not compute (Transformer::unexecuted).
void read_mathematics(Config& config, Transformer* transformer);

// Defaults are those of the class's own configuration in transformers.
const std::map<std::string_view, ReadModel>& huggingface_families();

}  // namespace orrery::internal
