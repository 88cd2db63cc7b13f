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
    for (const auto& entry : entries) {
      std::string words = entry["description"].get<std::string>();
      if (entry.contains("rests_on")) words += " (" + entry["rests_on"].get<std::string>() + ")";
      output.print(fmt::format("  {:<{}}  {}\n", entry["name"].get_ref<const std::string&>(), width, words));
    }
  }
  return 0;
}

}  // namespace

Command catalog_command() {
  const auto output = std::make_shared<Output>();
  return {"catalog",
          "lists the workloads, clusters, networks, devices, kinds of links and runtimes known by name",
          {output->setting()},
          [output] { return run(*output); }};
}

}  // namespace orrery::cli
