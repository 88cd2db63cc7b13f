// What tensor cores multiply, by warps (PTX ISA, "mma.sync", shape m16n8k16). In one place, so that
// tests/emulation can put its own in and run the same kernels on a processor.
//
// A lane l holds of a 16 x 16 factor `a` four words of two neighbours in a row: rows l / 4 and l / 4 + 8 by turns, first columns
// 2 (l % 4), in words 2 and 3 eight further on; of a 16 x 8 factor `b` two words of two neighbours in a column: column l / 4, first
// rows 2 (l % 4), and eight further on; of the 16 x 8 sums rows l / 4 (0, 1) and l / 4 + 8 (2, 3), columns 2 (l % 4) and the next.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/dtype.h"

// Before a loop whose index picks registers.
#define ORRERY_UNROLL _Pragma("unroll")

namespace orrery::exec::kernels {

// Two numbers of T side by side, rounded to nearest even.
template <DType T>
__device__ unsigned two_of(float first, float second) {
  if constexpr (T == DType::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const unsigned&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const unsigned&>(pair);
  }
}

// sums += a b, by all lanes of a warp.
template <DType T>
__device__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (T == DType::bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace orrery::exec::kernels
