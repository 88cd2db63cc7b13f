// What the executor says to the process manager that started its ranks (Hydra, Slurm) past MPI.
#pragma once

namespace orrery::exec {

// Waits until every rank of the job has called it, calls no MPI meanwhile, and takes leave of the process
// manager: the process may then end without MPI_Finalize. PMI-1's words, over the connection that the process
// manager has left in $PMI_FD; without one, or if it is closed, returns false. MPI must not be using it, and
// must not be called again.
bool leave_job_together();

}  // namespace orrery::exec
