// A plan, what is trained by it, and the search that found it, as JSON.
#include <algorithm>
#include <cmath>

#include "orrery/json.h"
#include "planner/closed_form/graph_cuts.h"
#include "planner/search/pareto.h"
#include "planner/search/why.h"
#include "planner/space/offload.h"
#include "planner/space/pin_options.h"
#include "workloads/graph_split.h"

namespace orrery {
using namespace planner;
namespace {

// What was chosen, key by key.
Json dimensions_json(const Plan& plan) {
  Json json = Json::object();
  for (const PinOption& pin : pin_options())
    for (const PlanField& field : pin.fields)
      std::visit([&](const auto& value) { json[field.key] = value; }, field.value(plan));
  if (!plan.choices.degrees.empty()) json["degrees"] = plan.choices.degrees;  // of further forms, by name
  return json;
}

Json pareto_covers_json(const SearchResult& result) {
  Json json = {{"simulated", result.simulated}, {"looked_into", result.pareto_looked_into}};
  if (result.pareto_looked_into == 0) return json;
  json["front_of_closed_form"] = result.pareto_front;
  json["of_it_simulated"] = result.pareto_simulated;
  if (std::isfinite(result.pareto_beyond_s)) json["beyond_s"] = result.pareto_beyond_s;
  return json;
}

Json training_json(const Job& job) {
  const Training& t = job.training;
  Json json = {{"global_batch", t.global_batch},
               {"seq_len", t.seq_len},
               {"precision", name_of(t.precision)},
               {"optimizer", name_of(t.optimizer)},
               {"attention", t.fused_attention ? "fused" : "unfused"},
               {"offload", planner::name_of(planner::offload_of(job.runtime))},
               {"sample_bytes", t.sample_bytes}};
  if (t.lengths.any())
    json["lengths"] = {{"least_tokens", t.lengths.tokens.front()},
                       {"mean_tokens", content({t.lengths.tokens}, t.seq_len).tokens},
                       {"most_tokens", t.lengths.tokens.back()},
                       {"packed", t.lengths.packed},
                       {"balanced", t.lengths.balanced}};
  return json;
}

Json subsets_json(const SearchResult& result) {
  Json list = Json::array();
  for (const Subset& subset : result.subsets) {
    Json json = {{"cluster", subset.cluster.name},
                 {"nodes", subset.cluster.nodes()},
                 {"devices", subset.cluster.devices()}};
    if (subset.best) {
      json["step_time_s"] = subset.best->step_time_s();
      json["plan"] = describe(subset.best->plan);
    } else {
      json["refusal"] = subset.refusal;
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json sensitivities_json(const SearchResult& result) {
  Json list = Json::array();
  for (const Sensitivity& change : result.sensitivities)
    list.push_back({{"change", change.key}, {"saves", std::max(0.0, change.saves)}});
  return list;
}

// What a simulated plan takes more than the answer, and the part of the step that grew most.
Json loses_json(const Evaluation& best, const Evaluation& other) {
  const Loss loss = loss_against(best, other);
  return {{"seconds", loss.seconds},
          {"share", loss.seconds / best.step_time_s()},
          {"part", loss.part},
          {"part_s", loss.part_s}};
}

Json pareto_json(const SearchResult& result) {
  Json list = Json::array();
  for (const Evaluation& evaluation : result.pareto) {
    Json plan = to_json(evaluation);
    const Figures figures = figures_of(evaluation);
    plan["cost_usd"] = figures.cost_usd;
    plan["energy_j"] = figures.energy_j;
    plan["headroom_bytes"] = evaluation.memory.capacity - evaluation.memory.total;
    list.push_back(std::move(plan));
  }
  return list;
}

}  // namespace

std::string_view profile_of(const Cluster& cluster) {
  const bool calibrated =
      std::all_of(cluster.groups.begin(), cluster.groups.end(),
                  [&](const NodeGroup& group) { return cluster.profiles[group.node.profile].calibrated; });
  return calibrated ? "calibrated" : "datasheet";
}

Json to_json(const RestsOn& rests_on) {
  return {{"runtime", name_of(rests_on.runtime)},
          {"device", name_of(rests_on.device)},
          {"network", name_of(rests_on.network)}};
}

Json to_json(const Interval& interval) {
  return {{"step_time_low_s", interval.step_time_s.low},
          {"step_time_high_s", interval.step_time_s.high},
          {"memory_low_bytes", interval.memory_bytes.low},
          {"memory_high_bytes", interval.memory_bytes.high},
          {"fit_probability", interval.fit_probability},
          {"rests_on", to_json(interval.rests_on)},
          {"narrowed_by", interval.narrowed_by}};
}

Json to_json(const Load& load) {
  Json stages = Json::array();
  for (const StageLoad& stage : load.stages)
    stages.push_back({{"stage", stage.stage},
                      {"layers", stage.layers},
                      {"compute_s", stage.compute_s},
                      {"memory_bytes", stage.memory_bytes},
                      {"capacity_bytes", stage.capacity_bytes}});
  Json replicas = Json::array();
  for (const ReplicaLoad& group : load.replicas)
    replicas.push_back({{"first", group.first},
                        {"count", group.count},
                        {"samples", group.samples},
                        {"compute_s", group.compute_s}});
  return {{"stages", stages},
          {"replicas", replicas},
          {"stage_compute_std_s", load.stage_compute_std_s},
          {"stage_memory_std_bytes", load.stage_memory_std_bytes},
          {"replica_compute_std_s", load.replica_compute_std_s}};
}

Json to_json(const Evaluation& evaluation) {
  const Plan& plan = evaluation.plan;
  const Memory& m = evaluation.memory;
  const Throughput rate = throughput(evaluation);
  Json json = dimensions_json(plan);
  json.update({{"step_time_s", evaluation.step_time_s()},
               {"samples_per_s", rate.samples_per_s},
               {"tokens_per_s", rate.tokens_per_s},
               {"model_flops", rate.model_flops},
               {"model_tflops_per_gpu", rate.model_tflops_per_gpu},
               {"mfu", rate.mfu},
               {"hfu", rate.hfu},
               {"memory_bytes",
                {{"total", m.total},
                 {"weights", m.weights},
                 {"gradients", m.gradients},
                 {"optimizer", m.optimizer},
                 {"activations", m.activations},
                 {"buffers", m.buffers},
                 {"capacity", m.capacity},
                 {"stage", m.stage}}}});
  Json breakdown = Json::object();
  Json busy = Json::object();
  if (evaluation.simulation) {
    for (const auto& [name, seconds] : parts_of(evaluation.simulation->breakdown)) breakdown[name] = seconds;
    for (const auto& [name, seconds] : evaluation.simulation->busy_s) busy[name] = seconds;
  }
  if (!plan.job->workload.transformer) {
    Json split = Json::array();
    for (const int index : plan.choices.tp > 1 ? split_operators(plan.job->workload) : std::vector<int>{}) {
      const Operator& op = plan.job->workload.operators[static_cast<std::size_t>(index)];
      const char* way = op.split == TensorSplit::row     ? "row"
                        : op.split == TensorSplit::table ? "table"
                                                         : "column";
      split.push_back({{"operator", op.name}, {"split", way}});
    }
    json["tensor_split"] = split;
    json["cut_excess"] = cut_excess(plan);
  }
  json["breakdown_s"] = breakdown;
  json["busy_s"] = busy;
  if (plan.job->training.lengths.any()) {
    json["padded_share"] = plan.padded_share();
    json["wait_for_longest"] = plan.wait_for_longest();
  }
  if (evaluation.interval) json.update(to_json(*evaluation.interval));
  if (evaluation.odds) {
    json["probability_fastest"] = evaluation.odds->probability_fastest;
    json["regret_s"] = evaluation.odds->regret_s;
  }
  json["profile"] = profile_of(plan.job->cluster);
  json["estimate_s"] = evaluation.estimate_s;
  if (evaluation.simulation) json["load"] = to_json(load_of(evaluation));
  return json;
}

Json to_json(const std::vector<System>& systems, const Evaluation& best) {
  const SystemKind suits = system_kind_of(best.plan.choices);
  Json list = Json::array();
  for (const System& system : systems) {
    Json json = {{"kind", name_of(system.kind)}, {"suits", system.kind == suits}};
    if (system.step_time_s) json["step_time_s"] = *system.step_time_s;
    if (system.bound_s > 0) {
      json["bound_s"] = system.bound_s;
      json["bound_by"] = system.bound_by;
    }
    if (system.choices && (system.step_time_s || system.bound_s > 0)) {
      json["plan"] = describe(Plan{best.plan.job, *system.choices});
    }
    if (system.short_bytes > 0) json["short_bytes"] = system.short_bytes;
    if (!system.step_time_s && system.bound_s == 0) {
      json["refusal"] = system.short_bytes > 0 ? "does not fit in memory" : system.refusal;
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json to_json(const Job& job) {
  Json json = {{"workload", job.workload.name}, {"parameters", job.workload.parameters()},
               {"cluster", job.cluster.name},   {"devices", job.cluster.devices()},
               {"nodes", job.cluster.nodes()},  {"runtime", job.runtime.name},
               {"training", training_json(job)}};
  if (job.cluster.calibration) json["calibrated_by"] = job.cluster.calibration->source;
  return json;
}

Json to_json(const Job& job, const SearchResult& result) {
  Json plans = Json::array();
  for (const Evaluation& evaluation : result.plans) {
    plans.push_back(to_json(evaluation));
    if (plans.size() > 1) plans.back()["loses"] = loses_json(result.plans.front(), evaluation);
  }
  Json json = to_json(job);
  json.update(
      {{"candidates", result.candidates},
       {"proven", result.proven},
       {"gap", result.gap},
       {"feasible", result.feasible},
       {"simulated", result.simulated},
       {"search_s", result.search_s},
       {"why", result.why},
       {"sensitivities", sensitivities_json(result)},
       {"systems", result.systems.empty() ? Json::array() : to_json(result.systems, result.plans.front())},
       {"subsets", subsets_json(result)},
       {"pareto", pareto_json(result)},
       {"pareto_covers", pareto_covers_json(result)},
       {"compared", result.compared},
       {"warnings", result.warnings},
       {"plans", plans}});
  if (result.nominal) {
    json["nominal"] = to_json(*result.nominal);
    json["nominal"]["loses"] = loses_json(result.plans.front(), *result.nominal);
  }
  if (result.known_recipe) {
    const KnownRecipe& known = *result.known_recipe;
    json["known_recipe"] = to_json(known.evaluation);
    json["known_recipe"].update({{"name", known.name},
                                 {"source", known.source},
                                 {"fits", known.evaluation.memory.fits()},
                                 {"loses", loses_json(result.plans.front(), known.evaluation)},
                                 {"why", known.why}});
  }
  return json;
}

}  // namespace orrery
