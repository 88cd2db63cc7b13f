// Runs the Device suite where there is a GPU; elsewhere says so and exits 77, which CTest reports as skipped.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>

#include "exec/cuda/cuda_device.h"
#include "tests/exec/device/device_fixture.h"

namespace orrery::exec::test {

std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_cuda_device(0));
  return all;
}

std::vector<std::unique_ptr<Device>> image_devices() {
  std::vector<std::unique_ptr<Device>> all = devices();
  all.push_back(std::make_unique<CudaDevice>(0, 2048));
  return all;
}

}  // namespace orrery::exec::test

int main(int argc, char** argv) {
  if (orrery::exec::cuda_devices() == 0) {
    std::puts("skipped: no GPU can be used on this machine (no NVIDIA driver, or no device)");
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
