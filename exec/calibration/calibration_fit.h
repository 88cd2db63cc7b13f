// From measured operators to the device model that predicts them (proto/device_profile.proto has the
// formulas).
#pragma once

#include <vector>

#include "program/operator_work.h"
#include "topologies/device_profile.h"

namespace orrery::exec {

// One operator of one model as the executor ran it on one core.
struct Observation {
  OperatorKind kind = OperatorKind::linear;
  bool backward = false;
  OperatorWork work;  // as program/operator_work.h counts it
  double seq_len = 0;
  double seconds = 0;  // 0: it has nothing to do
  int model = 0;       // that it was seen in: what is left out together
};

// Median of |predicted - measured| / measured, of each model's operators by a fit to the other models.
struct FitQuality {
  double matmul_median_error = 0;
  double attention_median_error = 0;
  double vector_median_error = 0;
  int observations = 0;
};

// Sets the fp32 models of `profile`: products, attention, memory-bound families. Families that were not
// observed keep what they had.
FitQuality fit_device(const std::vector<Observation>& observations, DeviceProfile& profile);

}  // namespace orrery::exec
