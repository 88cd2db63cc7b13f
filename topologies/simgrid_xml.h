// SimGrid platform files (platform version 4.x), as far as a Cluster expresses them.
//
// - <cluster>: hosts of one kind under FLAT, FAT_TREE, TORUS or DRAGONFLY. A fat tree is read by its lowest
// level
//   (hosts a leaf, and the oversubscription of its uplinks), a dragonfly by groups, chassis x blades as
//   routers and nodes.
// - One <zone> (or the older <AS>) of <host> and <link> whose <route>s all cross a link of each end's own and
// at
//   most one more that all share (a backbone): a star.
//
// Each host becomes a node of one device, a CPU of the host's speed; SimGrid files say nothing of memory, so
// a device gets the generic CPU's. Anything else is refused, naming the line.
#pragma once

#include <string_view>

#include "topologies/cluster.h"

namespace orrery {

// Throws UserError(file, line, …). Bounded in size, nesting and hosts.
Cluster cluster_from_simgrid(std::string_view xml, std::string_view file);

}  // namespace orrery
