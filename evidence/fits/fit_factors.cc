// Fits the factors of all mechanisms (planner/uncertainty/factors.h) to published training steps, all at
// once: what frameworks, devices and networks differ by are draws from populations, and what no mechanism
// explains is a source's, a cell's (a source, model, device and precision) or a row's own.
//
//   fit_factors [--as RUNTIME --since YEAR] [--write DIRECTORY] [--rows FILE] [--sites | --choices] TABLES…
//
// --as: rows of that year and later, of dense models on A100, H100, H200, B200 and GB200, as if that runtime
// was named, frameworks, devices and networks alike: the medians are then what a default should say.
// --write: into the sources at DIRECTORY: runtimes' scalars, devices' training_speed and what is left
// uncertain (planner/uncertainty/spread.textproto); with --as, that runtime's scalars alone. What is written
// has no part in the fit but as where it begins: writing twice moves the third digit at most.
// --rows: each row as its source left out predicts it.
// --choices: instead of that, which of the plans of one job on one machine would be chosen
// (choice_measure.h).
// --sites: instead of that, what five rows of each left out source's sites are worth (site_measure.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/statistics.h"
#include "evidence/fits/choice_measure.h"
#include "evidence/fits/mixed_model.h"
#include "evidence/fits/site_measure.h"
#include "evidence/statistics.h"
#include "evidence/steps.h"
#include "planner/closed_form/figures.h"
#include "planner/uncertainty/factors.h"
#include "topologies/device_catalog.h"

using namespace orrery;
using namespace orrery::evidence;
using planner::Factor;
using planner::kAllFactors;
using planner::kFactors;
using planner::World;

