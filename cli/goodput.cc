// orrery goodput: a whole training run on devices that fail.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

constexpr double kMost = 1e15;  // of anything: more is a mistyped figure, and no product below overflows
constexpr std::int64_t kMostSteps = 1'000'000'000'000;

struct Options {
  std::string plan;
  std::string tokens, samples, steps;
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

void check(const Options& options) {
  if (!options.tokens.empty() + !options.samples.empty() + !options.steps.empty() != 1)
    throw UserError("how long the run is", "expected one of --tokens, --samples and --steps");
  if (!options.repair_hours && (options.spares || options.elastic))
    throw UserError(options.spares ? "--spares without --repair-hours" : "--elastic without --repair-hours",
                    "expected how long a failed node is away; without it all are back at once");
  if (options.snapshot_s && !options.checkpoint_async)
    throw UserError("--snapshot-s without --checkpoint-async",
                    "expected both: without it training waits until a checkpoint is written");
}

GoodputRequest request_of(const Options& options) {
  GoodputRequest request;
  request.plan = load_plan(options.plan);
  const auto amount = [](const std::string& text, const char* option) {
    return text.empty() ? std::optional<double>() : parse_amount(text, option);
  };
  request.length = {amount(options.tokens, "--tokens"), amount(options.samples, "--samples"),
                    amount(options.steps, "--steps")};
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
  return amount >= 1e6 ? fmt::format("{:.2f} M", amount / 1e6)
                       : fmt::format("{:.{}f}", amount, amount < 100 ? 2 : 0);
}

std::string megawatt_hours(double energy_j) {
  return fmt::format("{:.{}f}", energy_j / 3.6e9, energy_j >= 3.6e11 ? 0 : 2);
}

std::string head_text(const Plan& plan, const planner::TrainingRun& run) {
  const Cluster& cluster = plan.job->cluster;
  return fmt::format("{} on {}: {} devices, {} node{}; {} steps of {}: {} if nothing ever failed\n",
                     plan.job->workload.name, cluster.name, cluster.devices(), cluster.nodes(),
                     cluster.nodes() == 1 ? "" : "s", run.steps, human_seconds(run.plan().step_s),
                     human_duration(run.ideal_s()));
}

std::string failures_text(const Options& options, const planner::GoodputQuestion& question,
                          const planner::GoodputFigures& figures) {
  const planner::TrainingRun& run = question.run;
  const planner::Distribution& interruptions = figures.statistics.interruptions;
  std::string text = fmt::format(
      "interrupted every {} on average, {:.3g} times in all (5% of runs at most {:.0f}, 95% at most {:.0f}); "
      "then {} until it is noticed{}, {} to restart{}, {} to read the checkpoint\n",
      human_duration(1 / run.failures_per_s), interruptions.mean, interruptions.p5, interruptions.p95,
      human_duration(run.detect_s), options.detect_s ? "" : " (no --detect-s)", human_duration(run.restart_s),
      options.restart_s ? "" : " (no --restart-s)", human_duration(run.checkpoint.read_s));
  if (!options.repair_hours)
    return text + "a failed node is back or replaced by the time the job restarts (no --repair-hours)\n";
  text += fmt::format("{} spare node{}; a failed node is repaired in {} on average", run.spares,
                      run.spares == 1 ? "" : "s", human_duration(run.repair_s));
  if (!options.elastic)
    return text + fmt::format("; without a spare the job waits; {} would be cheapest\n",
                              planner::cheapest_spares(run));
  text += "; without a spare it goes on with";
  for (std::size_t p = 1; p < run.plans.size(); ++p)
    text += fmt::format("{} {} nodes at {} a step", p > 1 ? "," : "", run.plans[p].nodes,
                        human_seconds(run.plans[p].step_s));
  return text + "\n";
}

std::string checkpoint_text(const Options& options, const planner::GoodputQuestion& question,
                            const planner::CheckpointCost& cost, std::int64_t every) {
  const planner::TrainingRun& run = question.run;
  const double daly_s = planner::daly_interval_s(run.checkpoint.stall_s, 1 / run.failures_per_s);
  const std::string beside = run.checkpoint.write_s > 0 ? fmt::format(" and is complete {} later",
                                                                      human_duration(run.checkpoint.write_s))
                                                        : "";
  const std::string choice =
      options.checkpoint_every ? "as asked" : fmt::format("the best; Daly: {}", human_duration(daly_s));
  return fmt::format("a checkpoint of {} stops training for {}{}; one every {} step{}, {} ({})\n",
                     human_bytes(cost.bytes), human_duration(run.checkpoint.stall_s), beside, every,
                     every == 1 ? "" : "s", human_duration(static_cast<double>(every) * run.plan().step_s),
                     choice);
}

std::string time_table(const planner::GoodputFigures& figures) {
  const planner::TimeSpent& spent = figures.statistics.spent;
  const double total = spent.total();
  std::vector<std::vector<std::string>> rows = {
      {"steps that count", human_duration(spent.productive), percent(spent.productive / total)}};
  for (const auto& [name, seconds] : planner::lost_parts(spent))
    if (seconds != 0) rows.push_back({name, human_duration(seconds), percent(seconds / total)});
  rows.push_back({"time to train", human_duration(total), percent(1)});
  return table({"mean of runs", "time", "share"}, rows);
}

std::string choices_table(const planner::GoodputAnswer& answer) {
  const auto row_of = [&](const std::string& what, const planner::GoodputFigures& figures) {
    std::vector<std::string> row = {what, std::to_string(figures.every), percent(figures.goodput),
                                    human_duration(figures.statistics.time_s.mean)};
    if (figures.cost_usd) row.push_back(usd(*figures.cost_usd));
    if (figures.energy_j) row.push_back(megawatt_hours(*figures.energy_j));
    return row;
  };
  std::vector<std::string> head = {"what else it could be", "steps between", "goodput", "time to train"};
  if (answer.figures.cost_usd) head.emplace_back("USD");
  if (answer.figures.energy_j) head.emplace_back("MWh");
  std::vector<std::vector<std::string>> rows = {row_of("as asked", answer.figures)};
  for (const planner::Alternative& alternative : answer.alternatives)
    rows.push_back(row_of(alternative.change, alternative.figures));
  return table(head, rows);
}

std::string result_text(const planner::GoodputQuestion& question, const planner::GoodputFigures& figures) {
  const planner::Distribution& time_s = figures.statistics.time_s;
  std::string text = fmt::format(
      "goodput {}: {} to train, 90% of {} runs between {} and {}; closed form: {}{}\n",
      percent(figures.goodput), human_duration(time_s.mean), question.runs, human_duration(time_s.p5),
      human_duration(time_s.p95), human_duration(figures.closed_form_s),
      question.run.plans.size() > 1 ? " if failed nodes were replaced at once" : "");
  if (figures.cost_usd) text += fmt::format("costs {} USD", usd(*figures.cost_usd));
  if (figures.energy_j)
    text += fmt::format("{}takes {} MWh", figures.cost_usd ? ", " : "", megawatt_hours(*figures.energy_j));
  return figures.cost_usd || figures.energy_j ? text + "\n" : text;
}

int run(const Options& options) {
  check(options);
  const GoodputRequest request = request_of(options);
  const Goodput result = goodput(request);
  const planner::GoodputQuestion& question = result.question;
  const planner::GoodputAnswer& answer = result.answer;

  options.output.write(to_json(result));
  options.output.print(head_text(request.plan, question.run));
  options.output.print(failures_text(options, question, answer.figures));
  options.output.print(checkpoint_text(options, question, result.checkpoint, answer.figures.every));
  options.output.print(result_text(question, answer.figures));
  options.output.print("\n" + time_table(answer.figures) + "\n" + choices_table(answer));
  return 0;
}

// Above (or from) zero, and no more than kMost.
CLI::Validator figure(bool zero_allowed) {
  return CLI::Validator(
      [zero_allowed](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool parsed = !text.empty() && *end == '\0';
        if (parsed && value <= kMost && (value > 0 || (zero_allowed && value == 0))) return {};
        return fmt::format("{} is not a number {} 0 up to {:g}", text, zero_allowed ? "from" : "above",
                           kMost);
      },
      "");
}

template <typename Value>
CLI::Option* add_figure(CLI::App& verb, const char* name, Value& value, const char* unit, const char* what,
                        bool zero_allowed = false) {
  return verb.add_option(name, value, what)->check(figure(zero_allowed))->type_name(unit);
}

void add_run_options(CLI::App& verb, Options& options) {
  verb.add_option("--tokens", options.tokens,
                  "tokens to train on: steps = tokens / batch, rounded up; k, M, B, T are SI")
      ->type_name("TOKENS");
  verb.add_option("--samples", options.samples, "samples to train on, in the place of --tokens")
      ->type_name("SAMPLES");
  verb.add_option("--steps", options.steps, "steps to train, in the place of --tokens")->type_name("N");
  add_figure(verb, "--mtbf-device-hours", options.mtbf_device_hours, "HOURS",
             "mean time between failures of one device that interrupt the job (exponential)")
      ->required();
  add_figure(verb, "--mtbf-node-hours", options.mtbf_node_hours, "HOURS",
             "the same of a node besides its devices (default: nodes do not fail)");
  add_figure(verb, "--detect-s", options.detect_s, "SECONDS",
             "from a failure until the job is stopped (default: 0; NCCL's watchdog in PyTorch waits 600)",
             true);
  add_figure(verb, "--restart-s", options.restart_s, "SECONDS",
             "to start the job again, without reading the checkpoint (default: 0)", true);
}

void add_checkpoint_options(CLI::App& verb, Options& options) {
  verb.add_option("--checkpoint-every", options.checkpoint_every,
                  "steps between checkpoints (default: those that lose least)")
      ->check(CLI::Range(std::int64_t{1}, kMostSteps).description(""))
      ->type_name("STEPS");
  add_figure(verb, "--checkpoint-bandwidth", options.checkpoint_bandwidth, "BYTES_PER_S",
             "of the storage, all nodes together, to write and to read (default: what the cluster states of "
             "its nodes' storage, taken to be reachable from all nodes)");
  add_figure(verb, "--checkpoint-s", options.checkpoint_s, "SECONDS",
             "to write a checkpoint (default: its bytes over the bandwidth)", true);
  add_figure(verb, "--read-s", options.read_s, "SECONDS",
             "to read a checkpoint back (default: its bytes over the bandwidth; with --checkpoint-s as long)",
             true);
  verb.add_flag("--checkpoint-async", options.checkpoint_async,
                "training stops only while devices copy their state to host memory");
  add_figure(verb, "--snapshot-s", options.snapshot_s, "SECONDS",
             "that copy (default: the fullest device's state over its PCIe rate)", true);
}

void add_node_options(CLI::App& verb, Options& options) {
  verb.add_option("--spares", options.spares, "nodes beside the plan's that replace failed ones (default: 0)")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->type_name("N");
  add_figure(verb, "--repair-hours", options.repair_hours, "HOURS",
             "until a failed node is back, on average (exponential; default: 0, back or replaced at once)",
             true);
  verb.add_flag(
      "--elastic", options.elastic,
      "without a spare go on with fewer data-parallel replicas and the same global batch, until the "
      "first checkpoint after the repair");
}

}  // namespace

void add_goodput(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand(
      "goodput", "says how long a whole run takes on devices that fail, and what to do about it");
  const auto options = std::make_shared<Options>();
  verb->add_option("PLAN", options->plan, "a plan that `orrery plan --out` wrote")->required();
  add_run_options(*verb, *options);
  add_checkpoint_options(*verb, *options);
  add_node_options(*verb, *options);
  verb->add_option("--runs", options->runs, "whole runs to simulate (default: 200)")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->type_name("N");
  verb->add_option("--seed", options->seed, "of the random failures and repairs (default: 1)")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("N");
  verb->add_option("--jobs", options->jobs,
                   "processes that simulate an elastic run's plans; the answer is the same whatever it is "
                   "(default: 0, one a processor)")
      ->check(CLI::Range(0, 1024).description(""))
      ->type_name("J");
  options->output.add_option(*verb);
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
