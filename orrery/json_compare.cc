// A comparison as JSON.
#include "orrery/json.h"

namespace orrery {
using namespace comparison;
namespace {

Json way_json(const Way& way, bool with_ranks) {
  Json json = {{"devices", way.devices}};
  if (!way.possible()) {
    json["refusal"] = way.refusal;
    return json;
  }
  json["found_by"] = name_of(way.found_by);
  json["step_time_s"] = way.step_s;
  json["samples_per_s"] = way.samples_per_s;
  json["efficiency"] = way.efficiency;
  json["compute_s"] = way.mean_of(&RankTimes::compute_s);
  json["exposed_s"] = way.mean_of(&RankTimes::exposed_s);
  json["waiting_s"] = way.mean_of(&RankTimes::waiting_s);
  json["other_s"] = way.mean_of(&RankTimes::other_s);
  const int worst = way.worst_rank();
  json["worst_waiting_s"] = way.ranks[static_cast<std::size_t>(worst)].waiting_s;
  json["worst_waiting_rank"] = worst;
  json["wire_bytes"] = way.wire_bytes;
  json["memory_bytes"] = way.memory.total;
  json["capacity_bytes"] = way.memory.capacity;
  json["fits"] = way.memory.fits();
  json["micro_batch"] = way.plan->choices.micro_batch;
  json["plan"] = planner::describe(*way.plan);
  if (!with_ranks) return json;
  json["ranks"] = Json::array();
  for (const RankTimes& rank : way.ranks)
    json["ranks"].push_back({{"compute_s", rank.compute_s},
                             {"exposed_s", rank.exposed_s},
                             {"waiting_s", rank.waiting_s},
                             {"other_s", rank.other_s}});
  return json;
}

Json ordeal_json(const Ordeal& ordeal, const Way& healthy) {
  Json json = {{"horizon_s", ordeal.horizon_s},
               {"samples_per_s", ordeal.samples_per_s()},
               {"of_healthy", ordeal.samples_per_s() / healthy.samples_per_s},
               {"mean_waiting_share", ordeal.mean_waiting},
               {"worst_waiting_share", ordeal.worst_waiting},
               {"stood_s", ordeal.stood_s},
               {"lost_samples", ordeal.lost_samples},
               {"dropped_steps", ordeal.dropped},
               {"workers", ordeal.workers},
               {"story", ordeal.story}};
  return json;
}

Json balance_json(const Balance& balance) {
  Json json = {{"shares", name_of(balance.shares)},
               {"std_s", balance.std_s},
               {"max_over_mean", balance.max_over_mean},
               {"longest_s", balance.longest_s},
               {"steps", Json::array()}};
  for (const BalanceStep& step : balance.steps)
    json["steps"].push_back({{"samples", step.samples},
                             {"busy_s", step.busy_s},
                             {"std_s", step.std_s},
                             {"max_over_mean", step.max_over_mean},
                             {"longest_s", step.longest_s}});
  return json;
}

Json role_json(const comparison::Answer& answer) {
  Json json = {{"reaction", name_of(answer.reaction)}};
  if (answer.reaction == Reaction::absent) return json;
  json["notice_s"] = answer.notice_s;
  json["why"] = answer.why;
  json["notice_from"] = answer.notice_from;
  return json;
}

}  // namespace

Json to_json(const CompareRequest& request, const Comparison& comparison) {
  Json json = to_json(*request.question.job);
  json["sizes"] = comparison.sizes;
  json["strategies"] = Json::array();
  for (const Row& row : comparison.rows) {
    Json one = {{"strategy", row.strategy.name},
                {"what", row.strategy.what},
                {"meeting", name_of(row.strategy.meeting)},
                {"exact", row.strategy.exact()},
                {"elastic", row.strategy.elastic},
                {"worker", role_json(row.strategy.worker)},
                {"chief", role_json(row.strategy.chief)},
                {"server", role_json(row.strategy.server)},
                {"sizes", Json::array()}};
    for (const Way& way : row.ways) one["sizes"].push_back(way_json(way, &way == &row.ways.back()));
    if (row.interval) {
      one["step_time_low_s"] = row.interval->step_time_s.low;
      one["step_time_high_s"] = row.interval->step_time_s.high;
      one["rests_on"] = to_json(row.interval->rests_on);
      one["narrowed_by"] = row.interval->narrowed_by;
    }
    if (row.troubled) one["troubled"] = way_json(*row.troubled, true);
    if (row.ordeal) one["under_trouble"] = ordeal_json(*row.ordeal, row.whole());
    json["strategies"].push_back(std::move(one));
  }
  if (!request.troubles.empty())
    json["trouble"] = {{"asked", request.troubles},
                       {"seed", request.options.seed},
                       {"checkpoint_every_s", request.options.checkpoint_every_s},
                       {"restart_s", request.options.restart_s},
                       {"replace_s", request.options.replace_s}};
  if (!comparison.balances.empty()) {
    json["balance"] = Json::array();
    for (const Balance& balance : comparison.balances) json["balance"].push_back(balance_json(balance));
  }
  if (comparison.best) json["best"] = comparison.rows[*comparison.best].strategy.name;
  if (comparison.fastest) json["fastest"] = comparison.rows[*comparison.fastest].strategy.name;
  json["verdict"] = comparison.verdict;
  return json;
}

}  // namespace orrery
