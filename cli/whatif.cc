// orrery whatif: a plan for each combination of varied options, in time, money and energy.
#include "planner/whatif.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/suggest.h"
#include "cli/output.h"
#include "cli/training_options.h"
#include "cli/verbs.h"
#include "planner/hardware.h"

namespace orrery::cli {
namespace {

namespace whatif = planner::whatif;

constexpr double kSecondsPerHour = 3600;
constexpr double kSecondsPerDay = 86400;
constexpr double kJoulesPerMegawattHour = 3.6e9;

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

// What all points have in common, of what a headline says.
std::string headline(const whatif::Result& result) {
  std::string text;
  const auto add_common = [&](auto fact) {
    const std::string first = fact(*result.points.front().job);
    const bool common = std::all_of(result.points.begin(), result.points.end(),
                                    [&](const whatif::Point& point) { return fact(*point.job) == first; });
    if (common && !first.empty()) text += (text.empty() ? "" : ", ") + first;
  };
  add_common([](const Job& job) { return job.workload.name; });
  add_common([](const Job& job) { return job.cluster.name; });
  add_common([](const Job& job) { return fmt::format("{} devices", job.cluster.devices()); });
  add_common([](const Job& job) { return fmt::format("global batch {}", job.training.global_batch); });
  add_common([](const Job& job) {
    return job.training.seq_len > 0 ? fmt::format("sequences of {}", job.training.seq_len) : std::string();
  });
  add_common([](const Job& job) { return std::string(name_of(job.training.precision)); });
  add_common([](const Job& job) { return std::string(name_of(job.training.optimizer)); });
  add_common([](const Job& job) { return "runtime " + job.runtime.name; });
  if (result.goal.asked)
    text += fmt::format("; to train on {} {}", human_count(result.goal.amount), result.goal.unit());
  return text + "\n";
}

std::string amount_or_dash(const std::optional<double>& value, double unit) {
  return value ? whatif::readable(*value / unit) : "-";
}

std::string marks_of(const whatif::Result& result, std::size_t i) {
  std::vector<std::string> marks;
  const whatif::Verdict& verdict = result.verdict;
  if (verdict.fastest == i) marks.emplace_back("fastest");
  if (verdict.cheapest == i) marks.emplace_back("cheapest");
  if (std::find(verdict.front.begin(), verdict.front.end(), i) != verdict.front.end())
    marks.emplace_back("front");
  const bool limited = result.limits.deadline_s || result.limits.budget_usd;
  if (limited && result.bills[i] && !whatif::meets(*result.bills[i], result.limits))
    marks.emplace_back("misses");
  return fmt::format("{}", fmt::join(marks, " "));
}

// The last column, which a table aligns to the right otherwise.
void align_left(std::vector<std::string>& head, std::vector<std::vector<std::string>>& rows) {
  std::size_t width = head.back().size();
  for (const auto& row : rows) width = std::max(width, row.back().size());
  head.back().resize(width, ' ');
  for (auto& row : rows) row.back().resize(width, ' ');
}

std::string points_table(const whatif::Result& result) {
  const whatif::Goal& goal = result.goal;
  const std::string per = goal.asked ? "" : fmt::format("/1e9 {}", goal.unit());
  const auto any = [&](auto known) {
    return std::any_of(result.bills.begin(), result.bills.end(),
                       [&](const auto& bill) { return bill && known(*bill); });
  };
  const bool priced = any([](const whatif::Bill& bill) { return bill.cost_usd.has_value(); });
  const bool powered = any([](const whatif::Bill& bill) { return bill.energy_j.has_value(); });
  std::vector<std::string> head;
  for (const whatif::Varied& varied : result.varied) head.push_back(varied.key);
  if (head.empty()) head.emplace_back();
  for (const std::string& name : {std::string("step"), std::string(goal.in_tokens ? "tokens/s" : "samples/s"),
                                  std::string("MFU"), (goal.asked ? "days" : "hours") + per})
    head.push_back(name);
  if (priced) head.push_back("USD" + per);
  if (powered) head.push_back("MWh" + per);
  head.emplace_back("memory");
  if (!result.efficiency.empty()) head.emplace_back("scaling");
  head.emplace_back("");
  head.emplace_back("plan");
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const auto& [key, value] : result.points[i].vary) row.push_back(value);
    if (row.empty()) row.emplace_back();
    if (!result.answers[i].best) {
      row.resize(head.size(), "-");
      row[head.size() - 2].clear();
      row.back() = "none";
      continue;
    }
    const whatif::Planned& best = *result.answers[i].best;
    const whatif::Bill& bill = *result.bills[i];
    row.push_back(human_seconds(best.figure("step_time_s")));
    row.push_back(whatif::readable(best.figure(goal.in_tokens ? "tokens_per_s" : "samples_per_s")));
    row.push_back(fmt::format("{:.1f}%", 100 * best.figure("mfu")));
    row.push_back(whatif::readable(bill.time_s / (goal.asked ? kSecondsPerDay : kSecondsPerHour)));
    if (priced) row.push_back(amount_or_dash(bill.cost_usd, 1));
    if (powered) row.push_back(amount_or_dash(bill.energy_j, kJoulesPerMegawattHour));
    row.push_back(human_bytes(best.plan.at("memory_bytes").at("total").get<double>()));
    if (!result.efficiency.empty()) row.push_back(fmt::format("{:.1f}%", 100 * *result.efficiency[i]));
    row.push_back(marks_of(result, i));
    row.push_back(best.words);
  }
  align_left(head, rows);
  return table(head, rows);
}

