// Two-byte floating-point types on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "program/program.h"

namespace orrery::exec::cpu {

// As exec/device/device.h. `type`: fp16 or bf16.
void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale, bool saturate);
void widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale);
void round_to(DType type, float* data, std::size_t count);
// into = into op from, each result rounded.
void reduce_narrow(DType type, Reduction op, std::uint16_t* into, const std::uint16_t* from,
                   std::size_t count);

}  // namespace orrery::exec::cpu
