// What readers of logs share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::measurements {

constexpr std::size_t kMostLogLineBytes = 8192;  // a longer one is somebody else's

std::string_view trimmed(std::string_view text);
// The word behind `label` on a line, up to a blank, comma, bar, quotation mark or bracket; empty where there
// is none.
std::string_view word_behind(std::string_view line, std::string_view label);
// The same as a number.
std::optional<double> number_behind(std::string_view line, std::string_view label);
// "1,500" as "1500", where commas part thousands and nothing else; else as it is.
std::string without_grouping(std::string_view text);
// A line without what launchers write before those of each rank: mpirun's "[1,0]<stdout>:", torchrun's
// "[default0]:" and "[rank0]:", srun's "0: ".
std::string_view without_rank(std::string_view line);
// Without a terminal's colours.
std::string without_colours(std::string_view line);
// How far the logarithm of the median of these may be off, by what they differ; 0: not known.
double spread_of_median(const std::vector<double>& seconds);

}  // namespace orrery::measurements
