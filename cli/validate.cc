// orrery validate: predicted beside measured, of a plan that is run here or of published tables.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/executor.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "orrery/json.h"
#include "orrery/published.h"

namespace orrery::cli {
namespace {

constexpr int kDefaultSteps = 10;

struct ValidateOptions {
  std::string plan, backend = "auto", mpi, data;
  LaunchWords launch;
  std::vector<std::string> published, published_collectives, against;
  std::string markdown, rows, runtime, cluster;
  int steps = kDefaultSteps;
  std::optional<double> tolerance;
  bool history = false;
  Output output;
};

MeasureRequest request_of(const ValidateOptions& options, const Plan& plan) {
  MeasureRequest request;
  request.plan_file = options.plan;
  request.ranks = plan.choices.world();
  request.steps = options.steps;
  request.backend = options.backend;
  request.data = options.data;
  request.pace = plan.job->cluster.nodes() == 1;
  request.mpi = parse_mpi(options.mpi);
  return request;
}

void print_validation(const planner::Evaluation& predicted, const planner::Validation& validation, int steps,
                      const Output& output) {
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const std::string& name, double predicted_s, double measured_s) {
    rows.push_back(
        {name, human_seconds(predicted_s), human_seconds(measured_s), human_change(predicted_s, measured_s)});
  };
  row("step", validation.predicted_step_time_s, validation.measured_step_time_s);
  for (const auto& kind : validation.by_kind)
    row(fmt::format("  {}", spoken_part(kind.kind)), kind.predicted_s, kind.measured_s);
  rows.push_back({"memory", human_bytes(validation.predicted_bytes), human_bytes(validation.measured_bytes),
                  human_change(validation.predicted_bytes, validation.measured_bytes)});
  output.print(fmt::format("{}: {}, {}\n", planner::describe(predicted.plan),
                           counted(predicted.plan.choices.world(), "rank"), counted(steps, "step")));
  output.print(table({"", "predicted", "measured", "error"}, rows));
  output.print(planner::explain(validation) + "\n");
}

int validate_plan(const ValidateOptions& options) {
  check_backend(options.backend);
  const Plan plan = load_plan(options.plan);
  MeasureRequest request = request_of(options, plan);
  if (under_launcher() && launcher_rank() != 0) return join_measurement(request);
  check_writable(options.output.file());
  request.placement = placement_of(plan.job->cluster, request.ranks, options.launch);
  check_processors(plan, request.placement, request.backend);
  const planner::Evaluation predicted = predict(plan);
  const Measured measured = measure(request);
  if (measured.exit_code != 0) return measured.exit_code;  // the executor has said why

  const planner::Validation validation = validate(predicted, measured.measurement);
  print_validation(predicted, validation, options.steps, options.output);
  const bool alike = !(is_for_gpus(plan) && on_these_processors(plan, request.placement, request.backend));
  if (!alike)
    options.output.print(
        fmt::format("Predicted was {}, measured were processors: this error says nothing of the prediction, "
                    "and is not remembered.\n",
                    plan.job->cluster.profile_of(0).name));
  options.output.write(to_json(predicted, measured.measurement, validation, options.steps));
  const std::string why = alike ? remember(history_entry(predicted, validation, options.steps)) : "";
  if (!why.empty()) fmt::print(stderr, "orrery: {}: this validation is not remembered\n", why);
  if (options.tolerance && std::abs(validation.relative_error()) > *options.tolerance)
    throw NoAnswer(fmt::format("the predicted step is {:+.1f}% off, outside the tolerance of {:.1f}%",
                               100 * validation.relative_error(), 100 * *options.tolerance));
  return 0;
}

// What the traces say of the step's parts.
void print_kinds(const Against& result, const Output& output) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& kind : result.by_kind)
    rows.push_back({fmt::format("  {}", spoken_part(kind.kind)), human_seconds(kind.predicted_s),
                    human_seconds(kind.measured_s), human_change(kind.predicted_s, kind.measured_s)});
  const std::string part = "part of a step, mean of " + counted(result.traced_ranks, "rank");
  output.print("\n" + table({part, "predicted", "measured", "error"}, rows, {.names = {part}}));
  output.print(result.explanation + "\n");
  if (result.waited_s > 0)
    output.print(fmt::format("Collectives waited {} for peers; where nothing hid that, it counts as idle.\n",
                             human_seconds(result.waited_s)));
  if (result.traced_ranks == 1 && result.predicted.plan.choices.world() > 1)
    output.print("Only one rank was traced: its collectives' times include waiting for others.\n");
}

