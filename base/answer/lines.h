// Text for people in lines that a terminal shows whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace orrery {

constexpr std::size_t kUsualColumns = 80;

// That a terminal takes for it: a few letters are no ASCII (×, µ), and what sets colours takes none.
std::size_t columns_of(std::string_view text);

// Each line in at most `columns`, broken between words; what goes on is indented by two beyond its beginning.
// A word that is longer stays whole.
std::string wrapped(std::string_view text, std::size_t columns = kUsualColumns);

// A name that is too long, with its beginning and its end: "ncclDevKernel_…_RING_LL".
std::string cut_in_the_middle(std::string_view name, std::size_t columns);

// The same as wrapped(), a sentence a line.
std::string sentences(std::string_view text, std::size_t columns = kUsualColumns);
// The first sentence of them.
std::string_view first_sentence(std::string_view text);

}  // namespace orrery
