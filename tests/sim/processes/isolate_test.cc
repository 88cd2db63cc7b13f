#include "sim/processes/isolate.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/error.h"

using namespace orrery;
using sim::run_isolated;
using sim::run_isolated_all;
using sim::Work;

namespace {

// The same work for a fork of this process and for one of the server: a request is the work's index.
template <std::string (*work)(int)>
Work both_ways() {
  return {work, [](const std::string& request) { return work(std::stoi(request)); },
          [](int index) { return std::to_string(index); }};
}

std::string several(int index) {
  return std::string(index % 3 * 100'000 + 1, static_cast<char>('a' + index));
}
std::string long_text(int) {
  return std::string(5'000'000, 'x');
}
std::string nothing(int) {
  return {};
}
std::string no_answer(int) {
  throw NoAnswer("dead");
}
std::string broken(int index) {
  throw InternalError("of " + std::to_string(index));
}
std::string out_of_memory(int) {
  throw std::bad_alloc();
}
std::string user_error(int) {
  throw UserError("plan", 3, "no such thing", "another");
}
std::string killed(int) {
  std::raise(SIGKILL);
  return "late";
}
std::string exits(int) {
  std::_Exit(7);
}
std::string alive(int) {
  return "alive";
}

void check_everything() {
  REQUIRE(run_isolated(both_ways<long_text>()) == long_text(0));
  REQUIRE(run_isolated(both_ways<nothing>()).empty());

  REQUIRE_THROWS_AS(run_isolated(both_ways<no_answer>()), NoAnswer);
  REQUIRE_THROWS_AS(run_isolated(both_ways<broken>()), InternalError);
  REQUIRE_THROWS_AS(run_isolated(both_ways<out_of_memory>()), InternalError);
  REQUIRE_THROWS_WITH(run_isolated(both_ways<user_error>()),
                      UserError("plan", 3, "no such thing", "another").what());
  REQUIRE_THROWS_AS(run_isolated(both_ways<user_error>()), UserError);

  REQUIRE_THROWS_WITH(run_isolated(both_ways<killed>()), Catch::Contains("signal 9"));
  REQUIRE_THROWS_WITH(run_isolated(both_ways<exits>()), Catch::Contains("exit status 7"));
  REQUIRE(run_isolated(both_ways<alive>()) == "alive");

  const auto results = run_isolated_all(7, 3, both_ways<several>());
  REQUIRE(results.size() == 7);
  for (int i = 0; i < 7; ++i) REQUIRE(results[static_cast<std::size_t>(i)] == several(i));
  std::vector<int> ended;
  run_isolated_all(3, 2, both_ways<nothing>(), [&](int done, int) { ended.push_back(done); });
  REQUIRE(ended == std::vector<int>{1, 2, 3});
  REQUIRE(run_isolated_all(0, 2, both_ways<nothing>()).empty());
  REQUIRE_THROWS_WITH(run_isolated_all(3, 2, both_ways<broken>()), Catch::Contains("of 0"));
}

void check_threads() {
  std::array<std::vector<std::string>, 8> results;
  std::array<std::string, 8> errors;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&, t] {
      results[t] = run_isolated_all(5, 2, both_ways<several>());
      try {
        run_isolated(both_ways<killed>());
      } catch (const InternalError& error) {
        errors[t] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < results.size(); ++t) {
    REQUIRE(results[t].size() == 5);
    for (int i = 0; i < 5; ++i) REQUIRE(results[t][static_cast<std::size_t>(i)] == several(i));
    REQUIRE_THAT(errors[t], Catch::Contains("signal 9"));
  }
}

std::string sleeps(int) {
  std::this_thread::sleep_for(std::chrono::hours(1));
  return {};
}

std::string at_once_or_never(int index) {
  return index == 0 ? "done" : sleeps(index);
}

// Processes that this process has forked and not waited for, or another one.
std::vector<pid_t> children_of(pid_t parent) {
  const std::string thread = std::to_string(parent);
  std::ifstream file("/proc/" + thread + "/task/" + thread + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

// Whether all processes that were left to this one end.
bool orphans_end() {
  for (int tries = 0; tries < 200; ++tries) {
    if (waitpid(-1, nullptr, WNOHANG) < 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace

TEST_CASE("a result, an error or a death of a child arrives, forked by this process") {
  check_everything();
}

TEST_CASE("a process with threads and without a server refuses to fork") {
  const pid_t child = fork();
  if (child == 0) {
    std::thread([] {}).join();  // that one is over
    bool forks = run_isolated(both_ways<alive>()) == "alive";
    std::thread([] { pause(); }).detach();
    try {
      run_isolated(both_ways<alive>());
      forks = false;
    } catch (const InternalError&) {
    }
    _exit(forks ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("server and children end with the process that they serve, however it ends") {
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);  // orphans come here
  for (const bool killed_early : {true, false}) {
    std::array<int, 2> started{};
    REQUIRE(pipe(started.data()) == 0);
    const pid_t child = fork();
    if (child == 0) {
      sim::start_server();
      std::thread waiting([] {
        try {
          run_isolated_all(2, 2, both_ways<sleeps>());
        } catch (const InternalError&) {  // at the process's end
          pause();
        }
      });
      waiting.detach();
      run_isolated(both_ways<alive>());
      if (write(started[1], "x", 1) != 1) _exit(1);
      if (!killed_early) std::exit(0);
      pause();
    }
    char byte = 0;
    REQUIRE(read(started[0], &byte, 1) == 1);
    if (killed_early) kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK((killed_early ? WIFSIGNALED(status) : status == 0));
    CHECK(orphans_end());
    close(started[0]);
    close(started[1]);
  }
}

TEST_CASE("the server of a process without standard input ends with it, too") {
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);  // orphans come here
  const pid_t child = fork();
  if (child == 0) {
    close(STDIN_FILENO);  // which the socket to the server takes
    sim::start_server();
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  CHECK(orphans_end());
}

TEST_CASE("without its server a simulation fails instead of waiting for ever") {
  const pid_t child = fork();
  if (child == 0) {
    sim::start_server();
    const pid_t server = children_of(getpid()).at(0);
    const auto error_of = [](const Work& work) {
      try {
        return run_isolated(work);
      } catch (const InternalError& error) {
        return std::string(error.what());
      }
    };
    std::string during;
    std::thread waiting([&] { during = error_of(both_ways<sleeps>()); });
    const bool alive_before = error_of(both_ways<alive>()) == "alive";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(server, SIGKILL);
    waiting.join();
    const std::string after = error_of(both_ways<alive>());
    _exit(alive_before && during.find("with the server") != std::string::npos &&
                  after.find("server of simulations has died") != std::string::npos
              ? 0
              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("nothing is left of a child that the caller gave up on") {
  while (waitpid(-1, nullptr, 0) > 0) {  // what the cases before have left to this process
  }
  CHECK_THROWS_AS(run_isolated_all(2, 2, {[](int index) {
                                     if (index == 1) std::this_thread::sleep_for(std::chrono::hours(1));
                                     return std::string("done");
                                   }},
                                   [](int, int) { throw NoAnswer("enough"); }),
                  NoAnswer);
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("nor is of one that the server has forked") {
  const pid_t child = fork();
  if (child == 0) {
    sim::start_server();
    const pid_t server = children_of(getpid()).at(0);
    bool thrown = false;
    std::size_t running = 0;
    try {
      run_isolated_all(2, 2, both_ways<at_once_or_never>(), [&](int, int) {
        // The first may be over before the server has read that there is a second.
        for (int tries = 0; tries < 200 && (running = children_of(server).size()) != 1; ++tries)
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        throw NoAnswer("enough");
      });
    } catch (const NoAnswer&) {
      thrown = true;
    }
    for (int tries = 0; tries < 200 && !children_of(server).empty(); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const bool over = children_of(server).empty();
    const bool serves = run_isolated(both_ways<alive>()) == "alive";
    _exit(thrown && running == 1 && over && serves ? 0 : 1);
  }
  CHECK(status_of(child) == 0);
}

TEST_CASE("a worker forked from a process with a server has one of its own, or forks") {
  const pid_t host = fork();
  if (host == 0) {
    sim::start_server();
    const pid_t worker = fork();
    if (worker == 0) {
      const bool forks = !sim::server_started() && run_isolated(both_ways<alive>()) == "alive";
      sim::start_server();
      bool serves = sim::server_started();
      std::thread([&] { serves = serves && run_isolated(both_ways<alive>()) == "alive"; }).join();
      std::exit(forks && serves && children_of(getpid()).size() == 1 ? 0 : 1);
    }
    const bool worked = status_of(worker) == 0;
    const bool serves = sim::server_started() && run_isolated(both_ways<alive>()) == "alive";
    _exit(worked && serves ? 0 : 1);
  }
  CHECK(status_of(host) == 0);
}

TEST_CASE("a worker does not keep its killed parent's server") {
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);  // orphans come here
  const pid_t host = fork();
  if (host == 0) {
    sim::start_server();
    if (fork() == 0) {  // the worker
      const int lives_s = 60;
      sleep(lives_s);
      _exit(0);
    }
    pause();
  }
  std::vector<pid_t> both;
  while ((both = children_of(host)).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(host, SIGKILL);
  status_of(host);
  CHECK(status_of(both.front()) == 0);  // the server has seen the end of its stream
  kill(both.back(), SIGKILL);
  CHECK(WIFSIGNALED(status_of(both.back())));
}

// In a process of its own: neither the server nor the threads can be undone.
TEST_CASE(
    "a result, an error or a death of a child arrives, forked by the server, from many threads at once") {
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      sim::start_server();
      sim::start_server();  // does nothing
      REQUIRE(sim::server_started());
      check_everything();
      check_threads();
      code = 0;
    } catch (...) {  // Catch has printed what failed
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}
