// orrery measurements: the kinds of files that `calibrate --from` reads, and a table to fill in.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct Options {
  bool print_template = false;
  Output output;
};

int run(const Options& options) {
  if (options.print_template) {
    fmt::print("{}", measurements::step_table_template());
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  Json kinds = Json::array();
  for (const measurements::Kind& kind : measurements::kinds()) {
    rows.push_back({std::string(kind.name), std::string(kind.taken)});
    kinds.push_back({{"name", kind.name}, {"taken", kind.taken}});
  }
  options.output.print(table({"what", "what is taken from it"}, rows));
  options.output.write({{"kinds", kinds}});
  return 0;
}

}  // namespace

Command measurements_command() {
  const auto options = std::make_shared<Options>();
  Command command{"measurements",
                  "lists the files that `calibrate --from` reads, or prints a table of steps to fill in",
                  {switch_option({.key = "template", .help = "prints a table of measured steps to fill in"},
                                 options->print_template)},
                  [options] { return run(*options); }};
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
