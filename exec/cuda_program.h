// The program with CUDA beside the one without.
#pragma once

namespace orrery::exec {

// In orrery-exec-<mpi>: becomes orrery-exec-<mpi>-cuda, the same program with the CUDA backend, where that
// was built. Two programs because CUDA's libraries take 0.4 s to load, ten times as long as all others: a
// plan for processors does not wait for them, and a build for processors need not compile them. Before MPI is
// started: the process, its environment and what it has open stay those that the launcher knows. Returns
// where there is no such program, and in that program itself. `argv`: main's.
void become_cuda_program(char** argv);

}  // namespace orrery::exec
