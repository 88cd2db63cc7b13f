// ONNX model to Workload: shapes by onnx's own inference, sizes and nesting bounded before it is called.
#pragma once

#include <cstdint>
#include <string_view>

#include "workloads/workload.h"

namespace orrery {

constexpr std::uint64_t kMaxOnnxBytes = 1ULL << 30;  // weights included: VGG-16 has 528 MiB

// Throws UserError for a file that is truncated, too large or nested, fails onnx's checker, or has an
// operator with parameters that has no cost model.
Workload workload_from_onnx(std::string_view bytes, std::string_view file);

}  // namespace orrery
