// The process that forks for a process with threads (isolate.h).
#pragma once

#include <string>

namespace orrery::sim {

using IsolatedFunction = std::string (*)(const std::string& request);

// Where a child that the server has forked is heard of.
struct ServedChild {
  int data = -1;  // takes the request, then gives the result; at its end the child is gone
  // Then gives the child's wait status; nothing where the server has died. Closed before that, the child is
  // killed.
  int status = -1;
};

// The server's own process ends with the last holder of its socket: this process, for forks of it close their
// copy and may start a server of their own. `run` is what a child does, `prepare` what the server does first,
// for all of them.
void start_process_server(int (*run)(IsolatedFunction function, int data), void (*prepare)());
bool process_server_started();

// A child that runs `function`. Throws InternalError where the server has died; that it could not fork is a
// status: minus errno.
ServedChild ask_process_server(IsolatedFunction function);

}  // namespace orrery::sim
