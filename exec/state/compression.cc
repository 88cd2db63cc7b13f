#include "exec/state/compression.h"

#include "program/lower/lowering.h"

namespace orrery::exec {

Compressor::Compressor(const Plan& plan, const Parameters& parameters, Device& device)
    : choices_(plan.choices), parameters_(parameters), device_(device) {
  const bool keeps =
      choices_.grad_compression == Compression::int8 || choices_.grad_compression == Compression::topk;
  for (int b = 0; b < parameters.buckets(); ++b) {
    float* data = nullptr;
    const auto elements = static_cast<std::size_t>(parameters.elements(b));
    if (keeps && parameters.reduced(b)) {
      data = static_cast<float*>(device.allocate(elements * sizeof(float)));
      device.fill(data, elements, 0);
    }
    left_out_.push_back(data);
  }
}

Compressor::~Compressor() {
  for (float* data : left_out_) device_.release(data);
}

std::size_t Compressor::payload_bytes(int bucket) const {
  return static_cast<std::size_t>(
      compressed_bytes(choices_, static_cast<double>(parameters_.elements(bucket))));
}

std::vector<LeftOut> Compressor::left_out() const {
  std::vector<LeftOut> all;
  for (int b = 0; b < parameters_.buckets(); ++b)
    if (float* data = left_out_[static_cast<std::size_t>(b)]) all.push_back({data, parameters_.elements(b)});
  return all;
}

void Compressor::pack(int bucket, void* into) {
  const float* gradients = parameters_.gradients(bucket);
  const auto elements = static_cast<std::size_t>(parameters_.elements(bucket));
  float* left_out = left_out_[static_cast<std::size_t>(bucket)];
  auto* payload = static_cast<std::byte*>(into);
  switch (choices_.grad_compression) {
    case Compression::none:
      return;
    case Compression::fp16:
      device_.narrow(DType::fp16, gradients, static_cast<std::uint16_t*>(into), elements, kHalfScale,
                     /*saturate=*/true);
      return;
    case Compression::int8:
      device_.quantize(gradients, left_out, payload, elements);
      return;
    case Compression::topk:
      device_.keep_largest(gradients, left_out, payload, elements,
                           payload_bytes(bucket) / sizeof(SparseEntry));
      return;
  }
}

void Compressor::unpack(int bucket, const void* from, int members) {
  if (choices_.grad_compression == Compression::fp16) {
    device_.widen(DType::fp16, static_cast<const std::uint16_t*>(from), parameters_.own_gradients(bucket),
                  static_cast<std::size_t>(parameters_.shard_elements(bucket)), 1 / kHalfScale);
    return;
  }
  float* gradients = parameters_.gradients(bucket);
  const auto elements = static_cast<std::size_t>(parameters_.elements(bucket));
  const std::size_t bytes = payload_bytes(bucket);
  device_.fill(gradients, elements, 0);
  for (int member = 0; member < members; ++member) {
    const std::byte* payload = static_cast<const std::byte*>(from) + static_cast<std::size_t>(member) * bytes;
    if (choices_.grad_compression == Compression::int8)
      device_.add_quantized(payload, gradients, elements);
    else
      device_.add_largest(payload, gradients, bytes / sizeof(SparseEntry));
  }
}

}  // namespace orrery::exec
