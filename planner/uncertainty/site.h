// What measurements of the cluster itself say of a job (SiteCalibration; docs/measurements.md): its effects
// are the factors by their names, one of the site (of all that runs there, alike) and one of each measured
// model.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "planner/uncertainty/factors.h"

namespace orrery::planner {

inline constexpr std::string_view kSiteEffect = "site";
// Of a transformer its dimensions, for everybody calls it something else; vocabularies may be padded.
std::string model_effect(const Workload& workload);

// The job's software as the cluster's calibration has it: its factors where it is the runtime that was
// measured, the site's and its model's. What is the device's and the network's, the cluster's figures say
// already.
void calibrate(Job* job);

using Covariance = std::array<std::array<double, kFactors>, kFactors>;  // of the factors' logarithms
// In place of what is thought of every factor by itself (`apart`, standard deviations) where measurements say
// more: those of other software say nothing of this one's.
Covariance covariance_in(const SiteCalibration& calibration, const Job& job,
                         const std::array<double, kFactors>& apart);
// Whose columns times themselves are `covariance`: as many independent directions.
std::array<World, kFactors> directions_of(const Covariance& covariance);

// What is known of what a plan shares with measured plans alike (program/measured/plans_alike.h), which is
// known together with the factors: how it goes along with their directions, and the variance that is left.
struct FieldKnown {
  std::array<double, kFactors> along{};
  double own_variance = 0;
};
FieldKnown known_of_field(const SiteCalibration& calibration, const Job& job,
                          const std::vector<double>& parts, const std::array<World, kFactors>& directions);

}  // namespace orrery::planner
