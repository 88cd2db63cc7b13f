// gpu_engine.h in the program for processors.
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "exec/gpu_engine.h"

namespace orrery::exec {

bool built_with_cuda() {
  return false;
}

void become_cuda_program(char** argv) {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  program += "-cuda";
  execv(program.c_str(), argv);  // returns where it is not there
}

std::optional<Engine> make_gpu_engine(std::string_view, const Plan&, Communicator&) {
  throw InternalError("a program without CUDA was asked for GPUs");
}

}  // namespace orrery::exec
