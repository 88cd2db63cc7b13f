#include "planner/evaluation/refit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/statistics.h"
#include "planner/evaluation/hardware.h"

namespace orrery::planner {
namespace {

constexpr std::size_t kLeast = 3;
// A kind that makes less of a step says little about its rate.
constexpr double kLeastShare = 0.05;

bool communicates(const KindComparison& kind) {
  return kind.kind.ends_with("_comm");
}

bool computes(const KindComparison& kind) {
  return kind.kind == "forward" || kind.kind == "backward" || kind.kind == "recompute" ||
         kind.kind == "optimizer";
}

struct Seconds {
  double predicted = 0;
  double measured = 0;
};

template <typename Which>
Seconds sum_of(const Validated& validation, Which which) {
  Seconds sum;
  for (const KindComparison& kind : validation.by_kind)
    if (which(kind)) {
      sum.predicted += kind.predicted_s;
      sum.measured += kind.measured_s;
    }
  return sum;
}

template <typename Which>
double factor_of(const std::vector<Validated>& validations, const Validated* left_out, Which which) {
  std::vector<double> factors;
  for (const Validated& validation : validations) {
    const Seconds sum = sum_of(validation, which);
    if (&validation == left_out || sum.measured <= 0 ||
        sum.predicted < kLeastShare * validation.predicted_step_time_s)
      continue;
    factors.push_back(sum.measured / sum.predicted);
  }
  return factors.empty() ? 1 : median(std::move(factors));
}

Slowdown slowdown_of(const std::vector<Validated>& validations, const Validated* left_out) {
  return {factor_of(validations, left_out, computes), factor_of(validations, left_out, communicates)};
}

double error_of(const Validated& validation, const Slowdown& slowdown) {
  const double computation = sum_of(validation, computes).predicted;
  const double communication = sum_of(validation, communicates).predicted;
  const double all = computation + communication;
  const double longer =
      all > 0 ? (slowdown.computation * computation + slowdown.communication * communication) / all : 1;
  return std::abs(validation.predicted_step_time_s * longer / validation.measured_step_time_s - 1);
}

void slow_down(CommunicationProfile& profile, double factor) {
  for (MessageTime& time : profile.message_times) {
    time.one_way_s *= factor;
    time.exchange_s *= factor;
  }
  profile.point_to_point_latency_s *= factor;
  profile.point_to_point_bytes_per_s /= factor;
  profile.collective_overhead_s *= factor;
  profile.network_latency_s *= factor;
  for (double* efficiency : {&profile.network_efficiency, &profile.network_exchange_efficiency})
    *efficiency = std::min(1.0, *efficiency / factor);
}

}  // namespace

Refit refit(const std::vector<Validated>& validations) {
  if (validations.size() < kLeast)
    throw NoAnswer(fmt::format("{} validations rest on this calibration, and a refit wants {}",
                               validations.size(), kLeast));
  Refit result;
  result.slowdown = slowdown_of(validations, nullptr);
  std::vector<double> plain;
  std::vector<double> left_out;
  for (const Validated& validation : validations) {
    plain.push_back(error_of(validation, {}));
    left_out.push_back(error_of(validation, slowdown_of(validations, &validation)));
  }
  result.median_error = median(std::move(plain));
  result.left_out_median_error = median(std::move(left_out));
  return result;
}

Cluster slowed(Cluster cluster, const Slowdown& slowdown) {
  for (DeviceProfile& device : cluster.profiles) slow_down(device, slowdown.computation);
  slow_down(cluster.communication, slowdown.communication);
  return cluster;
}

std::string calibration_of(const Cluster& cluster) {
  std::string name = cluster.communication.source;
  for (const NodeGroup& group : cluster.groups)
    name += " | " + cluster.profiles[static_cast<std::size_t>(group.node.profile)].source;
  return name;
}

}  // namespace orrery::planner
