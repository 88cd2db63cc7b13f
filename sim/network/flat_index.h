// Numbers by 64-bit keys in an open-addressing table, where keys are many, looked up over and over, and never
// taken out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::sim {

class FlatIndex {
 public:
  // The number of `key`, which becomes `value` where it has none; whether it had none. `key` is not ~0.
  std::pair<std::uint32_t, bool> try_emplace(std::uint64_t key, std::uint32_t value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slot_of(key);
    const bool added = slot.key == kFree;
    if (added) {
      slot = {key, value};
      ++size_;
    }
    return {slot.value, added};
  }

 private:
  static constexpr std::uint64_t kFree = ~0ULL;
  struct Slot {
    std::uint64_t key = kFree;
    std::uint32_t value = 0;
  };

  Slot& slot_of(std::uint64_t key) {
    std::uint64_t at = key * 0x9E3779B97F4A7C15ULL;  // Fibonacci hashing: the upper bits are mixed well
    at ^= at >> 32;
    while (true) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.key == key || slot.key == kFree) return slot;
      ++at;
    }
  }

  void grow() {
    std::vector<Slot> old(4 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.key != kFree) slot_of(slot.key) = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(1024);  // a power of two
  std::size_t size_ = 0;
};

}  // namespace orrery::sim
