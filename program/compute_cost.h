// Seconds of one compute instruction on one device. Pure: profile in, seconds out.
#pragma once

#include <unordered_map>

#include "program/operator_work.h"

namespace orrery {

// proto/device_profile.proto has the formulas.
double product_seconds(const Product& product, DType precision, const DeviceProfile& device);
double attention_seconds(double flops, double seq_len, DType precision, bool fused, bool backward,
                         const DeviceProfile& device);
double vector_seconds(double bytes, OperatorKind kind, bool backward, const DeviceProfile& device);
double work_seconds(const OperatorWork& work, OperatorKind kind, ComputeKind compute, const Shard& shard,
                    const DeviceProfile& device, const RuntimeProfile& runtime);

// Costs of all compute instructions of one plan on one device profile, each distinct operator evaluated once.
class ComputeCost {
 public:
  ComputeCost(const Plan& plan, const DeviceProfile& device);
  double operator_seconds(int op, ComputeKind kind) const;
  // Seconds of a compute, pack, unpack or copy instruction of `program`, launch overheads included.
  double seconds(const Program& program, const Instruction& instruction) const;

 private:
  const Plan* plan_;
  const DeviceProfile* device_;
  Shard shard_;
  std::vector<double> cache_;  // [op][kind]
};

}  // namespace orrery