namespace {

struct Item {
  ExplicitRow step;
  std::string source, model, cell, framework, device, network;
  // Effects' indices: per factor, of its population and of what this row is.
  std::array<int, kFactors> population{}, member{};
  int source_effect = 0, cell_effect = 0, noise = 0;
  double widens = 0;  // sd of what was assumed
  World world;        // at which it was looked at last
  double predicted = 0;
  std::array<double, kFactors> slope{};  // d log(step) / d log(factor)
};

// Devices of the catalog with one clock: the same arithmetic at the same power (A100 SXM of 40 and 80 GB and
// A800, which differ in their links; V100 of 16 and 32 GB). GH200, whose power is its processor's, too, and
// whose datasheet says a little more than H100's, is not among H100's.
std::vector<std::string> alike(const std::string& device) {
  const auto clock = [](const DeviceProfile& of) {
    return std::tuple(of.generation, of.peak(DType::fp16), of.peak_power_w, of.sustained_clock);
  };
  std::vector<std::string> names;
  if (!is_catalog_device(device)) return {device};
  const auto own = clock(catalog_device(device));
  for (const CatalogEntry& entry : catalog_devices())
    if (clock(catalog_device(entry.name)) == own) names.push_back(entry.name);
  return names;
}

const std::string& first_alike(const std::string& device) {
  static std::map<std::string, std::string> known;
  std::string& first = known[device];
  if (first.empty()) first = alike(device).front();
  return first;
}

// A scalar of the runtime's that a factor moves: what it is before anything is fitted, and the least that is
// taken for stated. A time is multiplied by its factor, an efficiency divided.
struct Scalar {
  Factor factor;
  const char* name;
  double RuntimeProfile::*field;
  double base, least;
  bool time;
};
constexpr std::array<Scalar, 7> kScalars = {{
    {Factor::matmul, "matmul_efficiency", &RuntimeProfile::matmul_efficiency, 1, 0.1, false},
    {Factor::attention, "attention_efficiency", &RuntimeProfile::attention_efficiency, 1, 0.1, false},
    {Factor::vector, "memory_bound_efficiency", &RuntimeProfile::memory_bound_efficiency, 1, 0.1, false},
    {Factor::communication, "communication_efficiency", &RuntimeProfile::communication_efficiency, 1, 0.1,
     false},
    {Factor::host, "kernel_launch_s", &RuntimeProfile::kernel_launch_s, 6e-6, 1e-6, true},
    {Factor::waiting, "collective_overhead_s", &RuntimeProfile::collective_overhead_s, 5e-5, 2e-6, true},
    {Factor::experts, "expert_exposed", &RuntimeProfile::expert_exposed, 0.5, 0.05, true},
}};

// The job with the population's scalars, and in *world what its own profile said in their place.
std::shared_ptr<const Job> neutral(const Job& job, bool devices_too, World* world) {
  auto plain = std::make_shared<Job>(job);
  for (const Scalar& scalar : kScalars) {
    double& field = plain->runtime.*scalar.field;
    const double was = std::max(field, scalar.least);
    (*world)[scalar.factor] = std::log(scalar.time ? was / scalar.base : scalar.base / was);
    field = scalar.base;
  }
  if (!devices_too) return plain;
  (*world)[Factor::clock] =
      -std::log(plain->cluster.profiles[static_cast<std::size_t>(plain->cluster.groups.front().node.profile)]
                    .training_speed);
  for (DeviceProfile& device : plain->cluster.profiles) device.training_speed = 1;
  return plain;
}

double predict_in(const Item& item, const World& world) {
  return planner::estimate_step_seconds(
      {planner::job_in(world, *item.step.plan.job), item.step.plan.choices});
}

void look(Item* item, const World& world) {
  constexpr double kStep = 0.04;
  item->world = world;
  item->predicted = predict_in(*item, world);
  for (const Factor factor : kAllFactors) {
    World other = world;
    other[factor] += kStep;
    item->slope[static_cast<std::size_t>(factor)] =
        std::log(predict_in(*item, other) / item->predicted) / kStep;
  }
}

// What is thought of a factor before any step is seen: how far the population's median is from the models,
// which benchmarks of kernels and collectives made, and how far members are from each other.
struct Belief {
  double population_sd = 0.1, member_sd = 0.1;
};

// Networks are what benchmarks of collectives say: that steps are slower than these are frameworks' doing.
// What is left uncertain of them is stated, not fitted: what a fit with a free location left.
constexpr double kBenchmarkedSd = 0.03;
// Direct links are what benchmarks of collectives say, and only those of hosts in which devices meet are
// uncertain: by how processors, switches and lanes were put together. Eight RTX 4090 reach 0.98 of what the
// model says, Sailor's RTX 2080 and Titan RTX (layer_profiles_sailor.csv, tensor parallelism beside none)
// 0.4, its eight RTX 3090 0.1, four L40S 0.3: stated, and no row's.
constexpr double kHostLinksSd = 0.45;
constexpr double kCertainSd = 1e-3;
struct Stated {
  double known_sd = 0, unknown_sd = 0;
};

Stated stated_of(Factor factor) {
  if (factor == Factor::between) return {0.10, 0.20};
  if (factor == Factor::latency) return {0.40, 0.60};
  return {};
}

Belief belief_of(Factor factor) {
  switch (factor) {
    case Factor::matmul:
      return {0.15, 0.12};
    case Factor::attention:
      return {0.30, 0.30};
    case Factor::vector:
      return {0.30, 0.30};
    case Factor::clock:
      return {0.07, 0.12};
    case Factor::host:  // some microseconds a kernel, whatever launches it
      return {0.4, 0.8};
    case Factor::waiting:
      return {0.8, 0.8};
    case Factor::communication:
      return {0.22, 0.22};
    case Factor::intra:
      return {kCertainSd, kCertainSd};
    case Factor::between:
    case Factor::latency:
      return {kBenchmarkedSd, kBenchmarkedSd};
    case Factor::experts:
      return {0.45, 0.30};
  }
  return {};
}

// A cell of n rows counts as n^(1 - this) rows: its rows share what the model gets wrong of it.
constexpr double kCellPower = 0.4;
// Deviations of sources and of cells in the fit. Larger ones let what mechanisms could explain go into them;
// these leave the least error on sources left out (0.03 to 0.1 were tried: 16.3% to 17.1%).
constexpr double kSourceSd = 0.03, kCellSd = 0.03;
constexpr int kRounds = 4;
// Of frameworks of fewer nothing is written.
constexpr std::size_t kFewestCells = 2;
// With --as: what none of them explains is a cell's.
constexpr double kAloneSd = 1e-3, kAloneCellSd = 0.15;
constexpr std::array<std::string_view, 5> kCurrent = {"a100", "h100", "h200", "b200", "gb200"};
// Of what is predicted for a source that was left out: see spread_text().
constexpr double kSiteSd = 0.06;

class Fit {
 public:
  struct Asked {
    Instead instead;
    std::string since;  // a year
  };
  void read(const std::string& file, const Asked& asked) {
    const CsvTable table = read_csv(file);
    for (const CsvRow& row : table.rows) {
      try {
        if (table.field(row, "date") < asked.since) continue;
        Item item;
        item.step = read_step(table, row, asked.instead);
        alone_ = asked.instead.runtime.has_value();
        if (alone_ && !asks_for_default(*item.step.plan.job)) continue;
        if (item.step.measured_s <= 0) continue;
        check_plan(item.step.plan);
        const Job& job = *item.step.plan.job;
        if (job.workload.transformer && job.workload.transformer->fine_tuning.any()) continue;
        item.source = std::filesystem::path(file).stem();
        item.model = table.field(row, "model");
        // Frameworks without a profile of their own are told apart by their first words.
        const std::string framework = table.field(row, "framework");
        item.framework = runtime_for(framework).empty() ? framework.substr(0, framework.find_first_of(" (/,"))
                                                        : job.runtime.name;
        item.widens = widening(item.step.assumed);
        item.device = job.cluster.profiles[job.cluster.groups.front().node.profile].name;
        item.network = planner::network_class(job.cluster);
        item.cell = cell_of(item.source, item.model, item.step.plan);
        item.step.plan.job = neutral(job, !alone_, &item.world);
        items_.push_back(std::move(item));
      } catch (const Unreadable&) {
      } catch (const UserError& e) {
        fmt::print(stderr, "{}:{}: {}\n", file, row.line, e.what());
      }
    }
  }

