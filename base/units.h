// Units of what people ask for, in SI units.
#pragma once

namespace orrery {

inline constexpr double kSecondsPerHour = 3600;
inline constexpr double kSecondsPerDay = 86400;
inline constexpr double kGibibyte =
    1073741824.0;  // frameworks print PyTorch's counters in these, and call them GB
inline constexpr double kJoulesPerMegawattHour = 3.6e9;

}  // namespace orrery
