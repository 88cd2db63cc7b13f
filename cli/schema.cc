// orrery schema: the JSON Schema of what a verb answers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/verbs.h"
#include "orrery/schemas/schemas.h"

namespace orrery::cli {
namespace {

int run_schema(const std::string& verb) {
  if (!verb.empty()) {
    fmt::print("{}\n", schema_of(verb).dump(2));
    return 0;
  }
  for (const std::string_view name : verbs_with_schemas()) fmt::print("{}\n", name);
  return 0;
}

}  // namespace

Command schema_command() {
  const auto verb = std::make_shared<std::string>();
  return {"schema",
          "prints the JSON Schema (draft 2020-12) of what VERB writes with --json",
          {text_option(
              {.key = "verb", .help = "a verb", .fallback = "lists those that have one", .positional = true},
              *verb)},
          [verb] { return run_schema(*verb); }};
}

}  // namespace orrery::cli
