// Units of what people ask for and what software prints, in SI units and bytes.
#pragma once

namespace orrery {

inline constexpr double kSecondsPerHour = 3600;
inline constexpr double kSecondsPerDay = 86400;
inline constexpr double kJoulesPerMegawattHour = 3.6e9;
// Frameworks print PyTorch's counters in these, and call them GB.
inline constexpr double kGibibyte = 1073741824.0;

}  // namespace orrery
