#include "cli/version.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>

namespace orrery::cli {

std::string version_text() {
  return fmt::format("orrery {}\nSimGrid {}\nprotobuf {}\n", ORRERY_VERSION, ORRERY_SIMGRID_VERSION,
                     google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
}

}  // namespace orrery::cli