  void prepare() {
    int group = 0;
    const auto add_group = [&](double sd, double count) {
      effects_.sd.push_back(sd);
      effects_.prior_sd.push_back(sd);
      effects_.prior_count.push_back(count);
      return group++;
    };
    const auto effect = [&](int of, const std::string& name) {
      const auto [at, fresh] = index_.try_emplace({of, name}, static_cast<int>(effects_.group.size()));
      if (fresh) {
        effects_.group.push_back(of);
        names_.push_back(name);
      }
      return at->second;
    };
    for (const Factor factor : kAllFactors) {
      const auto f = static_cast<std::size_t>(factor);
      const Belief belief = belief_of(factor);
      // What devices and networks are is known where a runtime alone is asked for.
      const bool asked = !alone_ || level_of(factor) == planner::Level::framework;
      population_group_[f] = add_group(asked ? belief.population_sd : kAloneSd, 1e6);
      member_group_[f] = add_group(alone_ ? kAloneSd : belief.member_sd, alone_ ? 1e6 : 20);
    }
    source_group_ = add_group(alone_ ? kAloneSd : kSourceSd, 1e6);
    cell_group_ = add_group(alone_ ? kAloneCellSd : kCellSd, 1e6);
    for (const Item& item : items_) ++cell_rows_[item.cell];
    for (Item& item : items_) {
      for (const Factor factor : kAllFactors) {
        const auto f = static_cast<std::size_t>(factor);
        const std::string& member = level_of(factor) == planner::Level::framework ? item.framework
                                    : level_of(factor) == planner::Level::device  ? first_alike(item.device)
                                                                                  : item.network;
        item.population[f] = effect(population_group_[f], std::string(name_of(factor)));
        item.member[f] = effect(member_group_[f], std::string(name_of(factor)) + " " + member);
      }
      item.source_effect = effect(source_group_, item.source);
      item.cell_effect = effect(cell_group_, item.cell);
      item.noise = noises_.try_emplace(item.source, static_cast<int>(noises_.size())).first->second;
    }
  }

