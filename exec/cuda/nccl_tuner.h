// The planned algorithm and protocol forced on NCCL by its own means: a tuner plugin inside this program
// (NCCL_TUNER_PLUGIN=STATIC_PLUGIN), which NCCL asks about each collective.
#pragma once

#include <nccl.h>

#include <cstddef>

#include "exec/communicators/communicator.h"

namespace orrery::exec {

// While this lives, NCCL communicators that are made in this process ask `choice`, which must outlive them
// and may be empty: then, and where the chosen method is none that NCCL has for the collective, NCCL chooses.
// NCCL_TUNER_PLUGIN in the environment goes before. One at a time.
class TunedBy {
 public:
  explicit TunedBy(const AlgorithmChoice& choice);
  ~TunedBy();
  TunedBy(const TunedBy&) = delete;
  TunedBy& operator=(const TunedBy&) = delete;
};

// NCCL's interface to tuners, version 4 (its ext-tuner/example/nccl/tuner.h, which no package installs).
struct NcclTunerV4 {
  const char* name;
  // A communicator's tuner begins.
  ncclResult_t (*init)(std::size_t ranks, std::size_t nodes, void (*log)(), void** context);
  // `costs` are floats, [algorithms][protocols]: NCCL takes the least; -1: not for this collective.
  ncclResult_t (*get_collective_info)(void* context, int function, std::size_t bytes, int pipelined,
                                      float** costs, int algorithms, int protocols, int registered,
                                      int* channels);
  ncclResult_t (*destroy)(void* context);
};

}  // namespace orrery::exec

extern "C" const orrery::exec::NcclTunerV4 ncclTunerPlugin_v4;  // NCCL looks for this name
