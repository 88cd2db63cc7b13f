#include "exec/launch/launcher.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace orrery {
namespace {

bool has(const std::vector<std::string>& command, const std::string& word) {
  return std::find(command.begin(), command.end(), word) != command.end();
}

}  // namespace

TEST_CASE("the launch command names the ranks and the program, and ends in its arguments") {
  const auto command = launch_command({.mpi = MpiLibrary::openmpi, .ranks = 3, .cores = 4},
                                      "/x/orrery-exec-openmpi", {"run", "plan.textproto"});
  REQUIRE(command.size() > 6);
  CHECK(command[1] == "-np");
  CHECK(command[2] == "3");
  CHECK(command[command.size() - 3] == "/x/orrery-exec-openmpi");
  CHECK(command.back() == "plan.textproto");
  CHECK_FALSE(has(command, "--allow-run-as-root"));
  CHECK_FALSE(has(command, "mpi_yield_when_idle"));
}

TEST_CASE("where there is no ssh, Open MPI is told not to look for it, unless other hosts may be meant") {
  const auto isolated = [](const LaunchOptions& options) {
    return has(launch_command(options, "x", {}), "isolated");
  };
  const std::string path = std::getenv("PATH");
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "orrery-no-ssh";
  std::filesystem::create_directories(folder);
  std::error_code exists;
  std::filesystem::create_symlink("/bin/true", folder / "mpirun", exists);
  setenv("PATH", folder.c_str(), 1);
  LaunchOptions options{.mpi = MpiLibrary::openmpi, .ranks = 2, .cores = 2};
  CHECK(isolated(options));
  for (const char* way : {"OMPI_MCA_plm", "OMPI_MCA_plm_rsh_agent", "SLURM_JOB_ID"}) {
    setenv(way, "another", 1);
    CHECK_FALSE(isolated(options));
    unsetenv(way);
  }
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_JOB_NUM_NODES", "1", 1);
  CHECK(isolated(options));
  setenv("SLURM_JOB_NUM_NODES", "2", 1);
  CHECK_FALSE(isolated(options));
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_JOB_NUM_NODES");
  options.placement.mpirun_args = {"--hostfile", "hosts"};
  CHECK_FALSE(isolated(options));
  options.placement.mpirun_args = {};
  options.placement.hosts = {"a", "b"};
  CHECK_FALSE(isolated(options));
  options.placement = {};
  std::filesystem::create_symlink("/bin/true", folder / "ssh", exists);
  CHECK_FALSE(isolated(options));
  setenv("PATH", path.c_str(), 1);
  std::filesystem::remove_all(folder);
}

TEST_CASE("root and more ranks than cores are said to Open MPI, and not to MPICH") {
  LaunchOptions options{.mpi = MpiLibrary::openmpi, .ranks = 8, .cores = 2, .root = true};
  auto command = launch_command(options, "x", {});
  CHECK(has(command, "--allow-run-as-root"));
  CHECK(has(command, "--oversubscribe"));
  CHECK(has(command, "mpi_yield_when_idle"));
  options.mpi = MpiLibrary::mpich;
  command = launch_command(options, "x", {});
  CHECK_FALSE(has(command, "--allow-run-as-root"));
  CHECK_FALSE(has(command, "--oversubscribe"));
}

TEST_CASE(
    "a plan of a cluster is not started on one machine's few cores, unless mpirun is told of other hosts") {
  LaunchOptions options{.mpi = MpiLibrary::openmpi, .ranks = 129, .cores = 2};
  CHECK_THROWS_WITH(launch_command(options, "x", {}),
                    Catch::Contains("129 ranks") && Catch::Contains("expected at most 64 ranks a core"));
  options.ranks = 128;
  CHECK_NOTHROW(launch_command(options, "x", {}));
  options.ranks = 1024;
  options.placement.mpirun_args = {"--hostfile", "hosts"};
  CHECK_NOTHROW(launch_command(options, "x", {}));
}

