// Numbers with units as SimGrid platform files write them: "125MBps", "50us", "1Gf".
#pragma once

#include <optional>
#include <string_view>

namespace orrery {

enum class SimgridUnit { bytes_per_s, seconds, flops_per_s };

// The value in SI units; a number without a unit is in them already. Bandwidth: k M G T P E (powers of 1000)
// or Ki Mi … (of 1024) before "Bps" or "bps" (bits). Time: w d h m s ms us ns ps. Speed: the same prefixes
// before "f" or "flops". Nothing where it is not one finite number, zero or more, with a known unit.
std::optional<double> simgrid_number(std::string_view text, SimgridUnit unit);

}  // namespace orrery
