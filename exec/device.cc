#include "exec/device.h"

#include "base/error.h"

namespace orrery::exec {
namespace {

[[noreturn]] void lacks(const Device& device, const char* operation) {
  throw InternalError("the device " + device.name() + " has no " + operation);
}

}  // namespace

void Device::attention_block_forward(const AttentionBlock&, const float*, const float*, const float*, float*,
                                     float*) {
  lacks(*this, "ring attention");
}
void Device::attention_block_backward(const AttentionBlock&, const float*, const float*, const float*,
                                      const float*, const float*, const float*, float*, float*, float*) {
  lacks(*this, "ring attention");
}
void Device::convolution_forward(const WindowSize&, const float*, const float*, const float*, float*) {
  lacks(*this, "convolution");
}
void Device::convolution_backward_input(const WindowSize&, const float*, const float*, float*) {
  lacks(*this, "convolution");
}
void Device::convolution_backward_weight(const WindowSize&, const float*, const float*, float*, float*,
                                         bool) {
  lacks(*this, "convolution");
}
void Device::pool_forward(const WindowSize&, const float*, float*, std::int32_t*) {
  lacks(*this, "pooling");
}
void Device::pool_backward(const WindowSize&, const float*, const std::int32_t*, float*) {
  lacks(*this, "pooling");
}
void Device::batch_norm_forward(const float*, const float*, const float*, float*, float*, float*,
                                std::int64_t, std::int64_t, std::int64_t, float) {
  lacks(*this, "batch normalisation");
}
void Device::batch_norm_backward(const float*, const float*, const float*, const float*, const float*, float*,
                                 float*, float*, std::int64_t, std::int64_t, std::int64_t) {
  lacks(*this, "batch normalisation");
}
void Device::gather_rows(const float*, const std::int32_t*, const float*, float*, std::int64_t,
                         std::int64_t) {
  lacks(*this, "rows by index");
}
void Device::sum_rows(const float*, const std::int32_t*, const float*, float*, std::int64_t, int,
                      std::int64_t, bool) {
  lacks(*this, "rows by index");
}
void Device::dot_rows(const float*, const float*, const std::int32_t*, float*, std::int64_t, int,
                      std::int64_t) {
  lacks(*this, "rows by index");
}
void Device::narrow(DType, const float*, std::uint16_t*, std::size_t, float, bool) {
  lacks(*this, "two-byte types");
}
void Device::widen(DType, const std::uint16_t*, float*, std::size_t, float) {
  lacks(*this, "two-byte types");
}
void Device::round_to(DType, float*, std::size_t) {
  lacks(*this, "two-byte types");
}
void Device::quantize(const float*, float*, std::byte*, std::size_t) {
  lacks(*this, "gradient compression");
}
void Device::keep_largest(const float*, float*, std::byte*, std::size_t, std::size_t) {
  lacks(*this, "gradient compression");
}
void Device::add_quantized(const std::byte*, float*, std::size_t) {
  lacks(*this, "gradient compression");
}
void Device::add_largest(const std::byte*, float*, std::size_t) {
  lacks(*this, "gradient compression");
}

}  // namespace orrery::exec
