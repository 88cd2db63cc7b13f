// Threads for pieces of work that know nothing of each other.
#pragma once

#include <functional>

namespace orrery {

int processors();  // of this machine, at least one

// body(0) … body(count - 1), on at most `jobs` threads. `progress`, where given, is called by the calling
// thread and told how many have ended. Throws what the lowest failing index threw, after all have ended.
void for_each_in_parallel(int count, int jobs, const std::function<void(int)>& body,
                          const std::function<void(int done, int count)>& progress = {});

}  // namespace orrery
