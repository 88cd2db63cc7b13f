// One page of what plans, what-ifs and validations come to: the answer first, then why. What it says is JSON,
// made here by the façade; the page (page/) and Markdown only show it.
//
// The fields, all of them absent where nothing is known of them:
//   title, version, plans, whatifs, validations, published.
//   A plan: the fields of its job and of `simulate --json`, and `words`, `cost`, `why`, `beside` (itself, the
//     search's best other plan, the recipe that people run: each with its interval and breakdown), `choices`
//     (the search's plans in step time and cost), `timeline` (timeline.h), `memory` (memory_curve.h),
//     `network` (link_map.h), `assumptions` (assumptions.h).
//   A what-if: the fields of `whatif --json`, and `scaling` (scaling.h) where devices were varied alone.
//   A validation: the fields of `validate --json`; published tables: those of `validate --published --json`
//     or of `validate --published-collectives --json`.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "orrery/orrery.h"

namespace orrery {

struct ReportRequest {
  std::vector<std::string> files;  // plans (.textproto) and answers as JSON, in any order
  bool fold = true;                // simulate one rank of each class of symmetric ranks; false: every one
  bool search = true;              // look for the best other plan and the known recipe
  int jobs = 0;                    // processes that simulate; the answer is the same whatever it is
};

constexpr std::size_t kMostReportFiles = 32;

// Simulates and searches. Throws UserError on a file that is neither a plan nor such an answer.
Json report(const ReportRequest& request);
// Of one plan, for whoever has it already: simulated, with what a report draws; the fields of a plan above.
// `found`, which may be null: what a search says of its job.
Simulated simulate_to_report(const Plan& plan, bool fold);
Json report_on(const Simulated& simulated, bool fold, const planner::SearchResult* found);
// What there is of a plan before it is simulated, or once a search is done, without what is drawn.
Json report_on(const planner::Evaluation& guessed);
Json report_on(const planner::SearchResult& found);

// A report as one HTML page that asks nothing of any network, and as Markdown.
std::string report_page(const Json& report);
std::string report_markdown(const Json& report);

}  // namespace orrery
