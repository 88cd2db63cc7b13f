// orrery calibrate: measures this machine's devices and links, refits them to what was validated, or learns
// what files of measurements say of a cluster.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/statistics.h"
#include "cli/executor.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct CalibrateOptions {
  std::string cluster, host, out, mpi, mpirun_args, runtime;
  std::vector<std::string> from;
  bool from_history = false;
  Output output;
};

void add_json(const CalibrateOptions& options, std::vector<std::string>& arguments) {
  if (!options.output.file().empty()) arguments.insert(arguments.end(), {"--json", options.output.file()});
}

int calibrate_cluster(const CalibrateOptions& options) {
  return calibrate_hosts_aloud(
      parse_mpi(options.mpi), {options.cluster, options.host, options.out, mpirun_words(options.mpirun_args)},
      options.output.file());
}

// No measurement: what was validated with a calibration says how far off it is.
int refit(const CalibrateOptions& options) {
  if (!options.host.empty()) throw UserError("`host` with `from_history`", "expected one of them");
  if (!options.cluster.empty() && options.out.empty())
    throw UserError("`from_history` with a CLUSTER, without `out`",
                    "expected `out` FILE, for the refitted cluster");
  const std::string stored = localhost_calibration_file().string();
  const Cluster before = options.cluster.empty() ? discover_localhost() : load_cluster(options.cluster);
  const Refitted refitted = orrery::refit(before, read_history());
  const planner::Refit& found = refitted.found;
  const std::string file = options.out.empty() ? stored : options.out;
  write_cluster_file(refitted.cluster, file);
  options.output.print(
      fmt::format("{} validations: the median error of a step was {:.1f}%; refitted it is {:.1f}%, over "
                  "plans left out of the fit.\n",
                  refitted.validations, 100 * found.median_error, 100 * found.left_out_median_error));
  options.output.print(
      fmt::format("Computation takes {:.3f} times as long as calibrated, communication {:.3f} times.\n",
                  found.slowdown.computation, found.slowdown.communication));
  options.output.print(fmt::format("Wrote {}.\n", file));
  options.output.write(to_json(refitted));
  return 0;
}

std::string held_out_text(std::string_view what, const measurements::HeldOut& of) {
  if (of.rows == 0) return fmt::format("{}: too few rows to hold some back.\n", what);
  return fmt::format(
      "{}, each held back in turn ({}): mean error {:.1f}% before, {:.1f}% after; {:.0f}% within their "
      "90% "
      "intervals.\n",
      what, counted(of.rows, "row"), 100 * of.mape_before, 100 * of.mape_after, 100 * of.coverage);
}

// What the device did in a trace, as shares of its steps.
std::string trace_text(const measurements::RankTrace& trace) {
  std::string text = "  ";
  if (!trace.steps_s.empty())
    text += fmt::format("{} of {:.4g} s; ", counted(static_cast<std::int64_t>(trace.steps_s.size()), "step"),
                        median(trace.steps_s));
  if (trace.window_s > 0)
    text += fmt::format("{:.0f}% computation, {:.0f}% collectives, {:.0f}% both at once, {:.0f}% neither",
                        100 * trace.compute_s / trace.window_s, 100 * trace.collective_s / trace.window_s,
                        100 * trace.both_s / trace.window_s, 100 * trace.idle_s / trace.window_s);
  std::string classes;
  for (std::size_t i = 0; i < measurements::kKernelClasses; ++i)
    if (trace.kernels[i].kernels > 0)
      classes += fmt::format("{}{} {:.4g} s", classes.empty() ? "" : ", ",
                             name_of(static_cast<measurements::KernelClass>(i)), trace.kernels[i].seconds);
  if (!classes.empty()) text += "\n  kernels: " + classes;
  if (trace.launch_s > 0) text += fmt::format("; a launch every {:.3g} us", 1e6 * trace.launch_s);
  return text + "\n";
}

// "dgx-h100 from 6 steps and 20 collectives of 2 files"
std::string what_it_is_from(const SiteCalibrated& result, const std::string& cluster) {
  int steps = 0, collectives = 0, products = 0;
  for (const measurements::FileRead& file : result.measured.files) {
    steps += file.steps;
    collectives += file.collectives;
    products += file.products;
  }
  const auto files = static_cast<std::int64_t>(result.measured.files.size());
  return fmt::format("{} from {} of {}", cluster,
                     measurements::counted_together(steps, collectives, products), counted(files, "file"));
}

