#include "exec/launch/child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace orrery {
namespace {

Child shell(const std::string& script, const ChildStreams& streams = {}) {
  std::vector<std::string> words = {"/bin/sh", "-c", script};
  return spawn({words[0].data(), words[1].data(), words[2].data(), nullptr}, {nullptr}, streams);
}

int status_of(const Child& child) {
  int status = 0;
  waitpid(child.process, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a launcher survives writing to who reads no more, and one that is not there says so") {
  CHECK(WEXITSTATUS(status_of(shell("kill -PIPE $$; exit 5"))) == 5);
  std::string none = "/nonexistent/mpirun";
  CHECK_THROWS_WITH(spawn({none.data(), nullptr}, {nullptr}, {}),
                    Catch::Contains("cannot start /nonexistent/mpirun"));
}

TEST_CASE("what a launcher says is taken where it is asked for") {
  const Child child = shell("echo out; echo error >&2", {.take_output = true, .take_error = true});
  std::array<char, 64> some{};
  CHECK(std::string(some.data(), static_cast<std::size_t>(read(child.output, some.data(), some.size()))) ==
        "out\n");
  CHECK(std::string(some.data(), static_cast<std::size_t>(read(child.error, some.data(), some.size()))) ==
        "error\n");
  close(child.output);
  close(child.error);
  CHECK(status_of(child) == 0);
}

TEST_CASE("who asks this process to end asks the launcher, and is heard again afterwards") {
  for (const int asked : {SIGTERM, SIGINT, SIGHUP}) {
    static int heard;
    heard = 0;
    std::signal(asked, [](int signal) { heard = signal; });
    {
      PassedOnSignals signals;
      signals.to(shell("exec sleep 60").process);
      kill(getpid(), asked);
      int signal = 0;
      const int status = signals.wait(&signal);
      CHECK(signal == asked);
      CHECK(WIFSIGNALED(status));
      CHECK(WTERMSIG(status) == asked);
    }
    CHECK(heard == asked);  // as Python hears of it
    std::signal(asked, SIG_DFL);
  }
  PassedOnSignals signals;
  signals.to(shell("exit 3").process);
  int signal = -1;
  CHECK(WEXITSTATUS(signals.wait(&signal)) == 3);
  CHECK(signal == 0);
}

TEST_CASE("a launcher does not outlive who started it") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t starter = fork();
  if (starter == 0) {
    const pid_t launcher = shell("exec sleep 60").process;
    if (write(ends[1], &launcher, sizeof(launcher)) > 0) pause();
    _exit(1);
  }
  pid_t launcher = 0;
  REQUIRE(read(ends[0], &launcher, sizeof(launcher)) == sizeof(launcher));
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
  const auto lives = [&] {
    std::string state(1, 'Z');
    if (FILE* stat = fopen(("/proc/" + std::to_string(launcher) + "/stat").c_str(), "re")) {
      std::array<char, 256> line{};
      if (fgets(line.data(), line.size(), stat) != nullptr) {
        const std::string text = line.data();
        state = text.substr(text.rfind(')') + 2, 1);
      }
      fclose(stat);
    }
    return state != "Z" && state != "X";
  };
  for (int tries = 0; tries < 500 && lives(); ++tries) usleep(10'000);
  CHECK_FALSE(lives());
  close(ends[0]);
  close(ends[1]);
}

}  // namespace orrery
