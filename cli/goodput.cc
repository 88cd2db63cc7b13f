// orrery goodput: a whole training run on devices that fail.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/plan_file.h"
#include "cli/terminal/progress.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

constexpr double kMost = 1e15;  // of anything: more is a mistyped figure, and no product below overflows
constexpr std::int64_t kMostGoodputSteps = 1'000'000'000'000;

struct GoodputOptions {
  std::string plan;
  std::optional<double> tokens, samples, steps;
  double mtbf_device_hours = 0;
  std::optional<double> mtbf_node_hours;
  std::optional<double> checkpoint_bandwidth, checkpoint_s, snapshot_s, read_s;
  bool checkpoint_async = false;
  std::optional<std::int64_t> checkpoint_every;
  std::optional<double> detect_s, restart_s;
  std::optional<int> spares;
  std::optional<double> repair_hours;
  bool elastic = false;
  int runs = 200, jobs = 0;
  std::uint64_t seed = 1;
  Output output;
};

GoodputRequest request_of(const GoodputOptions& options) {
  GoodputRequest request;
  request.plan = load_plan(options.plan);
  request.length = {options.tokens, options.samples, options.steps};
  request.mtbf_device_hours = options.mtbf_device_hours;
  request.mtbf_node_hours = options.mtbf_node_hours;
  request.checkpoint_bandwidth_bytes_per_s = options.checkpoint_bandwidth;
  request.checkpoint_s = options.checkpoint_s;
  request.read_s = options.read_s;
  request.checkpoint_async = options.checkpoint_async;
  request.snapshot_s = options.snapshot_s;
  request.checkpoint_every = options.checkpoint_every;
  request.detect_s = options.detect_s.value_or(0);
  request.restart_s = options.restart_s.value_or(0);
  request.spares = options.spares.value_or(0);
  request.repair_hours = options.repair_hours;
  request.elastic = options.elastic;
  request.runs = options.runs;
  request.seed = options.seed;
  request.jobs = options.jobs;
  return request;
}

// ---- for people ----

std::string percent(double share) {
  return fmt::format("{:.2f}%", 100 * share);
}

std::string usd(double amount) {
  if (amount >= 1e6) return fmt::format("{:.2f} M", amount / 1e6);
  return amount < 100 ? fmt::format("{:.2f}", amount) : with_commas(std::llround(amount));
}

std::string megawatt_hours(double energy_j) {
  const double energy_mwh = energy_j / 3.6e9;
  return energy_mwh < 100 ? fmt::format("{:.2f}", energy_mwh) : with_commas(std::llround(energy_mwh));
}

std::string head_text(const Plan& plan, const planner::TrainingRun& run) {
  const Cluster& cluster = plan.job->cluster;
  return fmt::format("{} on {}: {}, {}; {} of {}, {} if nothing ever failed\n", plan.job->workload.name,
                     cluster.name, counted(cluster.devices(), "device"), nodes_in_words(cluster),
                     counted(run.steps, "step"), human_seconds(run.plan().step_s),
                     human_duration(run.ideal_s()));
}

// Of the numbers in the table, what this run costs least with: its price, or where none is stated its
// node-seconds. Erlang's answer is that of a run without end, in which more may fail at once.
std::string cheapest_text(const planner::TrainingRun& run, const planner::GoodputAnswer& answer) {
  const auto cost = [&](const planner::GoodputFigures& figures) {
    return figures.cost_usd.value_or(figures.statistics.time_s.mean * (run.plan().nodes + figures.spares));
  };
  const planner::GoodputFigures* least = &answer.figures;
  for (const planner::Alternative& other : answer.alternatives)
    if (other.key.starts_with("spares_") && cost(other.figures) < cost(*least)) least = &other.figures;
  const int without_end = planner::cheapest_spares(run);
  std::string text = fmt::format("The cheapest number of spare nodes is {}", least->spares);
  if (least->spares != without_end)
    text += fmt::format(" for this run, of those in the table, and {} in the long run", without_end);
  return text;
}

