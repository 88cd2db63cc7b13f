#include "base/parallel.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace orrery {

int processors() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void for_each_in_parallel(int count, int jobs, const std::function<void(int)>& body,
                          const std::function<void(int done, int count)>& progress) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(std::max(count, 0)));
  const auto run = [&](int index) {
    try {
      body(index);
    } catch (...) {
      failures[static_cast<std::size_t>(index)] = std::current_exception();
    }
  };
  const auto rethrow = [&] {
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
  };
  if (std::min(count, jobs) <= 1) {  // a thread would take longer to start than some work takes
    for (int index = 0; index < count; ++index) {
      run(index);
      if (progress) progress(index + 1, count);
    }
    return rethrow();
  }
  std::mutex mutex;
  std::condition_variable more_done;
  int next = 0, done = 0;
  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (next < count) {
      const int index = next++;
      lock.unlock();
      run(index);
      lock.lock();
      ++done;
      more_done.notify_one();
    }
  };
  std::vector<std::jthread> threads;  // joined last
  for (int t = 0; t < std::min(count, std::max(jobs, 1)); ++t) threads.emplace_back(work);
  std::unique_lock lock(mutex);
  for (int told = 0; told < count;) {
    more_done.wait(lock, [&] { return done > told; });
    ++told;
    if (!progress) continue;
    lock.unlock();
    progress(told, count);
    lock.lock();
  }
  lock.unlock();
  threads.clear();
  rethrow();
}

}  // namespace orrery
