#include "planner/uncertainty/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "program/measured/plans_alike.h"

namespace orrery::planner {
namespace {

// An effect that acts on a job, and what it multiplies.
struct Acting {
  int effect = 0;
  World on;
  std::optional<Factor> factor;  // nothing: the site or a model
};

std::vector<Acting> acting_on(const SiteCalibration& calibration, const Job& job) {
  std::vector<Acting> acting;
  for (const Factor factor : kAllFactors) {
    if (level_of(factor) == Level::framework && job.runtime.name != calibration.runtime) continue;
    const int at = calibration.at(name_of(factor));
    if (at < 0) continue;
    Acting& one = acting.emplace_back(Acting{at, {}, factor});
    one.on[factor] = 1;
  }
  for (const std::string& name : {std::string(kSiteEffect), model_effect(job.workload)})
    if (const int at = calibration.at(name); at >= 0) acting.push_back({at, of_everything(1), {}});
  return acting;
}

}  // namespace

std::string model_effect(const Workload& workload) {
  if (!workload.transformer) return "model " + workload.name;
  const Transformer& shape = *workload.transformer;
  return fmt::format("model of {} layers, hidden {}, {} heads{}", workload.layers, shape.hidden, shape.heads,
                     shape.moe ? fmt::format(", {} experts", shape.moe->experts) : "");
}

void calibrate(Job* job) {
  if (!job->cluster.calibration) return;
  const SiteCalibration& calibration = *job->cluster.calibration;
  World world;
  for (const Acting& one : acting_on(calibration, *job)) {
    if (one.factor && level_of(*one.factor) != Level::framework) continue;
    const double mean = calibration.mean[static_cast<std::size_t>(one.effect)];
    for (const Factor factor : kAllFactors) world[factor] += mean * one.on[factor];
  }
  *job = *job_in(world, *job);
  // No further than what a plan's file may say.
  constexpr double kMost = 2;
  RuntimeProfile& runtime = job->runtime;
  for (double* factor :
       {&runtime.matmul_efficiency, &runtime.attention_efficiency, &runtime.memory_bound_efficiency,
        &runtime.communication_efficiency, &runtime.expert_exposed})
    *factor = std::min(*factor, kMost);
}

Covariance covariance_in(const SiteCalibration& calibration, const Job& job,
                         const std::array<double, kFactors>& apart) {
  Covariance covariance{};
  std::array<bool, kFactors> known{};
  const std::vector<Acting> acting = acting_on(calibration, job);
  for (const Acting& a : acting) {
    for (const Acting& b : acting) {
      const double together = calibration.covariance_of(a.effect, b.effect);
      for (std::size_t i = 0; i < kFactors; ++i)
        for (std::size_t j = 0; j < kFactors; ++j)
          covariance[i][j] += together * a.on.log_time[i] * b.on.log_time[j];
    }
  }
  for (const Acting& one : acting)
    if (one.factor) known[static_cast<std::size_t>(*one.factor)] = true;
  for (std::size_t f = 0; f < kFactors; ++f)
    if (!known[f]) covariance[f][f] += apart[f] * apart[f];
  return covariance;
}

std::array<World, kFactors> directions_of(const Covariance& covariance) {
  constexpr double kNothing = 1e-12;  // of a variance: what is left by rounding
  std::array<World, kFactors> columns{};
  for (std::size_t k = 0; k < kFactors; ++k) {
    double left = covariance[k][k];
    for (std::size_t j = 0; j < k; ++j) left -= columns[j].log_time[k] * columns[j].log_time[k];
    if (left < kNothing) continue;
    const double root = std::sqrt(left);
    columns[k].log_time[k] = root;
    for (std::size_t i = k + 1; i < kFactors; ++i) {
      double shared = covariance[i][k];
      for (std::size_t j = 0; j < k; ++j) shared -= columns[j].log_time[i] * columns[j].log_time[k];
      columns[k].log_time[i] = shared / root;
    }
  }
  return columns;
}

FieldKnown known_of_field(const SiteCalibration& calibration, const Job& job,
                          const std::vector<double>& parts, const std::array<World, kFactors>& directions) {
  const auto first = static_cast<int>(calibration.first_of_plans());
  const auto count = static_cast<int>(parts.size());
  std::array<double, kFactors> together{};  // covariance with the factors
  for (const Acting& one : acting_on(calibration, job)) {
    double sum = 0;
    for (int p = 0; p < count; ++p)
      sum += parts[static_cast<std::size_t>(p)] * calibration.covariance_of(one.effect, first + p);
    for (std::size_t f = 0; f < kFactors; ++f) together[f] += sum * one.on.log_time[f];
  }
  double variance = 0;
  for (int p = 0; p < count; ++p)
    for (int q = 0; q < count; ++q)
      variance += parts[static_cast<std::size_t>(p)] * parts[static_cast<std::size_t>(q)] *
                  calibration.covariance_of(first + p, first + q);
  FieldKnown known;
  for (std::size_t k = 0; k < kFactors; ++k) {
    const double root = directions[k].log_time[k];
    if (root <= 0) continue;
    double left = together[k];
    for (std::size_t j = 0; j < k; ++j) left -= directions[j].log_time[k] * known.along[j];
    known.along[k] = left / root;
    variance -= known.along[k] * known.along[k];
  }
  known.own_variance = std::max(0.0, variance) + calibration.alike_sd * calibration.alike_sd * left_by(parts);
  return known;
}

}  // namespace orrery::planner
