#include "gpu.h"

namespace orrery::exec::test {

const GpuSuite* gpu_suite() {
  return nullptr;
}

}  // namespace orrery::exec::test
