#include "exec/run/process_memory.h"

#include <fstream>
#include <string>
#include <string_view>

namespace orrery::exec {
namespace {

// A line "NAME:  1234 kB" of /proc/self/status.
double status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == name) {
      double kib = 0;
      status >> kib;
      return kib * 1024;
    }
  return 0;
}

}  // namespace

double resident_bytes() {
  return status_bytes("VmRSS:");
}
double resident_peak_bytes() {
  return status_bytes("VmHWM:");
}

}  // namespace orrery::exec
