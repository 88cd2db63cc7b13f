// Real machines and devices that come with Orrery (topologies/catalog, topologies/devices; embedded in the
// binary).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.h"

namespace orrery {

struct CatalogEntry {
  std::string name;
  std::string description;
};

// Sorted by name; includes the alias "dgx-v100", and "localhost" and "localhost-gpu" (discovered).
std::vector<CatalogEntry> catalog_clusters();
std::vector<CatalogEntry> catalog_devices();

// Throws UserError on an unknown name, naming near ones.
DeviceProfile catalog_device(std::string_view name);

// A file (.textproto, SimGrid platform .xml) or a catalog name. `localhost` is discovered, with the
// calibrated profile of the user's data folder when there is one; `localhost-gpu` is this machine's GPUs.
// A file that is none of these endings' is refused; a name is looked up in the catalog first. Throws
// UserError.
Cluster load_cluster(const std::string& file_or_name);

}  // namespace orrery
