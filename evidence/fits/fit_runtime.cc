// Fits the scalars of a runtime profile to published training steps, by the closed form.
//
//   fit_runtime RUNTIME [--every N] [--show] [--leave-out] NAME=VALUE… [fit:NAME=START…] TABLES…
//
// RUNTIME: a profile of the catalog or of evidence/profiles. NAME: a field that the profile lists as
// `fitted`, or clock:DEVICE (sustained_clock of devices whose name begins so); with NAME=VALUE any number of
// the profile is set. Rows whose framework the runtime stands for count, every N-th of them in the fit. The
// mean absolute percentage error is minimised. With --leave-out each model and each source in turn is left
// out of the fit and predicted by what the others gave. Deterministic: Nelder-Mead from the given start.
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

bool plausible(const Setting& setting) {
  if (setting.name == "kernel_launch_s") return setting.value <= 1e-4;
  if (setting.name == "step_overhead_s") return setting.value <= 1;
  if (setting.name == "micro_batch_overhead_s") return setting.value <= 0.1;
  if (setting.name == "collective_overhead_s") return setting.value <= 2e-3;
  if (setting.name.starts_with("clock:")) return setting.value > 0.3 && setting.value <= 1;
  if (setting.name == "expert_exposed") return setting.value <= 1;
  if (setting.name == "shared_expert_traffic") return setting.value <= 2;
  return setting.value > 0.1 && setting.value <= 1.3;
}

double predict(const Item& item, const std::vector<Setting>& settings) {
  auto job = std::make_shared<Job>(*item.step.plan.job);
  for (const Setting& setting : settings) apply(setting, job.get());
  return planner::estimate_step_seconds({std::move(job), item.step.plan.choices});
}

double mean_error(const std::vector<Item>& items, const std::vector<Setting>& settings,
                  const std::string& without) {
  if (!std::all_of(settings.begin(), settings.end(), plausible)) return 1e3;
  double sum = 0;
  int count = 0;
  for (const Item& item : items) {
    if (!item.fitted || item.source == without || item.model == without) continue;
    sum += std::abs(predict(item, settings) / item.step.measured_s - 1);
    ++count;
  }
  return sum / std::max(1, count);
}

// Nelder and Mead 1965 on the logarithms of the settings from `fixed` on.
std::vector<Setting> fit(const std::vector<Item>& items, std::vector<Setting> settings, std::size_t fixed,
                         const std::string& without) {
  const std::size_t n = settings.size() - fixed;
  if (n == 0) return settings;
  using Point = std::vector<double>;
  const auto set = [&](const Point& x) {
    for (std::size_t i = 0; i < n; ++i) settings[fixed + i].value = std::exp(x[i]);
  };
  const auto error = [&](const Point& x) {
    set(x);
    return mean_error(items, settings, without);
  };
  Point start;
  for (std::size_t i = fixed; i < settings.size(); ++i) start.push_back(std::log(settings[i].value));
  std::vector<std::pair<double, Point>> simplex;
  for (std::size_t i = 0; i <= n; ++i) {
    Point x = start;
    if (i > 0) x[i - 1] -= 0.2;
    simplex.emplace_back(error(x), x);
  }
  for (std::size_t step = 0; step < 40 * n; ++step) {
    std::sort(simplex.begin(), simplex.end());
    if (simplex[n].first - simplex[0].first < 1e-5) break;
    Point centre(n, 0.0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) centre[j] += simplex[i].second[j] / static_cast<double>(n);
    const auto along = [&](double t) {
      Point x(n);
      for (std::size_t j = 0; j < n; ++j) x[j] = centre[j] + t * (simplex[n].second[j] - centre[j]);
      return std::pair(error(x), x);
    };
    const auto reflected = along(-1);
    if (reflected.first < simplex[0].first) {
      simplex[n] = std::min(reflected, along(-2));
    } else if (reflected.first < simplex[n - 1].first) {
      simplex[n] = reflected;
    } else if (const auto nearer = along(reflected.first < simplex[n].first ? -0.5 : 0.5);
               nearer.first < std::min(reflected.first, simplex[n].first)) {
      simplex[n] = nearer;
    } else {
      for (std::size_t i = 1; i <= n; ++i) {
        for (std::size_t j = 0; j < n; ++j)
          simplex[i].second[j] = (simplex[0].second[j] + simplex[i].second[j]) / 2;
        simplex[i].first = error(simplex[i].second);
      }
    }
  }
  set(std::min_element(simplex.begin(), simplex.end())->second);
  return settings;
}

