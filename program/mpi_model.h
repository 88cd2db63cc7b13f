// Open MPI 4.1 and Orrery's own executor on processors: the textbook algorithms over measured latency,
// bandwidth and reduction rate (CommunicationProfile). Formulas: docs/collectives.md.
#pragma once

#include "program/collective_cost.h"

namespace orrery {

CollectivePlan mpi_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                              const Cluster& cluster, const Algorithm* forced);
CollectivePlan mpi_transfer(double bytes, const GroupShape& shape, const Cluster& cluster);

}  // namespace orrery
