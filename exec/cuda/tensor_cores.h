// What tensor cores multiply, by warps, and how it gets into their registers (PTX ISA: "mma.sync", shape
// m16n8k16; "ldmatrix"; "cp.async"). In one place, so that tests/emulation can put its own in and run the
// same kernels on a processor.
//
// A lane l holds of a 16 x 16 factor `a` four words of two neighbours in a row: rows l / 4 and l / 4 + 8 by
// turns, first columns 2 (l % 4), in words 2 and 3 eight further on; of a 16 x 8 factor `b` two words of two
// neighbours in a column: column l / 4, first rows 2 (l % 4), and eight further on; of the 16 x 8 sums rows l
// / 4 (0, 1) and l / 4 + 8 (2, 3), columns 2 (l % 4) and the next.
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

// Four blocks of 8 x 8 two-byte numbers out of a tile in shared memory whose rows lie `row_words` (a multiple
// of four) words apart; `row` and `column` of the first one, columns a multiple of eight. Word i is of block
// i: a lane's two neighbours of row l / 4, or, turned, of column l / 4. DownFirst: block 1 lies below the
// first one and block 2 beside it; else the other way round.
template <bool Turned, bool DownFirst>
__device__ void load_blocks(unsigned (&words)[4], const unsigned* tile, int row_words, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int block = lane / 8;
  const int down = DownFirst ? block % 2 : block / 2;
  const int beside = DownFirst ? block / 2 : block % 2;
  const unsigned* at = tile + (row + 8 * down + lane % 8) * row_words + column / 2 + 4 * beside;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(at));
  if constexpr (Turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

// Sixteen bytes on their way into shared memory; both sides aligned to as much.
__device__ inline void copy_sixteen(unsigned* shared, const std::uint16_t* global) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
// What this thread has asked for since the last call is a group.
__device__ inline void end_group_of_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but this thread's latest `Left` groups have arrived.
template <int Left>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

// 2^x, to the precision of what it is rounded to afterwards.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace orrery::exec::kernels
