// What one kind of device can do. Shapes, units and formulas: proto/device_profile.proto.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace orrery::proto {
class DeviceProfile;
}

namespace orrery {

enum class DeviceKind { gpu, cpu };

struct MatmulModel {
  double efficiency = 0;
  double half_k = 0;
  double tile_m = 1;
  double tile_n = 1;
  double kernel_overhead_s = 0;
  bool tile_choice = false;
  double tile_penalty = 0;
  double wave_overlap = 0;
  double split_overhead_s = 0;
  double sharpness = 0;
  double memory_efficiency = 0;
  double cached_bytes = 0;
  double cached_gain = 1;
};

struct VectorModel {
  std::string operator_name;
  double forward_bytes_per_s = 0;
  double backward_bytes_per_s = 0;
};

struct AttentionModel {
  double forward_efficiency = 0;
  double backward_efficiency = 0;
  double half_sequence = 0;
  double half_queries = 0;
  double half_head_dim = 0;
};

struct DeviceProfile {
  std::string name;
  std::string description;
  std::string source;
  bool calibrated = false;
  DeviceKind kind = DeviceKind::gpu;
  std::string generation;
  std::array<double, kDTypeCount> peak_flops_per_s{};  // 0: the device does not compute in this type
  double memory_bytes = 0;
  double memory_bandwidth_bytes_per_s = 0;
  double memory_efficiency = 1;
  int multiprocessors = 0;
  double launch_overhead_s = 0;
  double context_bytes = 0;
  double idle_power_w = 0;
  double peak_power_w = 0;
  std::array<MatmulModel, kDTypeCount> matmul{};  // never with efficiency 0 where there is a peak
  std::vector<VectorModel> vector;
  std::array<std::array<AttentionModel, 2>, kDTypeCount> attention{};  // [dtype][fused]
  std::vector<double> concurrency_scale;
  double overlap_slowdown = 0;
  double sustained_clock = 1;
  double power_loss = 0;
  double power_ramp_s = 0;
  double reference_s = 0;  // 0: not measured
  double price_usd_per_hour = 0;

  // Peak of the type, or of the type the device would use in its stead (compute_type). Never 0 for a checked
  // profile.
  double peak(DType type) const;
  // `type` where the device computes in it, else the next wider type that it has: fp8 -> fp16 -> fp32,
  // bf16 -> fp32 (V100 has no bf16 units), tf32 -> fp32.
  DType compute_type(DType type) const;
};

// The efficiency models that stand in for a calibration; what they rest on is said in device_profile.cc.
double default_memory_efficiency(DeviceKind kind);
MatmulModel default_matmul(DeviceKind kind, DType type);
AttentionModel default_attention(DeviceKind kind, bool fused);

// Checks every figure and fills defaults: the "datasheet" efficiency models of default_matmul() and
// default_attention() where none is given. Throws UserError(file, line of the field, …). `text` is the
// textproto that `message` came from, for line numbers, and `path` where in it the message stands
// ("devices[1]"; empty: it is the whole).
DeviceProfile device_profile_from_proto(const proto::DeviceProfile& message, std::string_view file,
                                        std::string_view text, std::string_view path = {});
void to_proto(const DeviceProfile& profile, proto::DeviceProfile* message);

}  // namespace orrery
