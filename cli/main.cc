// orrery: parses, calls the libraries, prints, and turns errors into the exit codes.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/output.h"
#include "cli/page/pages.h"
#include "cli/terminal/layout.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "orrery/orrery.h"

namespace orrery::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kNo = 3;

int complain(int code, std::string text) {
  end_progress();
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  const bool colour = coloured(STDERR_FILENO);
  fmt::print(stderr, "{}orrery:{} {}\n", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "", text);
  return code;
}

int run_words(int argc, char** argv) {
  std::vector<Command> commands = {
      catalog_command(),   describe_command(),     discover_command(),   plan_command(),
      whatif_command(),    simulate_command(),     collective_command(), run_command(),
      calibrate_command(), validate_command(),     export_command(),     goodput_command(),
      device_command(),    measurements_command(), report_command(),     trace_diff_command(),
      compare_command(),   serve_command(),        schema_command()};
  for (Command& command : commands)
    if (command.has_group(kOutputGroup)) command.add(layout_settings());
  const auto page = [&commands] {
    fmt::print("{}", options_page(commands));
    return 0;
  };
  commands.push_back({"options", "prints docs/options.md", {}, page, true});
  std::string folder;
  const auto share = [&] {
    for (const auto& pages : {man_pages(commands, version()), completions(commands)})
      for (const Page& page : pages) {
        const std::filesystem::path path = std::filesystem::path(folder) / page.file;
        std::filesystem::create_directories(path.parent_path());
        write_file_atomically(path, page.text);
      }
    return 0;
  };
  commands.push_back({"share",
                      "writes man pages and completions into FOLDER, as they lie in share/",
                      {text_option({.key = "folder", .positional = true, .required = true}, folder)},
                      share,
                      true});
  const int code = run(commands, argc, argv);
  write_to_stdout("");
  return code;
}

}  // namespace
}  // namespace orrery::cli

int main(int argc, char** argv) {
  using namespace orrery;
  try {
    return cli::run_words(argc, argv);
  } catch (const UserError& error) {
    return cli::complain(cli::kUsage, error.what());
  } catch (const NoAnswer& error) {
    return cli::complain(cli::kNo, error.what());
  } catch (const std::exception& error) {
    // fmt's own exception of a stdout that takes no more.
    return cli::complain(std::ferror(stdout) != 0 ? cli::kUsage : cli::kFailure, error.what());
  } catch (...) {
    return cli::complain(cli::kFailure, "failed with something that is no std::exception");
  }
}
