// What a profiler's trace of one rank of a training job comes to.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "program/program.h"

namespace orrery::measurements {

// By their names. Convolutions count as products.
enum class KernelClass : std::uint8_t { product, attention, norm, optimizer, copy, collective, other };
inline constexpr std::size_t kKernelClasses = 7;
std::string_view name_of(KernelClass kernel);
KernelClass class_of(std::string_view kernel_name);
// By PyTorch's name of a collective ("_allgather_base"), or that of NCCL's kernel.
std::optional<CollectiveKind> collective_named(std::string_view name);
// Activity's kind of a communication: "all_reduce over 8", "send_receive"; `members` 0: not known.
std::string activity_of(std::string_view name, int members);

struct KernelTotal {
  std::int64_t kernels = 0;
  double seconds = 0;
};

// Like collectives of one group, in the order in which they started.
struct TracedCollective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  double bytes = 0;        // as nccl-tests counts them
  std::vector<int> ranks;  // of the group
  std::vector<double> seconds;
};

// Like matrix products: m x k times k x n, `count` in one launch.
struct TracedProduct {
  double m = 0, n = 0, k = 0, count = 1;
  DType precision = DType::fp32;
  std::vector<double> seconds;  // of all that one call launched
};

inline constexpr std::string_view kSendReceive = "send_receive";

// What a device did in a step on one stream, by kind.
struct Activity {
  std::string stream;  // "stream 7"; of our own traces "compute", "tensor"
  std::string kind;    // of kernels name_of(KernelClass), "all_reduce over 8"; of our own traces kind_of()
  bool communication = false;
  std::int64_t count = 0;
  double seconds = 0;
};
struct TracedStep {
  std::int64_t number = 0;
  double seconds = 0, idle_s = 0;  // idle: on all streams
  std::vector<Activity> activities;
};

struct RankTrace {
  std::string file, device;  // empty: the trace does not say
  int rank = -1, world = 0;  // -1, 0: likewise
  std::vector<double> steps_s;
  std::vector<TracedStep> steps;  // the first thousand; where none is marked all of the trace as one
  bool marked = false;            // whether steps are
  bool of_instructions = false;   // our own trace: kinds are those of instructions
  bool profiled = false;          // PyTorch's profiler's, which may say shapes
  bool has_steps() const { return marked || of_instructions; }
  std::array<KernelTotal, kKernelClasses> kernels{};
  // Of what the device did within the steps (in all of the trace where no steps are marked): from first to
  // last, with computation, with collectives, with both at once, with neither.
  double window_s = 0, compute_s = 0, collective_s = 0, both_s = 0, idle_s = 0;
  // Of the host, from launch to launch while the device waits for it: median; 0 where that never happened.
  double launch_s = 0;
  std::vector<TracedProduct> products;
  std::vector<TracedCollective> collectives;
};

}  // namespace orrery::measurements
