// One process per simulation that needs SimGrid: its engine is one per process and aborts on what it does not
// like.
//
// A process without threads forks its children itself. With threads that would be unsound: the child has only
// the thread that forked, and a lock that another one held stays locked in it. Such a process calls
// start_server() before its first thread. The server is a copy of the process as it was then, without
// threads, and does nothing but fork: its children read their work, as bytes, from whoever asked. Why not a
// program of its own, started anew for each piece of work: it would have to be found from wherever the
// library is loaded, and starting it takes longer than most simulations.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery::sim {

// Work for processes of their own, by index: `body` in a fork of this process, which has everything at hand;
// or, in a fork of the server, `function` of what `request` says. What has no request is always forked here.
struct Work {
  std::function<std::string(int)> body = {};
  std::string (*function)(const std::string& request) = nullptr;
  std::function<std::string(int)> request = {};
};

// Once a process; later calls do nothing. The server ends with this process, however that ends, and its
// children with it; it holds no file of this process open but standard input, output and error. To be called
// while no other thread holds a lock that a simulation may want: before the first thread, best.
//
// A fork of this process (a worker of a server that forks them) has no server: its parent's is not its own.
// It forks its children itself while it has one thread, or calls start_server() as any other process does.
void start_server();
bool server_started();  // by this process

// Runs work 0 … count - 1, at most `jobs` at a time; the bytes that each returned, in order. `progress`,
// where given, is told how many have ended. A UserError, NoAnswer or InternalError is thrown here as the same
// type with the same text, that of the lowest index after all others have ended; any other exception, a
// signal or an early exit becomes an InternalError that says so. What else is thrown, by `request` or
// `progress`, ends all children. With the server, from several threads at once, too. Throws InternalError
// where this process would have to fork and has threads.
std::vector<std::string> run_isolated_all(int count, int jobs, const Work& work,
                                          const std::function<void(int done, int count)>& progress = {});
std::string run_isolated(const Work& work);                          // the one with index 0
std::string run_isolated(const std::function<std::string()>& body);  // forked here

}  // namespace orrery::sim