// Steps that somebody measured with other software.
int validate_against(const ValidateOptions& options) {
  const Output& output = options.output;
  const Against result = against(load_plan(options.plan), options.against);
  const double predicted_s = result.predicted.step_time_s();
  output.print(planner::describe(result.predicted.plan) + "\n");
  std::vector<std::vector<std::string>> rows;
  for (const AgainstRow& row : result.rows)
    rows.push_back({row.line > 0 ? fmt::format("{}:{}", row.file, row.line) : row.file,
                    human_seconds(predicted_s), human_seconds(row.measured_s),
                    fmt::format("{:+.1f}%", 100 * row.relative_error)});
  output.print(table({"step", "predicted", "measured", "error"}, rows, {.names = {"step"}}));
  output.print(interval_line(result.predicted));
  if (result.traced_ranks > 0) print_kinds(result, output);
  for (const measurements::Ignored& one : result.ignored)
    output.print(fmt::format("Not compared: {}{}: {}{}\n", one.file,
                             one.line > 0 ? fmt::format(":{}", one.line) : "", one.why,
                             one.rows > 1 ? fmt::format(" ({} times)", one.rows) : ""));
  output.write(to_json(result));
  if (options.tolerance && std::abs(result.relative_error()) > *options.tolerance)
    throw NoAnswer(fmt::format("the predicted step is {:+.1f}% off, outside the tolerance of {:.1f}%",
                               100 * result.relative_error(), 100 * *options.tolerance));
  return 0;
}

// What was remembered, oldest first, and whether it gets better: the median error of all and of the latest
// ten.
int show_history(const Output& output) {
  const History history = read_history();
  if (history.entries.empty())
    throw NoAnswer(fmt::format("no plan was validated yet: {} is empty", history_file().string()));
  std::vector<std::vector<std::string>> rows;
  for (const Json& entry : history.entries) {
    const auto predicted = entry.at("predicted_step_time_s").get<double>();
    const auto measured = entry.at("measured_step_time_s").get<double>();
    rows.push_back({entry.at("when").get<std::string>(), entry.at("workload").get<std::string>(),
                    entry.at("cluster").get<std::string>(), entry.at("plan").get<std::string>(),
                    human_seconds(predicted), human_seconds(measured), human_change(predicted, measured)});
  }
  output.print(table({"when", "workload", "cluster", "plan", "predicted", "measured", "error"}, rows,
                     {.optional = {"plan"}}));
  const std::size_t count = history.entries.size();
  output.print(fmt::format("Median error of {} validations {:.1f}%, of the latest {} {:.1f}%.\n", count,
                           100 * median_error(history, count), std::min(kLatest, count),
                           100 * median_error(history, kLatest)));
  if (history.damaged > 0)
    fmt::print(stderr, "orrery: {} lines of {} are not validations and were left out\n", history.damaged,
               history_file().string());
  output.write(to_json(history));
  return 0;
}

std::vector<std::string> summary_row(const std::string& name, const evidence::Figures& of) {
  const auto percent = [&](double share) {
    return of.rows > 0 ? fmt::format("{:.1f}%", 100 * share) : std::string();
  };
  std::vector<std::string> row = {name,
                                  std::to_string(of.rows),
                                  std::to_string(of.skipped),
                                  percent(of.mape),
                                  percent(of.median_ape),
                                  percent(of.max_ape),
                                  percent(of.bias),
                                  percent(of.within_10_percent)};
  if (const auto& groups = of.groups) {
    const bool any = groups->groups > 0;
    row.push_back(std::to_string(groups->groups));
    row.push_back(any ? fmt::format("{:.2f}", groups->kendall_tau) : "");
    row.push_back(any ? fmt::format("{:.1f}%", 100 * groups->regret_mean) : "");
  }
  return row;
}

