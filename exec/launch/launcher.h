// Starting the executor: ranks are started by what clusters already have (mpirun, srun), never by a launcher
// of our own. Links neither MPI nor SimGrid, so that `orrery` may use it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

enum class MpiLibrary { openmpi, mpich };
std::string_view name_of(MpiLibrary);                     // "openmpi" "mpich"
MpiLibrary mpi_library_from_name(std::string_view name);  // throws UserError

// This process is one rank of a job that a launcher started (mpirun, mpiexec.hydra, srun).
bool under_launcher();
// Its rank there; 0 outside a launcher.
int launcher_rank();
// The library that the launcher speaks to, or, outside one, the first whose executor and mpirun are there
// (Open MPI first). Throws UserError where there is none.
MpiLibrary detect_mpi_library();

// The program orrery-exec-<mpi> beside this program. Throws UserError where it was not built.
std::filesystem::path executor_of(MpiLibrary mpi);
// Of a library that another program has loaded (Python): where those programs are instead. Before the first
// use of anything here.
void set_executor_folder(std::filesystem::path folder);

// Processor cores that this process may use, and of them each of a job's `ranks` where those on this host
// share them alike (all of the job's, where the launcher does not say); at least 1.
int usable_cores();
int cores_of_a_rank(int ranks);

// Who starts ranks: the library's own mpirun, or Slurm in one of its allocations.
enum class Launcher { mpirun, srun };
Launcher launcher_from_name(std::string_view name);  // "mpirun" "srun"; throws UserError

// Where the ranks run, and what else the user wants mpirun to know. Under srun Slurm says both.
struct Placement {
  Launcher launcher = Launcher::mpirun;
  std::vector<std::string> hosts;        // of each rank, in order; empty: all on this machine
  std::vector<std::string> mpirun_args;  // words for mpirun's command line, before the program
  double network_bytes_per_s = 0;        // of a host's port, over TCP; 0: not known, or no TCP
  bool outlives_ranks = false;           // the others go on when one dies: Open MPI's mpirun alone
};

// What rank 0 says last, after kNote, of a job that was done without some of its ranks. mpirun may wait for
// these for ever: it is given a few seconds.
inline constexpr std::string_view kLeftBehind = "done; ranks that fell silent were left behind";

struct LaunchOptions {
  MpiLibrary mpi = MpiLibrary::openmpi;
  int ranks = 1;
  int cores = 1;      // where ranks outnumber them, waiting ranks yield
  bool root = false;  // Open MPI wants to be told
  Placement placement = {};
};
// `mpirun … program arguments…`, or srun, with the flags that this MPI needs.
std::vector<std::string> launch_command(const LaunchOptions& options, const std::filesystem::path& program,
                                        const std::vector<std::string>& arguments);

// What a launcher's wait status says of a signal that ended the job; nothing where the ranks ended by
// themselves.
std::optional<std::string> killed_by_signal(Launcher launcher, MpiLibrary mpi, int wait_status);

// What `orrery run`, `validate` and `calibrate` do: outside a launcher, runs the executor with `arguments` on
// `ranks` ranks under mpirun and returns its exit code; under a launcher, becomes the executor and does not
// return. One compute thread a rank. With hosts, mpirun reaches them as it is set up to (ssh, or the agent
// that its own options name), and finds program and files there under the same paths. Throws InternalError
// when a signal ended a rank: mpirun is told to be quiet. SIGINT, SIGTERM and SIGHUP end the job, too: 128
// and the signal is the answer then.
int launch_executor(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments,
                    const Placement& placement = {});
// The same, but this process goes on (under a launcher too, as the rank that it is), and what the ranks print
// on stdout is discarded. `said`: what they say on stderr goes there.
int launch_executor_beside(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments,
                           const Placement& placement = {}, std::string* said = nullptr);

}  // namespace orrery
