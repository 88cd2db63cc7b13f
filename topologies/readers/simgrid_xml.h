// SimGrid platform files (version 4 and later), as far as a Cluster expresses them.
//
// - <cluster>: hosts of one kind. FLAT is a star, with its backbone where bb_bw says so; FAT_TREE of one or
// two
//   levels: leaves of as many hosts, oversubscribed by what its counts of links say; TORUS; DRAGONFLY of one
//   chassis a group (that is what "routers joined all to all" means).
// - <host>, <link> and <route> between every two hosts, each route made of a link of the source's own, at
// most one
//   backbone that all routes share, and a link of the destination's own: a star. Two hosts may share one
//   link.
//
// Either may stand inside nested zones that hold nothing else. Each host becomes a node of one device: a
// processor of the host's speed, all its cores together; its memory and the rest, of which SimGrid files say
// nothing, are the generic CPU's. A link that SimGrid shares between both directions gets its rate in each.
// Latencies add up as in SimGrid, but for a torus of the other order of dimensions. Anything else is refused,
// naming the line.
#pragma once

#include <string_view>

#include "topologies/cluster.h"

namespace orrery {

// Throws UserError(file, line, …). Bounded in size, nesting and hosts.
Cluster cluster_from_simgrid(std::string_view xml, std::string_view file);

}  // namespace orrery
