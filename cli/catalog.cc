// orrery catalog: what Orrery knows by name.
#include "topologies/readers/catalog.h"

#include <fmt/format.h>

#include <memory>

#include "cli/output.h"
#include "cli/verbs.h"
#include "program/runtime_profile.h"
#include "workloads/readers/catalog.h"

namespace orrery::cli {
namespace {

template <typename Entry>
Json list_of(const std::vector<Entry>& entries) {
  Json list = Json::array();
  for (const auto& entry : entries)
    list.push_back({{"name", entry.name}, {"description", entry.description}});
  return list;
}

std::vector<CatalogEntry> runtimes() {
  std::vector<CatalogEntry> entries;
  for (const auto& name : catalog_runtimes()) entries.push_back({name, catalog_runtime(name).description});
  return entries;
}

int run(const Output& output) {
  const Json result = {{"workloads", list_of(catalog_workloads())},
                       {"clusters", list_of(catalog_clusters())},
                       {"devices", list_of(catalog_devices())},
                       {"runtimes", list_of(runtimes())}};
  output.write(result);
  for (const auto& [kind, entries] : result.items()) {
    std::size_t width = 0;
    for (const auto& entry : entries)
      width = std::max(width, entry["name"].get_ref<const std::string&>().size());
    output.print(fmt::format("{}\n", kind));
    for (const auto& entry : entries)
      output.print(fmt::format("  {:<{}}  {}\n", entry["name"].get_ref<const std::string&>(), width,
                               entry["description"].get_ref<const std::string&>()));
  }
  return 0;
}

}  // namespace

Command catalog_command() {
  const auto output = std::make_shared<Output>();
  return {"catalog",
          "lists the workloads, clusters, devices and runtimes known by name",
          {output->setting()},
          [output] { return run(*output); }};
}

}  // namespace orrery::cli
