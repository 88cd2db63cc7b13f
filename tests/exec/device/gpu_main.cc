// Runs the Device suite where there is a GPU; elsewhere says so and exits 77, which CTest reports as skipped.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "exec/cuda/cuda_device.h"

int main(int argc, char** argv) {
  if (orrery::exec::cuda_devices() == 0) {
    std::puts("skipped: no GPU can be used on this machine (no NVIDIA driver, or no device)");
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
