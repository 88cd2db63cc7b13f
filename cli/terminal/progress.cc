#include "cli/terminal/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <new>
#include <thread>

namespace orrery::cli {
namespace {

constexpr double kPatience_s = 1;  // before which nothing is shown
constexpr int kRedraw_ms = 100;

// Atomics without locks mean the same in both processes.
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

// A page that the process at work writes and the one that draws reads.
struct Board {
  std::atomic<bool> active{false};
  std::atomic<bool> shown{false};
  std::array<std::atomic<char>, 48> what{};
  std::atomic<int> done{0}, total{0};
  std::atomic<std::int64_t> begun_ns{0}, phase_ns{0};  // of all, and of what is shown now
};
Board* board = nullptr;

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void write_what(std::string_view what) {
  const std::size_t size = std::min(what.size(), board->what.size() - 1);
  for (std::size_t i = 0; i <= size; ++i) board->what[i] = i < size ? what[i] : '\0';
}

std::string read_what() {
  std::string what;
  for (const std::atomic<char>& c : board->what) {
    if (c == '\0') break;
    what += c;
  }
  return what;
}

// "7 s", "12 min 5 s", "3 h 20 min": whole seconds, for they tick.
std::string ticking(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string line_of(std::string_view what, int done, int total, double elapsed_s, double phase_s,
                    int columns) {
  std::string line(what);
  if (total > 0) {
    constexpr int kWidth = 24;
    const int filled = std::clamp(done * kWidth / total, 0, kWidth);
    line += fmt::format(" [{}{}] {}/{}", std::string(static_cast<std::size_t>(filled), '#'),
                        std::string(static_cast<std::size_t>(kWidth - filled), ' '), done, total);
  }
  line += ", " + ticking(elapsed_s);
  if (done > 0 && done < total)
    line += fmt::format(", about {} left", ticking(std::max(1.0, phase_s * (total - done) / done)));
  const auto most = static_cast<std::size_t>(std::max(1, columns - 1));
  if (line.size() > most) line.resize(most);
  return line;
}

int columns_of_terminal() {
  winsize size{};
  constexpr int kUsual = 80;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

void write_all(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (n <= 0) return;
    at += static_cast<std::size_t>(n);
  }
}

// Until the end of who is at work, which holds the other end of the pipe.
[[noreturn]] void draw_until(int at_work) {
  // An interrupt is for those who work: the line goes when they are gone.
  for (const int signal : {SIGINT, SIGQUIT, SIGTSTP}) std::signal(signal, SIG_IGN);
  std::string shown;
  const auto show = [&](const std::string& line) {
    if (line == shown) return;
    write_all(line.empty() ? "\r\033[K" : "\r" + line + "\033[K");
    shown = line;
  };
  pollfd end{at_work, 0, 0};
  while (poll(&end, 1, shown.empty() ? kRedraw_ms : kRedraw_ms / 10) == 0) {
    const double elapsed_s = static_cast<double>(now_ns() - board->begun_ns) * 1e-9;
    const double phase_s = static_cast<double>(now_ns() - board->phase_ns) * 1e-9;
    const bool wanted = board->active && elapsed_s >= kPatience_s;
    if (wanted) board->shown = true;
    // Looked at again: what ended in between does not wait for what was not shown yet.
    show(wanted && board->active
             ? line_of(read_what(), board->done, board->total, elapsed_s, phase_s, columns_of_terminal())
             : "");
    if (shown.empty()) board->shown = false;
  }
  show("");
  _exit(0);
}

// False where nobody looks on.
bool draws() {
  if (board != nullptr) return true;
  if (isatty(STDERR_FILENO) != 1) return false;
  void* page = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::array<int, 2> ends{};
  if (page == MAP_FAILED || pipe2(ends.data(), O_CLOEXEC) != 0) return false;  // then nothing is shown
  board = new (page) Board;
  // Forked twice: nobody has to wait for it, nor what this process may become by exec.
  const pid_t between = fork();
  if (between == 0) {
    close(ends[1]);
    if (fork() == 0) draw_until(ends[0]);
    _exit(0);
  }
  if (between > 0) waitpid(between, nullptr, 0);
  close(ends[0]);
  return true;
}

}  // namespace

void begin_progress(std::string_view what) {
  if (!draws()) return;
  write_what(what);
  board->done = board->total = 0;
  board->begun_ns = now_ns();
  board->phase_ns = board->begun_ns.load();
  board->active = true;
}

void show_progress(std::string_view what, int done, int total) {
  if (board == nullptr) return;
  const auto phase = [](std::string_view line) { return line.substr(0, line.find(',')); };
  const std::string before = read_what();
  if (phase(what) != phase(before)) board->phase_ns = now_ns();
  write_what(what);
  board->done = done;
  board->total = total;
}

void end_progress() {
  if (board == nullptr) return;
  board->active = false;
  // Nothing is to be written over what is shown. Who draws may have been killed meanwhile.
  for (int patience = 300; board->shown && patience > 0; --patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace orrery::cli
