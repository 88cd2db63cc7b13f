// orrery report: plans, what-ifs and validations as one page to look at.
#include "report/report.h"

#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/verbs.h"

namespace orrery::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string out, fold = "on", search = "on";
  bool markdown = false;
  int jobs = 0;
  Output output;
};

int run_report(const ReportOptions& options) {
  if (options.out.empty() && !options.markdown && options.output.file().empty())
    throw UserError("no output was asked for", "expected `out`, `markdown` or `json`");
  if (options.search != "on" && options.search != "off")
    throw UserError(fmt::format("`search` {} is unknown", options.search), "expected on or off");
  check_outputs({options.out, options.output.file()});
  const Json made = report({options.files, parse_fold(options.fold), options.search == "on", options.jobs});
  if (!options.out.empty()) {
    const std::string text = options.markdown ? report_markdown(made) : report_page(made);
    write_file_atomically(options.out, text);
    options.output.print(
        fmt::format("{}: written to {}\n", made.at("title").get<std::string>(), options.out));
  } else if (options.markdown) {
    options.output.print_as_is(report_markdown(made));
  }
  options.output.write(made);
  return 0;
}

}  // namespace

Command report_command() {
  const auto options = std::make_shared<ReportOptions>();
  Command command{
      "report",
      "shows plans, and what whatif and validate wrote as JSON, on one page to look at",
      {texts_option({.key = "plan",
                     .help = "plans that `orrery plan --out` wrote, and JSON of `orrery whatif` or "
                             "`orrery validate`",
                     .positional = true,
                     .required = true,
                     .many = true},
                    options->files)},
      [options] { return run_report(*options); }};
  command.add(text_option({.key = "out",
                           .unit = "FILE",
                           .help = "write one HTML page, which loads nothing from a network (Markdown with "
                                   "--markdown)",
                           .fallback = "none written"},
                          options->out));
  command.add(switch_option(
      {.key = "markdown", .help = "Markdown instead of a page; to stdout without --out"}, options->markdown));
  command.add(
      text_option({.key = "search",
                   .unit = "on|off",
                   .help = "search for what to show beside a plan: the best other one and the nearest "
                           "recipe that people run",
                   .fallback = "on"},
                  options->search));
  command.add(
      text_option({.key = "fold",
                   .unit = "on|off",
                   .help = "on: simulate and show one rank of each class of symmetric ranks; off: every rank",
                   .fallback = "on"},
                  options->fold));
  command.add(count_option({.key = "jobs",
                            .unit = "J",
                            .help = "number of simulating processes; the answer does not depend on it",
                            .fallback = "0, one per processor core"},
                           options->jobs, {0, kMostJobs}));
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