std::string failures_text(const GoodputOptions& options, const planner::GoodputQuestion& question,
                          const planner::GoodputAnswer& answer) {
  const planner::GoodputFigures& figures = answer.figures;
  const planner::TrainingRun& run = question.run;
  const planner::Distribution& interruptions = figures.statistics.interruptions;
  std::string text = fmt::format(
      "Failures interrupt the run every {} of training on average{}, {:.3g} times in all (5% of runs at most "
      "{:.0f}, 95% at most {:.0f}). Each costs {} until it is noticed{}, {} to restart{} and {} to read the "
      "checkpoint.\n",
      human_duration(1 / run.failures_per_s),
      figures.statistics.spent.wait > 0 ? " (none while it waits for a node)" : "", interruptions.mean,
      interruptions.p5, interruptions.p95, human_duration(run.detect_s),
      options.detect_s ? "" : " (no --detect-s)", human_duration(run.restart_s),
      options.restart_s ? "" : " (no --restart-s)", human_duration(run.checkpoint.read_s));
  if (!options.repair_hours)
    return text + "A failed node is repaired or replaced by the time the job restarts (no --repair-hours).\n";
  text += fmt::format("{}; a failed node is repaired in {} on average", counted(run.spares, "spare node"),
                      human_duration(run.repair_s));
  if (!options.elastic)
    return text + "; without a spare the job waits. " + cheapest_text(run, answer) + ".\n";
  text += "; without a spare the job continues on";
  for (std::size_t p = 1; p < run.plans.size(); ++p)
    text += fmt::format("{} {} at {} a step", p > 1 ? "," : "", counted(run.plans[p].nodes, "node"),
                        human_seconds(run.plans[p].step_s));
  return text + ".\n";
}

std::string checkpoint_text(const GoodputOptions& options, const planner::GoodputQuestion& question,
                            const planner::CheckpointCost& cost, std::int64_t every) {
  const planner::TrainingRun& run = question.run;
  const double daly_s = planner::daly_interval_s(run.checkpoint.stall_s, 1 / run.failures_per_s);
  const std::string beside = run.checkpoint.write_s > 0 ? fmt::format(" and is complete {} later",
                                                                      human_duration(run.checkpoint.write_s))
                                                        : "";
  const std::string choice = options.checkpoint_every
                                 ? "as asked"
                                 : fmt::format("the best; Daly's formula gives {}", human_duration(daly_s));
  return fmt::format("A checkpoint of {} stops training for {}{}; one is written every {}, {} ({}).\n",
                     human_bytes(cost.bytes), human_duration(run.checkpoint.stall_s), beside,
                     every == 1 ? "step" : counted(every, "step"),
                     human_duration(static_cast<double>(every) * run.plan().step_s), choice);
}

std::string time_table(const planner::GoodputFigures& figures) {
  const planner::TimeSpent& spent = figures.statistics.spent;
  const double total = spent.total();
  std::vector<std::vector<std::string>> rows = {
      {"steps that count", human_duration(spent.productive), percent(spent.productive / total)}};
  for (const auto& [name, seconds] : planner::lost_parts(spent))
    if (seconds != 0) rows.push_back({name, human_duration(seconds), percent(seconds / total)});
  rows.push_back({"time to train", human_duration(total), percent(1)});
  return table({"mean of the runs", "time", "share"}, rows);
}

std::string choices_table(const planner::GoodputAnswer& answer) {
  const auto row_of = [&](const std::string& what, const planner::GoodputFigures& figures) {
    std::vector<std::string> row = {what, std::to_string(figures.every), percent(figures.goodput),
                                    human_duration(figures.statistics.time_s.mean)};
    if (figures.cost_usd) row.push_back(usd(*figures.cost_usd));
    if (figures.energy_j) row.push_back(megawatt_hours(*figures.energy_j));
    return row;
  };
  std::vector<std::string> head = {"alternative", "steps between", "goodput", "time to train"};
  if (answer.figures.cost_usd) head.emplace_back("USD");
  if (answer.figures.energy_j) head.emplace_back("MWh");
  std::vector<std::vector<std::string>> rows = {row_of("as asked", answer.figures)};
  for (const planner::Alternative& alternative : answer.alternatives)
    rows.push_back(row_of(alternative.change, alternative.figures));
  return table(head, rows);
}

