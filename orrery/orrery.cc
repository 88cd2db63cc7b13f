#include "orrery/orrery.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "base/units.h"
#include "planner/evaluation/interval.h"
#include "planner/hints/tensor_overlap_hint.h"
#include "planner/search/guess.h"
#include "program/runtime_profile.h"
#include "proto/plan.pb.h"
#include "proto/textproto.h"
#include "sim/processes/isolate.h"
#include "topologies/link_class.h"
#include "topologies/named_network.h"

namespace orrery {
namespace {

template <typename Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void start() {
  sim::start_server();
}

std::string_view version() {
  return ORRERY_VERSION;
}

planner::SearchResult plan(const std::shared_ptr<const Job>& job, const planner::Pins& pins,
                           const planner::SearchOptions& options) {
  planner::SearchResult result = planner::search(job, pins, options);
  planner::hint_at_tensor_overlap(pins, options, &result);
  return result;
}

planner::SearchResult plan(const Question& question) {
  return plan(question.job, question.pins, question.search);
}

planner::Evaluation guess(const Question& question) {
  return planner::guess(question.job, question.pins, question.search);
}

void write_plan(const Plan& plan, const std::string& file) {
  proto::Plan message;
  to_proto(plan, &message);
  write_file_atomically(file, to_textproto(message));
}

sim::Detail detail_from_name(std::string_view name) {
  if (name == "flows") return sim::Detail::flows;
  if (name == "messages") return sim::Detail::messages;
  throw UserError(fmt::format("`detail` {} is unknown", name), "expected flows or messages");
}

Simulated simulate(const SimulateRequest& request) {
  if (request.options.steps < 0)
    throw UserError(fmt::format("`steps` {}", request.options.steps),
                    "expected a whole number, or 0 for as many as the steady state needs");
  Simulated result{planner::evaluate(request.plan)};
  result.wall_s = seconds_of(
      [&] { result.evaluation.simulation = sim::simulate(result.evaluation.plan, request.options); });
  planner::add_interval(&result.evaluation);
  return result;
}

namespace {

// What is of a training through trouble says nothing without any.
void check_acts(const CompareRequest& request) {
  if (!request.troubles.empty()) return;
  const comparison::OrdealOptions none;
  for (const auto& [key, value] : {std::pair{"horizon", &comparison::OrdealOptions::horizon_s},
                                   {"checkpoint_every", &comparison::OrdealOptions::checkpoint_every_s},
                                   {"restart_s", &comparison::OrdealOptions::restart_s},
                                   {"replace_s", &comparison::OrdealOptions::replace_s}})
    if (request.options.*value != none.*value)
      throw UserError(fmt::format("`{}` without `trouble`", key),
                      "expected both: it is of a training through trouble");
}

}  // namespace

comparison::Comparison compare(const CompareRequest& request) {
  comparison::Question question;
  question.base.job = request.question.job;
  question.base.micro_batch = request.question.pins.micro_batch;
  question.base.recompute = request.question.pins.recompute;
  question.base.recompute_modules = request.question.pins.recompute_modules.value_or(0);
  question.base.jobs = request.jobs;
  question.strategies = request.strategies.empty() ? comparison::default_strategies()
                                                   : comparison::parse_strategies(request.strategies);
  for (const std::string& troubles : request.troubles)
    for (const std::string& trouble : split(troubles))
      question.troubles.push_back(comparison::parse_trouble(trouble, request.question.job->cluster));
  question.options = request.options;
  question.stages = request.stages;
  check_acts(request);
  return comparison::compare(question);
}

CollectiveKind collective_from_name(std::string name) {
  std::vector<std::string> known;
  name = lower_case(name);
  std::replace(name.begin(), name.end(), '-', '_');
  for (int kind = 0; kind <= static_cast<int>(CollectiveKind::scatter); ++kind) {
    if (name_of(static_cast<CollectiveKind>(kind)) == name) return static_cast<CollectiveKind>(kind);
    known.emplace_back(name_of(static_cast<CollectiveKind>(kind)));
  }
  throw UserError(fmt::format("collective {} is unknown", name), suggestion(name, known));
}

std::vector<CollectiveTime> collective(const CollectiveRequest& request) {
  if (request.bytes.empty()) throw UserError("no `bytes`", "expected at least one size");
  for (const double bytes : request.bytes)
    if (!(bytes >= 0 && std::isfinite(bytes)))
      throw UserError(fmt::format("`bytes` {}", bytes), "expected numbers of bytes from 0");
  const int devices = request.cluster.devices();
  const Algorithm* forced = request.algorithm ? &*request.algorithm : nullptr;
  std::vector<CollectiveTime> times;
  for (const double bytes : request.bytes) {
    if (request.progress)
      request.progress(static_cast<int>(times.size()), static_cast<int>(request.bytes.size()));
    CollectiveTime& time = times.emplace_back();
    sim::CollectiveResult result;
    time.wall_s = seconds_of([&] {
      result =
          sim::simulate_collective(request.kind, bytes, request.cluster, devices, request.detail, forced);
    });
    time.bytes = bytes;
    time.time_s = result.time_s;
    time.algbw_bytes_per_s = result.time_s > 0 ? bytes / result.time_s : 0;
    time.busbw_bytes_per_s = time.algbw_bytes_per_s * bus_factor(request.kind, devices);
    time.algorithm = result.plan.algorithm;
    time.protocol = result.plan.protocol;
    time.events = result.events;
  }
  return times;
}

planner::whatif::Result whatif(WhatifRequest request) {
  const auto positive = [](const char* key, const std::optional<double>& value) {
    if (value && !(*value > 0 && std::isfinite(*value)))
      throw UserError(fmt::format("`{}` {}", key, *value), "expected a number above 0");
  };
  if (request.limits.deadline_s) positive("deadline_days", *request.limits.deadline_s / kSecondsPerDay);
  positive("budget_usd", request.limits.budget_usd);
  return planner::whatif::plan_points(std::move(request.varied), std::move(request.points), request.goal,
                                      request.limits, request.jobs, request.progress);
}

planner::whatif::Goal goal_of(std::optional<double> tokens, std::optional<double> samples,
                              const std::vector<planner::whatif::Point>& points) {
  constexpr double kMostAmount = 1e18;  // base/parse.h, parse_amount
  if (tokens && samples) throw UserError("`samples` beside `tokens`", "expected one of the two");
  for (const auto& [key, amount] : {std::pair{"tokens", tokens}, {"samples", samples}})
    if (amount && !(*amount >= 1 && *amount <= kMostAmount))
      throw UserError(fmt::format("`{}` {}", key, *amount),
                      fmt::format("expected a number from 1 to {:g}", kMostAmount));
  planner::whatif::Goal goal;
  goal.asked = tokens || samples;
  goal.in_tokens = tokens || (!goal.asked && std::all_of(points.begin(), points.end(),
                                                         [](const planner::whatif::Point& point) {
                                                           return point.job->training.seq_len > 0;
                                                         }));
  if (goal.asked) goal.amount = tokens ? *tokens : *samples;
  return goal;
}

void check_answered(const planner::whatif::Result& result) {
  namespace whatif = planner::whatif;
  if (result.selection.fastest) return;
  const std::size_t count = result.points.size();
  const auto nearest = whatif::nearest(result.totals, result.limits);
  if (!nearest) {
    const std::string& refusal = result.answers.front().refusal;
    if (count == 1) throw NoAnswer(refusal);
    throw NoAnswer(fmt::format("none of {} points has a plan; {}: {}", count,
                               whatif::describe(result.points.front().vary), refusal));
  }
  const std::string miss = whatif::miss_of(*result.totals[*nearest], result.limits);
  if (count == 1) throw NoAnswer("the training " + miss);
  throw NoAnswer(fmt::format("none of {} points stays within the limits: the nearest, {}, {}", count,
                             whatif::describe(result.points[*nearest].vary), miss));
}

}  // namespace orrery