std::string sentence(const whatif::Result& result, const char* what, std::size_t i) {
  const whatif::Bill& bill = *result.bills[i];
  std::string text = what;
  if (const std::string where = whatif::describe(result.points[i].vary); !where.empty()) text += " " + where;
  text += result.goal.asked ? fmt::format(": {} days", whatif::readable(bill.time_s / kSecondsPerDay))
                            : fmt::format(": {} hours", whatif::readable(bill.time_s / kSecondsPerHour));
  text += fmt::format(", {} device hours", whatif::readable(bill.device_hours));
  if (bill.cost_usd) text += fmt::format(", {} USD", whatif::readable(*bill.cost_usd));
  if (bill.energy_j)
    text += fmt::format(", {} MWh", whatif::readable(*bill.energy_j / kJoulesPerMegawattHour));
  return text + (result.goal.asked ? "" : fmt::format(" for 1e9 {}", result.goal.unit())) + ".\n";
}

// What is not known of the clusters, each once.
std::string unknowns(const whatif::Result& result) {
  std::vector<std::string> unpriced, unpowered;
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const whatif::Point& point : result.points) {
    const Cluster& cluster = point.job->cluster;
    if (planner::usd_per_s(cluster) <= 0) add(unpriced, cluster.name);
    if (!planner::states_power(cluster)) add(unpowered, cluster.name);
  }
  std::string text;
  if (!unpriced.empty())
    text += fmt::format(
        "No price is stated of {}: no cost (price_usd_per_device_hour in the cluster file, or "
        "--vary price=USD).\n",
        fmt::join(unpriced, ", "));
  if (!unpowered.empty())
    text += fmt::format("No power is stated of {}: no energy (peak_power_w in the device profile).\n",
                        fmt::join(unpowered, ", "));
  return text;
}

std::string how_sure(const whatif::Result& result) {
  int planned = 0, proven = 0;
  double widest = 0;
  for (const whatif::Answer& answer : result.answers) {
    if (!answer.best) continue;
    ++planned;
    proven += answer.best->proven ? 1 : 0;
    widest = std::max(widest, answer.best->gap);
  }
  std::string text = fmt::format("{} of {} points planned in {}; {} proven best under this model", planned,
                                 result.points.size(), human_seconds(result.search_s), proven);
  if (proven < planned) text += fmt::format(", others within {:.1f}% of their bounds", 100 * widest);
  return text + ".\n";
}

std::string refusals(const whatif::Result& result) {
  std::string text;
  for (std::size_t i = 0; i < result.points.size(); ++i) {
    if (result.answers[i].best) continue;
    text += fmt::format("No plan for {}: {}.\n", whatif::describe(result.points[i].vary),
                        result.answers[i].refusal);
  }
  return text;
}

// Throws NoAnswer where no point answers what was asked.
void check_answered(const whatif::Result& result) {
  if (result.verdict.fastest) return;
  const auto where = [&](std::size_t i) {
    const std::string text = whatif::describe(result.points[i].vary);
    return text.empty() ? std::string("it") : text;
  };
  const auto nearest = whatif::nearest(result.bills, result.limits);
  if (!nearest)
    throw NoAnswer(fmt::format("none of {} points has a plan; {}: {}", result.points.size(), where(0),
                               result.answers.front().refusal));
  throw NoAnswer(fmt::format("none of {} points meets what was asked: the nearest, {}, {}",
                             result.points.size(), where(*nearest),
                             whatif::miss_of(*result.bills[*nearest], result.limits)));
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
  const whatif::Result result =
      whatif::ask(std::move(varied), std::move(all.points), goal, limits, options.jobs,
                  [](int done, int total) { show_progress("planning", done, total); });
  show_progress("", 0, 0);

  if (!options.out.empty()) write_file_atomically(options.out, whatif::to_csv(result));
  options.output.write(whatif::to_json(result));
  options.output.print(headline(result));
  if (all.shared_batch)
    options.output.print("Without --global-batch every point has the default of the most devices.\n");
  options.output.print("\n" + points_table(result) + "\n");
  if (result.verdict.fastest) options.output.print(sentence(result, "Fastest", *result.verdict.fastest));
  if (result.verdict.cheapest) options.output.print(sentence(result, "Cheapest", *result.verdict.cheapest));
  options.output.print(refusals(result) + unknowns(result) + how_sure(result));
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