  void run(int rounds) {
    effects_.noise_sd.assign(noises_.size(), effects_.prior_noise_sd);
    std::vector<bool> all(items_.size(), true);
    for (int round = 0; round < rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for_each_in_parallel(static_cast<int>(items_.size()), processors(), [&](int i) {
        Item& item = items_[static_cast<std::size_t>(i)];
        look(&item, round == 0 ? item.world : world_of(item, posterior_));
      });
      linearise();
      for (int em = 0; em < 30; ++em) {
        posterior_ = solve(observations_, all, effects_);
        update_deviations(observations_, all, posterior_, &effects_);
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      fmt::print("round {}: noise {:.3f} source {:.3f} cell {:.3f}, {:.1f} s\n", round, typical_noise(),
                 effects_.sd[static_cast<std::size_t>(source_group_)],
                 effects_.sd[static_cast<std::size_t>(cell_group_)], seconds);
    }
  }

  // Of a source that is not known.
  double typical_noise() const { return median(effects_.noise_sd); }

  void print_factors() const {
    for (const Factor factor : kAllFactors) {
      const auto f = static_cast<std::size_t>(factor);
      const int population = index_.at({population_group_[f], std::string(name_of(factor))});
      fmt::print("{:14} x{:.3f} (sd {:.3f}); members sd {:.3f}:", name_of(factor),
                 std::exp(posterior_.mean[population]),
                 std::sqrt(posterior_.covariance(population, population)),
                 effects_.sd[static_cast<std::size_t>(member_group_[f])]);
      for (std::size_t i = 0; i < effects_.group.size(); ++i)
        if (effects_.group[i] == member_group_[f])
          fmt::print(
              " {} x{:.3f}+-{:.2f}", names_[i].substr(name_of(factor).size() + 1),
              std::exp(posterior_.mean[static_cast<Eigen::Index>(i)]),
              std::sqrt(posterior_.covariance(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(i))));
      fmt::print("\n");
    }
  }

  // What is left uncertain, for planner/uncertainty/spread.textproto. Sources left out say what no mechanism
  // explains: `site_sd` is what their rows need beside the factors for nine in ten to lie inside.
  std::string spread_text() {
    std::string text =
        "# proto-file: proto/spread.proto\n# proto-message: orrery.proto.Spreads\n"
        "# Written by evidence/fits/fit_factors --write; docs/accuracy.md, \"Factors\".\n";
    for (const Factor factor : kAllFactors) {
      if (factor == Factor::intra) {
        text += fmt::format("factor {{\n  factor: \"{}\"\n  member {{ name: \"pcie\" sd: {:.3f} }}\n}}\n",
                            name_of(factor), kHostLinksSd);
        continue;
      }
      const auto f = static_cast<std::size_t>(factor);
      const int population = index_.at({population_group_[f], std::string(name_of(factor))});
      const double tau = effects_.sd[static_cast<std::size_t>(member_group_[f])];
      const Stated stated = stated_of(factor);
      text += fmt::format("factor {{\n  factor: \"{}\"\n  unknown_sd: {:.3f}\n", name_of(factor),
                          stated.unknown_sd > 0
                              ? stated.unknown_sd
                              : std::sqrt(posterior_.covariance(population, population) + tau * tau));
      for (std::size_t i = 0; i < effects_.group.size(); ++i) {
        if (effects_.group[i] != member_group_[f]) continue;
        const auto at = static_cast<Eigen::Index>(i);
        const double variance = posterior_.covariance(population, population) +
                                posterior_.covariance(at, at) + 2 * posterior_.covariance(population, at);
        const std::string member = names_[i].substr(name_of(factor).size() + 1);
        if (level_of(factor) == planner::Level::framework && !is_profile(member)) continue;
        const bool device = level_of(factor) == planner::Level::device;
        for (const std::string& name : device ? alike(member) : std::vector{member})
          text += fmt::format("  member {{ name: \"{}\" sd: {:.3f} }}\n", name,
                              stated.known_sd > 0 ? stated.known_sd : std::sqrt(variance));
      }
      text += "}\n";
    }
    return text + fmt::format("site_sd: {:.3f}\nmodel_sd: {:.3f}\nrow_sd: {:.3f}\n", kSiteSd, kCellSd,
                              typical_noise());
  }

  // What a runtime's profile says of itself: the population's beside what is its own.
  std::vector<std::pair<std::string, double>> scalars_of(const std::string& framework) const {
    const auto times = [&](Factor factor) {
      const auto f = static_cast<std::size_t>(factor);
      double log_time = posterior_.mean[index_.at({population_group_[f], std::string(name_of(factor))})];
      const auto own = index_.find({member_group_[f], std::string(name_of(factor)) + " " + framework});
      if (own != index_.end()) log_time += posterior_.mean[own->second];
      return std::exp(log_time);
    };
    std::vector<std::pair<std::string, double>> scalars;
    for (const Scalar& scalar : kScalars)
      scalars.emplace_back(
          scalar.name, scalar.time ? scalar.base * times(scalar.factor) : scalar.base / times(scalar.factor));
    return scalars;
  }

  void write(const std::filesystem::path& sources, const std::string& as) {
    const auto runtime_file = [&](const std::string& name) {
      for (const char* folder : {"program/runtimes", "evidence/profiles"})
        if (std::filesystem::exists(sources / folder / (name + ".textproto")))
          return sources / folder / (name + ".textproto");
      return std::filesystem::path();
    };
    if (!as.empty()) {
      write_fields(runtime_file(as), scalars_of(as));
      return;
    }
    std::map<std::string, std::set<std::string>> cells;
    std::map<std::string, double> speeds;
    for (const Item& item : items_) {
      cells[item.framework].insert(item.cell);
      speeds[first_alike(item.device)] = std::exp(-world_of(item, posterior_)[Factor::clock]);
    }
    for (const auto& [first, speed] : speeds) {
      // 1 is what no step has set (foundation_of, topologies/device_catalog.h).
      const double set = std::abs(speed - 1) < 5e-4 ? 1.001 : speed;
      for (const std::string& device : alike(first)) {
        const auto file = sources / "topologies/devices" / (device + ".textproto");
        if (std::filesystem::exists(file)) write_fields(file, {{"training_speed", set}});
      }
    }
    for (const auto& [framework, of] : cells)
      if (is_of_sequences(runtime_file(framework), of.size()))
        write_fields(runtime_file(framework), scalars_of(framework));
    write_file_atomically((sources / "planner/uncertainty/spread.textproto").string(), spread_text());
  }

  // Predictions of the rows that `out` holds for by a posterior that may not have seen them.
  std::vector<Judged> judge(const std::vector<bool>& out, const Posterior& posterior) const {
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (out[i]) at.push_back(i);
    std::vector<Judged> outcomes(at.size());
    for_each_in_parallel(static_cast<int>(at.size()), processors(), [&](int i) {
      const auto k = static_cast<std::size_t>(i);
      const Item& item = items_[at[k]];
      const double predicted = predict_in(item, world_of(item, posterior));
      double variance = typical_noise() * typical_noise() + item.widens * item.widens;
      variance += kSiteSd * kSiteSd + kCellSd * kCellSd;
      const std::vector<Term> terms = mechanism_terms(item);
      for (const Term& a : terms)
        for (const Term& b : terms)
          variance += a.coefficient * b.coefficient * posterior.covariance(a.effect, b.effect);
      for (const Factor factor : kAllFactors)
        variance += std::pow(item.slope[static_cast<std::size_t>(factor)] * stated_of(factor).known_sd, 2);
      const double factor = std::exp(1.645 * std::sqrt(variance));
      outcomes[k] = {predicted, item.step.measured_s, item.step.group,   item.step.label,
                     item.cell, predicted / factor,   predicted * factor};
    });
    return outcomes;
  }

  static void print_outcomes(const std::string& name, const std::vector<Judged>& outcomes) {
    if (outcomes.empty()) return;
    const Figures of = figures(outcomes, 0);
    std::vector<double> widths;
    for (const Judged& row : outcomes) widths.push_back(row.high / row.low);
    fmt::print(
        "{:36} {:4} rows mean {:5.1f}% median {:5.1f}% bias {:+6.1f}% | {:3} cells mean {:5.1f}% median "
        "{:5.1f}% | "
        "coverage {:4.0f}% high/low {:.2f}\n",
        name, of.rows, 100 * of.mape, 100 * of.median_ape, 100 * of.bias, of.by_cell->cells,
        100 * of.by_cell->mape, 100 * of.by_cell->median_ape, 100 * *of.coverage, median(widths));
  }

  void leave_out(bool by_model, bool each, std::string* lines = nullptr) const {
    std::set<std::string> names;
    // A sweep over widths that calls them all "GPT" is of several models.
    const auto name_of_item = [&](const Item& item) {
      const auto& model = item.step.plan.job->workload.transformer;
      return by_model ? fmt::format("{} {} {}", item.source, item.model, model ? model->hidden : 0)
                      : item.source;
    };
    for (const Item& item : items_) names.insert(name_of_item(item));
    std::vector<Judged> pooled;
    for (const std::string& name : names) {
      std::vector<bool> out, used;
      for (const Item& item : items_) {
        out.push_back(name_of_item(item) == name);
        used.push_back(!out.back());
      }
      const std::vector<Judged> outcomes = judge(out, solve(observations_, used, effects_));
      if (each) print_outcomes("left out: " + name, outcomes);
      for (const Judged& row : outcomes)
        if (each && lines != nullptr)
          *lines += fmt::format("{},{:.6g},{:.6g},{:.3f},{:.3f},{:.3f},\"{}\",\"{}\"\n", name, row.measured,
                                row.predicted, row.predicted / row.measured, row.low / row.measured,
                                row.high / row.measured, row.cell, row.plan);
      pooled.insert(pooled.end(), outcomes.begin(), outcomes.end());
    }
    print_outcomes(by_model ? "ALL, each model left out" : "ALL, each source left out", pooled);
  }

  // The sites of each source, by factors that were fitted without it.
  std::vector<Site> sites() const {
    std::map<std::string, Site> found;
    without_each_source([&](const Item& item, const Posterior& posterior) {
      Site& site = found[fmt::format("{}|{}|{}|{}", item.source, item.device, item.network, item.framework)];
      site.prior.factor = deviations_of(item, posterior);
      site.rows.push_back(
          {{planner::job_in(world_of(item, posterior), *item.step.plan.job), item.step.plan.choices},
           item.model,
           item.step.measured_s,
           item.widens});
    });
    std::vector<Site> list;
    for (auto& [name, site] : found) {
      site.name = name;
      list.push_back(std::move(site));
    }
    return list;
  }

  // Plans of one job, of each source, by factors that were fitted without it, or with all; of plans that make
  // the same choice the best.
  std::vector<ChoiceGroup> choice_groups(bool left_out) const {
    std::map<std::string, ChoiceGroup> found;
    const auto add = [&](const Item& item, const Posterior& posterior) {
      Chosen plan{{item.step.plan.choices, predict_in(item, world_of(item, posterior)), {}},
                  item.step.measured_s};
      plan.contender.response.estimate_s = plan.contender.step_s;
      const auto deviations = deviations_of(item, posterior);
      for (std::size_t f = 0; f < kFactors; ++f)
        plan.contender.response.slope[f] = item.slope[f] * deviations[f];
      ChoiceGroup& group = found[item.source + " " + item.step.group];
      group.source = item.source;
      group.spread = planner::spread_of(*item.step.plan.job);
      const auto same = std::find_if(group.plans.begin(), group.plans.end(), [&](const Chosen& other) {
        return planner::chosen(other.contender.choices) == planner::chosen(plan.contender.choices);
      });
      if (same == group.plans.end()) {
        group.plans.push_back(std::move(plan));
      } else if (plan.contender.step_s < same->contender.step_s) {
        *same = std::move(plan);
      }
    };
    if (left_out)
      without_each_source(add);
    else
      for (const Item& item : items_) add(item, posterior_);
    std::vector<ChoiceGroup> list;
    for (auto& [name, group] : found)
      if (group.plans.size() >= 2) list.push_back(std::move(group));
    return list;
  }

  void print_in_sample() const {
    std::map<std::string, std::vector<bool>> sources;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      auto& out = sources[items_[i].source];
      out.resize(items_.size());
      out[i] = true;
    }
    for (const auto& [source, out] : sources) print_outcomes(source, judge(out, posterior_));
    print_outcomes("ALL, in sample", judge(std::vector<bool>(items_.size(), true), posterior_));
  }

