// Numbers in a device's memory, and what they are: fp32 words, or, where a device holds activations so, those
// of a two-byte type. They read as the pointer they stand for.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

namespace orrery::exec {

template <bool Constant>
class NumbersOf {
 public:
  using Floats = std::conditional_t<Constant, const float*, float*>;
  using Memory = std::conditional_t<Constant, const void*, void*>;

  NumbersOf() = default;
  NumbersOf(Memory data, DType type) : data_(data), type_(type) {}
  // fp32 words are what a pointer to them is; none is there for null.
  template <class Pointer>
  requires std::convertible_to<Pointer, Floats> NumbersOf(Pointer&& floats)
      : data_(static_cast<Floats>(floats)) {}  // NOLINT: see above
  template <bool Other>
  requires(Other && !Constant) operator NumbersOf<Other>() const {  // NOLINT: as pointers do
    return {data_, type_};
  }

  Memory data() const { return data_; }
  DType type() const { return type_; }
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * static_cast<std::size_t>(bytes_of(type_));
  }
  NumbersOf operator+(std::int64_t elements) const {
    if (data_ == nullptr) return *this;
    using Byte = std::conditional_t<Constant, const std::byte, std::byte>;
    return {static_cast<Byte*>(data_) + elements * bytes_of(type_), type_};
  }
  Floats floats() const {
    ORRERY_CHECK(type_ == DType::fp32, "numbers of two bytes where fp32 words are wanted");
    return static_cast<Floats>(data_);
  }

 private:
  Memory data_ = nullptr;
  DType type_ = DType::fp32;
};

using Numbers = NumbersOf<false>;
using ConstNumbers = NumbersOf<true>;

}  // namespace orrery::exec
