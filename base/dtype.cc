#include "base/dtype.h"

#include <array>
#include <string>

#include "base/error.h"

namespace orrery {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kNames = {"fp32", "tf32",  "fp16",  "bf16", "fp8",
                                                              "int8", "int32", "int64", "fp4"};

}  // namespace

std::string_view name_of(DType type) {
  return kNames.at(static_cast<std::size_t>(type));
}

DType dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  throw UserError("unknown element type '" + std::string(name) + "'",
                  "expected fp32, tf32, fp16, bf16, fp8 or fp4");
}

}  // namespace orrery
