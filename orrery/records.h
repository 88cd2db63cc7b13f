// The fields of answers, as orrery/json.h writes them and `schema` publishes them: parts that several answers
// have, and the answers.
#pragma once

#include "base/answer/record.h"
#include "orrery/json.h"
#include "orrery/published.h"

namespace orrery {

// ---- parts ----

const Record<Job>& job_record();
const Record<planner::Evaluation>& evaluation_record();
const Record<planner::RestsOn>& rests_on_record();
const Record<planner::Interval>& interval_record();
const Record<planner::Range>& step_range_record();  // step_time_low_s, step_time_high_s
const Record<planner::Validation>& validation_record();
const Record<measurements::Ignored>& ignored_record();

// ---- answers ----

struct PlanAnswer {
  const Job& job;
  const planner::SearchResult& result;
};
struct CollectiveAnswer {
  const CollectiveRequest& request;
  const std::vector<CollectiveTime>& times;
};
struct ValidationAnswer {
  const planner::Evaluation& predicted;
  const Measurement& measured;
  const planner::Validation& validation;
  int steps;
};
struct ExportAnswer {
  const Job& job;
  std::string_view target;
  const std::vector<planner::ExportedFile>& files;
};
struct CompareAnswer {
  const CompareRequest& request;
  const comparison::Comparison& comparison;
};
const Record<Catalog>& catalog_record();
const Record<DeviceCheck>& device_record();
const Record<Cluster>& cluster_record();
const Record<Description>& description_record();
const Record<PlanAnswer>& plan_record();
const Record<Simulated>& simulated_record();
const Record<CollectiveAnswer>& collective_record();
const Record<ValidationAnswer>& measured_record();
const Record<Against>& against_record();
const Record<History>& history_record();
const Record<evidence::Published>& published_record();
const Record<evidence::PublishedCollectives>& published_collectives_record();
const Record<Refitted>& refitted_record();
const Record<SiteCalibrated>& site_record();
const Record<ExportAnswer>& export_record();
const Record<planner::whatif::Result>& whatif_record();
const Record<CompareAnswer>& compare_record();
const Record<Goodput>& goodput_record();
const Record<measurements::TraceDiff>& trace_diff_record();
const Record<std::vector<measurements::Kind>>& kinds_record();

}  // namespace orrery
