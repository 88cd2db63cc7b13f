// Fits the scalars of a runtime profile to published training steps, by the closed form.
//
//   fit_runtime RUNTIME [--every N] [--show] [--leave-out] NAME=VALUE… [fit:NAME=START…] TABLES…
//
// RUNTIME: a profile of the catalog or of evidence/profiles. NAME: a field that the profile lists as
// `fitted`, or clock:DEVICE (sustained_clock of devices whose name begins so); with NAME=VALUE any number of
// the profile is set. Rows whose framework the runtime stands for count, every N-th of them in the fit. The
// mean absolute percentage error is minimised. With --leave-out each model and each source in turn is left
// out of the fit and predicted by what the others gave. Deterministic: Nelder and
// Mead's simplex (NLopt) from the given start.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/csv.h"
#include "base/error.h"
#include "evidence/fits/minimise.h"
#include "evidence/statistics.h"
#include "evidence/steps.h"
#include "program/runtime_profile.h"
#include "proto/runtime_profile.pb.h"

using namespace orrery;
using namespace orrery::evidence;

namespace {

struct Setting {
  std::string name;
  double value = 0;
};

struct Item {
  ExplicitRow step;
  std::string source;
  std::string model;
  int line = 0;
  bool fitted = true;  // one of every N
};

// The profile with a scalar changed. One that hides nothing of experts' traffic goes on hiding nothing.
void apply(const Setting& setting, Job* job) {
  if (setting.name.starts_with("clock:")) {
    for (DeviceProfile& device : job->cluster.profiles)
      if (device.name.starts_with(setting.name.substr(6))) device.sustained_clock = setting.value;
    return;
  }
  if (setting.name == "expert_exposed" && job->runtime.expert_exposed == 1) return;
  proto::RuntimeProfile message;
  to_proto(job->runtime, &message);
  const auto* field = proto::RuntimeProfile::descriptor()->FindFieldByName(setting.name);
  if (field == nullptr || field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE)
    throw UserError("unknown scalar '" + setting.name + "'",
                    "a number of a runtime profile, or clock:DEVICE");
  message.GetReflection()->SetDouble(&message, field, setting.value);
  job->runtime = runtime_profile_from_proto(message, setting.name, "");
}

void check_fitted(const std::string& name, const RuntimeProfile& profile) {
  const auto& fitted = profile.fitted;
  if (!name.starts_with("clock:") && std::find(fitted.begin(), fitted.end(), name) == fitted.end())
    throw UserError(fmt::format("'{}' is no fitted scalar of {}", name, profile.name),
                    fmt::format("one of {}", fmt::join(fitted, ", ")));
}

// Models that differ in their dimensions, whatever a table calls them.
std::string model_of(const ExplicitRow& step) {
  const Transformer& t = *step.plan.job->workload.transformer;
  return fmt::format("model of {} x {}{}", t.layers, t.hidden, t.moe ? ", experts" : "");
}

// Of the setting's value: what is physical.
Range plausible(const std::string& name) {
  if (name == "kernel_launch_s") return {0, 1e-4};
  if (name == "step_overhead_s") return {0, 1};
  if (name == "micro_batch_overhead_s") return {0, 0.1};
  if (name == "collective_overhead_s") return {0, 2e-3};
  if (name == "expert_exposed") return {0, 1};
  if (name == "shared_expert_traffic") return {0, 2};
  if (name.starts_with("clock:")) return {0.3, 1};
  return {0.1, 1.3};
}

double predict(const Item& item, const std::vector<Setting>& settings) {
  auto job = std::make_shared<Job>(*item.step.plan.job);
  for (const Setting& setting : settings) apply(setting, job.get());
  return planner::estimate_step_seconds({std::move(job), item.step.plan.choices});
}

double mean_error(const std::vector<Item>& items, const std::vector<Setting>& settings,
                  const std::string& without) {
  double sum = 0;
  int count = 0;
  for (const Item& item : items) {
    if (!item.fitted || item.source == without || item.model == without) continue;
    sum += std::abs(predict(item, settings) / item.step.measured_s - 1);
    ++count;
  }
  return sum / std::max(1, count);
}

// The settings from `fixed` on, by their logarithms, beside the others.
std::vector<Setting> fit(const std::vector<Item>& items, std::vector<Setting> settings, std::size_t fixed,
                         const std::string& without) {
  const std::size_t n = settings.size() - fixed;
  if (n == 0) return settings;
  std::vector<double> start;
  std::vector<Range> ranges;
  for (std::size_t i = fixed; i < settings.size(); ++i) {
    const Range range = plausible(settings[i].name);
    start.push_back(std::log(settings[i].value));
    ranges.push_back({std::log(range.least), std::log(range.most)});
  }
  const auto set = [&](const std::vector<double>& point) {
    for (std::size_t i = 0; i < n; ++i) settings[fixed + i].value = std::exp(point[i]);
  };
  const auto error = [&](const std::vector<double>& point) {
    set(point);
    return mean_error(items, settings, without);
  };
  set(minimise(error, start, ranges,
               {.first_step = 0.2, .tolerance = 1e-5, .evaluations = static_cast<int>(80 * n)}));
  return settings;
}

void print_figures(const std::string& name, const std::vector<Judged>& rows) {
  if (rows.empty()) return;
  const Figures f = figures(rows, 0);
  fmt::print("{:42} {:4} rows: mean {:6.2f}% median {:6.2f}% worst {:6.1f}% bias {:+6.2f}% tau {:.3f}\n",
             name, rows.size(), 100 * f.mape, 100 * f.median_ape, 100 * f.max_ape, 100 * f.bias,
             f.groups->kendall_tau);
}

struct Asked {
  std::vector<Setting> settings, fitted;
  std::vector<Item> items;
  bool show = false, leave_out = false;
};

// Rows of a table that the runtime stands for.
void read_rows(const std::string& file, const std::string& runtime, int every, std::vector<Item>* items) {
  const CsvTable table = read_csv(file);
  for (const CsvRow& row : table.rows) {
    try {
      ExplicitRow step = read_step(table, row);
      if (step.measured_s <= 0 || step.plan.job->runtime.name != runtime) continue;
      std::string model = model_of(step);
      const bool fitted = items->size() % static_cast<std::size_t>(every) == 0;
      items->push_back(
          {std::move(step), std::filesystem::path(file).stem(), std::move(model), row.line, fitted});
    } catch (const Unreadable&) {
    }
  }
}

Asked read_arguments(const std::vector<std::string>& arguments) {
  Asked asked;
  int every = 1;
  const std::string& runtime = arguments.at(0);
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto equals = argument.find('=');
    if (argument == "--every") {
      every = std::stoi(arguments.at(++i));
    } else if (argument == "--show") {
      asked.show = true;
    } else if (argument == "--leave-out") {
      asked.leave_out = true;
    } else if (equals == std::string::npos) {
      read_rows(argument, runtime, every, &asked.items);
    } else {
      const bool fit = argument.starts_with("fit:");
      const std::string name = argument.substr(fit ? 4 : 0, fit ? equals - 4 : equals);
      if (fit) check_fitted(name, runtime_named(runtime));
      (fit ? asked.fitted : asked.settings).push_back({name, std::stod(argument.substr(equals + 1))});
    }
  }
  return asked;
}

