#include "sim/isolate.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace orrery::sim {
namespace {

// First byte of what a child writes.
enum class Outcome : char { value = 'v', user_error = 'u', no_answer = 'n', internal_error = 'i' };

struct Child {
  int index = -1;
  pid_t pid = -1;
  int fd = -1;
  std::string output;
};

std::string outcome_of(const std::function<std::string(int)>& body, int index) {
  const auto tagged = [](Outcome outcome, const std::string& text) {
    return std::string(1, static_cast<char>(outcome)) + text;
  };
  try {
    return tagged(Outcome::value, body(index));
  } catch (const UserError& error) {
    return tagged(Outcome::user_error, error.what());
  } catch (const NoAnswer& error) {
    return tagged(Outcome::no_answer, error.what());
  } catch (const std::exception& error) {
    return tagged(Outcome::internal_error, error.what());
  }
}

Child start_child(const std::function<std::string(int)>& body, int index) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw InternalError(std::string("pipe: ") + std::strerror(errno));
  std::fflush(nullptr);  // else the child would print the parent's pending output again
  const pid_t pid = fork();
  if (pid < 0) {
    close(ends[0]);
    close(ends[1]);
    throw InternalError(std::string("fork: ") + std::strerror(errno));
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // do not outlive an interrupted parent
    close(ends[0]);
    const std::string output = outcome_of(body, index);
    std::size_t written = 0;
    while (written < output.size()) {
      const ssize_t n = write(ends[1], output.data() + written, output.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) _exit(3);
      written += static_cast<std::size_t>(n);
    }
    _exit(0);  // no destructors, no atexit: both belong to the parent
  }
  close(ends[1]);
  Child child;
  child.index = index;
  child.pid = pid;
  child.fd = ends[0];
  return child;
}

// Appends what is there; false at the end of the stream.
bool read_some(Child& child) {
  std::array<char, 1 << 16> buffer{};
  const ssize_t n = read(child.fd, buffer.data(), buffer.size());
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  child.output.append(buffer.data(), static_cast<std::size_t>(n));
  return true;
}

// How the child ended, empty when as it should.
std::string reap(Child& child) {
  close(child.fd);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return std::string("killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  if (WEXITSTATUS(status) != 0) return "exit status " + std::to_string(WEXITSTATUS(status));
  if (child.output.empty()) return "ended without a result";
  return {};
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

std::vector<std::string> run_isolated_all(int count, int jobs, const std::function<std::string(int)>& body,
                                          const std::function<void(int done, int count)>& progress) {
  std::vector<std::string> results(static_cast<std::size_t>(std::max(count, 0)));
  std::vector<std::exception_ptr> failures(results.size());
  std::vector<Child> running;
  int next = 0, done = 0;
  while (next < count || !running.empty()) {
    while (next < count && static_cast<int>(running.size()) < std::max(jobs, 1))
      running.push_back(start_child(body, next++));
    std::vector<pollfd> polls;
    polls.reserve(running.size());
    for (const Child& child : running) polls.push_back({child.fd, POLLIN, 0});
    if (poll(polls.data(), polls.size(), -1) < 0 && errno != EINTR)
      throw InternalError(std::string("poll: ") + std::strerror(errno));
    for (std::size_t i = polls.size(); i-- > 0;) {
      if (polls[i].revents == 0 || read_some(running[i])) continue;
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

std::string run_isolated(const std::function<std::string()>& body) {
  return std::move(run_isolated_all(1, 1, [&](int) { return body(); }).front());
}

}  // namespace orrery::sim
