#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>

#include <string_view>

#include "cli/command.h"

namespace orrery::cli {

std::string version_text() {
  const auto built_with = [](std::string_view name, std::string_view version) {
    return version.empty() ? fmt::format("without {}\n", name) : fmt::format("{} {}\n", name, version);
  };
  std::string text =
      fmt::format("orrery {}\nSimGrid {}\nprotobuf {}\n", ORRERY_VERSION, ORRERY_SIMGRID_VERSION,
                  google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
  text += built_with("NCCL", ORRERY_NCCL_VERSION) + built_with("CUDA", ORRERY_CUDA_VERSION);
  text += built_with("Open MPI", ORRERY_OPENMPI_VERSION) + built_with("MPICH", ORRERY_MPICH_VERSION);
  text.pop_back();  // the option parser ends the line
  return text;
}

}  // namespace orrery::cli
