// A list that only grows, for what registers at run time: whoever reads it beside an append sees the list
// before or after, and what is in it stays where it is.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>

#include "base/error.h"

namespace orrery {

template <typename T, std::size_t kMost>
class AppendOnly {
 public:
  AppendOnly(std::initializer_list<T> first) {
    for (const T& item : first) append(item);
  }

  std::span<const T> items() const { return {items_.data(), count_.load(std::memory_order_acquire)}; }

  // By one thread at a time.
  void append(T item) {
    const std::size_t at = count_.load(std::memory_order_relaxed);
    ORRERY_CHECK(at < kMost, "a list of what is registered is full");
    items_[at] = std::move(item);
    count_.store(at + 1, std::memory_order_release);
  }

 private:
  std::array<T, kMost> items_{};
  std::atomic<std::size_t> count_ = 0;
};

}  // namespace orrery
