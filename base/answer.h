// What every JSON answer of the command line begins with, whichever program writes it.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "base/json.h"

namespace orrery {

// Of the fields of answers: raised when one is renamed, removed or means something else; further ones may
// come without.
constexpr int kSchemaVersion = 1;

// {"schema": "orrery/plan/1", "verb": "plan", "version": "0.1.0"}
inline Json answer_head(std::string_view verb, std::string_view version) {
  return {
      {"schema", fmt::format("orrery/{}/{}", verb, kSchemaVersion)}, {"verb", verb}, {"version", version}};
}

}  // namespace orrery
