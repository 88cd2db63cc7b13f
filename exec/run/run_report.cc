#include "exec/run/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/answer/lines.h"
#include "base/format.h"
#include "base/statistics.h"
#include "program/program.h"
#include "proto/timeline.pb.h"

namespace orrery::exec {
namespace {

std::size_t first_timed_step(std::size_t steps) {
  return steps > 1 ? 1 : 0;
}

// Asynchronous workers end a step with the last of as many batches as it has, whosever they are.
std::vector<double> ends_of_steps(std::vector<double> batch_ends_s, int batches) {
  std::sort(batch_ends_s.begin(), batch_ends_s.end());
  std::vector<double> ends;
  const auto each = static_cast<std::size_t>(batches);
  for (std::size_t last = each; last <= batch_ends_s.size(); last += each)
    ends.push_back(batch_ends_s[last - 1]);
  return ends;
}

// How many of a rank's steps the timeline has, of those that count for timing, as steps of the whole run.
double kept_steps(const Merged& merged, std::size_t rank) {
  const std::size_t steps = merged.step_ends_s.size();
  const auto timed = static_cast<double>(steps - first_timed_step(steps));
  const auto batches = static_cast<double>(merged.batches[rank]) - first_timed_step(steps);
  return batches > 0 ? timed * std::min(1.0, KeptSteps::kMost / batches) : timed;
}

AsynchronousRun asynchronous_of(const Merged& merged) {
  Staleness all;
  for (const RankReport& rank : merged.ranks) {
    all.pushes += rank.staleness.pushes;
    all.updates += rank.staleness.updates;
    all.most_updates = std::max(all.most_updates, rank.staleness.most_updates);
    all.most_ahead = std::max(all.most_ahead, rank.staleness.most_ahead);
  }
  return {merged.batches,
          all.updates / static_cast<double>(std::max<std::int64_t>(1, all.pushes)),
          all.most_updates,
          all.most_ahead,
          {}};
}

}  // namespace

Merged merge(const Plan& plan, const std::vector<RankNotes>& notes) {
  const std::size_t steps = notes.front().loss.size();
  Merged merged;
  merged.loss.resize(steps);
  merged.step_begins_s.resize(steps);
  merged.step_ends_s.resize(steps);
  double begin_s = 0;
  for (const RankNotes& rank : notes) begin_s = std::max(begin_s, rank.report.begin_s);
  std::vector<double> batch_ends_s, batches(steps);
  for (const RankNotes& rank : notes) {
    merged.ranks.push_back(rank.report);
    merged.routed.push_back(rank.routed);
    merged.batches.push_back(static_cast<std::int64_t>(rank.ends_s.size()));
    for (std::size_t s = 0; s < steps; ++s) {
      merged.loss[s] += rank.loss[s];
      if (s < rank.batches.size()) batches[s] += rank.batches[s];
      merged.step_begins_s[s] = std::max(merged.step_begins_s[s], rank.begins_s[s] - begin_s);
      if (!plan.choices.asynchronous())
        merged.step_ends_s[s] = std::max(merged.step_ends_s[s], rank.ends_s[s] - begin_s);
    }
    for (const double end_s : rank.ends_s) batch_ends_s.push_back(end_s - begin_s);
    for (TimelineEvent event : rank.events) {
      event.start_s -= begin_s;
      event.end_s -= begin_s;
      merged.timeline.events.push_back(event);
    }
  }
  if (plan.choices.asynchronous()) {
    spread_losses(merged.loss, batches, plan.choices.dp);
    merged.step_ends_s = ends_of_steps(std::move(batch_ends_s), plan.choices.dp);
  }
  return merged;
}

std::vector<double> step_times(const Merged& merged) {
  std::vector<double> times;
  for (std::size_t s = first_timed_step(merged.step_ends_s.size()); s < merged.step_ends_s.size(); ++s)
    times.push_back(merged.step_ends_s[s] -
                    std::max(merged.step_begins_s[s], s == 0 ? 0 : merged.step_ends_s[s - 1]));
  return times;
}

std::vector<std::map<std::string, double>> busy_by_kind(const Merged& merged,
                                                        const std::vector<Program>& programs) {
  std::vector<std::map<std::string, double>> busy(programs.size());
  const auto first = static_cast<std::int32_t>(first_timed_step(merged.step_ends_s.size()));
  for (const TimelineEvent& event : merged.timeline.events) {
    if (event.step < first) continue;
    const auto rank = static_cast<std::size_t>(event.rank);
    const Instruction& instruction = instruction_at(programs[rank], event.instruction);
    // An asynchronous server waits for pushes: only what it computes is work.
    if (event.instruction >= programs[rank].instructions.size() && instruction.op != Op::compute) continue;
    busy[rank][std::string(kind_of(instruction))] += (event.end_s - event.start_s) / kept_steps(merged, rank);
  }
  return busy;
}

std::optional<RoutingOfRun> routing_of_run(const Merged& merged, const std::vector<Program>& programs,
                                           const MixtureOfExperts& moe) {
  double shares = 0, variances = 0;
  std::int64_t count = 0;
  for (const Program& program : programs) {
    for (const Group& group : program.groups) {
      if (group.kind != GroupKind::expert || group.ranks.front() != program.rank) continue;
      std::size_t dispatches = merged.routed[static_cast<std::size_t>(program.rank)].size();
      for (const std::int32_t rank : group.ranks)
        dispatches = std::min(dispatches, merged.routed[static_cast<std::size_t>(rank)].size());
      for (std::size_t i = 0; i < dispatches; ++i) {
        double fullest = 0, rows = 0, squares = 0;
        for (const std::int32_t rank : group.ranks) {
          const RoutedRows& routed = merged.routed[static_cast<std::size_t>(rank)][i];
          fullest = std::max(fullest, routed.rows);
          rows += routed.rows;
          squares += routed.squares;
        }
        if (rows == 0) continue;
        shares += fullest * static_cast<double>(group.ranks.size()) / rows;
        const double most = static_cast<double>(moe.experts) / moe.experts_per_token - 1;
        if (most > 0) variances += (moe.experts * squares / (rows * rows) - 1) / most;
        ++count;
      }
    }
  }
  if (count == 0) return std::nullopt;
  const auto all = static_cast<double>(count);
  return RoutingOfRun{count, shares / all, std::sqrt(std::max(0.0, variances / all))};
}

RunAnswer report(const Plan& plan, const Merged& merged, const std::vector<Program>& programs,
                 const std::map<std::string, TensorDigest>& digest, const RunFacts& facts) {
  const std::vector<double> times = step_times(merged);
  // As the simulator's: the rank with most compute, the lowest on ties.
  std::size_t critical = 0;
  RankReport most;
  for (std::size_t r = 0; r < merged.ranks.size(); ++r) {
    if (merged.ranks[r].flops > merged.ranks[critical].flops * (1 + 1e-9)) critical = r;
    most.allocated_bytes = std::max(most.allocated_bytes, merged.ranks[r].allocated_bytes);
    most.context_bytes = std::max(most.context_bytes, merged.ranks[r].context_bytes);
    most.resident_bytes = std::max(most.resident_bytes, merged.ranks[r].resident_bytes);
  }
  const Training& training = plan.job->training;
  RunAnswer answer;
  answer.workload = plan.job->workload.name;
  answer.cluster = plan.job->cluster.name;
  answer.devices = plan.job->cluster.devices();
  answer.runtime = plan.job->runtime.name;
  answer.backend = facts.backend;
  answer.library = facts.library;
  answer.device = facts.device;
  answer.data = facts.data;
  answer.ranks = static_cast<std::int64_t>(merged.ranks.size());
  answer.steps = static_cast<std::int64_t>(merged.loss.size());
  answer.first_step = merged.ranks.front().first_step;
  answer.skipped_steps = merged.ranks.front().skipped_steps;
  answer.step_time = {median(times), *std::min_element(times.begin(), times.end()),
                      *std::max_element(times.begin(), times.end())};
  answer.samples_per_s = static_cast<double>(training.global_batch) / answer.step_time.median_s;
  answer.tokens_per_s = answer.samples_per_s * training.seq_len;
  answer.loss = merged.loss;
  answer.memory_bytes = most.allocated_bytes + most.context_bytes;
  answer.allocated_bytes = most.allocated_bytes;
  answer.context_bytes = most.context_bytes;
  answer.resident_bytes = most.resident_bytes;
  answer.critical_rank = static_cast<std::int64_t>(critical);
  answer.by_kind_of_ranks_s = busy_by_kind(merged, programs);
  answer.by_kind_s = answer.by_kind_of_ranks_s[critical];
  if (plan.choices.asynchronous()) answer.asynchronous = asynchronous_of(merged);
  if (const auto& transformer = plan.job->workload.transformer; transformer && transformer->moe)
    answer.routing = routing_of_run(merged, programs, *transformer->moe);
  for (const auto& [name, tensor] : digest)
    answer.parameters_digest[name] = {tensor.norm, {tensor.projections.begin(), tensor.projections.end()}};
  return answer;
}

PaceOfRun pace_of_run(std::vector<double> times, const std::vector<double>& paces) {
  const bool by_step = paces.size() > times.size();
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::size_t after = by_step ? paces.size() - times.size() + i : paces.size() - 1;
    times[i] *= (paces[after - 1] + paces[after]) / 2;
  }
  const auto [least, most] = std::minmax_element(paces.begin(), paces.end());
  return {paces.front(), paces.back(), *least, *most, median(times)};
}

