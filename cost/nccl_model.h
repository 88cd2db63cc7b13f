// NCCL 2.28's choice of algorithm and protocol, and what it costs; RCCL, which descends from it, likewise.
// Structure and constants are the tuner's (src/graph/tuning.cc, restated in docs/collectives.md); where
// measurement shows a constant off, the value of the link's class (topologies/links) replaces it, as NCCL's
// own tuner plug-in interface allows.
#pragma once

#include <string>

#include "cost/collective_cost.h"
#include "topologies/link_class.h"

namespace orrery {

// Seconds of a message that is on its link for `on_link_s`: the best cut into chunks leaves sqrt(chunk
// overhead x time on the link) of the pipeline to fill.
double with_pipeline_fill(double on_link_s, double ramp_s);

// Fraction of the nominal rate of a device's direct links or PCIe that long messages of the library's best
// algorithm reach.
double link_fraction(LinkKind kind, CommunicationLibrary library, const std::string& generation);

CollectivePlan nccl_collective(CollectiveKind kind, double bytes, const GroupShape& shape,
                               const Cluster& cluster, const Algorithm* forced);
CollectivePlan nccl_transfer(double bytes, const GroupShape& shape, const Cluster& cluster);

}  // namespace orrery
