// A line on stderr that is no error.
#pragma once

#include <string_view>

namespace orrery {

// How it begins: whoever starts a program tells by it whether an error was said.
constexpr std::string_view kNote = "orrery: NOTE: ";

}  // namespace orrery
