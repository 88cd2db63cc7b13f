// The executor's own collectives over MPI point-to-point (exec/communicators/collectives.h): the algorithms
// that it has, over measured message times and reduction rate (CommunicationProfile). Formulas:
// docs/collectives.md.
#pragma once

#include "cost/collective_cost.h"

namespace orrery {

// How often a message crosses the network one way before its last byte has left: MPI's long messages ask and
// are answered first (rendezvous). Over TCP the executor's do not: the receiver has said that it is there
// while the first pieces were on their way (exec/mpi/mpi_transport.cc).
double network_crossings(double bytes, const Cluster& cluster);

CollectivePlan mpi_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                              const Cluster& cluster, const Algorithm* forced);
CollectivePlan mpi_transfer(double bytes, const GroupShape& shape, const Cluster& cluster);

}  // namespace orrery
