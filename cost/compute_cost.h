// Seconds of one compute instruction on one device. Pure: profile in, seconds out.
//
// Whoever measures a device (exec's calibrate) takes FLOPs and bytes from operator_work and divides by time:
// then prediction and measurement count alike.
#pragma once

#include <string_view>
#include <vector>

#include "cost/group_shape.h"
#include "program/operator_work.h"

namespace orrery {

// proto/device_profile.proto has the formulas. `precision` is the type the product computes in.
double product_seconds(const Product& product, DType precision, const DeviceProfile& device);
// The same on a cool device that the product, repeated, warms up: what a benchmark measures.
double benchmark_product_seconds(const Product& product, DType precision, const DeviceProfile& device);
// `flops`: causal counted once; backward twice the forward. `queries`: rows x heads; 0: enough to fill the
// device. `head_dim`: width of a head, mean of keys' and values'; 0: as the model was measured.
double attention_seconds(double flops, double seq_len, double queries, DType precision, bool fused,
                         bool backward, const DeviceProfile& device, double head_dim = 0);
// How long computation that waits for a collective of `ranks` waits beyond the network's time:
// RuntimeProfile::collective_overhead_s, however many they are. 0 for collectives that nothing waits for at
// once.
double waiting_seconds(const Instruction& instruction, int ranks, const RuntimeProfile& runtime);
// Of a communication cut into `pieces` that travel in turn with those of a product: of an all-gather all but
// one piece come while the ones before are multiplied, of a reduce-scatter all but one leave so. What shows
// is what travels longer than that: communication - product (pieces - 1) / pieces, at least 0.
double exposed_beside(double communication_s, double product_s, int pieces);
// Of a communication that takes `alone_s` by itself, what computation does not hide: of experts' traffic the
// share `expert_exposed` (Plan::expert_exposed()), of a collective beside a product of `beside_s` (0: none)
// what pieces leave, a piece for each of its ranks. Pieces are written into the neighbours' memory (NVLink):
// between nodes none is hidden.
double shown_seconds(const Instruction& instruction, double alone_s, double beside_s, const GroupShape& shape,
                     double expert_exposed);
double vector_seconds(double bytes, OperatorKind kind, bool backward, const DeviceProfile& device);
double optimizer_seconds(double bytes, const DeviceProfile& device);
// Name of the VectorModel that an operator's memory-bound arithmetic goes by: "embedding" "norm" "activation"
// "residual" "softmax" (unfused attention) "router" "dispatch" "loss" "batch_norm" "pool" "elementwise"
// "interaction" "scan" "accumulate" (weight gradients, by `linear`, `expert_linear`, `head` and `conv`).
// "optimizer", "copy", "cast" (to fp8) and "cast_fp4" are of no operator.
std::string_view vector_family(OperatorKind kind);

// Fraction of its speed that a device keeps beside its neighbours on the node where all of `ranks` ranks
// compute.
double kept_speed(int ranks, const Cluster& cluster, const DeviceProfile& device);

// How much longer work takes on the slowest of the cluster's devices than on the slowest of eight, whose
// figures a profile has: 1 + DeviceProfile::speed_spread (E(n) - E(8)), E(n) the expected largest of n draws
// from a normal distribution of deviation 1 (Cramer, Mathematical Methods of Statistics, 28.6). All of a step
// waits for it, whatever the plan. 1 up to eight devices.
double slowest_of(const Cluster& cluster, const DeviceProfile& device);

// What a collective of data parallelism takes beyond the network's time where shards are gathered and
// scattered by lists of pieces: RuntimeProfile::piece_overhead_s for each of `ranks` members, and what the
// lists' memory takes, which is cleared, read and written to gather, read and written to scatter. Where
// gathers_on_demand, collective_overhead_s too; and copies from and to the host (cost/host_cost.h). 0 for any
// other kind.
double pieces_seconds(CollectiveKind kind, double bytes, int ranks, const RuntimeProfile& runtime,
                      const Cluster& cluster);

// Device time of one operator's work, kernels back to back, without the host's launches.
double work_seconds(const OperatorWork& work, OperatorKind kind, ComputeKind compute, const Shard& shard,
                    const DeviceProfile& device, const RuntimeProfile& runtime);

// Costs of all compute instructions of one plan on one device profile, each distinct operator evaluated once.
// Keeps references: `plan`'s job and `device` must outlive it. Speeds of single devices (Cluster::overrides)
// are the simulator's to apply.
class ComputeCost {
 public:
  ComputeCost(const Plan& plan, const DeviceProfile& device);
  // Device seconds of one operator, without launches.
  double operator_seconds(int op, ComputeKind kind) const;
  double operator_kernels(int op, ComputeKind kind) const;
  // Device seconds of operators [begin, end) run as one instruction, without launches. O(1).
  double range_seconds(int begin, int end, ComputeKind kind) const;
  // Seconds of updating `elements` parameters (of this rank, after ZeRO).
  double update_seconds(double elements) const;
  // Device seconds of a compute, pack, unpack or copy instruction of `program`.
  double seconds(const Program& program, const Instruction& instruction) const;
  // Device seconds of the computation that a collective travels beside; 0: of none.
  double beside_seconds(const Instruction& instruction) const;
  // Seconds that the host takes to issue any instruction: its kernels times the runtime's time for a launch.
  // The host is a stream of its own (docs/program.md, "The host"): it issues the instructions in their order,
  // whatever the device does; none starts before it is issued.
  double host_seconds(const Instruction& instruction) const;
  // By instruction: the host waits for its end before it issues the next one.
  std::vector<bool> host_waits(const Program& program) const;

  const Shard& shard() const { return shard_; }

 private:
  const Plan* plan_;
  const DeviceProfile* device_;
  Shard shard_;
  double launch_s_ = 0;  // host time per kernel
  double keep_ = 1;      // fraction of its speed that the device keeps beside its busy neighbours
  // Sums over operators [0, i), by kind: seconds and kernels.
  std::vector<std::array<double, 6>> seconds_before_;
  std::vector<std::array<double, 6>> kernels_before_;
};

}  // namespace orrery