constexpr std::size_t kWorstRows = 10;

// What rows of steps and of collectives have for people.
struct Shown {
  std::string file;
  int line = 0;
  std::string model, device;
  int devices = 0;
  std::string plan;
  std::optional<evidence::Compared> seconds;
  std::string skipped;
};

Shown shown(const evidence::PublishedRow& row) {
  return {row.file,    row.line, row.model,  row.device.value_or(""),
          row.devices, row.plan, row.step_s, row.skipped};
}

Shown shown(const evidence::CollectiveRow& row) {
  return {row.file, row.line, "", row.device, row.devices, "", row.seconds, row.skipped};
}

// The rows that were missed most, and why rows were skipped.
template <typename Row>
void print_rows(const std::vector<Row>& all, const Output& output) {
  std::vector<Shown> judged;
  std::map<std::pair<std::string, std::string>, int> skipped;
  for (const Row& one : all) {
    Shown row = shown(one);
    if (!row.skipped.empty()) ++skipped[{row.file, row.skipped}];
    if (row.seconds) judged.push_back(std::move(row));
  }
  std::stable_sort(judged.begin(), judged.end(), [](const Shown& a, const Shown& b) {
    return std::abs(a.seconds->error) > std::abs(b.seconds->error);
  });
  if (judged.size() > kWorstRows) judged.resize(kWorstRows);
  std::vector<std::vector<std::string>> rows;
  for (const Shown& row : judged)
    rows.push_back({fmt::format("{}:{}", row.file, row.line), row.model, row.device,
                    std::to_string(row.devices), row.plan, human_seconds(row.seconds->predicted),
                    human_seconds(row.seconds->measured),
                    human_change(row.seconds->predicted, row.seconds->measured)});
  output.print(table({"worst rows", "model", "device", "devices", "plan", "predicted", "measured", "error"},
                     rows, {.optional = {"plan", "device", "model"}}));
  rows.clear();
  for (const auto& [what, count] : skipped) rows.push_back({what.first, std::to_string(count), what.second});
  if (!rows.empty()) output.print(table({"skipped", "rows", "why"}, rows, {.text = true}));
}

// One line a source, under a line of all.
void print_sources(const std::string& title, const evidence::Summary& summary, const Output& output) {
  std::vector<std::vector<std::string>> rows = {summary_row("all", summary.all)};
  for (const evidence::SourceFigures& source : summary.sources)
    rows.push_back(
        summary_row(source.kind ? fmt::format("{} ({})", source.name, name_of(*source.kind)) : source.name,
                    source.figures));
  std::vector<std::string> header = {title,    "rows",  "skipped", "MAPE",
                                     "median", "worst", "bias",    "within 10%"};
  if (summary.all.groups) header.insert(header.end(), {"groups", "tau", "regret"});
  for (auto& row : rows) row.resize(header.size());  // of a source without a row that counts
  output.print(table(header, rows, {.optional = {"within 10%", "regret", "tau", "groups", "worst"}}));
}

// Of tables of steps: what share of the rows is predicted, and of how many our memory model is wrong.
void print_answered(const evidence::Figures& all, const Output& output) {
  if (!all.asked || all.asked->rows == 0) return;
  output.print(
      fmt::format("{:.1f}% of {} rows with a time or a rate are predicted; {} of these ran, but are "
                  "predicted not to fit.\n",
                  100.0 * all.rows / all.asked->rows, all.asked->rows, all.asked->refused_by_memory));
  if (all.coverage)
    output.print(fmt::format("{:.1f}% of them lie in their 90% intervals.\n", 100 * *all.coverage));
  if (const auto& cells = all.by_cell)
    output.print(fmt::format(
        "By cell (each model of a source on a device in a precision counts once; {} cells): mean error "
        "{:.1f}%, median {:.1f}%, bias {:.1f}%.\n",
        cells->cells, 100 * cells->mape, 100 * cells->median_ape, 100 * cells->bias));
  if (const auto& jobs = all.any_software)
    output.print(fmt::format(
        "Ranking of plans of one model, batch and machine, whatever software ran them ({} groups): {:.1f}% "
        "of "
        "pairs in order, mean regret {:.1f}%, worst {:.1f}%.\n",
        jobs->groups, 100 * jobs->pairs_in_order, 100 * jobs->regret_mean, 100 * jobs->regret_max));
}

