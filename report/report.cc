#include "report/report.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/units.h"
#include "orrery/json.h"
#include "planner/evaluation/interval.h"
#include "report/assumptions.h"
#include "report/link_map.h"
#include "report/memory_curve.h"
#include "report/scaling.h"
#include "report/timeline.h"

namespace orrery {
namespace {

// What figures of cost are per, where nothing says what is trained.
constexpr double kGoal = 1e9;

// Of one plan of the search beside the others.
Json beside_json(const planner::Evaluation& evaluation, const std::string& label) {
  Json json = to_json(evaluation);
  json.erase("load");
  json["label"] = label;
  json["words"] = planner::describe(evaluation.plan);
  const planner::Figures figures = planner::figures_of(evaluation);
  if (figures.cost_usd > 0) json["usd_per_step"] = figures.cost_usd;
  if (figures.energy_j > 0) json["energy_j"] = figures.energy_j;
  return json;
}

Json cost_json(const planner::Evaluation& evaluation) {
  const Job& job = *evaluation.plan.job;
  const double usd_per_s = planner::usd_per_s(job.cluster);
  const planner::Throughput rate = planner::throughput(evaluation);
  const bool tokens = rate.tokens_per_s > 0;
  const double goal_s = kGoal / (tokens ? rate.tokens_per_s : rate.samples_per_s);
  Json json = {{"per", tokens ? "tokens" : "samples"}, {"amount", kGoal}, {"time_s", goal_s}};
  json["device_hours"] = goal_s / kSecondsPerHour * evaluation.plan.choices.world();
  if (usd_per_s > 0) {
    json["usd"] = usd_per_s * goal_s;
    json["usd_per_hour"] = usd_per_s * kSecondsPerHour;
    json["usd_per_step"] = usd_per_s * evaluation.step_time_s();
  }
  if (evaluation.simulation && evaluation.simulation->energy_j > 0) {
    json["energy_j_per_step"] = evaluation.simulation->energy_j;
    json["energy_j"] = evaluation.simulation->energy_j * goal_s / evaluation.step_time_s();
  }
  return json;
}

// Of a plan that the search did not choose.
std::string beside_answer(const planner::Evaluation& answer, const planner::Evaluation& plan) {
  const double more_s = planner::slowdown_against(answer, plan).seconds;
  const double share = more_s / answer.step_time_s();
  return fmt::format(
      "The search's answer is another plan, {}, which takes {} a step: this one takes {} ({:.1f}%) {}.",
      planner::describe(answer.plan), human_seconds(answer.step_time_s()), human_seconds(std::abs(more_s)),
      100 * std::abs(share), more_s >= 0 ? "more" : "less");
}

// What the search says of the job: other plans, and the recipe that people run.
void add_search(const planner::Evaluation& evaluation, const planner::SearchResult& found, Json& json) {
  const Plan& plan = evaluation.plan;
  Json& beside = json["beside"];
  Json choices = Json::array();
  bool other = false;
  for (const planner::Evaluation& one : found.plans) {
    choices.push_back(beside_json(one, ""));
    if (one.plan.choices == plan.choices || other) continue;
    other = true;
    const bool best = one.plan.choices == found.plans.front().plan.choices;
    beside.push_back(beside_json(one, best ? "the search's answer" : "the next in the list"));
  }
  if (found.known_recipe) {
    beside.push_back(beside_json(found.known_recipe->evaluation, "known recipe"));
    beside.back().update({{"name", found.known_recipe->name}, {"source", found.known_recipe->source}});
  }
  const bool answer = found.plans.front().plan.choices == plan.choices;
  json["search"] = {{"answer", answer},           {"candidates", found.candidates},
                    {"feasible", found.feasible}, {"simulated", found.simulated},
                    {"proven", found.proven},     {"gap", found.gap}};
  json["choices"] = choices;
  if (answer) {
    json["why"] = found.why;
    json["warnings"] = found.warnings;
    Json odds = to_json(found.plans.front());
    for (const char* key : {"probability_fastest", "regret_s"})
      if (odds.contains(key)) json[key] = odds[key];
  } else {
    json["why"] = beside_answer(found.plans.front(), evaluation);
  }
  json["sensitivities"] = Json::array();
  for (const planner::Sensitivity& change : found.sensitivities)
    json["sensitivities"].push_back({{"change", change.change}, {"saves", std::max(0.0, change.saves)}});
}

enum class Kind { whatif, validation, published };

Kind kind_of_answer(const Json& json, const std::string& file) {
  const auto has = [&](const char* key) { return json.contains(key); };
  if (json.is_object()) {
    if (has("varied") && has("points") && json["points"].is_array()) return Kind::whatif;
    if (has("by_kind") && has("measured_step_time_s")) return Kind::validation;
    if (has("rows") && has("all") && json["rows"].is_array()) return Kind::published;
  }
  throw UserError(file, 0, "is not an answer that a report can show",
                  "expected a plan, or what whatif or validate wrote as JSON");
}

// Rows of published tables without their words: a table may have thousands.
Json published_json(const Json& answer) {
  Json rows = Json::array();
  const bool collectives = answer.contains("above_1_mib");
  for (const Json& row : answer.at("rows")) {
    if (!row.contains("predicted_s") || !row.contains("measured_s")) continue;
    Json one = Json::object();
    for (const char* key :
         {"file", "model", "gpu", "collective", "n_gpus", "size_bytes", "plan", "predicted_s", "measured_s",
          "relative_error", "predicted_low_s", "predicted_high_s"})
      if (row.contains(key)) one[key] = row[key];
    if (collectives && row.contains("skipped")) continue;
    rows.push_back(std::move(one));
  }
  constexpr std::size_t kMostRowsShown = 3000;
  Json shown = Json::array();
  const std::size_t step = (rows.size() + kMostRowsShown - 1) / kMostRowsShown;
  for (std::size_t i = 0; i < rows.size(); i += std::max<std::size_t>(step, 1))
    shown.push_back(std::move(rows[i]));
  return {{"collectives", collectives},
          {"all", answer.at("all")},
          {"sources", answer.value("sources", Json::object())},
          {"rows_in_all", rows.size()},
          {"rows", shown}};
}

void add_answer(const std::string& file, Json& report) {
  const Json json = read_json(file);
  const std::string name = std::filesystem::path(file).filename().string();
  try {
    switch (kind_of_answer(json, file)) {
      case Kind::whatif:
        report["whatifs"].push_back(json);
        report["whatifs"].back()["file"] = name;
        if (Json scaling = scaling_json(json); !scaling.empty())
          report["whatifs"].back()["scaling"] = std::move(scaling);
        break;
      case Kind::validation:
        report["validations"].push_back(json);
        report["validations"].back()["file"] = name;
        break;
      case Kind::published:
        report["published"].push_back(published_json(json));
        report["published"].back()["file"] = name;
        break;
    }
  } catch (const Json::exception& error) {
    throw UserError(file, 0, fmt::format("lacks a field of such an answer: {}", error.what()),
                    "expected what whatif or validate wrote as JSON");
  }
}

bool is_json(const std::string& file) {
  const std::string ending = std::filesystem::path(file).extension().string();
  if (ending == ".json") return true;
  if (ending == ".textproto") return false;
  const std::string text = read_file(file);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

std::string title_of(const Json& report) {
  if (!report["plans"].empty()) {
    const Json& plan = report["plans"].front();
    return fmt::format("{} on {} of {}", plan.at("workload").get<std::string>(),
                       counted(plan.at("devices").get<int>(), "device"),
                       plan.at("cluster").get<std::string>());
  }
  if (!report["whatifs"].empty()) return "What if";
  return "Predicted and measured";
}

}  // namespace

Simulated simulate_to_report(const Plan& plan, bool fold) {
  SimulateRequest request{plan, {}};
  request.options.fold = fold;
  request.options.links = static_cast<int>(kMostLinks);
  return simulate(request);
}

Json report_on(const planner::Evaluation& evaluation) {
  Json json = to_json(*evaluation.plan.job);
  json.update(to_json(evaluation));
  json["words"] = planner::describe(evaluation.plan);
  json["cost"] = cost_json(evaluation);
  if (evaluation.interval)
    json["rests_on_words"] = fmt::format("{}; what would narrow the interval most: {}",
                                         planner::what_it_rests_on(evaluation.interval->rests_on),
                                         evaluation.interval->narrowed_by);
  return json;
}

Json report_on(const planner::SearchResult& found) {
  const planner::Evaluation& best = found.plans.front();
  Json json = report_on(best);
  json["bound_by"] = planner::bound_by(best);
  json["beside"] = Json::array({beside_json(best, "this plan")});
  add_search(best, found, json);
  json["assumptions"] = assumptions_json(best.plan);
  return json;
}

Json report_on(const Simulated& simulated, bool fold, const planner::SearchResult* found) {
  const planner::Evaluation& evaluation = simulated.evaluation;
  const Plan& plan = evaluation.plan;
  const sim::Simulation& simulation = *evaluation.simulation;
  Json json = report_on(evaluation);
  json.update(to_json(simulated));
  json.erase("wall_s");  // the same report of the same files, byte by byte
  json["bound_by"] = planner::bound_by(evaluation);
  json["beside"] = Json::array({beside_json(evaluation, "this plan")});
  if (found != nullptr) add_search(evaluation, *found, json);
  json["timeline"] = timeline_json(plan, simulation, fold);
  json["memory"] = memory_json(plan, simulation);
  json["network"] = network_json(plan.job->cluster, simulation);
  json["assumptions"] = assumptions_json(plan);
  return json;
}

namespace {

Json of_file(const std::string& file, const ReportRequest& request) {
  const Plan plan = load_plan(file);
  const Simulated simulated = simulate_to_report(plan, request.fold);
  if (!request.search) return report_on(simulated, request.fold, nullptr);
  planner::SearchOptions options;
  options.jobs = request.jobs;
  try {
    const planner::SearchResult found = orrery::plan(plan.job, {}, options);
    return report_on(simulated, request.fold, &found);
  } catch (const NoAnswer& none) {
    Json json = report_on(simulated, request.fold, nullptr);
    json["search"] = {{"refusal", none.what()}};
    return json;
  }
}

}  // namespace

Json report(const ReportRequest& request) {
  if (request.files.empty()) throw UserError("no file to report on", "expected plans or answers as JSON");
  if (request.files.size() > kMostReportFiles)
    throw UserError(fmt::format("more than {} files to report on", kMostReportFiles), "expected fewer");
  Json report = {{"title", ""},
                 {"version", version()},
                 {"plans", Json::array()},
                 {"whatifs", Json::array()},
                 {"validations", Json::array()},
                 {"published", Json::array()}};
  for (const std::string& file : request.files) {
    if (is_json(file))
      add_answer(file, report);
    else
      report["plans"].push_back(of_file(file, request));
  }
  report["title"] = title_of(report);
  return report;
}

}  // namespace orrery
