// orrery whatif: a plan for each combination of varied options, in time, money and energy.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/suggest.h"
#include "cli/output.h"
#include "cli/training_options.h"
#include "cli/verbs.h"
#include "cli/whatif_text.h"
#include "orrery/json.h"

namespace orrery::cli {
namespace {

namespace whatif = planner::whatif;

constexpr double kSecondsPerDay = 86400;

struct Options {
  const CLI::App* verb = nullptr;
  TrainingOptions training;
  std::vector<std::string> vary;
  std::string tokens, samples, out;
  std::optional<double> deadline_days, budget_usd;
  int jobs = 0;
  Output output;
};

// The training options alone, as `plan` reads them.
class PlanLine {
 public:
  PlanLine() {
    app_.set_help_flag();
    training.add_options(app_);
  }
  CLI::App& app() { return app_; }

  TrainingOptions training;

 private:
  CLI::App app_;
};

const planner::HardwareKey* hardware_key(const std::string& key) {
  for (const planner::HardwareKey& known : planner::hardware_keys())
    if (known.key == key) return &known;
  return nullptr;
}

// "tp" for --tp, "cluster" for CLUSTER.
std::string key_of(const CLI::Option& option) {
  std::string name = option.get_name();
  name.erase(0, name.find_first_not_of('-'));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

double hardware_number(const planner::HardwareKey& key, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(number >= key.least && number <= key.most))
    throw UserError(fmt::format("--vary {}={} is out of range", key.key, text),
                    fmt::format("{}, a number from {} to {}", key.help, key.least, key.most));
  return number;
}

// The keys are options of `plan` or of the hardware, and the latter's values are numbers.
void check_varied(const std::vector<whatif::Varied>& varied) {
  PlanLine line;
  std::vector<std::string> known;
  for (const CLI::Option* option : line.app().get_options()) known.push_back(key_of(*option));
  for (const planner::HardwareKey& key : planner::hardware_keys()) known.emplace_back(key.key);
  for (const whatif::Varied& v : varied) {
    if (std::find(known.begin(), known.end(), v.key) == known.end())
      throw UserError(fmt::format("--vary {} is unknown", v.key), suggestion(v.key, known));
    if (const planner::HardwareKey* key = hardware_key(v.key))
      for (const std::string& value : v.values) hardware_number(*key, value);
  }
}

// The command line of `plan` that plans a combination: what is varied in the place of what was given.
std::vector<std::string> plan_arguments(const CLI::App& verb, CLI::App& line,
                                        const whatif::Combination& combination) {
  std::vector<std::string> arguments, positional = {"--"};
  for (const CLI::Option* option : line.get_options()) {
    const auto varied = std::find_if(combination.begin(), combination.end(),
                                     [&](const auto& pair) { return pair.first == key_of(*option); });
    const CLI::Option* given = verb.get_option(option->get_name());
    if (varied == combination.end() && given->count() == 0) continue;
    const std::string value = varied != combination.end() ? varied->second : given->results().front();
    if (option->get_positional())
      positional.push_back(value);
    else
      arguments.push_back(fmt::format("{}={}", option->get_name(), value));
  }
  arguments.insert(arguments.end(), positional.begin(), positional.end());
  return arguments;
}

struct Prepared {
  whatif::Point point;
  std::shared_ptr<Job> job;
  bool default_batch = false;
};

Prepared prepare(const CLI::App& verb, const whatif::Combination& combination) {
  PlanLine line;
  std::vector<std::string> arguments = plan_arguments(verb, line.app(), combination);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  line.app().parse(std::move(arguments));
  auto job = std::make_shared<Job>(*line.training.job());
  for (const auto& [key, value] : combination)
    if (const planner::HardwareKey* change = hardware_key(key))
      job->cluster = change->changed(std::move(job->cluster), hardware_number(*change, value));
  return {{combination, job, line.training.pins(), line.training.search_options()},
          job,
          line.training.default_batch()};
}

// Where nothing says the batch, that of the most devices is everybody's: one that grew with them would be
// another training. Whether that changed any.
bool share_default_batch(std::vector<Prepared>& all) {
  bool changed = false;
  for (const bool sequences : {false, true}) {
    const auto concerned = [&](const Prepared& one) {
      return one.default_batch && (one.job->training.seq_len > 0) == sequences;
    };
    std::int64_t batch = 0;
    for (const Prepared& one : all)
      if (concerned(one)) batch = std::max(batch, one.job->training.global_batch);
    for (Prepared& one : all)
      if (concerned(one) && std::exchange(one.job->training.global_batch, batch) != batch) changed = true;
  }
  return changed;
}

struct Points {
  std::vector<whatif::Point> points;
  bool shared_batch = false;
};

Points points_of(const CLI::App& verb, const std::vector<whatif::Varied>& varied) {
  std::vector<Prepared> all;
  for (const whatif::Combination& combination : whatif::combinations(varied)) {
    const auto refusal = [&](const char* what) {
      return UserError(
          combination.empty() ? what : fmt::format("--vary {}: {}", whatif::describe(combination), what));
    };
    try {
      all.push_back(prepare(verb, combination));
    } catch (const CLI::ParseError& error) {
      throw refusal(error.what());
    } catch (const UserError& error) {
      throw refusal(error.what());
    }
  }
  Points result;
  result.shared_batch = share_default_batch(all);
  for (Prepared& one : all) result.points.push_back(std::move(one.point));
  return result;
}

whatif::Goal goal_of(const Options& options, const std::vector<whatif::Point>& points) {
  whatif::Goal goal;
  goal.asked = !options.tokens.empty() || !options.samples.empty();
  goal.in_tokens = !options.tokens.empty() ||
                   (!goal.asked && std::all_of(points.begin(), points.end(), [](const whatif::Point& point) {
                     return point.job->training.seq_len > 0;
                   }));
  if (!options.tokens.empty()) goal.amount = parse_amount(options.tokens, "--tokens");
  if (!options.samples.empty()) goal.amount = parse_amount(options.samples, "--samples");
  return goal;
}

// Throws NoAnswer where no point answers what was asked.
void check_answered(const whatif::Result& result) {
  if (result.verdict.fastest) return;
  const std::size_t count = result.points.size();
  const auto nearest = whatif::nearest(result.bills, result.limits);
  if (!nearest) {
    const std::string& refusal = result.answers.front().refusal;
    if (count == 1) throw NoAnswer(refusal);
    throw NoAnswer(fmt::format("none of {} points has a plan; {}: {}", count,
                               whatif::describe(result.points.front().vary), refusal));
  }
  const std::string miss = whatif::miss_of(*result.bills[*nearest], result.limits);
  if (count == 1) throw NoAnswer("the training " + miss);
  throw NoAnswer(fmt::format("none of {} points meets what was asked: the nearest, {}, {}", count,
                             whatif::describe(result.points[*nearest].vary), miss));
}

int run(const Options& options) {
  if (options.tokens.empty() && options.samples.empty() && (options.deadline_days || options.budget_usd))
    throw UserError("--deadline-days and --budget-usd are of a whole training",
                    "expected --tokens or --samples beside them");
  std::vector<whatif::Varied> varied;
  for (const std::string& text : options.vary) varied.push_back(whatif::parse_varied(text));
  check_varied(varied);
  Points all = points_of(*options.verb, varied);
  const whatif::Goal goal = goal_of(options, all.points);
  whatif::Limits limits;
  if (options.deadline_days) limits.deadline_s = *options.deadline_days * kSecondsPerDay;
  limits.budget_usd = options.budget_usd;
  options.training.say_what_is_ignored();
  check_writable(options.out);  // before minutes of planning
  check_writable(options.output.file());
  show_progress("planning", 0, static_cast<int>(all.points.size()));
  const whatif::Result result =
      orrery::whatif({std::move(varied), std::move(all.points), goal, limits, options.jobs,
                      [](int done, int total) { show_progress("planning", done, total); }});
  show_progress("", 0, 0);

  if (!options.out.empty()) write_file_atomically(options.out, whatif::to_csv(result));
  options.output.write(to_json(result));
  options.output.print(text_of(result, all.shared_batch));
  if (!options.out.empty()) options.output.print(fmt::format("points written to {}\n", options.out));
  check_answered(result);
  return 0;
}

std::string vary_help() {
  std::string text =
      "plan with each of these values, of any option above by its name (nodes=64,128), of cluster or "
      "workload, "
      "or of the hardware:";
  for (const planner::HardwareKey& key : planner::hardware_keys())
    text += fmt::format(" {} ({}),", key.key, key.help);
  text.pop_back();
  return text + fmt::format(
                    "; takes the place of that option. Several --vary multiply, up to {} plans. A ; "
                    "separates values that hold commas",
                    whatif::kMostPoints);
}

}  // namespace

void add_whatif(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand(
      "whatif", "plans every combination of varied options: time to train, cost, energy, the best of them");
  const auto options = std::make_shared<Options>();
  options->verb = verb;
  options->training.add_options(*verb);
  verb->get_option("CLUSTER")->required(false);  // it may be varied

  const auto questions = "What if";
  verb->add_option("--vary", options->vary, vary_help())
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2,…")
      ->group(questions);
  auto* tokens = verb->add_option("--tokens", options->tokens,
                                  "tokens to train on, in steps that neither fail nor wait for checkpoints; "
                                  "k, M, B, T are SI (default: figures per 1e9 tokens)")
                     ->type_name("T")
                     ->group(questions);
  verb->add_option("--samples", options->samples,
                   "samples (sequences) to train on; k, M, B, T are SI (default: figures per 1e9)")
      ->excludes(tokens)
      ->type_name("S")
      ->group(questions);
  verb->add_option("--deadline-days", options->deadline_days,
                   "days that the training may take; what takes longer is neither cheapest nor fastest "
                   "(default: any)")
      ->check(positive_number().description(""))
      ->type_name("DAYS")
      ->group(questions);
  verb->add_option("--budget-usd", options->budget_usd,
                   "USD that the training may cost, by the device hours' price (default: any)")
      ->check(positive_number().description(""))
      ->type_name("USD")
      ->group(questions);
  verb->add_option("--out", options->out, "write the points as CSV (default: none written)")
      ->type_name("CSV")
      ->group(questions);
  verb->add_option("--jobs", options->jobs,
                   "planning processes; the answer is the same whatever it is (default: 0, one a processor)")
      ->check(CLI::Range(0, 1024).description(""))
      ->type_name("J")
      ->group(questions);
  options->output.add_option(*verb);
  verb->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
