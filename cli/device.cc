// orrery device: a device that somebody describes, looked at before anything is planned with it.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct Options {
  std::string file;
  bool print_template = false;
  Output output;
};

std::string list(const std::string& head, const std::vector<std::string>& lines) {
  std::string text = head + "\n";
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

std::string text_of(const DeviceOutlook& outlook) {
  std::string text = fmt::format(
      "{}: a step of {} on one such device takes {:.2f} to {:.2f} times the predicted time, with 90% "
      "probability. This rests on: {}.\nMeasurements that would narrow this, with their share of what is "
      "uncertain:\n",
      outlook.device, kDeviceWorkload, outlook.step.low, outlook.step.high,
      planner::what_it_rests_on(outlook.rests_on));
  for (const auto& [measurement, share] : outlook.measurements)
    text += fmt::format("  {:3.0f}%  {}\n", 100 * share, measurement);
  return text;
}

int run(const Options& options) {
  if (options.print_template == !options.file.empty())
    throw UserError(options.print_template ? "FILE and --template together" : "neither FILE nor --template",
                    "expected one of them");
  if (options.print_template) {
    fmt::print("{}", device_template());
    return 0;
  }
  const DeviceCheck check = check_device(options.file);
  options.output.write(to_json(check));
  const DeviceReview& review = check.review;
  options.output.print(review.implausible.empty()
                           ? "All figures are like those of the catalog's devices and nodes.\n"
                           : list("Implausible:", review.implausible));
  if (!review.assumed.empty())
    options.output.print(list("Assumed, because the file does not say it:", review.assumed));
  for (const DeviceOutlook& outlook : check.outlooks) options.output.print(text_of(outlook));
  return 0;
}

}  // namespace

Command device_command() {
  const auto options = std::make_shared<Options>();
  Command command{
      "device",
      "checks a device profile of yours, or prints one to fill in",
      {text_option({.key = "file",
                    .help = "a device profile, or a cluster file with devices of its own (docs/devices.md)",
                    .positional = true},
                   options->file),
       switch_option({.key = "template", .help = "prints a device profile to fill in from a datasheet"},
                     options->print_template)},
      [options] { return run(*options); }};
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
