// Work in forks of this process, so many at a time, cancelled when nobody waits for it any more.
//
// This process has one thread and listens; what plans and simulates is a copy of it, warm, that in turn forks
// its simulations (sim/processes/isolate.h) and ends with its answer. So an answer that nobody wants any
// more, takes too long or breaks is ended from outside, whatever it was doing, and takes nothing with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace boost::asio {
class io_context;
}

namespace orrery::serve {

using Emit = std::function<void(std::string_view bytes)>;

struct Work {
  // In the fork; what it emits goes to `take`, piece by piece, in order. It must not throw.
  std::function<void(const Emit&)> body;
  std::function<void(std::string bytes)> take;
  // Once, in the end; `failure` is empty where the body returned.
  std::function<void(const std::string& failure)> end;
};

struct WorkLimits {
  int running = 2;               // forks at a time
  int waiting = 32;              // that wait for one
  int seconds = 60;              // of a fork, from its start
  double memory_bytes = 8e9;     // of a fork's addresses, and of each of its own
  std::size_t bytes = 64 << 20;  // that it may emit
};

// Ended with its last holder, before or after it has begun.
class Task {
 public:
  virtual ~Task() = default;
};

class Workers {
 public:
  Workers(boost::asio::io_context& context, WorkLimits limits = {});
  ~Workers();
  // Null where too many wait already; then none of its functions is called.
  std::shared_ptr<Task> submit(Work work);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace orrery::serve