// Rows of which the reader had to take so much for granted (Assumed::widens) are named.
constexpr double kMuchAssumed = 0.3;

void print_assumed(const std::vector<evidence::PublishedRow>& rows, const Output& output) {
  std::map<std::string, int> assumed;
  for (const evidence::PublishedRow& row : rows) {
    const auto most = std::max_element(
        row.assumed.begin(), row.assumed.end(),
        [](const evidence::Assumed& a, const evidence::Assumed& b) { return a.widens < b.widens; });
    if (!row.step_s || most == row.assumed.end() || most->widens < kMuchAssumed) continue;
    ++assumed[most->what];
  }
  if (assumed.empty()) return;
  std::vector<std::vector<std::string>> table_rows;
  for (const auto& [what, count] : assumed) table_rows.push_back({what, std::to_string(count)});
  output.print(table({"assumed, for the table does not say", "rows"}, table_rows, {.text = true}));
}

bool empty(const evidence::Figures& figures) {
  return figures.rows == 0 && figures.skipped == 0;
}

template <typename Row>
std::string first_reason(const std::vector<Row>& rows) {
  for (const Row& row : rows)
    if (!row.skipped.empty()) return row.skipped;
  return "there are no rows";
}

// A validation of nothing is no success.
void check_compared(bool compared, const std::vector<std::string>& files, const std::string& why) {
  if (!compared)
    throw UserError(fmt::format("nothing could be compared in {}: {}", files.front(), why),
                    "expected rows that can be predicted");
}

// Of steps and of throughput; of memory where a table has nothing else.
void check_tolerance(const evidence::Figures& figures, const ValidateOptions& options) {
  if (options.tolerance && figures.rows > 0 && figures.mape > *options.tolerance)
    throw NoAnswer(fmt::format("the rows are {:.1f}% off in the mean, outside the tolerance of {:.1f}%",
                               100 * figures.mape, 100 * *options.tolerance));
}

int validate_published(const ValidateOptions& options) {
  const Output& output = options.output;
  std::vector<evidence::ExplicitRow> rows;
  begin_progress("predicting");
  const evidence::Published result = evidence::validate_published(
      options.published, &rows, evidence::instead_of(options.runtime, options.cluster),
      /*ranges=*/true);
  if (!empty(result.steps.all)) {
    print_sources("source", result.steps, output);
    print_answered(result.steps.all, output);
    print_rows(result.rows, output);
    print_assumed(result.rows, output);
  }
  if (const auto& memory = result.memory) {
    output.print("\n");
    print_sources("memory", memory->figures, output);
    output.print(fmt::format(
        "{} rows ran, {} of them predicted not to fit; {} ran out of memory, {} of them predicted to fit.\n",
        memory->ran, memory->said_not_to_fit.size(), memory->out_of_memory, memory->said_to_fit.size()));
  }
  if (result.throughput) {
    output.print("\n");
    print_sources("throughput", *result.throughput, output);
  }
  const bool compared = result.steps.all.rows > 0 || (result.memory && result.memory->figures.all.rows > 0) ||
                        (result.throughput && result.throughput->all.rows > 0);
  check_compared(compared, options.published, first_reason(result.rows));
  if (!options.rows.empty()) evidence::write_plans(rows, options.rows);
  if (!options.markdown.empty()) write_file_atomically(options.markdown, published_markdown(result));
  output.write(to_json(result));
  check_tolerance(result.steps.all, options);
  if (result.throughput) check_tolerance(result.throughput->all, options);
  if (result.steps.all.rows == 0 && result.memory) check_tolerance(result.memory->figures.all, options);
  return 0;
}

