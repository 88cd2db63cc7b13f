// Hugging Face `config.json` to Workload.
#pragma once

#include <string_view>

#include "workloads/workload.h"

namespace orrery {

// Read by its fields: what a family's configurations do not say is a row of families/families.json. Of a
// known family keys that are not understood are kept in Workload::ignored_keys. A model_type that is not
// known is read as of Llama's kind where every field is understood, and Workload::notes says so. Throws
// UserError with file:line for a missing or nonsensical dimension, and for a configuration that cannot be
// read: at its field, with the other ways. `file` names the source in messages.
Workload workload_from_huggingface(std::string_view text, std::string_view file);

}  // namespace orrery
