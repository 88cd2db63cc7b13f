#include "tests/exec/device/device_fixture.h"

namespace orrery::exec::test {

std::vector<std::unique_ptr<Device>> devices() {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_cpu_device());
  return all;
}

std::vector<std::unique_ptr<Device>> image_devices() {
  return devices();
}

}  // namespace orrery::exec::test
