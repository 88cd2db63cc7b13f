#include "cli/page/command_record.h"

#include <algorithm>

#include "base/error.h"

namespace orrery::cli {

bool Command::has_group(std::string_view group) const {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const Setting& setting) { return setting.option.group == group; });
}

Option& Command::option(std::string_view key) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const Setting& setting) { return setting.option.key == key; });
  ORRERY_CHECK(found != settings.end(), std::string(key));
  return found->option;
}

}  // namespace orrery::cli