// What was learned; behind it what was not, and file by file what was read, where --verbose asks for it.
void print(const SiteCalibrated& result, const Output& output) {
  using measurements::kCoveredDeviations;
  if (!result.calibrated.runtime.empty())
    output.print(fmt::format("Runtime: {} (by {}).\n", result.calibrated.runtime,
                             in_flags(result.calibrated.runtime_from)));
  if (result.calibrated.steps) output.print(held_out_text("Steps", *result.calibrated.steps));
  if (result.calibrated.collectives)
    output.print(held_out_text("Collectives", *result.calibrated.collectives));
  if (result.calibrated.products) output.print(held_out_text("Matrix products", *result.calibrated.products));
  std::vector<std::vector<std::string>> rows;
  const auto range = [](double mean, double sd) {
    return fmt::format("x{:.3f} to x{:.3f}", std::exp(mean - kCoveredDeviations * sd),
                       std::exp(mean + kCoveredDeviations * sd));
  };
  std::string as_before;
  for (const measurements::Learned& one : result.calibrated.factors) {
    if (one.source == measurements::kNotMeasured && !layout().verbose && !layout().wide) {
      as_before += (as_before.empty() ? "" : ", ") + one.name;
      continue;
    }
    rows.push_back({one.name, range(0, one.sd_before), one.source_before,
                    fmt::format("x{:.3f}", std::exp(one.mean)), range(one.mean, one.sd), one.source});
  }
  if (!rows.empty())
    output.print(table({"time of", "before, 90%", "from", "after", "90%", "by"}, rows,
                       {.optional = {"from", "before, 90%"}, .text = true}));
  if (!as_before.empty())
    output.print(fmt::format("As before, because nothing was measured of it: {}.\n", as_before));
  for (const measurements::Departure& one : result.calibrated.departures)
    output.print(
        fmt::format("{} over {} x {} devices takes {:.2f} times the predicted time from {} to {} ({}, {}).\n",
                    name_of(one.kind), one.nodes, one.devices_per_node, one.times,
                    human_bytes(one.least_bytes), human_bytes(one.most_bytes), one.algorithm, one.protocol));
  if (result.calibrated.small_products > 0)
    output.print(fmt::format("{} too small to say anything about the device.\n",
                             result.calibrated.small_products == 1
                                 ? "1 matrix product is"
                                 : fmt::format("{} matrix products are", result.calibrated.small_products)));
  for (const measurements::FileRead& file : result.measured.files) {
    output.print_more(fmt::format("{}: {}; {}, {}{}\n", file.file, file.kind, counted(file.steps, "step"),
                                  counted(file.collectives, "collective"),
                                  file.products > 0 ? ", " + counted(file.products, "product") : ""));
    for (const measurements::RankTrace& trace : result.measured.traces)
      if (trace.file == file.file) output.print_more(trace_text(trace));
  }
  // What is left out may be what somebody waits for.
  for (const measurements::Ignored& one : result.measured.ignored)
    output.print(fmt::format("Ignored: {}{}: {}{}\n", one.file,
                             one.line > 0 ? fmt::format(":{}", one.line) : "", one.why,
                             one.rows > 1 ? fmt::format(" ({} times)", one.rows) : ""));
}

// No measurement either: somebody has measured already.
int calibrate_from_files(const CalibrateOptions& options) {
  if (options.cluster.empty())
    throw UserError("`from` without the CLUSTER that was measured",
                    "expected calibrate CLUSTER `from` FILE…");
  if (!options.host.empty() || options.from_history)
    throw UserError("`from` with `host` or `from_history`", "expected one of them");
  const SiteCalibrated result = calibrate_from({options.cluster, options.from, options.runtime, options.out});
  options.output.print(fmt::format(
      "{}: {}\n  {}\n", what_it_is_from(result, options.cluster),
      options.out.empty() ? "plans on it use this from now on." : "plan on this in its place.", result.file));
  print(result, options.output);
  for (const std::string& doubt : result.calibrated.doubts)
    fmt::print(stderr, "orrery: warning: {}\n", in_flags(doubt));
  options.output.write(to_json(result));
  return 0;
}

int run_calibrate(const CalibrateOptions& options) {
  if (!options.from.empty()) return calibrate_from_files(options);
  if (!options.runtime.empty())
    throw UserError("`runtime` without `from`", "expected calibrate CLUSTER `from` FILE…");
  if (options.from_history) return refit(options);
  if (!options.cluster.empty()) return calibrate_cluster(options);
  if (!options.host.empty())
    throw UserError("`host` without a CLUSTER", "expected calibrate CLUSTER `host` FILE `out` FILE");
  std::vector<std::string> arguments = {"calibrate"};
  if (!options.out.empty()) arguments.insert(arguments.end(), {"--out", options.out});
  add_json(options, arguments);
  const int ranks = std::max(2, usable_cores());  // links want two ends
  return launch_executor(parse_mpi(options.mpi), ranks, arguments);
}

}  // namespace

Command calibrate_command() {
  const auto options = std::make_shared<CalibrateOptions>();
  return {"calibrate",
          "measures this machine's devices and links, or learns from your measurements",
          {text_option({.key = "cluster",
                        .help = "a cluster file whose hosts and links are measured; with --from, any cluster",
                        .fallback = "this machine alone",
                        .positional = true},
                       options->cluster),
           text_option({.key = "host",
                        .unit = "FILE",
                        .help = "with CLUSTER: a calibrated file of one of its hosts, or of a cluster of "
                                "such hosts, so that only links are measured",
                        .fallback = "the first host is measured too"},
                       options->host),
           text_option({.key = "out",
                        .unit = "PROFILE",
                        .help = "where to write the profile",
                        .fallback = "the user's data folder, where later plans find it"},
                       options->out),
           switch_option({.key = "from_history",
                          .help = "measure nothing; refit the calibration (of CLUSTER, or of this machine) "
                                  "to the plans that were validated with it"},
                         options->from_history),
           texts_option({.key = "from",
                         .unit = "FILE…",
                         .help = "measure nothing; learn from files that you have, each recognised by its "
                                 "content (docs/measurements.md)",
                         .many = true},
                        options->from),
           text_option({.key = "runtime",
                        .unit = "NAME|FILE",
                        .help = "with --from: the training software that ran the steps",
                        .fallback = "what the files say"},
                       options->runtime),
           mpi_option(options->mpi), mpirun_args_option(options->mpirun_args), options->output.setting()},
          [options] { return run_calibrate(*options); }};
}

}  // namespace orrery::cli
