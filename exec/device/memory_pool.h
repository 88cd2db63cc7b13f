// Memory whose size is known only when it is needed, kept between uses: fresh pages cost more than the work.
#pragma once

#include <cstddef>
#include <map>

#include "exec/device/device.h"

namespace orrery::exec {

class MemoryPool {
 public:
  explicit MemoryPool(Device& device) : device_(device) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  void* take(std::size_t bytes);  // at least so many; throws NoAnswer when memory runs out
  void give_back(void* data);

 private:
  Device& device_;
  std::multimap<std::size_t, void*> free_;  // by size
  std::map<void*, std::size_t> taken_;
};

}  // namespace orrery::exec
