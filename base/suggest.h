// "Did you mean …": near names for a name that nothing has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// What a UserError expects after an unknown `name`: the known names within a few edits or that contain it or
// are contained in it, nearest first ("did you mean 'dgx-a100' or 'dgx-h100'?"), else all of them ("expected
// one of …"). Case does not count.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

// How many letters to change, add, leave out or swap with the next to come from one to the other
// (Levenshtein's distance with optimal string alignment).
std::size_t edits_between(std::string_view a, std::string_view b);

}  // namespace orrery
