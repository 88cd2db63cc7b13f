// orrery: parses, calls the libraries, prints, and turns errors into the contract's exit codes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "cli/version.h"

namespace orrery::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kNo = 3;

int complain(int code, std::string text) {
  show_progress("", 0, 0);
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  fmt::print(stderr, "orrery: {}\n", text);
  return code;
}

// The verb that was typed, to point at its help.
std::string help_of(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? "see orrery --help" : fmt::format("see orrery {} --help", verbs[0]->get_name());
}

int run(int argc, char** argv) {
  CLI::App app{
      "Plans the training of a neural network on a cluster, simulates the plan, runs it and learns from "
      "the difference."};
  app.name("orrery");
  app.set_version_flag("--version", &version_text, "versions of Orrery and of what it is built with");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  Action action;
  add_catalog(app, action);
  add_describe(app, action);
  add_discover(app, action);
  add_plan(app, action);
  add_whatif(app, action);
  add_simulate(app, action);
  add_collective(app, action);
  add_run(app, action);
  add_calibrate(app, action);
  add_validate(app, action);
  add_export(app, action);
  add_goodput(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return complain(kUsage, fmt::format("{} ({})", error.what(), help_of(app)));
  }
  return action();
}

}  // namespace
}  // namespace orrery::cli

int main(int argc, char** argv) {
  using namespace orrery;
  try {
    return cli::run(argc, argv);
  } catch (const UserError& error) {
    return cli::complain(cli::kUsage, error.what());
  } catch (const NoAnswer& error) {
    return cli::complain(cli::kNo, error.what());
  } catch (const std::exception& error) {
    return cli::complain(cli::kFailure, error.what());
  } catch (...) {
    return cli::complain(cli::kFailure, "failed with something that is no std::exception");
  }
}
