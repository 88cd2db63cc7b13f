// orrery calibrate: measures this machine's devices and links.
#include <memory>

#include "cli/executor.h"
#include "cli/verbs.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string out, json, mpi;
};

int run(const Options& options) {
  std::vector<std::string> arguments = {"calibrate"};
  if (!options.out.empty()) arguments.insert(arguments.end(), {"--out", options.out});
  if (!options.json.empty()) arguments.insert(arguments.end(), {"--json", options.json});
  const int ranks = std::max(2, usable_cores());  // links want two ends
  return launch_executor(parse_mpi(options.mpi), ranks, arguments);
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("calibrate", "measures this machine's devices and links");
  const auto options = std::make_shared<Options>();
  verb->add_option(
          "--out", options->out,
          "where to write the profile (default: the user's data folder, where plans on localhost find it)")
      ->type_name("PROFILE");
  add_mpi_option(*verb, options->mpi);
  verb->add_option("--json", options->json, "write the result as one JSON object to FILE; - for stdout")
      ->type_name("FILE|-");
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
