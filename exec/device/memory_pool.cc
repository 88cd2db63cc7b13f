#include "exec/device/memory_pool.h"

#include <algorithm>

#include "base/error.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kGranule = 4096;  // counts of tokens differ a little from step to step

}  // namespace

MemoryPool::~MemoryPool() {
  for (const auto& [bytes, data] : free_) device_.release(data);
  for (const auto& [data, bytes] : taken_) device_.release(data);
}

void* MemoryPool::take(std::size_t bytes) {
  const std::size_t wanted = (std::max<std::size_t>(bytes, 1) + kGranule - 1) / kGranule * kGranule;
  auto found = free_.lower_bound(wanted);
  if (found != free_.end() && found->first > 2 * wanted) found = free_.end();
  if (found == free_.end()) {
    // What is too small for this is given up for it: the pool does not grow beyond what is needed at once.
    if (!free_.empty() && free_.begin()->first < wanted) {
      device_.release(free_.begin()->second);
      free_.erase(free_.begin());
    }
    void* data = device_.allocate(wanted);
    taken_[data] = wanted;
    return data;
  }
  void* data = found->second;
  taken_[data] = found->first;
  free_.erase(found);
  return data;
}

void MemoryPool::give_back(void* data) {
  const auto found = taken_.find(data);
  ORRERY_CHECK(found != taken_.end(), "memory given back twice");
  free_.emplace(found->second, data);
  taken_.erase(found);
}

}  // namespace orrery::exec
