// What foreign JSON says under a name, where it says it as expected.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"

namespace orrery::measurements {

double number_in(const Json& object, const char* key);  // 0: none, or no finite number
std::string text_in(const Json& object, const char* key);
std::string text_at(const Json& list, std::size_t at);
const Json& list_in(const Json& object, const char* key);  // an empty one where there is none

}  // namespace orrery::measurements
