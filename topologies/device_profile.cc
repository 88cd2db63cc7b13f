#include "topologies/device_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "proto/device_profile.pb.h"
#include "proto/field_check.h"
#include "topologies/device_catalog.h"

namespace orrery {
namespace {

constexpr int kMaxMultiprocessors = 100'000;
constexpr int kMaxConcurrency = 65'536;

// What a field of a file may say, beside FieldCheck's own rules: each returns the value to go on with.
struct Accepted : FieldCheck {
  explicit Accepted(FieldCheck check) : FieldCheck(std::move(check)) {}

  template <typename Value>
  const Value& any(std::string_view, const Value& value) const {
    return value;
  }
  int count(std::string_view field, int value) const { return within(field, value, 0, kMaxMultiprocessors); }
  double positive_rate(std::string_view field, double value) const {
    return rate(field, positive(field, value));
  }
  double fraction_or_zero(std::string_view field, double value) const {
    return value == 0 ? 0 : fraction(field, value);
  }
  double fraction_or_one(std::string_view field, double value) const {
    return value == 0 ? 1 : fraction(field, value);
  }
  double tile(std::string_view field, double value) const { return value == 0 ? 1 : positive(field, value); }
  double speed(std::string_view field, double value) const {
    if (value == 0) return 1;
    return positive(field, value);
  }
  double gain(std::string_view field, double value) const {
    return value == 0 ? 1 : 1 + not_negative(field, value - 1);
  }
};

// For the lists of fields: `to`, `from` and `read` are what stands at the place of use.
#define ORRERY_READ(type, name, initial, accepted) to.name = read.accepted(#name, from.name());
#define ORRERY_WRITE(type, name, initial, accepted) to->set_##name(from.name);

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
    peak = at.rate("flops_per_s", at.positive("flops_per_s", message.peak(i).flops_per_s()));
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
    const Accepted read(at);
    MatmulModel& to = profile.matmul[type];
    ORRERY_MATMUL_MODEL_FIELDS(ORRERY_READ)
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
    VectorModel to;
    to.operator_name = at.named("operator", from.operator_());
    const auto same = [&](const VectorModel& other) { return other.operator_name == to.operator_name; };
    if (std::any_of(profile.vector.begin(), profile.vector.end(), same))
      at.fail("operator", fmt::format("operator '{}' is given twice", to.operator_name), "expected it once");
    const Accepted read(at);
    ORRERY_VECTOR_MODEL_FIELDS(ORRERY_READ)
    if (to.backward_bytes_per_s == 0) to.backward_bytes_per_s = to.forward_bytes_per_s;
    profile.vector.push_back(std::move(to));
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
    const Accepted read(at);
    AttentionModel& to = profile.attention[type][from.fused()];
    ORRERY_ATTENTION_MODEL_FIELDS(ORRERY_READ)
  }
  for (std::size_t type = 0; type < kDTypeCount; ++type) {
    if (profile.peak_flops_per_s[type] == 0) continue;
    for (const bool fused : {false, true}) {
      if (!seen[type][fused]) profile.attention[type][fused] = default_attention(profile.kind, fused);
    }
  }
}

// `models` without those of types that `message` has no peak of.
template <typename Models>
void drop_models(const proto::DeviceProfile& message, Models* models) {
  for (int i = models->size() - 1; i >= 0; --i) {
    const auto is = [&](const proto::PeakRate& peak) { return peak.dtype() == (*models)[i].dtype(); };
    if (std::none_of(message.peak().begin(), message.peak().end(), is)) models->DeleteSubrange(i, 1);
  }
}

// The profile with what it takes from the device of the same silicon that it names.
proto::DeviceProfile completed(const proto::DeviceProfile& message, const FieldCheck& check) {
  if (message.like().empty()) return message;
  if (!is_catalog_device(message.like()))
    check.fail("like", fmt::format("unknown device '{}'", message.like()),
               "expected one of the catalog (`orrery catalog`)");
  proto::DeviceProfile whole = catalog_device_message(message.like());
  if (!whole.like().empty())
    check.fail("like", fmt::format("'{}' is itself like another device", message.like()),
               fmt::format("expected '{}'", whole.like()));
  whole.clear_price_usd_per_hour();
  whole.clear_price_as_of();
  if (!message.peak().empty()) whole.clear_peak();
  if (!message.matmul().empty()) whole.clear_matmul();
  if (!message.vector().empty()) whole.clear_vector();
  if (!message.attention().empty()) whole.clear_attention();
  if (!message.concurrency_scale().empty()) whole.clear_concurrency_scale();
  whole.MergeFrom(message);
  if (message.matmul().empty()) drop_models(whole, whole.mutable_matmul());
  if (message.attention().empty()) drop_models(whole, whole.mutable_attention());
  return whole;
}

