// The JSON Schemas (draft 2020-12) of the verbs' answers, made of the records that write them.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"

namespace orrery {

// Verbs that answer in JSON, in the order of --help.
std::vector<std::string_view> verbs_with_schemas();
// Throws UserError on another.
Json schema_of(std::string_view verb);

}  // namespace orrery