  std::size_t count() const { return items_.size(); }

 private:
  // Whether what was fitted to models with sequences is to be said of a profile: it has evidence of its own,
  // or is one that claims some, and is not what networks on images run by.
  static bool is_of_sequences(const std::filesystem::path& profile, std::size_t cells) {
    if (profile.empty()) return false;
    const std::string text = read_file(profile.string());
    const bool claims = text.find("\ncalibrated: true") != std::string::npos;
    return (claims || cells >= kFewestCells) && text.find("gpu-images") == std::string::npos;
  }

  // Each field on its line, at the end where the file has none.
  static void write_fields(const std::filesystem::path& file,
                           const std::vector<std::pair<std::string, double>>& fields) {
    std::string text = read_file(file.string());
    for (const auto& [name, value] : fields) {
      const std::string line = fmt::format("{}: {:.3g}", name, value);
      std::size_t at = text.starts_with(name + ":") ? 0 : text.find("\n" + name + ":");
      if (at == std::string::npos) {
        text += line + "\n";
      } else {
        at += at > 0 ? 1 : 0;
        text.replace(at, text.find('\n', at) - at, line);
      }
    }
    write_file_atomically(file.string(), text);
  }

  static bool asks_for_default(const Job& job) {
    if (!job.workload.transformer || job.workload.transformer->moe) return false;
    const std::string& device = job.cluster.profiles[job.cluster.groups.front().node.profile].name;
    return std::any_of(kCurrent.begin(), kCurrent.end(),
                       [&](std::string_view current) { return device.starts_with(current); });
  }

