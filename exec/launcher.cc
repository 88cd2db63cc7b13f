#include "exec/launcher.h"

#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

extern char** environ;

namespace orrery {
namespace {

constexpr std::array<MpiLibrary, 2> kLibraries = {MpiLibrary::openmpi, MpiLibrary::mpich};

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// sbatch's own shell has SLURM_PROCID too; only a step of srun has a step number below the special ones.
bool in_slurm_step() {
  const char* step = variable("SLURM_STEP_ID");
  return variable("SLURM_PROCID") != nullptr && step != nullptr &&
         std::strtoull(step, nullptr, 10) < 0xFFFFFFF0ULL;
}

std::filesystem::path find_in_path(std::string_view program) {
  const char* path = variable("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/bin:/bin";
  while (true) {
    const std::size_t colon = rest.find(':');
    const std::filesystem::path candidate =
        std::filesystem::path(rest.substr(0, colon)) / std::filesystem::path(program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string_view::npos) return {};
    rest.remove_prefix(colon + 1);
  }
}

// Debian installs each library's launcher under a name of its own; elsewhere there is one `mpirun`.
std::filesystem::path mpirun_of(MpiLibrary mpi) {
  std::filesystem::path found = find_in_path("mpirun." + std::string(name_of(mpi)));
  if (found.empty() && mpi == MpiLibrary::mpich) found = find_in_path("mpiexec.hydra");
  if (found.empty()) found = find_in_path("mpirun");
  return found;
}

std::filesystem::path executor_path(MpiLibrary mpi) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path() / ("orrery-exec-" + std::string(name_of(mpi)));
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string_view name_of(MpiLibrary mpi) {
  return mpi == MpiLibrary::openmpi ? "openmpi" : "mpich";
}

MpiLibrary mpi_library_from_name(std::string_view name) {
  for (const MpiLibrary mpi : kLibraries)
    if (name == name_of(mpi)) return mpi;
  throw UserError("--mpi " + std::string(name), "openmpi or mpich");
}

bool under_launcher() {
  return variable("OMPI_COMM_WORLD_RANK") != nullptr || variable("PMI_RANK") != nullptr ||
         variable("PMIX_RANK") != nullptr || in_slurm_step();
}

int launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* value = variable(name)) return std::atoi(value);
  return in_slurm_step() ? std::atoi(variable("SLURM_PROCID")) : 0;
}

MpiLibrary detect_mpi_library() {
  if (variable("OMPI_COMM_WORLD_RANK") != nullptr || variable("PMIX_RANK") != nullptr)
    return MpiLibrary::openmpi;
  if (variable("PMI_RANK") != nullptr) return MpiLibrary::mpich;
  for (const MpiLibrary mpi : kLibraries)
    if (access(executor_path(mpi).c_str(), X_OK) == 0 && !mpirun_of(mpi).empty()) return mpi;
  throw UserError("no executor beside this program can be launched",
                  "orrery-exec-openmpi with mpirun.openmpi, or orrery-exec-mpich with mpirun.mpich");
}

std::filesystem::path executor_of(MpiLibrary mpi) {
  std::filesystem::path path = executor_path(mpi);
  if (access(path.c_str(), X_OK) != 0)
    throw UserError(path.string() + " is not there",
                    "a build that found " + std::string(mpi == MpiLibrary::openmpi ? "Open MPI" : "MPICH"));
  return path;
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

std::vector<std::string> launch_command(const LaunchOptions& options, const std::filesystem::path& program,
                                        const std::vector<std::string>& arguments) {
  const std::filesystem::path mpirun = mpirun_of(options.mpi);
  if (mpirun.empty())
    throw UserError("no mpirun in PATH", "the launcher of " + std::string(name_of(options.mpi)));
  std::vector<std::string> command = {mpirun.string(), "-np", std::to_string(options.ranks)};
  const auto append = [&](std::initializer_list<const char*> words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  if (options.mpi == MpiLibrary::openmpi) {
    if (options.root) append({"--allow-run-as-root"});
    // Quiet: mpirun would add its own lines to the executor's one.
    append({"--quiet", "--oversubscribe", "--bind-to", "none"});
    if (options.one_host) append({"--mca", "btl", "vader,self", "--mca", "pml", "ob1"});
    if (options.ranks > options.cores) append({"--mca", "mpi_yield_when_idle", "1"});
  } else {
    append({"-bind-to", "none"});
  }
  command.push_back(program.string());
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

int launch_executor(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments) {
  const std::filesystem::path program = executor_of(mpi);
  // One compute thread a rank; the libraries read these when they are loaded.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  if (under_launcher()) {
    std::vector<std::string> command = {program.string()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    execv(program.c_str(), pointers(command).data());
    throw InternalError("cannot start " + program.string() + ": " + std::strerror(errno));
  }
  std::vector<std::string> command = launch_command(
      {.mpi = mpi, .ranks = ranks, .cores = usable_cores(), .root = geteuid() == 0}, program, arguments);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, command.front().c_str(), nullptr, nullptr, pointers(command).data(), environ);
  if (error != 0) throw InternalError("cannot start " + command.front() + ": " + std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw InternalError("lost " + command.front() + ": " + std::strerror(errno));
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
  if (signal > 0)
    throw InternalError("the job was ended: signal " + std::to_string(signal) + " (" + strsignal(signal) +
                        ") killed " + (WIFSIGNALED(status) ? "the launcher" : "a rank"));
  return WEXITSTATUS(status);
}

}  // namespace orrery
