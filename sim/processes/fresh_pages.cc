#include "sim/processes/fresh_pages.h"

#include <cstddef>

// jemalloc's; libraries do not choose their program's malloc.
extern "C" [[gnu::weak]] int mallctl(const char* name, void* old_value, std::size_t* old_size,
                                     void* new_value, std::size_t new_size);

namespace orrery::sim {

void give_back_pages() {
  // Of all arenas (MALLCTL_ARENAS_ALL).
  if (mallctl != nullptr) mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
}

void allocate_from_fresh_pages() {
  if (mallctl == nullptr) return;
  unsigned arena = 0;
  std::size_t size = sizeof arena;
  if (mallctl("arenas.create", &arena, &size, nullptr, 0) != 0) return;
  mallctl("thread.arena", nullptr, nullptr, &arena, sizeof arena);
  mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);  // of what was kept of the parent's, too
}

}  // namespace orrery::sim
