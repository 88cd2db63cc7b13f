#include "cli/executor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/parse.h"

namespace orrery::cli {

Setting mpi_option(std::string& mpi) {
  return text_option({.key = "mpi",
                      .unit = "openmpi|mpich",
                      .help = "MPI library of the executor",
                      .fallback = "the launcher's; outside one, the first that is built, openmpi first"},
                     mpi);
}

MpiLibrary parse_mpi(const std::string& name) {
  return name.empty() ? detect_mpi_library() : mpi_library_from_name(name);
}

Setting mpirun_args_option(std::string& words) {
  return text_option({.key = "mpirun_args",
                      .unit = "WORDS",
                      .help = "further options for mpirun, as one string quoted as for a shell",
                      .fallback = "$ORRERY_MPIRUN_ARGS, else none",
                      .environment = "ORRERY_MPIRUN_ARGS"},
                     words);
}

std::vector<Setting> launch_options(LaunchWords& words) {
  return {text_option(
              {.key = "launcher",
               .unit = "mpirun|srun",
               .help = "who starts the ranks: the MPI library's mpirun, or, in a batch script, Slurm's srun, "
                       "which places them and takes further options from its environment",
               .fallback = "mpirun"},
              words.launcher),
          mpirun_args_option(words.mpirun_args)};
}

Placement placement_of(const Cluster& cluster, int ranks, const LaunchWords& words) {
  Placement placement;
  placement.launcher = launcher_from_name(words.launcher);
  const auto arguments = shell_words(words.mpirun_args);
  if (!arguments)
    throw UserError(fmt::format("`mpirun_args` {}: a quotation does not end", words.mpirun_args),
                    "expected options quoted as for a shell");
  placement.mpirun_args = *arguments;
  if (cluster.fabric.transport == Transport::tcp)
    for (const NodeGroup& group : cluster.groups)
      placement.network_bytes_per_s =
          std::max(placement.network_bytes_per_s, group.node.nic.bandwidth_bytes_per_s);
  bool elsewhere = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const DevicePlace place = cluster.place(rank % cluster.devices());
    int node = place.node;
    for (int group = 0; group < place.group; ++group)
      node -= cluster.groups[static_cast<std::size_t>(group)].count;
    const NodeType& type = cluster.groups[static_cast<std::size_t>(place.group)].node;
    const std::string host = type.hosts.empty() ? std::string() : type.hosts[static_cast<std::size_t>(node)];
    elsewhere = elsewhere || (!host.empty() && host != "localhost");
    placement.hosts.push_back(host);
  }
  if (!elsewhere) placement.hosts.clear();
  for (const std::string& host : placement.hosts)
    if (host.empty())
      throw UserError("the cluster's file names hosts for some of its nodes only",
                      "`hosts` in every node group, or in none");
  return placement;
}

Setting backend_option(std::string& backend) {
  return text_option(
      {.key = "backend",
       .unit = "auto|mpi|nccl|cuda-mpi",
       .help = "mpi: processors; nccl: a GPU a rank; cuda-mpi: GPUs, messages staged through the host; "
               "auto: GPUs where the plan is for GPUs and this machine has some, else mpi",
       .fallback = "auto"},
      backend);
}

void check_backend(const std::string& name) {
  if (name != "auto" && name != "mpi" && name != "nccl" && name != "cuda-mpi")
    throw UserError(fmt::format("`backend` {} is unknown", name), "expected auto, mpi, nccl or cuda-mpi");
}

int launch_executor_beside(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments,
                           const Placement& placement) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw InternalError(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (child == 0) {
    int code = 1;
    try {
      const int nowhere = open("/dev/null", O_WRONLY);
      if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
      code = launch_executor(mpi, ranks, arguments, placement);
    } catch (const std::exception& error) {
      fmt::print(stderr, "orrery: {}\n", error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw InternalError(fmt::format("cannot wait: {}", std::strerror(errno)));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "orrery-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr)
    throw UserError(path_, 0, fmt::format("cannot be made: {}", std::strerror(errno)), "a writable TMPDIR");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace orrery::cli
