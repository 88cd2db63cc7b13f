#include "exec/cuda/nccl_tuner.h"

#include <cstdlib>
#include <optional>

#include "base/error.h"

namespace orrery::exec {
namespace {

// The choice of the communicator that is being made. NCCL may make it on a thread of its own, for which the
// caller waits.
const AlgorithmChoice* choice_of_next = nullptr;

// NCCL's numbers, the same in all of 2.x (src/include/plugin/nccl_tuner.h, nccl_common.h).
std::optional<int> nccl_number(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::tree:
      return 0;
    case Algorithm::ring:
      return 1;
    case Algorithm::nvls:
      return 4;
    case Algorithm::nvls_tree:
      return 5;
    case Algorithm::pat:
      return 6;
    default:
      return {};
  }
}

std::optional<int> nccl_number(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll:
      return 0;
    case Protocol::ll128:
      return 1;
    case Protocol::simple:
      return 2;
    default:
      return {};
  }
}

std::optional<CollectiveKind> kind_of_function(int function) {
  switch (function) {
    case 0:
      return CollectiveKind::broadcast;
    case 1:
      return CollectiveKind::reduce;
    case 2:
      return CollectiveKind::all_gather;
    case 3:
      return CollectiveKind::reduce_scatter;
    case 4:
      return CollectiveKind::all_reduce;
    default:
      return {};
  }
}

ncclResult_t begin(std::size_t, std::size_t, void (*)(), void** context) {
  *context = const_cast<AlgorithmChoice*>(choice_of_next);
  return ncclSuccess;
}

ncclResult_t prefer_planned(void* context, int function, std::size_t bytes, int, float** costs,
                            int algorithms, int protocols, int, int*) {
  const auto* choice = static_cast<const AlgorithmChoice*>(context);
  const auto kind = kind_of_function(function);
  if (!choice || !*choice || !kind) return ncclSuccess;
  const CollectivePlan planned = (*choice)(*kind, static_cast<double>(bytes));
  const auto algorithm = nccl_number(planned.algorithm);
  const auto protocol = nccl_number(planned.protocol);
  if (!algorithm || !protocol || *algorithm >= algorithms || *protocol >= protocols) return ncclSuccess;
  float& cost = reinterpret_cast<float*>(costs)[*algorithm * protocols + *protocol];
  if (cost >= 0) cost = 0;
  return ncclSuccess;
}

ncclResult_t end(void*) {
  return ncclSuccess;
}

}  // namespace

TunedBy::TunedBy(const AlgorithmChoice& choice) {
  ORRERY_CHECK(choice_of_next == nullptr, "two NCCL communicators are made at once");
  setenv("NCCL_TUNER_PLUGIN", "STATIC_PLUGIN", 0);
  choice_of_next = &choice;
}

TunedBy::~TunedBy() {
  choice_of_next = nullptr;
}

}  // namespace orrery::exec

const orrery::exec::NcclTunerV4 ncclTunerPlugin_v4 = {"Orrery's plan", orrery::exec::begin,
                                                      orrery::exec::prefer_planned, orrery::exec::end};
