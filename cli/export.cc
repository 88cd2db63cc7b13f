// orrery export: hands a plan over to another system.
#include "planner/export.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string plan, to, out;
  Output output;
};

int run(const Options& options) {
  const auto target = planner::export_target_from_name(options.to);
  const auto files = planner::export_plan(load_plan(options.plan), target);
  Json list = Json::array();
  if (!options.out.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(options.out, failed);
    if (failed)
      throw UserError(options.out, 0, "cannot be made: " + failed.message(), "expected a writable folder");
  }
  for (const auto& file : files) {
    if (!options.out.empty())
      write_file_atomically(std::filesystem::path(options.out) / file.name, file.content);
    list.push_back({{"name", file.name}, {"content", file.content}});
  }
  options.output.write({{"to", options.to}, {"files", list}});
  for (const auto& file : files) {
    if (options.out.empty())
      options.output.print(fmt::format("# ---- {}\n{}", file.name, file.content));
    else
      options.output.print(fmt::format("written: {}/{}\n", options.out, file.name));
  }
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("export", "hands a plan over to another system");
  const auto options = std::make_shared<Options>();
  verb->add_option("PLAN", options->plan, "a plan that `orrery plan --out` wrote")->required();
  verb->add_option("--to", options->to, "the system whose flags and files are written")
      ->required()
      ->type_name("megatron|deepspeed|torchtitan|horovod");
  verb->add_option("--out", options->out, "folder for the files (default: printed)")->type_name("FOLDER");
  options->output.add_option(*verb);
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