TEST_CASE("ranks on named hosts: each library's list, in order, and the user's words before the program") {
  LaunchOptions options{.mpi = MpiLibrary::openmpi, .ranks = 3, .cores = 1};
  options.placement.hosts = {"a", "a", "b"};
  options.placement.mpirun_args = {"--mca", "plm_rsh_agent", "my agent"};
  auto command = launch_command(options, "x", {"run"});
  const auto host = std::find(command.begin(), command.end(), "--host");
  REQUIRE(host != command.end());
  CHECK(*(host + 1) == "a:2,b:1");
  CHECK_FALSE(has(command, "vader,self"));  // hosts do not share memory
  CHECK(std::vector<std::string>(command.end() - 5, command.end()) ==
        std::vector<std::string>{"--mca", "plm_rsh_agent", "my agent", "x", "run"});
  options.mpi = MpiLibrary::mpich;
  command = launch_command(options, "x", {});
  const auto hosts = std::find(command.begin(), command.end(), "-hosts");
  REQUIRE(hosts != command.end());
  CHECK(*(hosts + 1) == "a:2,b:1");
}

TEST_CASE("under Slurm each library speaks its own protocol, and a dead rank ends the others") {
  const auto folder = std::filesystem::temp_directory_path() / "orrery-launcher-test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "srun").put('\n');
  std::filesystem::permissions(folder / "srun", std::filesystem::perms::owner_all);
  setenv("PATH", folder.c_str(), 1);
  LaunchOptions options{.mpi = MpiLibrary::openmpi, .ranks = 3};
  options.placement.launcher = Launcher::srun;
  options.placement.hosts = {"a", "a", "b"};  // Slurm places them
  CHECK(launch_command(options, "x", {"run"}) ==
        std::vector<std::string>{(folder / "srun").string(), "-n", "3", "--mpi=pmix", "--kill-on-bad-exit=1",
                                 "x", "run"});
  options.mpi = MpiLibrary::mpich;
  CHECK(has(launch_command(options, "x", {}), "--mpi=pmi2"));
  std::filesystem::remove_all(folder);
  CHECK_THROWS_AS(launch_command(options, "x", {}), UserError);
  CHECK(launcher_from_name("srun") == Launcher::srun);
  CHECK_THROWS_AS(launcher_from_name("ssh"), UserError);
}

TEST_CASE("a process knows from its environment whether a launcher started it") {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "SLURM_STEP_ID"})
    unsetenv(name);
  CHECK_FALSE(under_launcher());
  CHECK(launcher_rank() == 0);
  setenv("PMI_RANK", "3", 1);
  CHECK(under_launcher());
  CHECK(launcher_rank() == 3);
  CHECK(detect_mpi_library() == MpiLibrary::mpich);
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  CHECK(launcher_rank() == 2);
  CHECK(detect_mpi_library() == MpiLibrary::openmpi);
  unsetenv("PMI_RANK");
  unsetenv("OMPI_COMM_WORLD_RANK");
  // A batch script of Slurm has a rank but is no step of srun.
  setenv("SLURM_PROCID", "0", 1);
  CHECK_FALSE(under_launcher());
  setenv("SLURM_STEP_ID", "4294967291", 1);
  CHECK_FALSE(under_launcher());
  setenv("SLURM_STEP_ID", "0", 1);
  CHECK(under_launcher());
  unsetenv("SLURM_PROCID");
  unsetenv("SLURM_STEP_ID");
}

TEST_CASE("a launcher's exit code says whether a rank was killed, in each launcher's own way") {
  const auto exits = [](int code) { return code << 8; };  // as waitpid says it
  using enum Launcher;
  using enum MpiLibrary;
  CHECK(killed_by_signal(mpirun, openmpi, SIGKILL) == "signal 9 (Killed) killed the launcher");
  CHECK(killed_by_signal(mpirun, openmpi, exits(128 + SIGKILL)) == "signal 9 (Killed) killed a rank");
  CHECK(killed_by_signal(mpirun, mpich, exits(SIGKILL)).value().rfind("a rank was killed", 0) == 0);
  CHECK(killed_by_signal(srun, openmpi, exits(128 + SIGTERM)).value().rfind("a rank was killed", 0) == 0);
  for (const int code : {0, 1, 2, 3})
    for (const MpiLibrary mpi : {openmpi, mpich})
      for (const Launcher launcher : {mpirun, srun})
        CHECK_FALSE(killed_by_signal(launcher, mpi, exits(code)));
  for (const int code : {205, 255}) CHECK_FALSE(killed_by_signal(mpirun, openmpi, exits(code)));
  CHECK_FALSE(killed_by_signal(mpirun, mpich, exits(255)));  // Hydra gave up, and killed nobody
}

TEST_CASE("an unknown MPI library is the user's error") {
  CHECK(mpi_library_from_name("mpich") == MpiLibrary::mpich);
  CHECK_THROWS_AS(mpi_library_from_name("lam"), UserError);
}

}  // namespace orrery
