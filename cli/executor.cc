#include "cli/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/note.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "exec/launch/available_memory.h"
#include "orrery/validate.h"

namespace orrery::cli {

Setting mpi_option(std::string& mpi) {
  return text_option({.key = "mpi",
                      .unit = "openmpi|mpich",
                      .help = "MPI library to run with",
                      .fallback = "the launcher's; without a launcher Open MPI if it is built, else MPICH"},
                     mpi);
}

MpiLibrary parse_mpi(const std::string& name) {
  return name.empty() ? detect_mpi_library() : mpi_library_from_name(name);
}

Setting mpirun_args_option(std::string& words) {
  return text_option({.key = "mpirun_args",
                      .unit = "WORDS",
                      .help = "more options for mpirun, in one string, quoted as for a shell",
                      .fallback = "$ORRERY_MPIRUN_ARGS, else none",
                      .environment = "ORRERY_MPIRUN_ARGS"},
                     words);
}

std::vector<Setting> launch_options(LaunchWords& words) {
  return {
      text_option({.key = "launcher",
                   .unit = "mpirun|srun",
                   .help = "what starts the ranks: the MPI library's mpirun or, in a batch script, Slurm's "
                           "srun, which places them and reads further options from its environment",
                   .fallback = "mpirun"},
                  words.launcher),
      mpirun_args_option(words.mpirun_args)};
}

Placement placement_of(const Cluster& cluster, int ranks, const LaunchWords& words) {
  Placement placement = orrery::placement_of(cluster, ranks);
  placement.launcher = launcher_from_name(words.launcher);
  placement.mpirun_args = mpirun_words(words.mpirun_args);
  return placement;
}

std::vector<std::string> mpirun_words(const std::string& words) {
  const auto arguments = shell_words(words);
  if (!arguments)
    throw UserError(fmt::format("`mpirun_args` {}: a quotation does not end", words),
                    "expected options quoted as for a shell");
  return *arguments;
}

Setting backend_option(std::string& backend) {
  return text_option(
      {.key = "backend",
       .unit = "auto|mpi|nccl|cuda-mpi",
       .help = "mpi: processors; nccl: one GPU per rank; cuda-mpi: GPUs with messages staged through the "
               "host; auto: GPUs if the plan is for GPUs and this machine has some, else mpi",
       .fallback = "auto"},
      backend);
}

void check_backend(const std::string& name) {
  const std::vector<std::string> known = {"auto", "mpi", "nccl", "cuda-mpi"};
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw UserError(fmt::format("`backend` {} is unknown", name), suggestion(name, known));
}

void check_processors(const Plan& plan, const Placement& placement, const std::string& backend) {
  check_memory(plan, placement, backend, available_bytes());
  if (const std::string said = surprise_on_processors(plan, placement, backend); !said.empty())
    fmt::print(stderr, "{}{}\n", kNote, said);
}

}  // namespace orrery::cli
