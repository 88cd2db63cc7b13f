// orrery measurements: the kinds of files that `calibrate --from` reads, and a table to fill in.
// orrery trace-diff: two traces beside each other.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

struct MeasurementsOptions {
  bool print_template = false;
  Output output;
};

int run_measurements(const MeasurementsOptions& options) {
  if (options.print_template) {
    fmt::print("{}", measurements::step_table_template());
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const measurements::Kind& kind : measurements::kinds())
    rows.push_back({std::string(kind.name), std::string(kind.taken)});
  if (layout().wide) {
    options.output.print(table({"file", "what is learned from it"}, rows, {.text = true}));
  } else {  // two columns of sentences have no room beside each other
    for (const auto& row : rows) options.output.print(fmt::format("{}\n    {}\n", row[0], row[1]));
  }
  options.output.write(to_json(measurements::kinds()));
  return 0;
}

struct DiffOptions {
  std::string a, b;
  std::optional<double> tolerance;
  Output output;
};

int run_diff(const DiffOptions& options) {
  const measurements::TraceDiff diff = trace_diff(options.a, options.b);
  const Output& output = options.output;
  std::vector<std::vector<std::string>> rows;
  for (const measurements::DiffStep& step : diff.steps)
    rows.push_back({step.a == step.b ? fmt::format("{}", step.a) : fmt::format("{} and {}", step.a, step.b),
                    human_seconds(step.a_s), human_seconds(step.b_s), human_change(step.b_s, step.a_s)});
  output.print(table({"step", "A", "B", "change"}, rows));
  rows.clear();
  const auto row = [&](const std::string& stream, const std::string& kind, double a, double b,
                       const std::string& count) {
    rows.push_back({stream, kind, human_seconds(a), human_seconds(b),
                    (b < a ? "-" : "+") + human_seconds(std::abs(b - a)), human_change(b, a), count});
  };
  row("mean step", "", diff.a_s, diff.b_s, "");
  row("", "idle", diff.a_idle_s, diff.b_idle_s, "");
  for (const measurements::DiffRow& one : diff.rows)
    row(one.stream, one.kind, one.a.seconds, one.b.seconds,
        fmt::format("{:.6g}, {:.6g}", one.a.count, one.b.count));
  output.print("\n" + table({"stream", "kind", "A", "B", "difference", "change", "times"}, rows,
                            {.optional = {"times"}, .names = {"stream", "kind"}}));
  output.print(measurements::explain(diff) + "\n");
  if (diff.aligned != "streams by name") output.print(fmt::format("Aligned {}.\n", diff.aligned));
  for (const std::string& why : diff.left_out) output.print(fmt::format("Not compared: {}.\n", why));
  output.write(to_json(diff));
  if (options.tolerance && std::abs(diff.relative_difference()) > *options.tolerance)
    throw NoAnswer(fmt::format("a step of B differs from A's by {:+.1f}%, outside the tolerance of {:.1f}%",
                               100 * diff.relative_difference(), 100 * *options.tolerance));
  return 0;
}

}  // namespace

Command measurements_command() {
  const auto options = std::make_shared<MeasurementsOptions>();
  Command command{
      "measurements",
      "lists the kinds of files that `calibrate --from` reads, or prints a table of steps to fill in",
      {switch_option({.key = "template", .help = "print a table of measured steps to fill in"},
                     options->print_template)},
      [options] { return run_measurements(*options); }};
  command.add(options->output.setting());
  return command;
}

Command trace_diff_command() {
  const auto options = std::make_shared<DiffOptions>();
  Command command{"trace-diff",
                  "compares two traces, by Orrery or a profiler, by step, stream and kind",
                  {text_option({.key = "a",
                                .unit = "FILE|FOLDER",
                                .help = "a trace, or a folder with the traces of one job's ranks",
                                .positional = true,
                                .required = true},
                               options->a),
                   text_option({.key = "b",
                                .unit = "FILE|FOLDER",
                                .help = "the other trace, or its folder",
                                .positional = true,
                                .required = true},
                               options->b),
                   number_option({.key = "tolerance",
                                  .unit = "R",
                                  .help = "exit with code 3 if the steps differ by more than this fraction",
                                  .fallback = "none"},
                                 options->tolerance)},
                  [options] { return run_diff(*options); }};
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
