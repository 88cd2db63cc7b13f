#include "topologies/device_catalog.h"

#include <fmt/format.h>

#include "base/embedded.h"
#include "base/error.h"
#include "base/suggest.h"
#include "proto/device_profile.pb.h"
#include "proto/textproto.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_devices();

namespace {

proto::DeviceProfile parsed(const EmbeddedFile& file) {
  proto::DeviceProfile message;
  parse_textproto(file.content, file.name, &message);
  return message;
}

}  // namespace

std::vector<CatalogEntry> catalog_devices() {
  std::vector<CatalogEntry> result;
  for (const EmbeddedFile& file : embedded_devices())
    result.push_back({std::string(file.name), parsed(file).description()});
  return result;
}

DeviceProfile catalog_device(std::string_view name) {
  std::vector<std::string> known;
  for (const EmbeddedFile& file : embedded_devices()) {
    if (file.name == name) return device_profile_from_proto(parsed(file), file.name, file.content);
    known.emplace_back(file.name);
  }
  throw UserError(fmt::format("unknown device '{}'", name), suggestion(name, known));
}

}  // namespace orrery
