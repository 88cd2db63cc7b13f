#include "exec/launch/launcher.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/note.h"
#include "exec/launch/child.h"

extern char** environ;

namespace orrery {
namespace {

constexpr int kLargestExitCode = 3;  // of an executor that ends by itself (exec/main.cc)
constexpr int kHydraGaveUp = 255;    // mpiexec.hydra's main returns -1
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
    std::filesystem::path candidate =
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

std::filesystem::path& executor_folder() {
  static std::filesystem::path folder;
  return folder;
}

std::filesystem::path executor_path(MpiLibrary mpi) {
  const std::string name = "orrery-exec-" + std::string(name_of(mpi));
  if (!executor_folder().empty()) return executor_folder() / name;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.parent_path() / name;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// More ranks than this on a core of one machine are a plan for a cluster, started by mistake: a thousand
// processes that wait for each other stop the machine.
constexpr int kRanksACore = 64;

// "a:2,b:1" from a, a, b: how both libraries name hosts and how many ranks each takes, in the order of the
// ranks.
std::string host_list(const std::vector<std::string>& hosts) {
  std::string list;
  for (std::size_t i = 0; i < hosts.size();) {
    std::size_t end = i;
    while (end < hosts.size() && hosts[end] == hosts[i]) ++end;
    list += (list.empty() ? "" : ",") + hosts[i] + ":" + std::to_string(end - i);
    i = end;
  }
  return list;
}

// This process's environment, with what the ranks are to find in it. A copy: other threads may read theirs.
class Environment {
 public:
  Environment() {
    for (char** variable = environ; *variable != nullptr; ++variable) words_.emplace_back(*variable);
  }
  void set(const std::string& name, const std::string& value) {
    std::erase_if(words_, [&](const std::string& word) { return word.starts_with(name + "="); });
    words_.push_back(name + "=" + value);
  }
  void set_unless_set(const std::string& name, const std::string& value) {
    if (std::getenv(name.c_str()) == nullptr) set(name, value);
  }
  std::vector<char*> words() { return pointers(words_); }

 private:
  std::vector<std::string> words_;
};

// What waits in a TCP connection's buffers holds up everything behind it: acknowledgements of what comes the
// other way, and short messages. On slow links the kernel's four megabytes are hundreds of milliseconds.
// (Pairs that exchange over 100 Mb/s, 4 ranks: steps of 423 and 593 ms with 128 KiB, 522 and 756 ms without a
// limit.)
void bound_socket_buffers(double network_bytes_per_s, Environment& environment) {
  constexpr double kSeconds = 0.01;
  constexpr double kLeast = 64 << 10;
  constexpr double kMost = 4 << 20;  // the kernel's own limit
  if (network_bytes_per_s <= 0 || network_bytes_per_s * kSeconds >= kMost) return;
  const std::string bytes =
      std::to_string(static_cast<long>(std::max(kLeast, network_bytes_per_s * kSeconds)));
  environment.set_unless_set("OMPI_MCA_btl_tcp_sndbuf", bytes);
  environment.set_unless_set("OMPI_MCA_btl_tcp_rcvbuf", bytes);
}

// Hydra and UCX wait for ever for a host that falls silent: they ask no connection whether it still is one.
// libkeepalive, loaded into mpirun and the ranks, makes the kernel ask, every second; three times without an
// answer end the job.
void notice_silent_hosts(Environment& environment) {
  constexpr const char* kLibrary = "libkeepalive.so.0";
  void* found = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  if (found == nullptr) {
    std::fprintf(stderr, "warning: without libkeepalive0 MPICH does not notice a host that falls silent\n");
    return;
  }
  dlclose(found);
  const char* others = variable("LD_PRELOAD");
  const std::string preload = others == nullptr ? kLibrary : std::string(kLibrary) + ":" + others;
  environment.set("LD_PRELOAD", preload);
  environment.set_unless_set("KEEPIDLE", "1");  // what the user has set stays
  environment.set_unless_set("KEEPINTVL", "1");
  environment.set_unless_set("KEEPCNT", "3");
}

// Open MPI looks for ssh even where it starts nothing elsewhere, and gives up without it: containers have
// none. Where somebody has said how other hosts are reached, or a scheduler has given some, that stays.
bool reaches_no_host() {
  for (const char* way :
       {"OMPI_MCA_plm", "OMPI_MCA_plm_rsh_agent", "PBS_NODEFILE", "LSB_JOBID", "PE_HOSTFILE"})
    if (variable(way) != nullptr) return false;
  const char* nodes = variable("SLURM_JOB_NUM_NODES");
  if (variable("SLURM_JOB_ID") != nullptr && (nodes == nullptr || std::atoi(nodes) != 1)) return false;
  return find_in_path("ssh").empty() && find_in_path("rsh").empty();
}

std::vector<std::string> mpirun_command(const LaunchOptions& options) {
  const std::filesystem::path mpirun = mpirun_of(options.mpi);
  if (mpirun.empty())
    throw UserError("no mpirun in PATH", "the launcher of " + std::string(name_of(options.mpi)));
  if (options.placement.outlives_ranks && options.mpi != MpiLibrary::openmpi)
    throw UserError(
        "`silence` over " + std::string(name_of(options.mpi)) + ": its mpirun ends all with one rank",
        "`mpi` openmpi");
  const std::vector<std::string>& hosts = options.placement.hosts;
  ORRERY_CHECK(hosts.empty() || static_cast<int>(hosts.size()) == options.ranks, "a host for each rank");
  // Who passes words of his own to mpirun may have named hosts there.
  if (hosts.empty() && options.placement.mpirun_args.empty() && options.ranks > kRanksACore * options.cores)
    throw UserError("the plan has " + std::to_string(options.ranks) + " ranks, and this machine " +
                        std::to_string(options.cores) + " processor cores",
                    "expected at most " + std::to_string(kRanksACore) +
                        " ranks a core; --mpirun-args names other hosts: '--hostfile FILE'");
  std::vector<std::string> command = {mpirun.string(), "-np", std::to_string(options.ranks)};
  const auto append = [&](std::initializer_list<const char*> words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  if (options.mpi == MpiLibrary::openmpi) {
    if (options.root) append({"--allow-run-as-root"});
    // Quiet: mpirun would add its own lines to the executor's one.
    append({"--quiet", "--oversubscribe", "--bind-to", "none"});
    // Ranks do nothing when asked to end: mpirun would wait two seconds between asking and killing.
    append({"--mca", "odls_base_sigkill_timeout", "0"});
    if (options.placement.outlives_ranks) append({"--enable-recovery"});
    if (hosts.empty()) {
      if (options.placement.mpirun_args.empty() && reaches_no_host()) append({"--mca", "plm", "isolated"});
      append({"--mca", "btl", "vader,self", "--mca", "pml", "ob1"});
      if (options.ranks > options.cores) append({"--mca", "mpi_yield_when_idle", "1"});
    } else {
      append({"--host"});
      command.push_back(host_list(hosts));
      // Ranks fill the hosts in order; what launch_executor has set must reach the hosts.
      // A host that dies says nothing: ask every second, give up after three.
      append({"--mca", "oob_tcp_keepalive_time", "1", "--mca", "oob_tcp_keepalive_intvl", "1", "--mca",
              "oob_tcp_keepalive_probes", "3"});
      append({"--map-by", "slot", "-x", "OPENBLAS_NUM_THREADS", "-x", "OMP_NUM_THREADS"});
    }
  } else {
    append({"-bind-to", "none"});
    if (!hosts.empty()) {
      append({"-hosts"});
      command.push_back(host_list(hosts));
    }
  }
  const std::vector<std::string>& words = options.placement.mpirun_args;
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

// Slurm places the ranks. One that dies must take the others with it: they would wait for it.
std::vector<std::string> srun_command(const LaunchOptions& options) {
  if (options.placement.outlives_ranks)
    throw UserError("`silence` under srun, which ends all with one rank", "`launcher` mpirun");
  const std::filesystem::path srun = find_in_path("srun");
  if (srun.empty()) throw UserError("no srun in PATH", "Slurm, or `launcher` mpirun");
  return {srun.string(), "-n", std::to_string(options.ranks),
          options.mpi == MpiLibrary::openmpi ? "--mpi=pmix" : "--mpi=pmi2", "--kill-on-bad-exit=1"};
}

// What executors said on a job's stderr: what was wrong, or that all is done without some of the ranks.
struct Heard {
  bool wrong = false, done = false;
};

// "orrery: …", behind the rank's number where srun labels its lines (SLURM_LABELIO).
bool says_what_is_wrong(std::string_view line) {
  const std::size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
  if (digits > 0 && line.substr(digits).starts_with(": ")) line.remove_prefix(digits + 2);
  return line.starts_with("orrery: ") && !line.starts_with(kNote);
}

// Hands a job's stderr on (to `kept`, where given), line by line, until it ends; closes it. `outlives_ranks`:
// mpirun (`process`) may wait for ever once rank 0 is done without some of the others, and once a rank has
// said that it ends the job: it is ended a few seconds later, and not read to the end, for its agents to
// hosts that are gone outlive it and keep its stderr open.
Heard pass_on(int error, std::string* kept, bool outlives_ranks, pid_t process) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kTimeToEnd{5};
  Heard heard;
  std::FILE* lines = fdopen(error, "r");
  if (lines == nullptr) return {.wrong = true};
  // What is not read yet is then the pipe's, where poll() sees it.
  if (outlives_ranks) std::setvbuf(lines, nullptr, _IONBF, 0);
  std::optional<Clock::time_point> until;
  char* line = nullptr;
  std::size_t room = 0;
  while (true) {
    using std::chrono::milliseconds;
    const auto left =
        until ? std::chrono::duration_cast<milliseconds>(*until - Clock::now()) : milliseconds(-1);
    pollfd pipe{error, POLLIN, 0};
    if (until && (left.count() <= 0 || poll(&pipe, 1, static_cast<int>(left.count())) == 0)) {
      kill(process, SIGKILL);
      break;
    }
    if (getline(&line, &room, lines) < 0) break;
    const std::string_view text(line);
    heard.wrong = heard.wrong || says_what_is_wrong(text);
    const bool done = text.starts_with(kNote) && text.find(kLeftBehind) != std::string_view::npos;
    if (outlives_ranks && !until && (heard.wrong || done)) {
      until = Clock::now() + kTimeToEnd;
      heard.done = done;
    }
    // Open MPI 4.1 says so when the agent was quicker than it: nothing is wrong.
    if (text.find("plm:rsh: Warning: setpgid") != std::string_view::npos) continue;
    if (kept != nullptr)
      *kept += text;
    else
      std::fputs(line, stderr);
  }
  std::free(line);
  std::fclose(lines);
  return heard;
}

}  // namespace

std::string_view name_of(MpiLibrary mpi) {
  return mpi == MpiLibrary::openmpi ? "openmpi" : "mpich";
}

MpiLibrary mpi_library_from_name(std::string_view name) {
  for (const MpiLibrary mpi : kLibraries)
    if (name == name_of(mpi)) return mpi;
  throw UserError("`mpi` " + std::string(name), "openmpi or mpich");
}

Launcher launcher_from_name(std::string_view name) {
  if (name == "mpirun") return Launcher::mpirun;
  if (name == "srun") return Launcher::srun;
  throw UserError("`launcher` " + std::string(name), "mpirun or srun");
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

void set_executor_folder(std::filesystem::path folder) {
  executor_folder() = std::move(folder);
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

int cores_of_a_rank(int ranks) {
  int here = ranks;  // by the last of these that is said
  for (const char* name : {"SLURM_NTASKS_PER_NODE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"})
    if (const char* value = variable(name)) here = std::clamp(std::atoi(value), 1, ranks);
  return std::max(1, usable_cores() / here);
}

std::vector<std::string> launch_command(const LaunchOptions& options, const std::filesystem::path& program,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command =
      options.placement.launcher == Launcher::srun ? srun_command(options) : mpirun_command(options);
  command.push_back(program.string());
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::optional<std::string> killed_by_signal(Launcher launcher, MpiLibrary mpi, int wait_status) {
  const auto named = [](int signal) {
    return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ") killed ";
  };
  if (WIFSIGNALED(wait_status)) return named(WTERMSIG(wait_status)) + "the launcher";
  const int code = WEXITSTATUS(wait_status);
  // Of several ranks srun's code is the largest, which may be of one that it ended itself; Hydra's has the
  // bits of all of their signals.
  if (launcher == Launcher::srun && code > 128) return "a rank was killed (srun has said which, and by what)";
  // Beyond the signals are mpirun's own errors: 205 where a host fell silent, 255 where one was not reached.
  if (launcher == Launcher::srun || mpi == MpiLibrary::openmpi)
    return code > 128 && code - 128 <= SIGRTMAX ? std::optional(named(code - 128) + "a rank") : std::nullopt;
  if (code > kLargestExitCode && code != kHydraGaveUp)
    return "a rank was killed (mpirun has said which, and by what)";
  return std::nullopt;
}

namespace {

// `beside`: whatever this process is, it goes on, and the job's stdout is discarded; `said`: its stderr.
int launch(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments, const Placement& placement,
           bool beside, std::string* said = nullptr) {
  const std::filesystem::path program = executor_of(mpi);
  const bool is_rank = under_launcher();
  Environment environment;
  // One compute thread a rank; the libraries read these when they are loaded.
  environment.set("OPENBLAS_NUM_THREADS", "1");
  environment.set("OMP_NUM_THREADS", "1");
  // Or hwloc asks displays and OpenCL for devices in mpirun and each rank here: a tenth of a short run.
  environment.set_unless_set("HWLOC_PLUGINS_BLACKLIST", "hwloc_gl.so,hwloc_opencl.so");
  bound_socket_buffers(placement.network_bytes_per_s, environment);
  std::vector<std::string> command = {program.string()};
  if (is_rank)
    command.insert(command.end(), arguments.begin(), arguments.end());
  else
    command = launch_command(
        {.mpi = mpi, .ranks = ranks, .cores = usable_cores(), .root = geteuid() == 0, .placement = placement},
        program, arguments);
  if (is_rank && !beside) {
    execve(program.c_str(), pointers(command).data(), environment.words().data());
    throw InternalError("cannot start " + program.string() + ": " + std::strerror(errno));
  }
  const bool elsewhere = !is_rank && !placement.hosts.empty() && placement.launcher == Launcher::mpirun;
  if (elsewhere && mpi == MpiLibrary::mpich) notice_silent_hosts(environment);
  std::fflush(nullptr);  // what was said before comes before what the job says
  const bool by_srun = !is_rank && placement.launcher == Launcher::srun;
  const bool hears = elsewhere || by_srun || said != nullptr || (placement.outlives_ranks && !is_rank);
  // Where an agent to a lost host may keep it open, its end is not waited for.
  const bool copies = !beside && !elsewhere && !placement.outlives_ranks && stdout_may_be_full();
  PassedOnSignals signals;
  const Child child = spawn(pointers(command), environment.words(),
                            {.take_output = copies, .take_error = hears, .silent = beside});
  signals.to(child.process);
  std::optional<CopiedOutput> output;
  if (copies) output.emplace(child.output);
  const Heard heard = hears ? pass_on(child.error, said, placement.outlives_ranks, child.process) : Heard{};
  int signal = 0;
  const int status = signals.wait(&signal);
  if (signal != 0) return 128 + signal;
  if (copies && status == 0) output->finish();
  if (heard.done) return 0;
  // Then mpirun's own code is 0 whatever a rank ended with.
  if (placement.outlives_ranks && heard.wrong && WIFEXITED(status)) return std::max(1, WEXITSTATUS(status));
  if (is_rank && WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  if (const auto killed = killed_by_signal(placement.launcher, mpi, status))
    throw InternalError("the job was ended: " + *killed);
  const int code = WEXITSTATUS(status);
  // Where there are other hosts the launcher may be the only one left to notice. srun can be told to keep
  // ranks' words elsewhere: codes that are only theirs are then all that is heard.
  const bool by_launcher = elsewhere || (by_srun && code == 1) || code > kLargestExitCode;
  if (code != 0 && by_launcher && !heard.wrong)
    throw InternalError(
        "the job was ended: " + command.front() + " gave up (exit code " + std::to_string(code) +
        ") and no rank said why: " + (by_srun ? "srun has" : "a host cannot be reached or has died"));
  return code;
}

}  // namespace

int launch_executor(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments,
                    const Placement& placement) {
  return launch(mpi, ranks, arguments, placement, /*beside=*/false);
}

int launch_executor_beside(MpiLibrary mpi, int ranks, const std::vector<std::string>& arguments,
                           const Placement& placement, std::string* said) {
  return launch(mpi, ranks, arguments, placement, /*beside=*/true, said);
}

}  // namespace orrery
