#include "topologies/device_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "proto/device_profile.pb.h"
#include "topologies/field_check.h"

namespace orrery {
namespace {

constexpr int kMaxMultiprocessors = 100'000;
constexpr int kMaxConcurrency = 65'536;

DType checked_dtype(const FieldCheck& check, const std::string& name) {
  try {
    const DType type = dtype_from_name(name);
    if (type != DType::int32 && type != DType::int64) return type;
  } catch (const UserError&) {
  }
  check.fail("dtype", fmt::format("unknown element type '{}'", name),
             "expected fp32, tf32, fp16, bf16, fp8, fp4 or int8");
}

void read_peaks(const proto::DeviceProfile& message, const FieldCheck& check, DeviceProfile& profile) {
  for (int i = 0; i < message.peak_size(); ++i) {
    const FieldCheck at = check.inside("peak", i);
    double& peak =
        profile.peak_flops_per_s[static_cast<std::size_t>(checked_dtype(at, message.peak(i).dtype()))];
    if (peak != 0)
      at.fail("dtype", fmt::format("the peak of {} is given twice", message.peak(i).dtype()),
              "expected it once");
    peak = at.positive("flops_per_s", message.peak(i).flops_per_s());
  }
  if (profile.peak_flops_per_s[static_cast<std::size_t>(DType::fp32)] == 0)
    check.fail("peak", "no fp32 peak rate", "expected one: other types fall back to it");
}

void read_matmul(const proto::DeviceProfile& message, const FieldCheck& check, DeviceProfile& profile) {
  std::array<bool, kDTypeCount> seen{};
  for (int i = 0; i < message.matmul_size(); ++i) {
    const auto& from = message.matmul(i);
    const FieldCheck at = check.inside("matmul", i);
    const auto type = static_cast<std::size_t>(checked_dtype(at, from.dtype()));
    if (profile.peak_flops_per_s[type] == 0)
      at.fail("dtype", fmt::format("a matrix product model of {}, of which there is no peak", from.dtype()),
              "expected a type with a peak rate");
    if (seen[type])
      at.fail("dtype", fmt::format("the matrix product model of {} is given twice", from.dtype()),
              "expected it once");
    seen[type] = true;
    MatmulModel& model = profile.matmul[type];
    model.efficiency = at.fraction("efficiency", from.efficiency());
    model.half_k = at.not_negative("half_k", from.half_k());
    model.tile_m = from.tile_m() == 0 ? 1 : at.positive("tile_m", from.tile_m());
    model.tile_n = from.tile_n() == 0 ? 1 : at.positive("tile_n", from.tile_n());
    model.kernel_overhead_s = at.not_negative("kernel_overhead_s", from.kernel_overhead_s());
    model.tile_choice = from.tile_choice();
    model.tile_penalty = at.not_negative("tile_penalty", from.tile_penalty());
    model.wave_overlap = from.wave_overlap() == 0 ? 0 : at.fraction("wave_overlap", from.wave_overlap());
    model.split_overhead_s = at.not_negative("split_overhead_s", from.split_overhead_s());
    model.sharpness = at.not_negative("sharpness", from.sharpness());
    model.memory_efficiency =
        from.memory_efficiency() == 0 ? 0 : at.fraction("memory_efficiency", from.memory_efficiency());
    model.cached_bytes = at.not_negative("cached_bytes", from.cached_bytes());
    if (from.cached_gain() != 0)
      model.cached_gain = 1 + at.not_negative("cached_gain", from.cached_gain() - 1);
  }
  for (std::size_t type = 0; type < kDTypeCount; ++type) {
    if (!seen[type] && profile.peak_flops_per_s[type] > 0)
      profile.matmul[type] = default_matmul(profile.kind, static_cast<DType>(type));
  }
}

void read_vector(const proto::DeviceProfile& message, const FieldCheck& check, DeviceProfile& profile) {
  for (int i = 0; i < message.vector_size(); ++i) {
    const auto& from = message.vector(i);
    const FieldCheck at = check.inside("vector", i);
    VectorModel model;
    model.operator_name = at.named("operator", from.operator_());
    const auto same = [&](const VectorModel& other) { return other.operator_name == model.operator_name; };
    if (std::any_of(profile.vector.begin(), profile.vector.end(), same))
      at.fail("operator", fmt::format("operator '{}' is given twice", model.operator_name),
              "expected it once");
    model.forward_bytes_per_s = at.positive("forward_bytes_per_s", from.forward_bytes_per_s());
    model.backward_bytes_per_s = at.not_negative("backward_bytes_per_s", from.backward_bytes_per_s());
    if (model.backward_bytes_per_s == 0) model.backward_bytes_per_s = model.forward_bytes_per_s;
    profile.vector.push_back(std::move(model));
  }
}

void read_attention(const proto::DeviceProfile& message, const FieldCheck& check, DeviceProfile& profile) {
  std::array<std::array<bool, 2>, kDTypeCount> seen{};
  for (int i = 0; i < message.attention_size(); ++i) {
    const auto& from = message.attention(i);
    const FieldCheck at = check.inside("attention", i);
    const auto type = static_cast<std::size_t>(checked_dtype(at, from.dtype()));
    if (profile.peak_flops_per_s[type] == 0)
      at.fail("dtype", fmt::format("an attention model of {}, of which there is no peak", from.dtype()),
              "expected a type with a peak rate");
    if (seen[type][from.fused()])
      at.fail("dtype", fmt::format("the attention model of {} is given twice", from.dtype()),
              "expected it once");
    seen[type][from.fused()] = true;
    AttentionModel& model = profile.attention[type][from.fused()];
    model.forward_efficiency = at.fraction("forward_efficiency", from.forward_efficiency());
    model.backward_efficiency = at.fraction("backward_efficiency", from.backward_efficiency());
    model.half_sequence = at.not_negative("half_sequence", from.half_sequence());
    model.half_queries = at.not_negative("half_queries", from.half_queries());
    model.half_head_dim = at.not_negative("half_head_dim", from.half_head_dim());
  }
  for (std::size_t type = 0; type < kDTypeCount; ++type) {
    if (profile.peak_flops_per_s[type] == 0) continue;
    for (const bool fused : {false, true}) {
      if (!seen[type][fused]) profile.attention[type][fused] = default_attention(profile.kind, fused);
    }
  }
}

}  // namespace

double DeviceProfile::peak(DType type) const {
  return peak_flops_per_s[static_cast<std::size_t>(compute_type(type))];
}

DType DeviceProfile::compute_type(DType type) const {
  const auto has = [&](DType t) { return peak_flops_per_s[static_cast<std::size_t>(t)] > 0; };
  if (has(type)) return type;
  if (type == DType::fp4 && has(DType::fp8)) return DType::fp8;
  if (is_narrow(type) && has(DType::bf16)) return DType::bf16;
  if (is_narrow(type) && has(DType::fp16)) return DType::fp16;
  return DType::fp32;
}

// GPUs: BabelStream on A100, H100 and H200 (Azure AI-benchmarking-guide, 8fd0c6e1bd) copies at 0.79 to 0.87
// and adds at 0.83 to 0.89 of the datasheet's HBM bandwidth. CPUs: a profile's figure is what a stream
// reaches.
double default_memory_efficiency(DeviceKind kind) {
  return kind == DeviceKind::gpu ? 0.85 : 1.0;
}

// GPUs: medians of the large products (2mnk > 0.4 TFLOP) of ai-dynamo/aiconfigurator's measurements
// (095f58a51c) as a fraction of the dense datasheet peak: bf16 A100 0.84, H100 0.78, H200 0.78, B200 0.66;
// fp8 H100 0.60, H200 0.62, B200 0.50. The others have no such table: they take the 16-bit figure. The tile
// is chosen by shape, with A100's fitted constants; the overhead is that of an empty kernel. CPUs: OpenBLAS
// and oneDNN reach 0.8 to 0.9 of the fused multiply-add peak on large products; packing makes short k and
// narrow tiles dear.
MatmulModel default_matmul(DeviceKind kind, DType type) {
  if (kind == DeviceKind::cpu)
    return {.efficiency = 0.8, .half_k = 16, .tile_m = 16, .tile_n = 16, .kernel_overhead_s = 1e-6};
  const double efficiency = is_narrow(type) || type == DType::int8 ? 0.60 : 0.78;
  constexpr double kPenalty = 4;  // elements: 128 x 256 reaches `efficiency`
  return {.efficiency = std::min(1.0, efficiency * (1 + kPenalty * (1.0 / 128 + 1.0 / 256))),
          .half_k = 64,
          .tile_m = 128,
          .tile_n = 128,
          .kernel_overhead_s = 3e-6,
          .tile_choice = true,
          .tile_penalty = kPenalty,
          .wave_overlap = 0.6,
          .split_overhead_s = 3e-6,
          .sharpness = 2.6};
}

// GPUs, fused: FlashAttention-2 on A100 reaches 0.5 to 0.6 of the peak forward and 0.4 to 0.5 backward at
// long sequences, causal work counted once (arXiv 2307.08691, figures 4 to 6). Unfused: the softmax's memory
// traffic dominates; a third of the fused rate at 2k tokens by the same figures. CPUs: two products with a
// softmax between them, computed head by head.
AttentionModel default_attention(DeviceKind kind, bool fused) {
  if (kind == DeviceKind::cpu)
    return {.forward_efficiency = 0.4, .backward_efficiency = 0.4, .half_sequence = 32};
  if (fused) return {.forward_efficiency = 0.55, .backward_efficiency = 0.45, .half_sequence = 512};
  return {.forward_efficiency = 0.18, .backward_efficiency = 0.18, .half_sequence = 256};
}

DeviceProfile device_profile_from_proto(const proto::DeviceProfile& message, std::string_view file,
                                        std::string_view text, std::string_view path) {
  const FieldCheck check(file, text, std::string(path));
  DeviceProfile profile;
  profile.name = check.named("name", message.name());
  profile.description = message.description();
  profile.source = message.source();
  profile.calibrated = message.calibrated();
  if (!message.kind().empty() && message.kind() != "gpu" && message.kind() != "cpu")
    check.fail("kind", fmt::format("unknown device kind '{}'", message.kind()), "expected gpu or cpu");
  profile.kind = message.kind() == "cpu" ? DeviceKind::cpu : DeviceKind::gpu;
  profile.generation = message.generation();
  read_peaks(message, check, profile);
  profile.memory_bytes = check.positive("memory_bytes", message.memory_bytes());
  profile.memory_bandwidth_bytes_per_s =
      check.positive("memory_bandwidth_bytes_per_s", message.memory_bandwidth_bytes_per_s());
  profile.memory_efficiency = message.memory_efficiency() == 0
                                  ? default_memory_efficiency(profile.kind)
                                  : check.fraction("memory_efficiency", message.memory_efficiency());
  profile.multiprocessors =
      check.within("multiprocessors", message.multiprocessors(), 0, kMaxMultiprocessors);
  profile.launch_overhead_s = check.not_negative("launch_overhead_s", message.launch_overhead_s());
  profile.context_bytes = check.not_negative("context_bytes", message.context_bytes());
  if (profile.context_bytes >= profile.memory_bytes)
    check.fail("context_bytes", "the context takes all of the memory", "expected less than memory_bytes");
  profile.idle_power_w = check.not_negative("idle_power_w", message.idle_power_w());
  profile.peak_power_w = check.not_negative("peak_power_w", message.peak_power_w());
  if (profile.peak_power_w < profile.idle_power_w)
    check.fail("peak_power_w", "the peak power is below the idle power", "expected at least idle_power_w");
  read_matmul(message, check, profile);
  read_vector(message, check, profile);
  read_attention(message, check, profile);
  check.within("concurrency_scale", message.concurrency_scale_size(), 0, kMaxConcurrency);
  for (const double scale : message.concurrency_scale())
    profile.concurrency_scale.push_back(check.fraction("concurrency_scale", scale));
  profile.sustained_clock =
      message.sustained_clock() == 0 ? 1 : check.fraction("sustained_clock", message.sustained_clock());
  profile.power_loss = check.not_negative("power_loss", message.power_loss());
  profile.power_ramp_s = check.not_negative("power_ramp_s", message.power_ramp_s());
  profile.reference_s = check.not_negative("reference_s", message.reference_s());
  profile.overlap_slowdown = check.not_negative("overlap_slowdown", message.overlap_slowdown());
  profile.price_usd_per_hour = check.not_negative("price_usd_per_hour", message.price_usd_per_hour());
  return profile;
}

void to_proto(const DeviceProfile& profile, proto::DeviceProfile* message) {
  message->Clear();
  message->set_name(profile.name);
  message->set_description(profile.description);
  message->set_source(profile.source);
  message->set_calibrated(profile.calibrated);
  message->set_kind(profile.kind == DeviceKind::cpu ? "cpu" : "gpu");
  message->set_generation(profile.generation);
  message->set_memory_bytes(profile.memory_bytes);
  message->set_memory_bandwidth_bytes_per_s(profile.memory_bandwidth_bytes_per_s);
  message->set_memory_efficiency(profile.memory_efficiency);
  message->set_multiprocessors(profile.multiprocessors);
  message->set_launch_overhead_s(profile.launch_overhead_s);
  message->set_context_bytes(profile.context_bytes);
  message->set_idle_power_w(profile.idle_power_w);
  message->set_peak_power_w(profile.peak_power_w);
  for (std::size_t type = 0; type < kDTypeCount; ++type) {
    if (profile.peak_flops_per_s[type] == 0) continue;
    const std::string name(name_of(static_cast<DType>(type)));
    auto* peak = message->add_peak();
    peak->set_dtype(name);
    peak->set_flops_per_s(profile.peak_flops_per_s[type]);
    auto* matmul = message->add_matmul();
    matmul->set_dtype(name);
    matmul->set_efficiency(profile.matmul[type].efficiency);
    matmul->set_half_k(profile.matmul[type].half_k);
    matmul->set_tile_m(profile.matmul[type].tile_m);
    matmul->set_tile_n(profile.matmul[type].tile_n);
    matmul->set_kernel_overhead_s(profile.matmul[type].kernel_overhead_s);
    matmul->set_tile_choice(profile.matmul[type].tile_choice);
    matmul->set_tile_penalty(profile.matmul[type].tile_penalty);
    matmul->set_wave_overlap(profile.matmul[type].wave_overlap);
    matmul->set_split_overhead_s(profile.matmul[type].split_overhead_s);
    matmul->set_sharpness(profile.matmul[type].sharpness);
    matmul->set_memory_efficiency(profile.matmul[type].memory_efficiency);
    matmul->set_cached_bytes(profile.matmul[type].cached_bytes);
    matmul->set_cached_gain(profile.matmul[type].cached_gain);
    for (const bool fused : {false, true}) {
      auto* attention = message->add_attention();
      attention->set_dtype(name);
      attention->set_fused(fused);
      attention->set_forward_efficiency(profile.attention[type][fused].forward_efficiency);
      attention->set_backward_efficiency(profile.attention[type][fused].backward_efficiency);
      attention->set_half_sequence(profile.attention[type][fused].half_sequence);
      attention->set_half_queries(profile.attention[type][fused].half_queries);
      attention->set_half_head_dim(profile.attention[type][fused].half_head_dim);
    }
  }
  for (const VectorModel& model : profile.vector) {
    auto* to = message->add_vector();
    to->set_operator_(model.operator_name);
    to->set_forward_bytes_per_s(model.forward_bytes_per_s);
    to->set_backward_bytes_per_s(model.backward_bytes_per_s);
  }
  for (const double scale : profile.concurrency_scale) message->add_concurrency_scale(scale);
  message->set_sustained_clock(profile.sustained_clock);
  message->set_power_loss(profile.power_loss);
  message->set_power_ramp_s(profile.power_ramp_s);
  message->set_reference_s(profile.reference_s);
  message->set_overlap_slowdown(profile.overlap_slowdown);
  message->set_price_usd_per_hour(profile.price_usd_per_hour);
}

}  // namespace orrery
