#include "exec/mpi/process_manager.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace orrery::exec {
namespace {

bool say(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = write(connection, text.data(), text.size());
    if (sent < 0 && errno != EINTR) return false;
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

void skip_line(int connection) {
  char next = 0;
  while (next != '\n') {
    const ssize_t got = read(connection, &next, 1);
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

}  // namespace

bool leave_job_together() {
  const char* manager = std::getenv("PMI_FD");
  if (manager == nullptr) return false;
  const int connection = std::atoi(manager);
  for (const std::string_view word : {"cmd=barrier_in\n", "cmd=finalize\n"}) {
    if (!say(connection, word)) return false;
    skip_line(connection);
  }
  return true;
}

}  // namespace orrery::exec