void write_matmul(const std::string& dtype, const MatmulModel& from, proto::MatmulModel* to) {
  to->set_dtype(dtype);
  ORRERY_MATMUL_MODEL_FIELDS(ORRERY_WRITE)
}

void write_vector(const VectorModel& from, proto::VectorModel* to) {
  to->set_operator_(from.operator_name);
  ORRERY_VECTOR_MODEL_FIELDS(ORRERY_WRITE)
}

void write_attention(const std::string& dtype, bool fused, const AttentionModel& from,
                     proto::AttentionModel* to) {
  to->set_dtype(dtype);
  to->set_fused(fused);
  ORRERY_ATTENTION_MODEL_FIELDS(ORRERY_WRITE)
}

void write_models(const DeviceProfile& profile, DType type, proto::DeviceProfile* message) {
  const auto index = static_cast<std::size_t>(type);
  const std::string dtype(name_of(type));
  auto* peak = message->add_peak();
  peak->set_dtype(dtype);
  peak->set_flops_per_s(profile.peak_flops_per_s[index]);
  write_matmul(dtype, profile.matmul[index], message->add_matmul());
  for (const bool fused : {false, true})
    write_attention(dtype, fused, profile.attention[index][fused], message->add_attention());
}

}  // namespace

bool before_hopper(const DeviceProfile& device) {
  constexpr std::array<std::string_view, 6> kOlder = {"kepler", "pascal", "volta", "turing", "ampere", "ada"};
  return std::find(kOlder.begin(), kOlder.end(), device.generation) != kOlder.end();
}

double DeviceProfile::peak(DType type) const {
  return peak_flops_per_s[static_cast<std::size_t>(compute_type(type))];
}

DType DeviceProfile::compute_type(DType type) const {
  const auto has = [&](DType t) { return peak_flops_per_s[static_cast<std::size_t>(t)] > 0; };
  if (has(type)) return type;
  if (type == DType::fp4 && has(DType::fp8)) return DType::fp8;
  if (is_narrow(type) && has(DType::bf16)) return DType::bf16;
  if (is_narrow(type) && has(DType::fp16)) return DType::fp16;
  if (type == DType::fp16 && has(DType::bf16)) return DType::bf16;
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

DeviceProfile device_profile_from_proto(const proto::DeviceProfile& from, std::string_view file,
                                        std::string_view text) {
  return device_profile_from_proto(from, FieldCheck(file, text, *proto::DeviceProfile::descriptor()));
}

DeviceProfile device_profile_from_proto(const proto::DeviceProfile& message, const FieldCheck& check) {
  const proto::DeviceProfile from = completed(message, check);
  const Accepted read(check);
  DeviceProfile to;
  ORRERY_DEVICE_PROFILE_FIELDS(ORRERY_READ)
  if (!from.kind().empty() && from.kind() != "gpu" && from.kind() != "cpu")
    check.fail("kind", fmt::format("unknown device kind '{}'", from.kind()), "expected gpu or cpu");
  to.kind = from.kind() == "cpu" ? DeviceKind::cpu : DeviceKind::gpu;
  if (to.memory_efficiency == 0) to.memory_efficiency = default_memory_efficiency(to.kind);
  if (to.context_bytes >= to.memory_bytes)
    check.fail("context_bytes", "the context takes all of the memory", "expected less than memory_bytes");
  if (to.peak_power_w < to.idle_power_w)
    check.fail("peak_power_w", "the peak power is below the idle power", "expected at least idle_power_w");
  read_peaks(from, check, to);
  read_matmul(from, check, to);
  read_vector(from, check, to);
  read_attention(from, check, to);
  check.within("concurrency_scale", from.concurrency_scale_size(), 0, kMaxConcurrency);
  for (const double scale : from.concurrency_scale())
    to.concurrency_scale.push_back(check.fraction("concurrency_scale", scale));
  return to;
}

void to_proto(const DeviceProfile& from, proto::DeviceProfile* to) {
  to->Clear();
  ORRERY_DEVICE_PROFILE_FIELDS(ORRERY_WRITE)
  to->set_kind(from.kind == DeviceKind::cpu ? "cpu" : "gpu");
  for (std::size_t type = 0; type < kDTypeCount; ++type)
    if (from.peak_flops_per_s[type] != 0) write_models(from, static_cast<DType>(type), to);
  for (const VectorModel& model : from.vector) write_vector(model, to->add_vector());
  for (const double scale : from.concurrency_scale) to->add_concurrency_scale(scale);
}

}  // namespace orrery
