// Answers as JSON objects: the fields of the command line's --json, in their order, which scripts rely on.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "orrery/history.h"
#include "orrery/orrery.h"

namespace orrery {

constexpr std::size_t kLinksReported = 10;  // of a simulation

// What figures of devices are: "calibrated" where they were measured or fitted to measurements, else
// "datasheet"; of a cluster "calibrated" where all devices' are.
std::string_view profile_of(const DeviceProfile& device);
std::string_view profile_of(const Cluster& cluster);
constexpr std::string_view kProfileMeaning =
    "of the devices: calibrated (measured, or fitted to measurements) or datasheet (a datasheet's, or "
    "assumed)";

// Parts of answers: what is trained, on what and how (`workload`, `cluster`, `devices`, `training`, …); one
// plan, with `load` where it was simulated; the kinds of systems beside the search's best plan.
Json to_json(const Job& job);
Json to_json(const planner::Evaluation& evaluation);
Json to_json(const planner::RestsOn& rests_on);
Json to_json(const planner::Interval& interval);
Json to_json(const planner::Load& load);
Json to_json(const std::vector<planner::System>& systems, const planner::Evaluation& best);
// `relative_error` of a kind is absent where nothing was measured.
Json to_json(const planner::Validation& validation);

// Answers, by verb.
Json to_json(const Catalog& catalog);
Json to_json(const DeviceCheck& check);
Json to_json(const Cluster& cluster);  // of discover
Json to_json(const Description& description);
Json to_json(const Job& job, const planner::SearchResult& result);
Json to_json(const Simulated& simulated);
Json to_json(const CollectiveRequest& request, const std::vector<CollectiveTime>& times);
Json to_json(const planner::Evaluation& predicted, const Measurement& measured,
             const planner::Validation& validation, int steps);
Json to_json(const History& history);
Json to_json(const Refitted& refitted);
Json to_json(const Job& job, std::string_view target, const std::vector<planner::ExportedFile>& files);
Json to_json(const std::vector<measurements::Kind>& kinds);  // of measurements
Json to_json(const planner::whatif::Result& result);
Json to_json(const CompareRequest& request, const comparison::Comparison& comparison);
Json to_json(const Goodput& goodput);
Json to_json(const SiteCalibrated& calibrated);
Json to_json(const Against& against);
Json to_json(const measurements::TraceDiff& diff);

}  // namespace orrery
