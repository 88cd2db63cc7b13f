#include "workloads/onnx.h"

#include "base/error.h"

namespace orrery {

Workload workload_from_onnx(std::string_view, std::string_view file) {
  throw UserError(file, 0, "ONNX files cannot be read yet", "expected a config.json or a textproto");
}

}  // namespace orrery