  static bool is_profile(const std::string& name) {
    const std::vector<std::string> known = catalog_runtimes();
    return std::find(known.begin(), known.end(), name) != known.end();
  }

  static std::vector<Term> mechanism_terms(const Item& item) {
    std::vector<Term> terms;
    for (std::size_t f = 0; f < kFactors; ++f) {
      if (item.slope[f] == 0) continue;
      terms.push_back({item.population[f], item.slope[f]});
      terms.push_back({item.member[f], item.slope[f]});
    }
    return terms;
  }

  // Of the factors' logarithms.
  static std::array<double, kFactors> deviations_of(const Item& item, const Posterior& posterior) {
    std::array<double, kFactors> deviations{};
    for (std::size_t f = 0; f < kFactors; ++f) {
      const int a = item.population[f], b = item.member[f];
      const double variance =
          posterior.covariance(a, a) + posterior.covariance(b, b) + 2 * posterior.covariance(a, b);
      const double stated = stated_of(static_cast<Factor>(f)).known_sd;
      deviations[f] = stated > 0 ? stated : std::sqrt(variance);
    }
    return deviations;
  }

  // use(item, what is known without the item's source).
  template <typename Use>
  void without_each_source(const Use& use) const {
    std::set<std::string> sources;
    for (const Item& item : items_) sources.insert(item.source);
    for (const std::string& source : sources) {
      std::vector<bool> used;
      for (const Item& item : items_) used.push_back(item.source != source);
      const Posterior posterior = solve(observations_, used, effects_);
      for (const Item& item : items_)
        if (item.source == source) use(item, posterior);
    }
  }