// Why the mean is none of what nine in ten take.
std::string outside_text(const planner::Distribution& time_s) {
  if (time_s.mean >= time_s.p5 && time_s.mean <= time_s.p95) return {};
  return fmt::format(
      " (half take at most {}; a few runs that take much {} pull the average outside this range)",
      human_duration(time_s.p50), time_s.mean > time_s.p95 ? "longer" : "less");
}

std::string result_text(const planner::GoodputQuestion& question, const planner::GoodputFigures& figures) {
  const planner::Distribution& time_s = figures.statistics.time_s;
  std::string text = fmt::format(
      "Goodput {}: {} to train on average, {} to {} in 90% of {} simulated runs{}. The closed form says "
      "{}{}.\n",
      percent(figures.goodput), human_duration(time_s.mean), human_duration(time_s.p5),
      human_duration(time_s.p95), with_commas(question.runs), outside_text(time_s),
      human_duration(figures.closed_form_s),
      question.run.plans.size() > 1 ? " if failed nodes were replaced at once" : "");
  if (figures.cost_usd) text += fmt::format("It costs {} USD", usd(*figures.cost_usd));
  if (figures.energy_j)
    text += fmt::format("{} {} MWh", figures.cost_usd ? " and takes" : "It takes",
                        megawatt_hours(*figures.energy_j));
  return figures.cost_usd || figures.energy_j ? text + ".\n" : text;
}

std::string interval_text(const planner::GoodputAnswer& answer) {
  if (!answer.interval)
    return "No 90% interval: if its steps take longer than predicted, the run may never end.\n";
  const planner::GoodputInterval& interval = *answer.interval;
  std::string text =
      fmt::format("90% interval, of failures and of what is uncertain about a step together: {} to {}",
                  human_duration(interval.time_s.low), human_duration(interval.time_s.high));
  if (interval.cost_usd)
    text += fmt::format(", {} to {} USD", usd(interval.cost_usd->low), usd(interval.cost_usd->high));
  if (interval.energy_j)
    text += fmt::format(", {} to {} MWh", megawatt_hours(interval.energy_j->low),
                        megawatt_hours(interval.energy_j->high));
  return text + fmt::format(", goodput {} to {}. {}\n", percent(interval.goodput.low),
                            percent(interval.goodput.high),
                            what_it_rests_on(interval.rests_on, interval.narrowed_by));
}

int run_goodput(const GoodputOptions& options) {
  const GoodputRequest request = request_of(options);
  options.output.about(to_json(*request.plan.job));
  begin_progress("simulating runs");
  const Goodput result = goodput(request);
  const planner::GoodputQuestion& question = result.question;
  const planner::GoodputAnswer& answer = result.answer;

  options.output.write(to_json(result));
  options.output.print(head_text(request.plan, question.run));
  options.output.print(result_text(question, answer.figures) + interval_text(answer));
  options.output.print("\n" + time_table(answer.figures) + "\n" + choices_table(answer) + "\n");
  options.output.print(failures_text(options, question, answer));
  options.output.print(checkpoint_text(options, question, result.checkpoint, answer.figures.every));
  return 0;
}

// Above (or from) zero, and no more than kMost.
constexpr Numbers kSome = {0, true, kMost};
constexpr Numbers kAny = {0, false, kMost};

template <typename Value>
Setting figure(std::string key, std::string unit, std::string help, std::string fallback, Value& value,
               const Numbers& numbers) {
  return number_option({.key = std::move(key),
                        .unit = std::move(unit),
                        .help = std::move(help),
                        .fallback = std::move(fallback)},
                       value, numbers);
}

