#include "sim/processes/process_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace orrery::sim {
namespace {

std::atomic<int> control{-1};  // this process's end; -1: it has no server
pid_t server = -1;

[[noreturn]] void fail(const char* what) {
  throw InternalError(std::string(what) + ": " + std::strerror(errno));
}

using Ends = std::array<int, 2>;  // of a child's data and of its status

// One message is one request: a function of this program, which is where it is in the server too, and Ends.
union Ancillary {
  std::array<char, CMSG_SPACE(sizeof(Ends))> bytes;
  cmsghdr header;  // for its alignment
};

msghdr message_of(iovec& part, Ancillary& ancillary) {
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes.data();
  message.msg_controllen = ancillary.bytes.size();
  return message;
}

bool send_request(int to, IsolatedFunction function, const Ends& ends) {
  iovec part{&function, sizeof function};
  Ancillary ancillary{};
  msghdr message = message_of(part, ancillary);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof ends);
  std::memcpy(CMSG_DATA(header), ends.data(), sizeof ends);
  ssize_t sent = 0;
  do sent = sendmsg(to, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof function);
}

// False at the end of the stream: nobody can ask any more.
bool receive_request(int from, IsolatedFunction& function, Ends& ends) {
  iovec part{&function, sizeof function};
  Ancillary ancillary{};
  msghdr message = message_of(part, ancillary);
  ssize_t size = 0;
  do size = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (size != static_cast<ssize_t>(sizeof function) || header == nullptr ||
      header->cmsg_len != CMSG_LEN(sizeof ends))
    return false;
  std::memcpy(ends.data(), CMSG_DATA(header), sizeof ends);
  return true;
}

// Never blocks: the pipe is empty.
void tell(int status_end, int status) {
  if (write(status_end, &status, sizeof status) < 0) return;  // nobody waits for it any more
}

class Server {
 public:
  explicit Server(int socket, int (*run)(IsolatedFunction, int)) : socket_(socket), run_(run) {
    // Handlers and masks are those of a program that may do other things with signals.
    std::signal(SIGCHLD, SIG_DFL);
    std::signal(SIGPIPE, SIG_IGN);
    sigemptyset(&children_);
    sigaddset(&children_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children_, nullptr);
    ended_ = signalfd(-1, &children_, SFD_CLOEXEC);
  }

  // Until nobody can ask any more.
  void serve() {
    while (ended_ >= 0) {
      std::vector<pollfd> polls = {{socket_, POLLIN, 0}, {ended_, POLLIN, 0}};
      std::vector<pid_t> children;
      for (const auto& [child, status] : status_of_) {
        polls.push_back({status, 0, 0});  // POLLERR: nobody reads it any more
        children.push_back(child);
      }
      if (poll(polls.data(), polls.size(), -1) < 0) {
        if (errno != EINTR) return;
        continue;
      }
      for (std::size_t i = 0; i < children.size(); ++i)
        if (polls[i + 2].revents != 0) give_up(children[i]);
      if (polls[1].revents != 0) reap();
      if (polls[0].revents == 0) continue;
      IsolatedFunction function = nullptr;
      Ends ends{};
      if (!receive_request(socket_, function, ends)) return;
      start(function, ends);
    }
  }

 private:
  void start(IsolatedFunction function, const Ends& ends) {
    const auto [data, status] = ends;
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);  // it died before that
      sigprocmask(SIG_UNBLOCK, &children_, nullptr);
      close(socket_);
      close(status);
      _exit(run_(function, data));
    }
    if (child > 0) status_of_[child] = status;
    close(data);
    if (child < 0) {  // no wait status: its low bits would be 0x7f and a signal
      tell(status, -errno);
      close(status);
    }
  }

  // It is not reaped yet: the number is its own.
  void give_up(pid_t child) {
    kill(child, SIGKILL);
    close(status_of_[child]);
    status_of_.erase(child);
  }

  void reap() {
    signalfd_siginfo seen{};
    if (read(ended_, &seen, sizeof seen) < 0) return;  // one for several that ended together
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto at = status_of_.find(child);
      if (at == status_of_.end()) continue;
      tell(at->second, status);
      close(at->second);
      status_of_.erase(at);
    }
  }

  int socket_ = -1, ended_ = -1;
  int (*run_)(IsolatedFunction, int);
  sigset_t children_{};
  std::map<pid_t, int> status_of_;
};

// In a fork of this process, right after it: the server is its parent's. Held open, the socket would keep the
// server alive when the parent is gone.
void forget_server() {
  if (control < 0) return;
  close(control);
  control = -1;
}

// At the end of this process: the server sees the end of its stream, even where a program that it has started
// holds the socket too.
void stop_server() {
  if (control < 0) return;
  shutdown(control, SHUT_RDWR);
  while (waitpid(server, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void start(int (*run)(IsolatedFunction, int), void (*prepare)()) {
  Ends ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) fail("socketpair");
  std::fflush(nullptr);  // else the server would have this process's pending output, too
  server = fork();
  if (server < 0) {
    close(ends[0]);
    close(ends[1]);
    fail("fork");
  }
  if (server == 0) {
    constexpr int kSocket = STDERR_FILENO + 1;
    close(ends[0]);  // below kSocket where a standard stream was closed: the server would never see its end
    if (ends[1] != kSocket) {
      dup2(ends[1], kSocket);
      close(ends[1]);
    }
    closefrom(kSocket + 1);
    prepare();
    Server(kSocket, run).serve();
    _exit(0);  // no destructors, no atexit: both belong to the process that it is a copy of
  }
  close(ends[1]);
  static const bool registered = [] {  // forks inherit both
    std::atexit(stop_server);
    return pthread_atfork(nullptr, nullptr, forget_server) == 0;
  }();
  ORRERY_CHECK(registered, "no memory to watch forks with");
  control = ends[0];
}

}  // namespace

void start_process_server(int (*run)(IsolatedFunction function, int data), void (*prepare)()) {
  static std::mutex starting;
  const std::lock_guard lock(starting);
  if (control < 0) start(run, prepare);
}

bool process_server_started() {
  return control >= 0;
}

ServedChild ask_process_server(IsolatedFunction function) {
  Ends data{}, status{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, data.data()) != 0) fail("socketpair");
  if (pipe2(status.data(), O_CLOEXEC) != 0) {
    for (const int end : data) close(end);
    fail("pipe");
  }
  const bool sent = send_request(control, function, {data[1], status[1]});
  close(data[1]);
  close(status[1]);
  if (sent) return {data[0], status[0]};
  close(data[0]);
  close(status[0]);
  fail("the server of simulations has died");
}

}  // namespace orrery::sim
