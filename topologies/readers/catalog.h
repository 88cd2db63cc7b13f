// Real machines that come with Orrery (topologies/catalog; embedded in the binary), and the one door through
// which any cluster comes in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.h"
#include "topologies/device_catalog.h"

namespace orrery {

// Sorted by name; includes the alias "dgx-v100", and "localhost" and "localhost-gpu" (discovered).
std::vector<CatalogEntry> catalog_clusters();

// A file (.textproto, SimGrid platform .xml) or a catalog name. `localhost` is discovered, with the
// calibrated profile of the user's data folder when there is one; `localhost-gpu` is this machine's GPUs.
// A file that is none of these endings' is refused; a name is looked up in the catalog first. Throws
// UserError.
Cluster load_cluster(const std::string& file_or_name);

}  // namespace orrery
