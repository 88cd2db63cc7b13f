#include "exec/engine.h"

#include <fmt/format.h>

#include "base/error.h"
#include "exec/gpu_engine.h"

namespace orrery::exec {

bool wants_gpus(std::string_view backend, const Plan& plan) {
  if (backend == "auto") return plan.job->cluster.profile_of(0).kind == DeviceKind::gpu;
  return backend == "nccl" || backend == "cuda-mpi";
}

void check_backend(std::string_view backend) {
  if (backend == "auto" || backend == "mpi") return;
  if (backend != "nccl" && backend != "cuda-mpi")
    throw UserError(fmt::format("`backend` {}: unknown", backend), "expected auto, mpi, nccl or cuda-mpi");
  if (!built_with_cuda())
    throw UserError(fmt::format("`backend` {}: this executor was built without CUDA", backend),
                    "expected mpi or auto");
}

Engine make_engine(std::string_view backend, const Plan& plan, Communicator& control) {
  check_backend(backend);
  if (built_with_cuda() && wants_gpus(backend, plan))
    if (auto engine = make_gpu_engine(backend, plan, control)) return std::move(*engine);
  return {"mpi", make_cpu_device(), nullptr};
}

}  // namespace orrery::exec
