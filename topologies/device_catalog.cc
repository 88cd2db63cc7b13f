#include "topologies/device_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/embedded.h"
#include "base/error.h"
#include "base/suggest.h"
#include "proto/device_profile.pb.h"
#include "proto/textproto.h"
#include "topologies/link_class.h"

namespace orrery {

const std::vector<EmbeddedFile>& embedded_devices();

namespace {

// Read once in a process, by whichever thread comes first: a table or a list of devices asks for all of them.
const proto::DeviceProfile& parsed(const EmbeddedFile& file) {
  static std::mutex mutex;
  static std::map<std::string_view, proto::DeviceProfile> known;  // whose entries stay where they are
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(file.name);
  if (is_new) parse_textproto(file.content, file.name, &entry->second);
  return entry->second;
}

const EmbeddedFile* find(std::string_view name) {
  for (const EmbeddedFile& file : embedded_devices())
    if (file.name == name) return &file;
  return nullptr;
}

const EmbeddedFile& file_of(std::string_view name) {
  if (const EmbeddedFile* file = find(name)) return *file;
  std::vector<std::string> known;
  for (const EmbeddedFile& file : embedded_devices()) known.emplace_back(file.name);
  throw UserError(fmt::format("unknown device '{}'", name), suggestion(name, known));
}

Foundation foundation(bool calibrated, double training_speed, bool processor) {
  if (calibrated || (training_speed > 0 && training_speed != 1)) return Foundation::fitted;
  return processor ? Foundation::assumed : Foundation::datasheet;
}

// From the file alone: a list needs no whole profiles.
CatalogEntry entry_of(const EmbeddedFile& file) {
  const proto::DeviceProfile& device = parsed(file);
  const bool calibrated =
      device.calibrated() || (!device.like().empty() && parsed(file_of(device.like())).calibrated());
  const Foundation rests_on = foundation(calibrated, device.training_speed(), device.kind() == "cpu");
  return {.name = std::string(file.name),
          .description = device.description(),
          .source = device.source(),
          .rests_on = std::string(name_of(rests_on))};
}

}  // namespace

Foundation foundation_of(const DeviceProfile& device) {
  return foundation(device.calibrated, device.training_speed, device.kind == DeviceKind::cpu);
}

bool is_catalog_device(std::string_view name) {
  return find(name) != nullptr;
}

std::vector<CatalogEntry> catalog_devices() {
  std::vector<CatalogEntry> result;
  for (const EmbeddedFile& file : embedded_devices()) result.push_back(entry_of(file));
  std::sort(result.begin(), result.end(),
            [](const CatalogEntry& a, const CatalogEntry& b) { return a.name < b.name; });
  return result;
}

DeviceProfile catalog_device(std::string_view name) {
  const EmbeddedFile& file = file_of(name);
  return device_profile_from_proto(parsed(file), file.name, file.content);
}

proto::DeviceProfile catalog_device_message(std::string_view name) {
  return parsed(file_of(name));
}

}  // namespace orrery
