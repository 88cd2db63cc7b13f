#include "exec/cuda/check.h"

#include <fmt/format.h>

#include "base/error.h"

namespace orrery::exec {

void fail_cuda(const char* reason, const char* call, const char* file, int line) {
  throw InternalError(fmt::format("{}:{}: {}: {}", file, line, call, reason));
}

}  // namespace orrery::exec
