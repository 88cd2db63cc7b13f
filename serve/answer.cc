#include "serve/answer.h"

#include "orrery/json.h"
#include "report/report.h"
#include "serve/question.h"
#include "serve/stages.h"

namespace orrery::serve {
namespace {

// What the page supposes of a failure beside how often it comes.
constexpr double kDetect_s = 60, kRestart_s = 300;
constexpr int kRuns = 100;

GoodputRequest run_of(const Plan& plan, const RunQuestion& asked) {
  GoodputRequest request;
  request.plan = plan;
  (plan.job->training.seq_len > 0 ? request.length.tokens : request.length.samples) = asked.amount;
  request.mtbf_device_hours = asked.mtbf_device_hours;
  request.checkpoint_bandwidth_bytes_per_s = asked.checkpoint_bandwidth_bytes_per_s;
  request.detect_s = kDetect_s;
  request.restart_s = kRestart_s;
  request.runs = kRuns;
  return request;
}

void answer_question(const LiveQuestion& live, Stages& stages) {
  const planner::Evaluation guessed = guess(live.question);
  stages.add("guess", {{"plan", report_on(guessed)}});
  const planner::SearchResult found = plan(live.question);
  stages.add("searched", {{"plan", report_on(found)}});
  const Simulated simulated = simulate_to_report(found.plans.front().plan, true);
  stages.add("drawn", {{"plan", report_on(simulated, true, &found)}});
  if (live.run) stages.add("run", {{"run", to_json(goodput(run_of(simulated.evaluation.plan, *live.run)))}});
}

}  // namespace

void answer(const Query& query, const std::function<void(std::string_view line)>& emit) {
  in_stages(emit, [&](Stages& stages) { answer_question(read_question(query), stages); });
}

}  // namespace orrery::serve
