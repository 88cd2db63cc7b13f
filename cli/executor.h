// What the verbs that start the executor share.
#pragma once

#include <string>
#include <vector>

#include "base/option.h"
#include "exec/launch/launcher.h"
#include "topologies/cluster.h"

namespace orrery::cli {

Setting mpi_option(std::string& mpi);
MpiLibrary parse_mpi(const std::string& name);  // empty: detected

// `mpirun_args` (or ORRERY_MPIRUN_ARGS): words for mpirun, quoted as for a shell.
Setting mpirun_args_option(std::string& words);

// How ranks are started, as given.
struct LaunchWords {
  std::string launcher = "mpirun";
  std::string mpirun_args;
};
std::vector<Setting> launch_options(LaunchWords& words);  // `launcher`, and the above

// Ranks on the hosts that the cluster's file names, in the order of its devices; on this machine where it
// names none, or `localhost` alone. Throws UserError where it names hosts for some nodes only.
Placement placement_of(const Cluster& cluster, int ranks, const LaunchWords& words);

Setting backend_option(std::string& backend);
void check_backend(const std::string& name);

// launch_executor in a child whose stdout is discarded, so that this process goes on (under a launcher too,
// as rank 0 of its job). Returns the exit code.
int launch_executor_beside(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments,
                           const Placement& placement);

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace orrery::cli
