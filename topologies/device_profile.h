// What one kind of device can do: datasheet figures, and models of how much of them it reaches.
// proto/device_profile.proto says what each field means, its unit, and the formulas.
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

class FieldCheck;

enum class DeviceKind { gpu, cpu };

// The fields of the device file's messages that C++ keeps under their own names. One more is a line here and
// a line in proto/device_profile.proto, which says what it means: struct, reading and writing follow from
// them. Columns: type, name, the value where C++ makes the struct from nothing, and what a file may say
// (FieldCheck's rules, and those of device_profile.cc):
// - any: whatever the type holds. count: 0 to 100,000.
// - positive: > 0; positive_rate: at least 1e6. not_negative: >= 0. fraction: 1e-6 to 1. All finite.
// - fraction_or_zero: a fraction, or 0 for what the proto says.
// - fraction_or_one: a fraction; tile: > 0; gain: 1 and up; of all three 0 stands for 1.
#define ORRERY_MATMUL_MODEL_FIELDS(FIELD) \
  FIELD(double, efficiency, 0, fraction) \
  FIELD(double, half_k, 0, not_negative) \
  FIELD(double, tile_m, 1, tile) \
  FIELD(double, tile_n, 1, tile) \
  FIELD(double, kernel_overhead_s, 0, not_negative) \
  FIELD(bool, tile_choice, false, any) \
  FIELD(double, tile_penalty, 0, not_negative) \
  FIELD(double, wave_overlap, 0, fraction_or_zero) \
  FIELD(double, split_overhead_s, 0, not_negative) \
  FIELD(double, sharpness, 0, not_negative) \
  FIELD(double, memory_efficiency, 0, fraction_or_zero) \
  FIELD(double, cached_bytes, 0, not_negative) \
  FIELD(double, cached_gain, 1, gain)

#define ORRERY_VECTOR_MODEL_FIELDS(FIELD) \
  FIELD(double, forward_bytes_per_s, 0, positive) \
  FIELD(double, backward_bytes_per_s, 0, not_negative)

#define ORRERY_ATTENTION_MODEL_FIELDS(FIELD) \
  FIELD(double, forward_efficiency, 0, fraction) \
  FIELD(double, backward_efficiency, 0, fraction) \
  FIELD(double, half_sequence, 0, not_negative) \
  FIELD(double, half_queries, 0, not_negative) \
  FIELD(double, half_head_dim, 0, not_negative)

#define ORRERY_DEVICE_PROFILE_FIELDS(FIELD) \
  FIELD(std::string, name, {}, named) \
  FIELD(std::string, description, {}, any) \
  FIELD(std::string, source, {}, any) \
  FIELD(bool, calibrated, false, any) \
  FIELD(std::string, vendor, {}, any) \
  FIELD(std::string, generation, {}, any) \
  FIELD(double, memory_bytes, 0, positive) \
  FIELD(double, memory_bandwidth_bytes_per_s, 0, positive_rate) \
  FIELD(double, memory_efficiency, 1, fraction_or_zero) \
  FIELD(double, host_bandwidth_bytes_per_s, 0, not_negative) \
  FIELD(int, multiprocessors, 0, count) \
  FIELD(double, launch_overhead_s, 0, not_negative) \
  FIELD(double, context_bytes, 0, not_negative) \
  FIELD(double, idle_power_w, 0, not_negative) \
  FIELD(double, peak_power_w, 0, not_negative) \
  FIELD(double, overlap_slowdown, 0, not_negative) \
  FIELD(double, speed_spread, 0, not_negative) \
  FIELD(double, sustained_clock, 1, fraction_or_one) \
  FIELD(double, training_speed, 1, speed) \
  FIELD(double, power_loss, 0, not_negative) \
  FIELD(double, power_ramp_s, 0, not_negative) \
  FIELD(double, reference_s, 0, not_negative) \
  FIELD(double, price_usd_per_hour, 0, not_negative) \
  FIELD(std::string, price_as_of, {}, any)

#define ORRERY_MEMBER(type, name, initial, accepted) type name = initial;

// Time of matrix products of one element type: tiles in waves over the multiprocessors, against memory.
struct MatmulModel {
  ORRERY_MATMUL_MODEL_FIELDS(ORRERY_MEMBER)
};

// Rate of a family of operators that memory or vector arithmetic bounds, by the bytes they read and write.
struct VectorModel {
  std::string operator_name;  // compute_cost.h lists them
  ORRERY_VECTOR_MODEL_FIELDS(ORRERY_MEMBER)
};

// Attention's two products, as a fraction of the peak by their shape.
struct AttentionModel {
  ORRERY_ATTENTION_MODEL_FIELDS(ORRERY_MEMBER)
};

struct DeviceProfile {
  ORRERY_DEVICE_PROFILE_FIELDS(ORRERY_MEMBER)
  DeviceKind kind = DeviceKind::gpu;
  std::array<double, kDTypeCount> peak_flops_per_s{};  // dense; 0: the device does not compute in this type
  std::array<MatmulModel, kDTypeCount> matmul{};       // never with efficiency 0 where there is a peak
  std::vector<VectorModel> vector;                     // each operator at most once
  std::array<std::array<AttentionModel, 2>, kDTypeCount> attention{};  // [dtype][fused]
  std::vector<double> concurrency_scale;  // [n - 1]: share of its speed that each of n busy devices keeps

  // Peak of the type, or of the type the device would use in its stead (compute_type). Never 0 for a checked
  // profile.
  double peak(DType type) const;
  // `type` where the device computes in it, else the next wider type that it has: fp8 -> fp16 -> fp32,
  // bf16 -> fp32 (V100 has no bf16 units), tf32 -> fp32; fp16 -> bf16 where there is that alone (TPUs).
  DType compute_type(DType type) const;
};

#undef ORRERY_MEMBER

// Of NVIDIA's generations one before Hopper: other kernels and workspaces of libraries.
bool before_hopper(const DeviceProfile& device);

// The efficiency models that stand in for a calibration; what they rest on is said in device_profile.cc.
double default_memory_efficiency(DeviceKind kind);
MatmulModel default_matmul(DeviceKind kind, DType type);
AttentionModel default_attention(DeviceKind kind, bool fused);

// Checks every figure and fills defaults: the "datasheet" efficiency models of default_matmul() and
// default_attention() where none is given. Throws UserError(file, line of the field, …). `text` is the
// textproto that `message` came from, for line numbers; where it is part of a larger one, `at` says which.
DeviceProfile device_profile_from_proto(const proto::DeviceProfile& message, std::string_view file,
                                        std::string_view text);
DeviceProfile device_profile_from_proto(const proto::DeviceProfile& message, const FieldCheck& at);
void to_proto(const DeviceProfile& profile, proto::DeviceProfile* message);

}  // namespace orrery
