// test_exec_<mpi>
// communicator|equivalence|rehearsal|smoke|random|fine-tuning|patches|vit|asynchronous|initial [cut], under
// mpirun. cut: every long message in pieces, as over TCP. random [SERIES]: other plans than the suite's.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "equivalence.h"
#include "exec/communicators/collectives.h"
#include "exec/mpi/mpi_transport.h"
#include "gpu.h"

int main(int argc, char** argv) {
  const orrery::exec::MpiWorld mpi(&argc, &argv);
  const std::string_view what = argc > 1 ? argv[1] : "";
  const bool cut = argc > 2 && std::string_view(argv[2]) == "cut";
  const std::uint64_t series = cut ? 1 : argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  try {
    const auto world = orrery::exec::make_communicator(
        mpi.transport(cut ? orrery::exec::Cutting::always : orrery::exec::Cutting::never));
    if (const orrery::exec::test::GpuSuite* gpu = orrery::exec::test::gpu_suite()) {
      if (gpu->devices() == 0) {
        if (mpi.rank() == 0) fmt::print("skipped: no GPU can be used on this machine\n");
        return 77;
      }
      if (what == "nccl") {
        gpu->check_nccl(*world);
        return 0;
      }
      if (what == "cuda")
        return gpu->check_cuda(*world, argc > 2 ? std::atoi(argv[2]) : 1,
                               argc > 3 ? orrery::dtype_from_name(argv[3]) : orrery::DType::fp32) == 0
                   ? 0
                   : 1;
    }
    if (what == "communicator")
      orrery::exec::test::check_communicator(*world);
    else if (what == "initial")
      return orrery::exec::test::check_initial(*world) == 0 ? 0 : 1;
    else if (what == "fine-tuning")
      return orrery::exec::test::check_fine_tuning(*world) == 0 ? 0 : 1;
    else if (what == "patches")
      return orrery::exec::test::check_patches(*world) == 0 ? 0 : 1;
    else if (what == "asynchronous")
      return orrery::exec::test::check_asynchronous(*world) == 0 ? 0 : 1;
    else
      return orrery::exec::test::check_equivalence(*world, std::string(what), series) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", mpi.rank(), error.what());
    std::fflush(nullptr);
    mpi.abort(1);
  }
  return 0;
}
