// What orrery-exec-<mpi>-cuda has and orrery-exec-<mpi> has not: exec/with_cuda.cc in the one,
// exec/without_cuda.cc in the other. Two programs because CUDA's libraries take 0.4 s to load, ten times as
// long as all others: a plan for processors does not wait for them, and a build for processors need not
// compile them.
#pragma once

#include <optional>
#include <string_view>

#include "exec/engine.h"

namespace orrery::exec {

// Whether this is the program with CUDA.
bool built_with_cuda();

// In orrery-exec-<mpi>: becomes orrery-exec-<mpi>-cuda where that was built. Before MPI is started: the
// process, its environment and what it has open stay those that the launcher knows. Returns where there is no
// such program, and in that program itself. `argv`: main's.
void become_cuda_program(char** argv);

// make_engine (engine.h) where it takes GPUs; nothing where `backend` is auto and some rank's host has none.
// Collective over `control`. Throws NoAnswer and UserError as make_engine does; only where built_with_cuda().
std::optional<Engine> make_gpu_engine(std::string_view backend, const Plan& plan, Communicator& control);

}  // namespace orrery::exec
