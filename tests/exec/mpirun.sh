#!/usr/bin/env bash
# mpirun.sh MPI RANKS PROGRAM [ARGUMENT…]: starts a test program as exec/launch/launcher.cc starts the executor.
set -euo pipefail
mpi=$1
ranks=$2
shift 2
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
if [ "$mpi" = openmpi ]; then
  flags=(--quiet --oversubscribe --bind-to none --mca plm isolated --mca btl vader,self --mca pml ob1 --mca mpi_yield_when_idle 1)
  [ "$(id -u)" -ne 0 ] || flags+=(--allow-run-as-root)
  exec mpirun.openmpi -np "$ranks" "${flags[@]}" "$@"
fi
exec mpirun.mpich -np "$ranks" "$@"
