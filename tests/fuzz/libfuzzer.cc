// libFuzzer's entry: one program for the targets of a room (CMakeLists.txt). ORRERY_FUZZ_TARGET names the
// target; ORRERY_FUZZ_SEEDS a folder that gets its seeds, and nothing is run. Without a target it lists them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/fuzz/target.h"

namespace {

orrery::fuzz::Target chosen;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* name = std::getenv("ORRERY_FUZZ_TARGET");
  for (const orrery::fuzz::Target& target : orrery::fuzz::ORRERY_FUZZ_ROOM()) {
    if (name == nullptr) std::printf("%s\n", std::string(target.name).c_str());
    if (name != nullptr && target.name == name) chosen = target;
  }
  if (name == nullptr) std::exit(0);
  if (chosen.accepts == nullptr) {
    std::fprintf(stderr, "there is no target %s here\n", name);
    std::exit(2);
  }
  if (const char* folder = std::getenv("ORRERY_FUZZ_SEEDS")) {
    int number = 0;
    for (const std::string& bytes : chosen.seeds())
      std::ofstream(std::string(folder) + "/seed-" + std::to_string(number++), std::ios::binary) << bytes;
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen.accepts({reinterpret_cast<const char*>(data), size});
  return 0;
}
