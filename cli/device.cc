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

struct DeviceOptions {
  std::string file;
  bool print_template = false;
  Output output;
};

std::string list(const std::string& head, const std::vector<std::string>& lines) {
  std::string text = head + "\n";
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

std::string outlook_text(const DeviceOutlook& outlook) {
  return fmt::format(
      "{}: a step of {} on one such device takes {:.2f} to {:.2f} times the predicted time, with 90% "
      "probability.\n  This rests on: {}.\n",
      outlook.device, kDeviceWorkload, outlook.step.low, outlook.step.high,
      planner::what_it_rests_on(outlook.rests_on));
}

// The best of them, or all.
std::string narrowed(const DeviceOutlook& outlook, bool all) {
  if (outlook.measurements.empty()) return "";
  const auto line = [](const auto& one) {
    return fmt::format("  {:3.0f}%  {}\n", 100 * one.second, one.first);
  };
  if (!all) {
    const auto& [measurement, share] = outlook.measurements.front();
    return fmt::format("  Most would be narrowed by: {} ({:.0f}% of what is uncertain).\n", measurement,
                       100 * share);
  }
  std::string text = "Measurements that would narrow this, with their share of what is uncertain:\n";
  for (const auto& one : outlook.measurements) text += line(one);
  return text;
}

int run_device(const DeviceOptions& options) {
  if (options.print_template == !options.file.empty())
    throw UserError(options.print_template ? "FILE and --template exclude each other"
                                           : "neither FILE nor --template is given",
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
  for (const DeviceOutlook& outlook : check.outlooks) {
    options.output.print(outlook_text(outlook));
    options.output.print(narrowed(outlook, layout().verbose));
  }
  if (review.assumed.empty()) return 0;
  if (!layout().verbose)
    options.output.print(fmt::format(
        "{} assumed, because the file does not say {}: --verbose.\n",
        review.assumed.size() == 1 ? "One thing is" : fmt::format("{} things are", review.assumed.size()),
        review.assumed.size() == 1 ? "it" : "them"));
  options.output.print_more(list("Assumed, because the file does not say it:", review.assumed));
  return 0;
}

}  // namespace

Command device_command() {
  const auto options = std::make_shared<DeviceOptions>();
  Command command{
      "device",
      "checks a device profile of yours, or prints one to fill in",
      {text_option({.key = "file",
                    .help = "a device profile, or a cluster file: its devices and links (docs/devices.md)",
                    .positional = true},
                   options->file),
       switch_option({.key = "template", .help = "print a device profile to fill in from a datasheet"},
                     options->print_template)},
      [options] { return run_device(*options); }};
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
