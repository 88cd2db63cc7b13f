#include "sim/processes/isolate.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <thread>
#include <utility>

#include "base/error.h"
#include "proto/plan.pb.h"
#include "sim/network/platform.h"
#include "sim/processes/fresh_pages.h"
#include "sim/processes/process_server.h"

namespace orrery::sim {
namespace {

// First byte of what a child writes.
enum class Outcome : char { value = 'v', user_error = 'u', no_answer = 'n', internal_error = 'i' };

std::string outcome_of(const std::function<std::string()>& body) {
  const auto tagged = [](Outcome outcome, const std::string& text) {
    return std::string(1, static_cast<char>(outcome)) + text;
  };
  try {
    return tagged(Outcome::value, body());
  } catch (const UserError& error) {
    return tagged(Outcome::user_error, error.what());
  } catch (const NoAnswer& error) {
    return tagged(Outcome::no_answer, error.what());
  } catch (const std::exception& error) {
    return tagged(Outcome::internal_error, error.what());
  }
}

// False where the other end is gone.
bool write_all(int socket, const std::string& bytes) {
  for (std::size_t written = 0; written < bytes.size();) {
    const ssize_t n = send(socket, bytes.data() + written, bytes.size() - written, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    written += static_cast<std::size_t>(n);
  }
  return true;
}

// Appends what is there; false at the end of the stream.
bool read_some(int socket, std::string& bytes) {
  std::array<char, 1 << 16> buffer;  // NOLINT(*-member-init): zeros would touch sixteen pages in each child
  const ssize_t n = read(socket, buffer.data(), buffer.size());
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  bytes.append(buffer.data(), static_cast<std::size_t>(n));
  return true;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// What a child does, whoever forked it: its exit status.
int answer(int socket, const std::function<std::string()>& body) {
  constexpr int kNobodyListens = 3;
  return write_all(socket, outcome_of(body)) ? 0 : kNobodyListens;
}

int answer_request(IsolatedFunction function, int socket) {
  allocate_from_fresh_pages();
  std::string request;
  while (read_some(socket, request)) {
  }
  return answer(socket, [&] { return function(request); });
}

// In the server: what each of its children would else do again, and which takes longer than most simulations:
// descriptors of what requests are written in, and SimGrid, of which a simulation says where it fails.
void prepare_simulations() {
  proto::Plan::descriptor();
  try {
    load_simgrid();
  } catch (const InternalError&) {
  }
}

// Threads that have ended hold no locks, and a fork has left those of its parent behind: what libc remembers,
// that there were some, is not the question.
bool has_one_thread() {
  if (__libc_single_threaded != 0) return true;
  // A thread that has been joined is listed for some microseconds more.
  for (int look = 0; look < 1000; ++look) {
    const std::filesystem::directory_iterator threads("/proc/self/task");
    if (std::distance(begin(threads), end(threads)) == 1) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Ended with its object, where nobody has waited for it: by this process, or by the server, which sees that
// nobody hears of it any more.
class Child {
 public:
  explicit Child(int index) : index(index) {}
  ~Child() {
    if (data >= 0) close(data);
    if (status >= 0) close(status);
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    wait_for(pid);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&& other) noexcept { *this = std::move(other); }
  Child& operator=(Child&& other) noexcept {
    std::swap(index, other.index);
    std::swap(pid, other.pid);
    std::swap(data, other.data);
    std::swap(status, other.status);
    std::swap(output, other.output);
    return *this;
  }

  int index = -1;
  pid_t pid = -1;   // of this process's own child, until it is waited for
  int data = -1;    // a socket
  int status = -1;  // of a child of the server: where its wait status comes
  std::string output;
};

Child fork_child(const Work& work, int index) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw InternalError(std::string("socketpair: ") + std::strerror(errno));
  std::fflush(nullptr);  // else the child would print the parent's pending output again
  const pid_t parent = getpid();
  Child child(index);
  child.data = ends[0];
  child.pid = fork();
  if (child.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);   // do not outlive an interrupted parent
    if (getppid() != parent) _exit(1);  // it died before that
    close(ends[0]);
    allocate_from_fresh_pages();
    _exit(answer(ends[1], [&] { return work.body(index); }));  // destructors and atexit belong to the parent
  }
  close(ends[1]);
  if (child.pid < 0) throw InternalError(std::string("fork: ") + std::strerror(errno));
  return child;
}

bool by_server(const Work& work) {
  return server_started() && work.request != nullptr;
}

Child start_child(const Work& work, int index) {
  if (!by_server(work)) return fork_child(work, index);
  const std::string request = work.request(index);
  const ServedChild served = ask_process_server(work.function);
  Child child(index);
  child.data = served.data;
  child.status = served.status;
  write_all(child.data, request);  // where nobody reads it, the end of the child says so
  shutdown(child.data, SHUT_WR);
  return child;
}

std::string ending_of(int status) {
  if (status < 0) return std::string("fork: ") + std::strerror(-status);
  if (WIFSIGNALED(status))
    return std::string("killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  if (WEXITSTATUS(status) != 0) return "exit status " + std::to_string(WEXITSTATUS(status));
  return {};
}

// How the child ended, empty when as it should.
std::string reap(Child& child) {
  int status = 0;
  if (child.pid > 0) {
    status = wait_for(std::exchange(child.pid, -1));
  } else {
    ssize_t size = 0;
    do size = read(child.status, &status, sizeof status);
    while (size < 0 && errno == EINTR);
    if (size != static_cast<ssize_t>(sizeof status)) return "with the server of simulations";
  }
  const std::string ending = ending_of(status);
  return ending.empty() && child.output.empty() ? "ended without a result" : ending;
}

std::exception_ptr failure_of(const Child& child, const std::string& ending) {
  if (!ending.empty())
    return std::make_exception_ptr(InternalError("the process of a simulation died: " + ending));
  const std::string text = child.output.substr(1);
  switch (static_cast<Outcome>(child.output[0])) {
    case Outcome::value:
      return nullptr;
    case Outcome::user_error:
      return std::make_exception_ptr(UserError(text));
    case Outcome::no_answer:
      return std::make_exception_ptr(NoAnswer(text));
    case Outcome::internal_error:
      break;
  }
  return std::make_exception_ptr(InternalError(text));
}

}  // namespace

void start_server() {
  start_process_server(answer_request, prepare_simulations);
}

bool server_started() {
  return process_server_started();
}

std::vector<std::string> run_isolated_all(int count, int jobs, const Work& work,
                                          const std::function<void(int done, int count)>& progress) {
  // All have it from here, those of later calls too: each by itself would take 50 ms (SimGrid's ns-3, above
  // all).
  if (!by_server(work)) {
    load_simgrid();
    if (count > 1) give_back_pages();
  }
  ORRERY_CHECK(by_server(work) || has_one_thread(),
               "a process with threads simulates without having started the server of simulations first");
  std::vector<std::string> results(static_cast<std::size_t>(std::max(count, 0)));
  std::vector<std::exception_ptr> failures(results.size());
  std::vector<Child> running;
  int next = 0, done = 0;
  while (next < count || !running.empty()) {
    while (next < count && static_cast<int>(running.size()) < std::max(jobs, 1))
      running.push_back(start_child(work, next++));
    std::vector<pollfd> polls;
    polls.reserve(running.size());
    for (const Child& child : running) polls.push_back({child.data, POLLIN, 0});
    if (poll(polls.data(), polls.size(), -1) < 0 && errno != EINTR)
      throw InternalError(std::string("poll: ") + std::strerror(errno));
    for (std::size_t i = polls.size(); i-- > 0;) {
      if (polls[i].revents == 0 || read_some(polls[i].fd, running[i].output)) continue;
      Child child = std::move(running[i]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      const std::string ending = reap(child);
      const auto at = static_cast<std::size_t>(child.index);
      failures[at] = failure_of(child, ending);
      if (!failures[at]) results[at] = child.output.substr(1);
      ++done;
      if (progress) progress(done, count);
    }
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return results;
}

std::string run_isolated(const Work& work) {
  return std::move(run_isolated_all(1, 1, work).front());
}

std::string run_isolated(const std::function<std::string()>& body) {
  return run_isolated({.body = [&](int) { return body(); }});
}

}  // namespace orrery::sim
