#include "cli/executor.h"

#include <fmt/format.h>

#include "base/error.h"
#include "orrery/validate.h"

namespace orrery::cli {

void add_mpi_option(CLI::App& verb, std::string& mpi) {
  verb.add_option(
          "--mpi", mpi,
          "MPI library of the executor (default: the launcher's; outside one, the first that is built, "
          "openmpi first)")
      ->type_name("openmpi|mpich");
}

MpiLibrary parse_mpi(const std::string& name) {
  return name.empty() ? detect_mpi_library() : mpi_library_from_name(name);
}

void add_mpirun_args_option(CLI::App& verb, std::string& words) {
  verb.add_option("--mpirun-args", words,
                  "further options for mpirun, as one string quoted as for a shell (default: "
                  "$ORRERY_MPIRUN_ARGS, else none)")
      ->type_name("WORDS")
      ->envname("ORRERY_MPIRUN_ARGS");
}

void add_launch_options(CLI::App& verb, LaunchWords& words) {
  verb.add_option(
          "--launcher", words.launcher,
          "who starts the ranks: the MPI library's mpirun, or, in a batch script, Slurm's srun, which "
          "places them and takes further options from its environment (default: mpirun)")
      ->type_name("mpirun|srun");
  add_mpirun_args_option(verb, words.mpirun_args);
}

Placement placement_of(const Cluster& cluster, int ranks, const LaunchWords& words) {
  Placement placement = orrery::placement_of(cluster, ranks);
  placement.launcher = launcher_from_name(words.launcher);
  placement.mpirun_args = CLI::detail::split_up(words.mpirun_args);
  return placement;
}

void add_backend_option(CLI::App& verb, std::string& backend) {
  verb.add_option(
          "--backend", backend,
          "mpi: processors; nccl: a GPU a rank; cuda-mpi: GPUs, messages staged through the host; auto: "
          "GPUs where the plan is for GPUs and this machine has some, else mpi (default: auto)")
      ->type_name("auto|mpi|nccl|cuda-mpi");
}

void check_backend(const std::string& name) {
  if (name != "auto" && name != "mpi" && name != "nccl" && name != "cuda-mpi")
    throw UserError(fmt::format("--backend {} is unknown", name), "expected auto, mpi, nccl or cuda-mpi");
}

}  // namespace orrery::cli