Judged judge(const Item& item, const std::vector<Setting>& settings) {
  return {predict(item, settings), item.step.measured_s, item.step.group, item.step.label};
}

void print_fit(const Asked& asked, const std::vector<Setting>& best) {
  for (const Setting& setting : best) fmt::print("{}={:.4g} ", setting.name, setting.value);
  fmt::print("\n");
  std::map<std::string, std::vector<Judged>> sources;
  for (const Item& item : asked.items) {
    const Judged judged = judge(item, best);
    sources[item.source].push_back(judged);
    if (asked.show)
      fmt::print("{}:{} {} devices {} predicted {:.4f} measured {:.4f} {:+.1f}%\n", item.source, item.line,
                 item.step.plan.choices.world(), item.step.label, judged.predicted, judged.measured,
                 100 * (judged.predicted / judged.measured - 1));
  }
  for (const auto& [source, rows] : sources) print_figures(source, rows);
}

// Each model, or each source, predicted by a fit to all others.
void leave_out(const Asked& asked, const std::vector<Setting>& settings, bool by_model) {
  const auto name_of_item = [&](const Item& item) { return by_model ? item.model : item.source; };
  std::set<std::string> names;
  for (const Item& item : asked.items) names.insert(name_of_item(item));
  if (names.size() < 2) return;
  std::vector<Judged> pooled;
  for (const std::string& name : names) {
    const std::vector<Setting> others = fit(asked.items, settings, asked.settings.size(), name);
    std::vector<Judged> judged;
    for (const Item& item : asked.items)
      if (name_of_item(item) == name) judged.push_back(judge(item, others));
    print_figures("left out: " + name, judged);
    pooled.insert(pooled.end(), judged.begin(), judged.end());
  }
  print_figures(by_model ? "ALL, each model left out" : "ALL, each source left out", pooled);
}

int run(const std::vector<std::string>& arguments) {
  const Asked asked = read_arguments(arguments);
  std::vector<Setting> settings = asked.settings;
  settings.insert(settings.end(), asked.fitted.begin(), asked.fitted.end());
  print_fit(asked, fit(asked.items, settings, asked.settings.size(), ""));
  if (!asked.leave_out || asked.fitted.empty()) return 0;
  for (const bool by_model : {true, false}) leave_out(asked, settings, by_model);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: fit_runtime RUNTIME [--every N] [--show] [fit:]NAME=VALUE… TABLES…\n");
    return 2;
  }
  try {
    return run({argv + 1, argv + argc});
  } catch (const UserError& error) {
    fmt::print(stderr, "fit_runtime: {}\n", error.what());
    return 2;
  }
}
