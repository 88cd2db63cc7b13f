// From Numbers, whose type is known when a call is made, to the kernels that are made for it.
#pragma once

#include "base/error.h"
#include "exec/cuda/kernels.h"
#include "exec/device/numbers.h"

namespace orrery::exec {

// The kernels of one type; called with Numbers, the pointer that these take.
template <class T>
struct KernelsOf {
  kernels::Elementwise<T> elementwise;
  kernels::Rowwise<T> rowwise;
  kernels::Rows<T> rows;
  kernels::Attention<T> attention;
  kernels::Images<T> images;

  T* operator()(Numbers numbers) const { return static_cast<T*>(checked(numbers).data()); }
  const T* operator()(ConstNumbers numbers) const { return static_cast<const T*>(checked(numbers).data()); }

 private:
  template <class Any>
  static Any checked(Any numbers) {
    ORRERY_CHECK(numbers.type() == kernels::kTypeOf<T> || numbers.data() == nullptr,
                 "numbers of another type among those of a call");
    return numbers;
  }
};

// Calls run with the kernels of what `one` holds.
template <class Run>
void by_type(ConstNumbers one, Run run) {
  switch (one.type()) {
    case DType::bf16:
      return run(KernelsOf<kernels::Bf16>());
    case DType::fp16:
      return run(KernelsOf<kernels::Fp16>());
    default:
      return run(KernelsOf<float>());
  }
}

}  // namespace orrery::exec
