#include "exec/cuda_program.h"

#include <unistd.h>

#include <filesystem>

namespace orrery::exec {

void become_cuda_program([[maybe_unused]] char** argv) {
#ifndef ORRERY_WITH_CUDA
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  program += "-cuda";
  execv(program.c_str(), argv);  // returns where it is not there
#endif
}

}  // namespace orrery::exec
