#include "exec/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>

#include "base/error.h"

namespace orrery {
namespace {

constexpr std::array<int, 3> kEnding = {SIGINT, SIGTERM, SIGHUP};
// A terminal, or `timeout`, tells all processes of a group: only where the child has not ended by itself is
// it told once more, for a second signal makes mpirun leave at once and its ranks alone.
constexpr std::chrono::milliseconds kTimeToHear{300};

std::atomic<int> told{-1};  // where the handler writes
std::array<struct sigaction, kEnding.size()> handlers_before;

void note_signal(int signal) {
  const int kept = errno;
  const auto number = static_cast<unsigned char>(signal);
  if (const int end = told.load(); end >= 0 && ::write(end, &number, 1) < 0) errno = 0;
  errno = kept;
}

bool handled(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void make_pipe(int* ends) {
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw InternalError(std::string("cannot make a pipe: ") + std::strerror(errno));
}

// In the child; what is called here may be called after a fork. Returns where the program was not started.
void become(const std::vector<char*>& command, const std::vector<char*>& environment,
            const ChildStreams& streams, int output, int error, pid_t parent) {
  for (const int signal : kEnding) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (handled(action)) std::signal(signal, SIG_DFL);
  }
  std::signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before that
  if (streams.take_output) dup2(output, STDOUT_FILENO);
  if (streams.take_error) dup2(error, STDERR_FILENO);
  if (streams.silent) {
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDOUT_FILENO);
  }
  execve(command.front(), command.data(), environment.data());
}

}  // namespace

Child spawn(const std::vector<char*>& command, const std::vector<char*>& environment,
            const ChildStreams& streams) {
  std::array<int, 2> output = {-1, -1}, error = {-1, -1}, fault = {-1, -1};
  if (streams.take_output) make_pipe(output.data());
  if (streams.take_error) make_pipe(error.data());
  make_pipe(fault.data());
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) {
    become(command, environment, streams, output[1], error[1], parent);
    const int reason = errno;
    if (::write(fault[1], &reason, sizeof(reason)) < 0) _exit(126);
    _exit(127);
  }
  int reason = process < 0 ? errno : 0;
  for (const int end : {output[1], error[1], fault[1]})
    if (end >= 0) close(end);
  if (process > 0) {
    ssize_t got = 0;
    do got = ::read(fault[0], &reason, sizeof(reason));
    while (got < 0 && errno == EINTR);
    if (got > 0) waitpid(process, nullptr, 0);
  }
  close(fault[0]);
  if (reason != 0) {
    for (const int end : {output[0], error[0]})
      if (end >= 0) close(end);
    throw InternalError("cannot start " + std::string(command.front()) + ": " + std::strerror(reason));
  }
  return {process, output[0], error[0]};
}

PassedOnSignals::PassedOnSignals() {
  make_pipe(ends_);
  int nobody = -1;
  active_ = told.compare_exchange_strong(nobody, ends_[1]);
  if (!active_) return;
  thread_ = std::thread([this] { pass_on(); });
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(kEnding[i], nullptr, &handlers_before[i]);
    // What is ignored (under nohup) the child ignores, too.
    const bool ignored = !handled(handlers_before[i]) && handlers_before[i].sa_handler == SIG_IGN;
    if (!ignored) sigaction(kEnding[i], &action, nullptr);
  }
}

PassedOnSignals::~PassedOnSignals() {
  end();
  close(ends_[0]);
  close(ends_[1]);
}

void PassedOnSignals::to(pid_t child) {
  const std::scoped_lock lock(mutex_);
  child_ = child;
}

void PassedOnSignals::pass_on() {
  unsigned char signal = 0;
  while (true) {
    const ssize_t got = ::read(ends_[0], &signal, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || signal == 0) return;
    int none = 0;
    first_.compare_exchange_strong(none, signal);
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kTimeToHear, [this] { return done_; }) && child_ > 0) kill(child_, signal);
  }
}

void PassedOnSignals::end() {
  if (!active_) return;
  active_ = false;
  for (std::size_t i = 0; i < kEnding.size(); ++i) sigaction(kEnding[i], &handlers_before[i], nullptr);
  told = -1;
  {
    const std::scoped_lock lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  const unsigned char last = 0;
  while (::write(ends_[1], &last, 1) < 0 && errno == EINTR) {
  }
  thread_.join();
}

int PassedOnSignals::wait(int* signal) {
  siginfo_t ended = {};
  // Not reaped before nobody signals it any more: its number may be another's then.
  while (waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOWAIT) < 0)
    if (errno != EINTR) throw InternalError(std::string("lost a job: ") + std::strerror(errno));
  end();
  int status = 0;
  while (waitpid(child_, &status, 0) < 0)
    if (errno != EINTR) throw InternalError(std::string("lost a job: ") + std::strerror(errno));
  *signal = first_;
  for (std::size_t i = 0; i < kEnding.size(); ++i)
    if (kEnding[i] == *signal && handled(handlers_before[i])) std::raise(*signal);  // Python's, say
  return status;
}

CopiedOutput::CopiedOutput(int from)
    : from_(from), thread_([this] {
        std::array<char, 1 << 16> some{};
        while (true) {
          const ssize_t got = ::read(from_, some.data(), some.size());
          if (got < 0 && errno == EINTR) continue;
          if (got <= 0) return;
          for (ssize_t at = 0; at < got && error_ == 0;) {
            const ssize_t written =
                ::write(STDOUT_FILENO, some.data() + at, static_cast<std::size_t>(got - at));
            if (written < 0 && errno != EINTR) error_ = errno;
            if (written > 0) at += written;
          }
        }
      }) {}

CopiedOutput::~CopiedOutput() {
  if (thread_.joinable()) thread_.join();
  close(from_);
}

void CopiedOutput::finish() {
  thread_.join();
  if (error_ != 0)
    throw UserError(std::string("stdout cannot be written: ") + std::strerror(error_), "a place with room");
}

bool stdout_may_be_full() {
  struct stat status = {};
  return fstat(STDOUT_FILENO, &status) == 0 &&
         (S_ISREG(status.st_mode) || (S_ISCHR(status.st_mode) && isatty(STDOUT_FILENO) == 0));
}

}  // namespace orrery
