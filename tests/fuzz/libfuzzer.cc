// libFuzzer's entry: one program for each target (-DORRERY_FUZZ=ON with clang; see CMakeLists.txt).
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  orrery::fuzz::ORRERY_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
