// A look at an ONNX file's wire format before anything is allocated for it.
#pragma once

#include <string_view>

namespace orrery::internal {

// A message of two bytes takes two hundred in memory, so what is no weight is bounded by itself.
constexpr long kMaxOnnxStructureBytes = 16L << 20;
constexpr int kMaxOnnxNodes = 100'000;

// Throws UserError when `bytes` is no protobuf message, is truncated, or has more nodes or more bytes beside
// weights than the bounds.
void scan_onnx(std::string_view bytes, std::string_view file);

}  // namespace orrery::internal
