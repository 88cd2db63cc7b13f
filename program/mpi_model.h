// The executor's own collectives over MPI point-to-point (exec/collectives.h): the algorithms that it has,
// over measured message times and reduction rate (CommunicationProfile). Formulas: docs/collectives.md.
#pragma once

#include "program/collective_cost.h"

namespace orrery {

CollectivePlan mpi_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                              const Cluster& cluster, const Algorithm* forced);
CollectivePlan mpi_transfer(double bytes, const GroupShape& shape, const Cluster& cluster);

}  // namespace orrery