void add_run_options(Command& command, GoodputOptions& options) {
  command.add(
      amount_option({.key = "tokens",
                     .unit = "TOKENS",
                     .help = "tokens to train on (steps = tokens / batch, rounded up); k, M, B, T are SI"},
                    options.tokens));
  command.add(
      amount_option({.key = "samples", .unit = "SAMPLES", .help = "samples to train on, instead of --tokens"},
                    options.samples));
  command.add(amount_option({.key = "steps", .unit = "N", .help = "steps to train, instead of --tokens"},
                            options.steps));
  command.add(
      figure("mtbf_device_hours", "HOURS",
             "mean time between failures of one device that interrupt the job (exponentially distributed)",
             "", options.mtbf_device_hours, kSome));
  command.option("mtbf_device_hours").required = true;
  command.add(figure("mtbf_node_hours", "HOURS",
                     "mean time between failures of a node apart from its devices", "nodes do not fail",
                     options.mtbf_node_hours, kSome));
  command.add(figure("detect_s", "SECONDS", "time from a failure until the job is stopped",
                     "0; NCCL's watchdog in PyTorch waits 600", options.detect_s, kAny));
  command.add(figure("restart_s", "SECONDS", "time to start the job again, without reading the checkpoint",
                     "0", options.restart_s, kAny));
}

void add_checkpoint_options(Command& command, GoodputOptions& options) {
  command.add(count_option({.key = "checkpoint_every",
                            .unit = "STEPS",
                            .help = "steps between checkpoints",
                            .fallback = "the number that loses least time"},
                           options.checkpoint_every, {1, kMostGoodputSteps}));
  command.add(figure(
      "checkpoint_bandwidth", "BYTES_PER_S",
      "rate of the storage for all nodes together, to write and to read",
      "the sum of the nodes' storage in the cluster's description, taken to be reachable from all nodes",
      options.checkpoint_bandwidth, kSome));
  command.add(figure("checkpoint_s", "SECONDS", "time to write a checkpoint",
                     "its bytes divided by the bandwidth", options.checkpoint_s, kAny));
  command.add(figure("read_s", "SECONDS", "time to read a checkpoint",
                     "its bytes divided by the bandwidth; with --checkpoint-s the same", options.read_s,
                     kAny));
  command.add(switch_option({.key = "checkpoint_async",
                             .help = "write checkpoints in the background: training stops only while devices "
                                     "copy their state to host memory"},
                            options.checkpoint_async));
  command.add(figure("snapshot_s", "SECONDS", "time of that copy",
                     "the fullest device's state divided by its PCIe rate", options.snapshot_s, kAny));
}

void add_node_options(Command& command, GoodputOptions& options) {
  command.add(count_option({.key = "spares",
                            .unit = "N",
                            .help = "number of spare nodes, which replace failed ones",
                            .fallback = "0"},
                           options.spares, {0, 1'000'000}));
  command.add(figure("repair_hours", "HOURS",
                     "mean time until a failed node is repaired (exponentially distributed)",
                     "0, repaired or replaced at once", options.repair_hours, kAny));
  command.add(switch_option({.key = "elastic",
                             .help = "without a spare, continue with fewer data-parallel replicas and the "
                                     "same global batch until the first checkpoint after the repair"},
                            options.elastic));
}

void add_simulation_options(Command& command, GoodputOptions& options) {
  command.add(count_option(
      {.key = "runs", .unit = "N", .help = "number of whole runs to simulate", .fallback = "200"},
      options.runs, {1, 1'000'000}));
  command.add(count_option(
      {.key = "seed", .unit = "N", .help = "seed of the random failures and repairs", .fallback = "1"},
      options.seed, {0, std::numeric_limits<std::int64_t>::max()}));
  command.add(count_option(
      {.key = "jobs",
       .unit = "J",
       .help = "number of processes that simulate an elastic run's plans; the answer does not depend on it",
       .fallback = "0, one per processor core"},
      options.jobs, {0, kMostJobs}));
}

}  // namespace

Command goodput_command() {
  const auto options = std::make_shared<GoodputOptions>();
  Command command{"goodput",
                  "predicts how long a whole run takes when devices fail, and what would shorten it",
                  {plan_option(options->plan)},
                  [options] { return run_goodput(*options); }};
  add_run_options(command, *options);
  add_checkpoint_options(command, *options);
  add_node_options(command, *options);
  add_simulation_options(command, *options);
  command.add(options->output.setting());
  return command;
}

}  // namespace orrery::cli