void print_figures(const std::string& name, const std::vector<Judged>& rows) {
  if (rows.empty()) return;
  const Json j = figures(rows, 0);
  fmt::print("{:42} {:4} rows: mean {:6.2f}% median {:6.2f}% worst {:6.1f}% bias {:+6.2f}% tau {:.3f}\n",
             name, rows.size(), 100 * j["mape"].get<double>(), 100 * j["median_ape"].get<double>(),
             100 * j["max_ape"].get<double>(), 100 * j["bias"].get<double>(), j["kendall_tau"].get<double>());
}

int run(const std::vector<std::string>& arguments) {
  std::vector<Setting> settings, fitted;
  std::vector<Item> items;
  int every = 1, seen = 0;
  bool show = false, leave_out = false;
  const std::string& runtime = arguments.at(0);
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto equals = argument.find('=');
    if (argument == "--every") {
      every = std::stoi(arguments.at(++i));
    } else if (argument == "--show") {
      show = true;
    } else if (argument == "--leave-out") {
      leave_out = true;
    } else if (equals != std::string::npos) {
      const double value = std::stod(argument.substr(equals + 1));
      if (argument.starts_with("fit:")) {
        fitted.push_back({argument.substr(4, equals - 4), value});
        check_fitted(fitted.back().name, runtime_named(runtime));
      } else
        settings.push_back({argument.substr(0, equals), value});
    } else {
      const CsvTable table = read_csv(argument);
      for (const CsvRow& row : table.rows) {
        try {
          ExplicitRow step = read_step(table, row);
          if (step.measured_s <= 0 || step.plan.job->runtime.name != runtime) continue;
          std::string model = model_of(step);
          items.push_back({std::move(step), std::filesystem::path(argument).stem(), std::move(model),
                           row.line, seen++ % every == 0});
        } catch (const Unreadable&) {
        }
      }
    }
  }
  const std::size_t fixed = settings.size();
  settings.insert(settings.end(), fitted.begin(), fitted.end());
  const std::vector<Setting> best = fit(items, settings, fixed, "");
  for (const Setting& setting : best) fmt::print("{}={:.4g} ", setting.name, setting.value);
  fmt::print("\n");
  std::map<std::string, std::vector<Judged>> sources;
  for (const Item& item : items) {
    const double predicted = predict(item, best);
    sources[item.source].push_back({predicted, item.step.measured_s, item.step.group, item.step.label});
    if (show)
      fmt::print("{}:{} {} devices {} predicted {:.4f} measured {:.4f} {:+.1f}%\n", item.source, item.line,
                 item.step.plan.choices.world(), item.step.label, predicted, item.step.measured_s,
                 100 * (predicted / item.step.measured_s - 1));
  }
  for (const auto& [source, rows] : sources) print_figures(source, rows);
  if (!leave_out || fitted.empty()) return 0;
  for (const bool by_model : {true, false}) {
    std::set<std::string> names;
    for (const Item& item : items) names.insert(by_model ? item.model : item.source);
    if (names.size() < 2) continue;
    std::vector<Judged> pooled;
    for (const std::string& name : names) {
      const std::vector<Setting> others = fit(items, settings, fixed, name);
      std::vector<Judged> judged;
      for (const Item& item : items)
        if ((by_model ? item.model : item.source) == name)
          judged.push_back({predict(item, others), item.step.measured_s, item.step.group, item.step.label});
      print_figures("left out: " + name, judged);
      pooled.insert(pooled.end(), judged.begin(), judged.end());
    }
    print_figures(by_model ? "ALL, each model left out" : "ALL, each source left out", pooled);
  }
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
