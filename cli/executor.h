// What the verbs that start the executor share.
#pragma once

#include <string>
#include <vector>

#include "base/option.h"
#include "exec/launch/launcher.h"
#include "orrery/orrery.h"

namespace orrery::cli {

Setting mpi_option(std::string& mpi);
MpiLibrary parse_mpi(const std::string& name);  // empty: detected

// `mpirun_args` (or ORRERY_MPIRUN_ARGS): words for mpirun, quoted as for a shell.
Setting mpirun_args_option(std::string& words);
// One by one. Throws UserError where a quotation does not end.
std::vector<std::string> mpirun_words(const std::string& words);

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

// Before ranks are started: throws NoAnswer where this machine's memory cannot hold them, and says on stderr
// where its processors train what is planned for GPUs.
void check_processors(const Plan& plan, const Placement& placement, const std::string& backend);

}  // namespace orrery::cli
