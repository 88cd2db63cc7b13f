#include "planner/search/system_kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/embedded.h"
#include "base/error.h"
#include "proto/systems.pb.h"
#include "proto/textproto.h"

namespace orrery {
const std::vector<EmbeddedFile>& embedded_systems();
}

namespace orrery::planner {
namespace {

// By kind: "sharded data parallelism (one framework, another)".
std::map<std::string, std::string, std::less<>> read_names() {
  proto::TrainingSystems systems;
  parse_textproto(embedded_systems().front().content, "planner/search/systems.textproto", &systems);
  std::map<std::string, std::string, std::less<>> names;
  for (const proto::TrainingSystem& system : systems.system())
    names[system.kind()] = system.framework().empty()
                               ? system.name()
                               : fmt::format("{} ({})", system.name(), fmt::join(system.framework(), ", "));
  return names;
}

}  // namespace

std::string_view name_of(SystemKind kind) {
  switch (kind) {
    case SystemKind::all_reduce:
      return "all-reduce";
    case SystemKind::sharded:
      return "sharded";
    case SystemKind::three_d:
      return "3d";
    case SystemKind::async_servers:
      return "async-parameter-server";
  }
  return "unknown";
}

std::string_view spoken(SystemKind kind) {
  static const auto names = read_names();
  const auto found = names.find(name_of(kind));
  ORRERY_CHECK(found != names.end(), fmt::format("planner/search/systems.textproto lacks {}", name_of(kind)));
  return found->second;
}

SystemKind system_kind_of(const Choices& c) {
  if (c.asynchronous()) return SystemKind::async_servers;
  if (c.tp * c.pp * c.cp * c.ep > 1) return SystemKind::three_d;
  return c.zero > 0 ? SystemKind::sharded : SystemKind::all_reduce;
}

}  // namespace orrery::planner
