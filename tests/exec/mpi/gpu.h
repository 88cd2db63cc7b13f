// What programs of the suite differ by: it is compiled once, and linked with gpu.cc or with without_gpu.cc.
#pragma once

#include <memory>

#include "base/dtype.h"
#include "exec/communicators/communicator.h"
#include "exec/device/device.h"

namespace orrery::exec::test {

// What several ranks train on.
struct TrainedOn {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> world;  // over the device's memory
};

struct GpuSuite {
  int (*devices)();  // that can be used on this machine
  // The first GPU, which all ranks share.
  TrainedOn (*first)(Communicator& world);
  // check_communicator of one over NCCL.
  void (*check_nccl)(Communicator& world);
  // Every plan of as many ranks, or one of `every`, on the first GPU (shared by the ranks; over NCCL and with
  // messages staged through the host by turns) and on processors; those of fp32 in `precision`. Returns the
  // number of plans that differ; rank 0 prints.
  int (*check_cuda)(Communicator& world, int every, DType precision);
};

// Null in a program for processors.
const GpuSuite* gpu_suite();

}  // namespace orrery::exec::test
