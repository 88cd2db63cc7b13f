// A comparison as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parse.h"
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
  json["waiting_of_ranks_s"] = Json::array();
  for (const RankTimes& rank : way.ranks) json["waiting_of_ranks_s"].push_back(rank.waiting_s);
  if (!with_ranks) return json;
  json["ranks"] = Json::array();
  for (const RankTimes& rank : way.ranks)
    json["ranks"].push_back({{"compute_s", rank.compute_s},
                             {"exposed_s", rank.exposed_s},
                             {"waiting_s", rank.waiting_s},
                             {"other_s", rank.other_s}});
  return json;
}

// What a strategy comes to on all devices, by the names that plans have (shared/contract.md).
void add_whole(const Way& way, Json* json) {
  if (!way.possible()) return;
  (*json)["step_time_s"] = way.step_s;
  (*json)["samples_per_s"] = way.samples_per_s;
  (*json)["wire_bytes"] = way.wire_bytes;
  (*json)["memory_bytes"] = way.memory.total;
  // Means over the ranks, which add up to the step.
  (*json)["breakdown_s"] = {{"compute", way.mean_of(&RankTimes::compute_s)},
                            {"data_comm", way.mean_of(&RankTimes::exposed_s)},
                            {"bubble", way.mean_of(&RankTimes::waiting_s)},
                            {"other", way.mean_of(&RankTimes::other_s)}};
}

// Against one device alone, which is as efficient as can be.
Json scaling_json(const Row& row) {
  Json scaling = Json::array();
  for (const Way& way : row.ways)
    if (way.possible())
      scaling.push_back({{"devices", way.devices},
                         {"speedup", way.efficiency * way.devices},
                         {"efficiency", way.efficiency}});
  return scaling;
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

// Through each trouble by itself, and behind these, where there are several, through all together.
Json under_json(const Row& row, const CompareRequest& request) {
  Json under = Json::array();
  if (!row.ordeal) return under;
  std::vector<std::string> texts;
  for (const std::string& troubles : request.troubles)
    for (const std::string& trouble : split(troubles)) texts.push_back(trouble);
  for (std::size_t t = 0; t < row.alone.size(); ++t) {
    under.push_back(ordeal_json(row.alone[t], row.whole()));
    under.back()["trouble"] = texts[t];
  }
  under.push_back(ordeal_json(*row.ordeal, row.whole()));
  under.back()["trouble"] = fmt::format("{}", fmt::join(texts, ","));
  return under;
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

Json recut_json(const Recut& recut) {
  Json json = {
      {"cutting", name_of(recut.cutting)}, {"std_s", recut.std_s},   {"max_over_mean", recut.max_over_mean},
      {"longest_s", recut.longest_s},      {"step_s", recut.step_s}, {"steps", Json::array()}};
  if (recut.simulated_s) json["simulated_s"] = *recut.simulated_s;
  for (const CutStep& step : recut.steps)
    json["steps"].push_back({{"layers", step.layers},
                             {"busy_s", step.busy_s},
                             {"std_s", step.std_s},
                             {"max_over_mean", step.max_over_mean},
                             {"longest_s", step.longest_s},
                             {"step_s", step.step_s},
                             {"moved", step.moved}});
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
    Json one = {{"name", row.strategy.name},
                {"strategy", row.strategy.name},
                {"what", row.strategy.what},
                {"meeting", name_of(row.strategy.meeting)},
                {"exact", row.strategy.exact()},
                {"elastic", row.strategy.elastic},
                {"worker", role_json(row.strategy.worker)},
                {"chief", role_json(row.strategy.chief)},
                {"server", role_json(row.strategy.server)},
                {"sizes", Json::array()}};
    for (const Way& way : row.ways) one["sizes"].push_back(way_json(way, &way == &row.ways.back()));
    add_whole(row.whole(), &one);
    one["scaling"] = scaling_json(row);
    if (row.interval) {
      one["step_time_low_s"] = row.interval->step_time_s.low;
      one["step_time_high_s"] = row.interval->step_time_s.high;
      one["rests_on"] = to_json(row.interval->rests_on);
      one["narrowed_by"] = row.interval->narrowed_by;
    }
    if (row.troubled) one["troubled"] = way_json(*row.troubled, true);
    one["under"] = under_json(row, request);
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
  if (!comparison.recuts.empty()) {
    json["cuts"] = {{"stages", request.stages}, {"cuttings", Json::array()}};
    for (const Recut& recut : comparison.recuts) json["cuts"]["cuttings"].push_back(recut_json(recut));
  }
  if (comparison.best) json["best"] = comparison.rows[*comparison.best].strategy.name;
  if (comparison.fastest) json["fastest"] = comparison.rows[*comparison.fastest].strategy.name;
  json["verdict"] = comparison.verdict;
  return json;
}

}  // namespace orrery
