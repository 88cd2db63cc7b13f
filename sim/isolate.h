// One process per simulation: SimGrid's engine is one per process and aborts on what it does not like.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery::sim {

// Runs `body` in a forked child and returns the bytes that it returned. A UserError, NoAnswer or
// InternalError that it throws is thrown here as the same type with the same text; any other exception, a
// signal or an early exit becomes an InternalError that says so. Call before anything in this process starts
// threads.
std::string run_isolated(const std::function<std::string()>& body);

// body(0) … body(count - 1), at most `jobs` children at a time; the results in order. `progress`, where
// given, is told how many have ended. Throws what the lowest failing index threw, after all others have
// ended.
std::vector<std::string> run_isolated_all(int count, int jobs, const std::function<std::string(int)>& body,
                                          const std::function<void(int done, int count)>& progress = {});

}  // namespace orrery::sim
