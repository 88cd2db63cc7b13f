// A launcher as a child of this process, which does not outlive it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace orrery {

struct Child {
  pid_t process = 0;
  int output = -1, error = -1;  // its stdout and stderr, where they were asked for
};

struct ChildStreams {
  bool take_output = false, take_error = false;
  bool silent = false;  // its stdout is discarded
};

// `command` and `environment` end in a null. Should this process die, SIGTERM ends the child. A write that
// nobody reads is an error to it, no signal: mpirun, killed by one, leaves ranks and files behind. Throws
// InternalError.
Child spawn(const std::vector<char*>& command, const std::vector<char*>& environment,
            const ChildStreams& streams);

// From its making to end(): what asks this process to end (SIGINT, SIGTERM, SIGHUP) asks the child. Of
// several at once (threads of a library's user), the first does.
class PassedOnSignals {
 public:
  PassedOnSignals();
  ~PassedOnSignals();
  PassedOnSignals(const PassedOnSignals&) = delete;
  PassedOnSignals& operator=(const PassedOnSignals&) = delete;

  void to(pid_t child);
  // Waits for that child, and gives signals back to who had them before, who is told. Its wait status;
  // `signal`: the first that came, 0 for none.
  int wait(int* signal);

 private:
  void pass_on();
  void end();

  bool active_ = false;
  int ends_[2] = {-1, -1};
  std::atomic<int> first_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  pid_t child_ = -1;
  bool done_ = false;
  std::thread thread_;
};

// Copies what comes from `from` to stdout until it ends, on a thread of its own.
class CopiedOutput {
 public:
  explicit CopiedOutput(int from);
  ~CopiedOutput();
  CopiedOutput(const CopiedOutput&) = delete;
  CopiedOutput& operator=(const CopiedOutput&) = delete;
  // Once all has come: throws UserError where stdout took some of it not.
  void finish();

 private:
  int from_;
  int error_ = 0;
  std::thread thread_;
};

// stdout is a file or a device that may be full; mpirun does not say so.
bool stdout_may_be_full();

}  // namespace orrery
