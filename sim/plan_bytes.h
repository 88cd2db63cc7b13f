// Plans and clusters through a socket between two copies of this process: as their messages, which give the
// same plan exactly (program/plan.h, topologies/cluster.h) of whatever a file can say; a graph made by hand
// that no file describes may lose what its message has no field for.
#pragma once

#include "program/plan.h"
#include "sim/bytes.h"

namespace orrery::sim {

void write_plan(ByteWriter& out, const Plan& plan);
Plan read_plan(ByteReader& in);
void write_cluster(ByteWriter& out, const Cluster& cluster);
Cluster read_cluster(ByteReader& in);

}  // namespace orrery::sim
