// Whole training runs on devices that fail, as JSON.
#include <utility>

#include "base/units.h"
#include "orrery/json.h"

namespace orrery {
using namespace planner;
namespace {

Json to_json(const Distribution& distribution) {
  return {{"mean", distribution.mean},
          {"p5", distribution.p5},
          {"p50", distribution.p50},
          {"p95", distribution.p95}};
}

void add_bill(const GoodputFigures& figures, Json& json) {
  if (figures.cost_usd) json["cost_usd"] = *figures.cost_usd;
  if (figures.energy_j) json["energy_j"] = *figures.energy_j;
}

void add_range(const std::string& name, const Range& range, double unit, Json& json) {
  json[name + "_low"] = range.low / unit;
  json[name + "_high"] = range.high / unit;
}

void add_interval(const GoodputInterval& interval, Json& json) {
  json["step_time_low_s"] = interval.step_time_s.low;
  json["step_time_high_s"] = interval.step_time_s.high;
  add_range("goodput", interval.goodput, 1, json);
  add_range("days", interval.time_s, kSecondsPerDay, json);
  if (interval.cost_usd) add_range("usd", *interval.cost_usd, 1, json);
  if (interval.energy_j) add_range("mwh", *interval.energy_j, kJoulesPerMegawattHour, json);
  json["rests_on"] = orrery::to_json(interval.rests_on);
  json["narrowed_by"] = interval.narrowed_by;
}

Json to_json(const Alternative& alternative) {
  const GoodputFigures& figures = alternative.figures;
  Json json = {{"key", alternative.key},
               {"change", alternative.change},
               {"checkpoint_every_steps", figures.every},
               {"spares", figures.spares},
               {"goodput", figures.goodput},
               {"time_to_train_s", figures.statistics.time_s.mean},
               {"closed_form_s", figures.closed_form_s}};
  add_bill(figures, json);
  return json;
}

}  // namespace

Json to_json(const Goodput& goodput) {
  const GoodputQuestion& question = goodput.question;
  const GoodputAnswer& answer = goodput.answer;
  const TrainingRun& run = question.run;
  const GoodputFigures& figures = answer.figures;
  const double mtti_s = 1 / run.failures_per_s;
  Json lost = Json::object();
  for (const auto& [name, seconds] : lost_parts(figures.statistics.spent)) lost[name] = seconds;
  Json plans = Json::array();
  for (const RunningPlan& plan : run.plans)
    plans.push_back({{"nodes", plan.nodes}, {"step_time_s", plan.step_s}});
  Json json = {{"goodput", figures.goodput},
               {"steps", run.steps},
               {"step_time_s", run.plan().step_s},
               {"time_to_train_s", to_json(figures.statistics.time_s)},
               {"time_to_train_error_s", figures.statistics.time_error_s},
               {"ideal_s", run.ideal_s()},
               {"interruptions", to_json(figures.statistics.interruptions)},
               {"mtti_s", mtti_s},
               {"checkpoint_every_steps", figures.every},
               {"checkpoint_s", run.checkpoint.stall_s},
               {"checkpoint_write_s", run.checkpoint.write_s},
               {"checkpoint_read_s", run.checkpoint.read_s},
               {"detect_s", run.detect_s},
               {"restart_s", run.restart_s},
               {"spares", run.spares},
               {"repair_s", run.repair_s},
               {"cheapest_spares", cheapest_spares(run)},
               {"plans", plans},
               {"runs", question.runs},
               {"seed", question.seed},
               {"lost_s", lost},
               {"closed_form",
                {{"goodput", figures.closed_form_goodput},
                 {"time_to_train_s", figures.closed_form_s},
                 {"daly_interval_s", daly_interval_s(run.checkpoint.stall_s, mtti_s)},
                 {"young_interval_s", young_interval_s(run.checkpoint.stall_s, mtti_s)}}}};
  if (goodput.job) {
    Json whole = to_json(*goodput.job);
    whole.update(json);
    json = std::move(whole);
  }
  add_bill(figures, json);
  if (answer.interval) add_interval(*answer.interval, json);
  json["alternatives"] = Json::array();
  for (const Alternative& alternative : answer.alternatives)
    json["alternatives"].push_back(to_json(alternative));
  json["checkpoint_bytes"] = goodput.checkpoint.bytes;
  return json;
}

}  // namespace orrery