int validate_collectives(const ValidateOptions& options) {
  const evidence::PublishedCollectives result =
      evidence::validate_published_collectives(options.published_collectives);
  if (!empty(result.all)) {
    evidence::Summary summary{result.all, {}};
    for (const evidence::CollectiveSource& source : result.sources)
      summary.sources.push_back({source.name, source.all, {}});
    print_sources("source", summary, options.output);
    print_rows(result.rows, options.output);
  }
  check_compared(result.all.rows > 0, options.published_collectives, first_reason(result.rows));
  options.output.write(to_json(result));
  check_tolerance(result.all, options);
  return 0;
}

int run_validate(const ValidateOptions& options) {
  const int asked = !options.plan.empty() + !options.published.empty() +
                    !options.published_collectives.empty() + static_cast<int>(options.history);
  if (asked != 1)
    throw UserError(asked == 0 ? "nothing to validate" : "several things to validate",
                    "expected one of PLAN, `published`, `published_collectives` and `history`");
  if (!options.against.empty()) {
    if (options.plan.empty()) throw UserError("`against` without a PLAN", "validate PLAN `against` FILE…");
    return validate_against(options);
  }
  if (options.history) return show_history(options.output);
  if (!options.published.empty()) return validate_published(options);
  if (!options.published_collectives.empty()) return validate_collectives(options);
  return validate_plan(options);
}

void add_published_options(Command& command, ValidateOptions& options) {
  command.add(texts_option({.key = "published",
                            .unit = "CSV",
                            .help = "compare predictions with tables of published steps and memory",
                            .many = true},
                           options.published));
  command.add(texts_option({.key = "published_collectives",
                            .unit = "CSV",
                            .help = "compare the collective model with tables of published nccl-tests runs",
                            .many = true},
                           options.published_collectives));
  command.add(switch_option(
      {.key = "history", .help = "show every plan that was validated here and how its error developed"},
      options.history));
  command.add(text_option(
      {.key = "markdown", .unit = "FILE", .help = "with --published: write the figures as Markdown"},
      options.markdown));
  command.add(text_option(
      {.key = "rows",
       .unit = "FOLDER",
       .help =
           "with --published: write each predicted row as a plan, with what was assumed about it and why"},
      options.rows));
  command.add(text_option({.key = "runtime",
                           .unit = "NAME|FILE|default",
                           .help = "with --published: predict steps as if this runtime had run them",
                           .fallback = "the rows' own"},
                          options.runtime));
  command.add(text_option({.key = "cluster",
                           .unit = "CLUSTER",
                           .help = "with --published: predict steps on as many devices of this cluster",
                           .fallback = "the rows' own"},
                          options.cluster));
}

}  // namespace

Command validate_command() {
  const auto options = std::make_shared<ValidateOptions>();
  Command command{"validate",
                  "predicts a plan, runs it and compares predicted with measured",
                  {plan_option(options->plan), backend_option(options->backend), mpi_option(options->mpi)},
                  [options] { return run_validate(*options); }};
  command.option("plan").required = false;
  command.add(launch_options(options->launch));
  command.add(count_option({.key = "steps",
                            .unit = "N",
                            .help = "number of training steps to measure",
                            .fallback = std::to_string(kDefaultSteps)},
                           options->steps, {1, 1'000'000}));
  command.add(number_option(
      {.key = "tolerance",
       .unit = "R",
       .help = "exit with code 3 if the step's relative error, of tables the mean error of their rows, is "
               "larger than this fraction",
       .fallback = "none"},
      options->tolerance));
  command.add(text_option(
      {.key = "data", .unit = "FILE", .help = "text to train on", .fallback = "as in `orrery run`"},
      options->data));
  command.add(texts_option(
      {.key = "against",
       .unit = "FILE",
       .help =
           "with PLAN: run nothing; compare with files of this plan's measured steps (docs/measurements.md)",
       .many = true},
      options->against));
  add_published_options(command, *options);
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