  World world_of(const Item& item, const Posterior& posterior) const {
    World world;
    for (std::size_t f = 0; f < kFactors; ++f)
      world.log_time[f] = posterior.mean[item.population[f]] + posterior.mean[item.member[f]];
    return world;
  }

  std::map<std::string, int> cell_rows_, noises_;

  // y = log(measured / predicted) + slopes x where it was looked at.
  void linearise() {
    observations_.clear();
    for (const Item& item : items_) {
      Observation o;
      o.terms = mechanism_terms(item);
      o.noise = item.noise;
      o.terms.push_back({item.source_effect, 1});
      o.terms.push_back({item.cell_effect, 1});
      o.weight = std::pow(static_cast<double>(cell_rows_[item.cell]), alone_ ? -1.0 : -kCellPower) /
                 (1 + item.widens * item.widens / (0.05 * 0.05));
      o.y = std::log(item.step.measured_s / item.predicted);
      for (std::size_t f = 0; f < kFactors; ++f) o.y += item.slope[f] * item.world.log_time[f];
      observations_.push_back(std::move(o));
    }
  }

  std::vector<Item> items_;
  std::vector<Observation> observations_;
  Effects effects_;
  std::map<std::pair<int, std::string>, int> index_;
  std::vector<std::string> names_;
  std::array<int, kFactors> population_group_{}, member_group_{};
  int source_group_ = 0, cell_group_ = 0;
  bool alone_ = false;
  Posterior posterior_;
};

}  // namespace

