// What the executor says to the process manager that started its ranks (Hydra, Slurm) past MPI.
#pragma once

namespace orrery::exec {

// Returns when every rank of the job has called it; calls no MPI meanwhile. PMI-1's barrier, over the
// connection that the process manager has left in $PMI_FD; without one, returns at once. MPI must not be
// using it.
void wait_for_all_ranks();

}  // namespace orrery::exec
