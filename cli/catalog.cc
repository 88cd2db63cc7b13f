// orrery catalog: what Orrery knows by name.
#include <fmt/format.h>

#include <memory>

#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

int run(const Output& output) {
  const Json result = to_json(catalog());
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
