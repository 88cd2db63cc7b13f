// Devices that come with Orrery (topologies/devices; embedded in the binary).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topologies/device_profile.h"

namespace orrery {

struct CatalogEntry {
  std::string name;
  std::string description;
  std::string source = {};    // where its figures are from
  std::string rests_on = {};  // of devices and links: fitted | datasheet | assumed
};

std::vector<CatalogEntry> catalog_devices();  // sorted by name
bool is_catalog_device(std::string_view name);

// Throws UserError on an unknown name, naming near ones.
DeviceProfile catalog_device(std::string_view name);
// The same, as its file has it.
proto::DeviceProfile catalog_device_message(std::string_view name);

}  // namespace orrery
