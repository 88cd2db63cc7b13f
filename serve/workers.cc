#include "serve/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <utility>

namespace orrery::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// False where the other end is gone.
bool write_all(int pipe, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(pipe, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// A fork of a process that serves: it has none of its sockets and ends with it.
[[noreturn]] void work(const std::function<void(const Emit&)>& body, int pipe, pid_t parent,
                       double memory_bytes) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before that
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) std::signal(signal, SIG_DFL);
  constexpr int kPipe = STDERR_FILENO + 1;
  if (pipe != kPipe) dup2(pipe, kPipe);
  closefrom(kPipe + 1);
#ifdef __SANITIZE_ADDRESS__
  (void)memory_bytes;  // its shadow takes terabytes of addresses
#else
  const rlimit addresses = {static_cast<rlim_t>(memory_bytes), static_cast<rlim_t>(memory_bytes)};
  setrlimit(RLIMIT_AS, &addresses);
#endif
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  body([](std::string_view bytes) {
    if (!write_all(kPipe, bytes)) _exit(1);  // nobody listens
  });
  _exit(0);  // destructors and atexit belong to the parent
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return fmt::format("it ended with status {}", WEXITSTATUS(status));
  return {};
}

class Job;

struct Pool {
  asio::io_context& context;
  WorkLimits limits;
  int running = 0;
  std::deque<std::weak_ptr<Job>> waiting;
};

void start_next(const std::shared_ptr<Pool>& pool);

class Job : public Task, public std::enable_shared_from_this<Job> {
 public:
  Job(std::shared_ptr<Pool> pool, Work work)
      : pool_(std::move(pool)), work_(std::move(work)), pipe_(pool_->context), timer_(pool_->context) {}

  ~Job() override {
    if (pid_ > 0) stop();
  }

  // False where it could not be forked, and `end` has said so.
  bool start() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail(fmt::format("pipe: {}", std::strerror(errno)));
    std::fflush(nullptr);  // else the fork would print what is pending again
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) serve::work(work_.body, ends[1], parent, pool_->limits.memory_bytes);
    close(ends[1]);
    if (pid_ < 0) {
      close(ends[0]);
      return fail(fmt::format("fork: {}", std::strerror(errno)));
    }
    ++pool_->running;
    pipe_.assign(ends[0]);
    timer_.expires_after(std::chrono::seconds(pool_->limits.seconds));
    timer_.async_wait([weak = weak_from_this()](error_code error) {
      if (const auto self = weak.lock(); self && !error)
        self->finish(fmt::format("it took more than {} s", self->pool_->limits.seconds));
    });
    read();
    return true;
  }

 private:
  bool fail(const std::string& why) {
    std::exchange(work_.end, nullptr)(why);
    return false;
  }

  // Its holder may let go of it in any of the calls.
  void read() {
    pipe_.async_read_some(asio::buffer(buffer_),
                          [weak = weak_from_this()](error_code error, std::size_t bytes) {
                            const auto self = weak.lock();
                            if (!self || !self->work_.end) return;
                            if (error) return self->finish("");
                            self->bytes_ += bytes;
                            if (self->bytes_ > self->pool_->limits.bytes)
                              return self->finish("its answer is too long");
                            self->work_.take(std::string(self->buffer_.data(), bytes));
                            self->read();
                          });
  }

  void finish(std::string failure) {
    if (!work_.end) return;
    const int status = stop(failure.empty());
    if (failure.empty()) failure = ending_of(status);
    // Called last: what they hold may hold this.
    const auto end = std::exchange(work_.end, nullptr);
    work_.take = nullptr;
    end(failure);
  }

  // The wait status. `done`: it has closed its end and is about to go.
  int stop(bool done = false) {
    error_code ignored;
    timer_.cancel();
    pipe_.close(ignored);
    if (reaped_) return 0;
    reaped_ = true;
    --pool_->running;
    // Not from here: a waiting one's start may end others.
    asio::post(pool_->context, [pool = pool_] { start_next(pool); });
    if (!done) kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  std::shared_ptr<Pool> pool_;
  Work work_;
  asio::posix::stream_descriptor pipe_;
  asio::steady_timer timer_;
  std::array<char, 1 << 16> buffer_{};
  std::size_t bytes_ = 0;
  pid_t pid_ = -1;
  bool reaped_ = false;
};

void start_next(const std::shared_ptr<Pool>& pool) {
  while (pool->running < pool->limits.running && !pool->waiting.empty()) {
    const std::shared_ptr<Job> next = pool->waiting.front().lock();
    pool->waiting.pop_front();
    if (next) next->start();
  }
}

}  // namespace

class Workers::Impl {
 public:
  Impl(asio::io_context& context, WorkLimits limits)
      : pool_(std::make_shared<Pool>(Pool{context, limits, 0, {}})) {}

  std::shared_ptr<Task> submit(Work work) {
    std::erase_if(pool_->waiting, [](const std::weak_ptr<Job>& one) { return one.expired(); });
    if (pool_->waiting.size() >= static_cast<std::size_t>(pool_->limits.waiting)) return nullptr;
    const auto job = std::make_shared<Job>(pool_, std::move(work));
    pool_->waiting.push_back(job);
    // After its holder has it.
    asio::post(pool_->context, [pool = pool_] { start_next(pool); });
    return job;
  }

  void stop() { pool_->waiting.clear(); }

 private:
  std::shared_ptr<Pool> pool_;
};

Workers::Workers(asio::io_context& context, WorkLimits limits)
    : impl_(std::make_shared<Impl>(context, limits)) {}

Workers::~Workers() {
  impl_->stop();
}

std::shared_ptr<Task> Workers::submit(Work work) {
  return impl_->submit(std::move(work));
}

}  // namespace orrery::serve
