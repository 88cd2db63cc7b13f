#include "sim/network/platform.h"

#include <dlfcn.h>

#include "base/error.h"

namespace orrery::sim {
namespace {

// Looked for where the RUNPATH of the program, or of the Python module, says. Symbols are bound at once: each
// fork would look up anew what was left for later.
PlatformMaker find_maker() {
  void* module = dlopen("liborrery-simgrid.so", RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) throw InternalError(std::string("SimGrid cannot be loaded: ") + dlerror());
  void* maker = dlsym(module, kPlatformSymbol);
  ORRERY_CHECK(maker != nullptr, "liborrery-simgrid.so is of another version");
  return reinterpret_cast<PlatformMaker>(maker);
}

PlatformMaker maker() {
  static const PlatformMaker found = find_maker();
  return found;
}

}  // namespace

void load_simgrid() {
  maker();
}

std::unique_ptr<Platform> make_platform(const FlowSystem& flows) {
  return std::unique_ptr<Platform>(maker()(flows));
}

}  // namespace orrery::sim
