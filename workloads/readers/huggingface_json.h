// JSON as Python's json module writes and reads it.
#pragma once

#include <string>
#include <string_view>

namespace orrery::internal {

// The text with NaN, Infinity and -Infinity, which JSON does not have, as texts: whoever reads a number there
// is refused it. Line by line the same. Throws UserError(file, line, ...) where an object has a key twice, of
// which Python takes the last. Text that is no JSON is left to who parses it.
std::string plain_json(std::string_view text, std::string_view file);

}  // namespace orrery::internal