void print_summary(const RunAnswer& run) {
  std::string text;
  text +=
      fmt::format("Trained {} steps on {} ranks ({}, {}).\n", run.steps, run.ranks, run.library, run.device);
  const std::string rate = run.tokens_per_s > 0 ? fmt::format("{:.0f} tokens/s", run.tokens_per_s)
                                                : fmt::format("{:.1f} samples/s", run.samples_per_s);
  text += fmt::format("  step   {} (median; {} to {}), {}\n", human_seconds(run.step_time.median_s),
                      human_seconds(run.step_time.least_s), human_seconds(run.step_time.most_s), rate);
  if (run.tokens_per_s == 0) text += fmt::format("  data   {}\n", run.data);
  text += fmt::format("  loss   {:.4f} -> {:.4f}\n", run.loss.front(), run.loss.back());
  text += fmt::format("  memory {} on the fullest rank, {} of it the process itself\n",
                      human_bytes(run.memory_bytes), human_bytes(run.context_bytes));
  if (run.asynchronous)
    text += fmt::format(
        "  stale  {:.1f} updates by other workers between pull and push (mean; at most {:.0f}); batches by "
        "rank {}\n",
        run.asynchronous->mean_stale, run.asynchronous->most_stale,
        Json(run.asynchronous->batches_of_ranks).dump());
  if (run.skipped_steps > 0)
    text += fmt::format("  skipped {} {} whose gradients were not finite\n", run.skipped_steps,
                        run.skipped_steps == 1 ? "step" : "steps");
  if (run.evaluations && !run.evaluations->empty()) {
    const EvaluationDone& last = run.evaluations->back();
    text += fmt::format("  held out: loss {:.4f}, perplexity {:.4g} after step {}{}\n", last.loss,
                        last.perplexity, last.step,
                        run.stopped_after ? "; the run ended there, as the loss no longer fell" : "");
  }
  if (run.routing)
    text +=
        fmt::format("  experts: the fullest rank had {:.2f} times its share of tokens (mean over layers)\n",
                    run.routing->fullest_share);
  if (run.asynchronous && !run.asynchronous->lost_ranks.empty())
    text += fmt::format("  lost   ranks {}, which fell silent: the others went on\n",
                        Json(run.asynchronous->lost_ranks).dump());
  text += fmt::format("  busy   rank {}:", run.critical_rank);
  const char* between = "";
  for (const auto& [kind, seconds] : run.by_kind_s)
    text += fmt::format("{} {} {}", std::exchange(between, ","), spoken_part(kind), human_seconds(seconds));
  text += fmt::format("\n");
  fmt::print("{}", wrapped(text));
}

std::string serialized(const Timeline& timeline) {
  proto::Timeline message;
  message.set_clock("real");
  for (const TimelineEvent& event : timeline.events) {
    proto::TimelineEvent* added = message.add_events();
    added->set_rank(event.rank);
    added->set_step(event.step);
    added->set_instruction(event.instruction);
    added->set_start_s(event.start_s);
    added->set_end_s(event.end_s);
  }
  return message.SerializeAsString();
}

}  // namespace orrery::exec
