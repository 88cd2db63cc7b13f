// Hugging Face `config.json` to Workload.
#pragma once

#include <string_view>

#include "workloads/workload.h"

namespace orrery {

// `file` names the source in messages. Unknown keys are kept in Workload::ignored_keys. Throws UserError with
// file:line for a missing or nonsensical dimension and for a model_type that is not known.
Workload workload_from_huggingface(std::string_view text, std::string_view file);

}  // namespace orrery
