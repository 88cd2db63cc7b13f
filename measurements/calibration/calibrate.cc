#include "measurements/calibration/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "evidence/words/machines.h"
#include "measurements/calibration/doubts.h"
#include "measurements/calibration/kernels.h"
#include "planner/closed_form/figures.h"
#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/hardware.h"
#include "planner/uncertainty/site.h"
#include "planner/uncertainty/spread.h"
#include "program/measured/plans_alike.h"
#include "program/runtime_profile.h"

namespace orrery::measurements {
namespace {

using planner::Factor;

std::string files_of(const Measurements& measured) {
  std::string names;
  for (const FileRead& file : measured.files)
    names += (names.empty() ? "" : ", ") + std::filesystem::path(file.file).filename().string();
  constexpr std::size_t kMost = 200;
  return names.size() <= kMost ? names : fmt::format("{} files", measured.files.size());
}

std::string runtime_of(const std::vector<MeasuredStep>& steps) {
  const MeasuredStep& first = steps.front();
  for (const MeasuredStep& step : steps)
    if (step.row.plan.job->runtime.name != first.row.plan.job->runtime.name)
      throw UserError(step.file, step.line,
                      fmt::format("a step of {}, and {}:{} has one of {}", step.row.plan.job->runtime.name,
                                  first.file, first.line, first.row.plan.job->runtime.name),
                      "steps of one runtime, or `runtime`");
  return first.row.plan.job->runtime.name;
}

std::string what_says_runtime(const Measurements& measured) {
  if (!measured.runtime.empty()) return "`runtime`";
  const evidence::ExplicitRow& row = measured.steps.front().row;
  if (row.framework.empty()) return "the default, for no file says what ran";
  const std::string known = evidence::runtime_for(row.framework);
  const std::string said =
      fmt::format("'{}' in {}", row.framework.substr(0, 60),
                  std::filesystem::path(measured.steps.front().file).filename().string());
  if (known.empty()) return said + ", which no runtime is called: the default";
  return known == measured.steps.front().row.plan.job->runtime.name
             ? said
             : said + ", by the row's date or its device's time";
}

// One more time of a row's plan.
void add_to(StepRow* row, double seconds) {
  const double apart = std::log(seconds / row->measured_s);
  ++row->times;
  row->measured_s *= std::exp(apart / row->times);
  row->within += apart * apart * (row->times - 1) / row->times;
}

// On the cluster as its links and kernels were measured, rows of one plan pooled; `row_of`: that of each
// step.
std::vector<StepRow> rows_of(const std::vector<MeasuredStep>& steps, const std::vector<Learned>& known,
                             std::vector<std::size_t>* row_of) {
  std::vector<StepRow> rows;
  PlansSeen seen;  // a table's row that was read again has the same job
  for (const MeasuredStep& step : steps) {
    row_of->push_back(seen.number_of(step.row.plan));
    if (row_of->back() < rows.size()) {
      add_to(&rows[row_of->back()], step.row.measured_s);
      continue;
    }
    Plan plan = step.row.plan;
    Job job = *plan.job;
    planner::World world;
    for (const Learned& learned : known) world[planner::factor_from_name(learned.name)] = learned.mean;
    plan.job = planner::job_in(world, job);
    rows.push_back({std::move(plan), step.model, step.row.measured_s,
                    std::hypot(evidence::widening(step.row.assumed), step.spread)});
  }
  return rows;
}

std::string_view source_of(const planner::RestsOn& rests_on, Factor factor) {
  switch (planner::level_of(factor)) {
    case planner::Level::framework:
      return name_of(rests_on.runtime);
    case planner::Level::device:
      return name_of(rests_on.device);
    case planner::Level::network:
      break;
  }
  return name_of(rests_on.network);
}

void learn_steps(const Measurements& measured, Calibrated* result) {
  result->runtime = runtime_of(measured.steps);
  result->runtime_from = what_says_runtime(measured);
  std::vector<std::size_t> row_of;
  const std::vector<StepRow> rows = rows_of(measured.steps, result->factors, &row_of);
  const planner::Spread spread = planner::spread_of(*rows.front().plan.job);
  StepPrior prior;
  prior.factor = spread.factor;
  for (const Learned& known : result->factors)
    prior.factor[static_cast<std::size_t>(planner::factor_from_name(known.name))] = known.sd;
  check_near(measured.steps, rows, row_of);
  const StepFit fit(rows, prior);
  result->steps = fit.held_out();
  check_learned(*result->steps, fit.own(), &result->doubts);

  SiteCalibration calibration;
  calibration.runtime = result->runtime;
  calibration.own_sd = fit.own_sd();
  calibration.alike_sd = fit.alike_sd();
  calibration.plans = fit.plans();
  const std::size_t first_of_plans = fit.effects().size() - fit.plans().size();
  const Posterior& posterior = fit.posterior();
  planner::World of_cluster;
  for (std::size_t e = 0; e < fit.effects().size(); ++e) {
    const Effect& effect = fit.effects()[e];
    Learned learned{
        effect.name,
        posterior.mean[e],
        std::sqrt(posterior.covariance_of(e, e)),
        effect.sd,
        "other sites",
        posterior.said[e] ? counted(static_cast<std::int64_t>(measured.steps.size()), "step") : kNotMeasured};
    if (e < planner::kFactors) {
      const auto factor = static_cast<Factor>(e);
      learned.source_before = source_of(spread.rests_on, factor);
      if (planner::level_of(factor) != planner::Level::framework) of_cluster[factor] = learned.mean;
    }
    calibration.effects.push_back(effect.name);
    calibration.mean.push_back(learned.mean);
    for (std::size_t other = 0; other <= e; ++other)
      calibration.covariance.push_back(posterior.covariance_of(e, other));
    // Both say something of it: the links' is where the steps' begins.
    if (Learned* before = const_cast<Learned*>(find(result->factors, effect.name)); before != nullptr) {
      before->mean += learned.mean;
      before->sd = learned.sd;
      if (before->source == kNotMeasured)
        before->source = learned.source;
      else if (learned.source != kNotMeasured)
        before->source += " and " + learned.source;
      calibration.mean.back() = before->mean;
    } else if (e < first_of_plans) {
      result->factors.push_back(std::move(learned));
    }
  }
  result->cluster = planner::cluster_in(of_cluster, std::move(result->cluster));
  result->cluster.calibration = std::move(calibration);
}

void learn_from_kernels(const Measurements& measured, const Cluster& cluster, Calibrated* result) {
  const Kernels kernels = learn_kernels(cluster, measured);
  planner::World of_cluster;
  for (const Learned& learned : kernels.learned) {
    const Factor factor = planner::factor_from_name(learned.name);
    if (planner::level_of(factor) != planner::Level::framework) of_cluster[factor] = learned.mean;
    result->factors.push_back(learned);
  }
  result->cluster = planner::cluster_in(of_cluster, std::move(result->cluster));
  result->runtime = kernels.runtime;
  if (!kernels.runtime.empty()) result->runtime_from = "`runtime`";
  if (kernels.products > 0) result->products = kernels.held_out;
  result->small_products = kernels.small;
}

// Of all but steps: each by itself.
SiteCalibration apart(const Calibrated& result) {
  SiteCalibration calibration;
  calibration.runtime = result.runtime;
  for (const Learned& learned : result.factors) {
    calibration.effects.push_back(learned.name);
    calibration.mean.push_back(learned.mean);
    for (std::size_t other = 1; other < calibration.effects.size(); ++other)
      calibration.covariance.push_back(0);
    calibration.covariance.push_back(learned.sd * learned.sd);
  }
  return calibration;
}

// Why nothing is learned from a trace alone.
std::string says_nothing(const RankTrace& trace) {
  std::int64_t kernels = 0;
  for (const KernelTotal& total : trace.kernels) kernels += total.kernels;
  if (kernels == 0)
    return "holds no kernel: the profiler did not trace the device (ProfilerActivity.CUDA, and a driver that "
           "lets it)";
  if (trace.products.empty())
    return "says no shapes of matrix products (record_shapes=True does; kernels of a CUDA graph belong to no "
           "call)";
  return "its matrix products are too short to say how fast the device is";
}

[[noreturn]] void refuse(const Cluster& cluster, const Measurements& measured) {
  std::string expected = "steps, collectives or large products with shapes, measured on " + cluster.name;
  if (!measured.traces.empty())
    expected += "; beside traces a table of steps whose column 'trace' names the trace of each";
  std::vector<std::string> all;
  for (const Ignored& one : measured.ignored)
    all.push_back(
        fmt::format("{}{}: {}", one.file, one.line > 0 ? fmt::format(":{}", one.line) : "", one.why));
  // Nobody asked an Orrery's trace, nor one whose kind has no shapes.
  for (const RankTrace& trace : measured.traces)
    if (trace.profiled) all.push_back(fmt::format("{}: {}", trace.file, says_nothing(trace)));
  if (all.empty())
    throw UserError(fmt::format("nothing could be learned from {}", files_of(measured)), expected);
  constexpr std::size_t kMostNamed = 3;
  std::string why;
  for (std::size_t i = 0; i < all.size() && i < kMostNamed; ++i) why += (i > 0 ? "; " : "") + all[i];
  if (all.size() > kMostNamed) why += fmt::format("; and {} more", all.size() - kMostNamed);
  throw UserError("nothing could be learned: " + why, expected);
}

}  // namespace

Calibrated calibrate(const Cluster& cluster, const Measurements& measured) {
  Calibrated result;
  result.cluster = cluster;
  for (const Doubt& doubt : measured.doubts) result.doubts.push_back(doubt.text());
  if (!measured.collectives.empty()) {
    const Links links = learn_links(cluster, measured.collectives);
    result.cluster = links.cluster;
    result.factors = links.learned;
    result.collectives = links.held_out;
    result.departures = links.departures;
  }
  if (!measured.traces.empty()) learn_from_kernels(measured, cluster, &result);
  if (measured.steps.empty() && result.factors.empty()) refuse(cluster, measured);
  check_says_something(measured, result);
  if (result.collectives) doubt_learned("collectives", *result.collectives, &result.doubts);
  if (result.products) doubt_learned("matrix products", *result.products, &result.doubts);
  result.cluster.calibration = apart(result);
  if (!measured.steps.empty()) learn_steps(measured, &result);
  CommunicationProfile& fabric = result.cluster.communication;
  fabric.network_efficiency = std::min(1.0, fabric.network_efficiency);
  fabric.network_exchange_efficiency = std::min(1.0, fabric.network_exchange_efficiency);
  if (!measured.steps.empty()) doubt_site(measured, &result);
  SiteCalibration& calibration = *result.cluster.calibration;
  calibration.steps = static_cast<int>(measured.steps.size());
  calibration.collectives = static_cast<int>(measured.collectives.size());
  const int products = static_cast<int>(measured.products.size()) - result.small_products;
  calibration.source =
      fmt::format("{} measured ({})", counted_together(calibration.steps, calibration.collectives, products),
                  files_of(measured));
  return result;
}

}  // namespace orrery::measurements
