// What every JSON answer of the command line begins with, whichever program writes it; and its schema.
#pragma once

#include <string_view>
#include <vector>

#include "base/answer/record.h"
#include "base/json.h"

namespace orrery {

// Of the fields of answers: raised when one is renamed, removed or means something else; further ones may
// come without.
constexpr int kSchemaVersion = 1;

// {"schema": "orrery/plan/1", "verb": "plan", "version": "0.1.0"}
Json answer_head(std::string_view verb, std::string_view version);

// The JSON Schema of a verb's answers. `forms`: which they may have (of `validate` several); a "no" has the
// head, `why_not` and whatever of those was known.
Json answer_schema(std::string_view verb, std::string_view what, const std::vector<const Fields*>& forms);

}  // namespace orrery
