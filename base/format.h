// Numbers as people read them. Rates are SI (GB/s = 1e9 bytes/s); sizes are bytes with binary prefixes (GiB).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery {

std::string human_bytes(double bytes);             // "79.2 GiB"
std::string human_seconds(double seconds);         // "12.3 ms"
std::string human_duration(double seconds);        // of runs, from days down: "63.85 days", "4.2 min"
std::string human_change(double to, double from);  // "+2.0%"; "12 times" from ten times on; "" of nothing
std::string human_rate(double bytes_per_s);        // "25.0 GB/s"
std::string human_flops_rate(double flops_per_s);  // "312 TFLOP/s"
std::string human_count(double count);             // "175 B" for parameters
std::string with_commas(std::int64_t count);       // "3,704,640"
std::string counted(std::int64_t count, std::string_view what);  // "1 node", "3,072 nodes"

}  // namespace orrery