namespace {

int run(const std::vector<std::string>& arguments) {
  Fit::Asked asked;
  std::string sources, rows;
  bool sites = false, choices = false;
  std::vector<std::string> tables;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--as") {
      asked.instead.runtime = load_runtime(arguments.at(++i));
    } else if (arguments[i] == "--since") {
      asked.since = arguments.at(++i);
    } else if (arguments[i] == "--write") {
      sources = arguments.at(++i);
    } else if (arguments[i] == "--rows") {
      rows = arguments.at(++i);
    } else if (arguments[i] == "--sites") {
      sites = true;
    } else if (arguments[i] == "--choices") {
      choices = true;
    } else {
      tables.push_back(arguments[i]);
    }
  }
  Fit fit;
  for (const std::string& table : tables) fit.read(table, asked);
  fmt::print("{} rows\n", fit.count());
  fit.prepare();
  fit.run(kRounds);
  if (sites) {
    measure_sites(fit.sites());
    return 0;
  }
  if (choices) {
    for (const bool left_out : {true, false}) {
      fmt::print("\n{}\n", left_out ? "each source left out" : "in sample");
      measure_choices(fit.choice_groups(left_out));
    }
    return 0;
  }
  fit.print_factors();
  fit.print_in_sample();
  fit.leave_out(true, false);
  std::string lines = "source,measured_s,predicted_s,ratio,low,high,cell,row\n";
  fit.leave_out(false, true, &lines);
  if (!rows.empty()) write_file_atomically(rows, lines);
  if (!sources.empty()) fit.write(sources, asked.instead.runtime ? asked.instead.runtime->name : "");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const UserError& error) {
    fmt::print(stderr, "fit_factors: {}\n", error.what());
    return 2;
  }
}
