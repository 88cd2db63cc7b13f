#include "exec/run/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/statistics.h"
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

Json asynchronous_report(const Merged& merged) {
  Staleness all;
  for (const RankReport& rank : merged.ranks) {
    all.pushes += rank.staleness.pushes;
    all.updates += rank.staleness.updates;
    all.most_updates = std::max(all.most_updates, rank.staleness.most_updates);
    all.most_ahead = std::max(all.most_ahead, rank.staleness.most_ahead);
  }
  return {{"batches_of_ranks", merged.batches},
          {"stale_updates",
           {{"mean", all.updates / static_cast<double>(std::max<std::int64_t>(1, all.pushes))},
            {"max", all.most_updates}}},
          {"most_steps_ahead", all.most_ahead}};
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
  std::vector<double> batch_ends_s;
  for (const RankNotes& rank : notes) {
    merged.ranks.push_back(rank.report);
    merged.batches.push_back(static_cast<std::int64_t>(rank.ends_s.size()));
    for (std::size_t s = 0; s < steps; ++s) {
      merged.loss[s] += rank.loss[s];
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
  if (plan.choices.asynchronous())
    merged.step_ends_s = ends_of_steps(std::move(batch_ends_s), plan.choices.dp);
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

Json report(const Plan& plan, const Merged& merged, const std::vector<Program>& programs,
            const std::map<std::string, TensorDigest>& digest, const RunFacts& facts) {
  const std::vector<double> times = step_times(merged);
  const auto busy = busy_by_kind(merged, programs);
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
  Json json = {{"workload", plan.job->workload.name},
               {"cluster", plan.job->cluster.name},
               {"devices", plan.job->cluster.devices()},
               {"runtime", plan.job->runtime.name}};
  json["backend"] = facts.backend;
  json["library"] = facts.library;
  json["device"] = facts.device;
  json["ranks"] = merged.ranks.size();
  json["steps"] = merged.loss.size();
  json["first_step"] = merged.ranks.front().first_step;
  json["skipped_steps"] = merged.ranks.front().skipped_steps;
  json["data"] = facts.data;
  json["step_time_s"] = {{"median", median(times)},
                         {"min", *std::min_element(times.begin(), times.end())},
                         {"max", *std::max_element(times.begin(), times.end())}};
  const double samples_per_s = static_cast<double>(training.global_batch) / median(times);
  json["samples_per_s"] = samples_per_s;
  json["tokens_per_s"] = samples_per_s * training.seq_len;
  json["loss"] = merged.loss;
  json["memory_bytes"] = most.allocated_bytes + most.context_bytes;
  json["allocated_bytes"] = most.allocated_bytes;
  json["context_bytes"] = most.context_bytes;
  json["resident_bytes"] = most.resident_bytes;
  json["critical_rank"] = critical;
  json["by_kind_s"] = busy[critical];
  json["by_kind_of_ranks_s"] = busy;
  if (plan.choices.asynchronous()) json["asynchronous"] = asynchronous_report(merged);
  Json& tensors = json["parameters_digest"];
  tensors = Json::object();
  for (const auto& [name, tensor] : digest)
    tensors[name] = {{"norm", tensor.norm}, {"projections", tensor.projections}};
  return json;
}

Json pace_report(std::vector<double> times, const std::vector<double>& paces) {
  const bool by_step = paces.size() > times.size();
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::size_t after = by_step ? paces.size() - times.size() + i : paces.size() - 1;
    times[i] *= (paces[after - 1] + paces[after]) / 2;
  }
  const auto [least, most] = std::minmax_element(paces.begin(), paces.end());
  return {{"before", paces.front()},
          {"after", paces.back()},
          {"least", *least},
          {"most", *most},
          {"step_time_s", median(times)}};
}

void print_summary(const Json& json) {
  fmt::print("trained {} steps on {} ranks ({}, {})\n", json["steps"].get<int>(), json["ranks"].get<int>(),
             json["library"].get<std::string>(), json["device"].get<std::string>());
  const double tokens_per_s = json["tokens_per_s"].get<double>();
  const std::string rate = tokens_per_s > 0
                               ? fmt::format("{:.0f} tokens/s", tokens_per_s)
                               : fmt::format("{:.1f} samples/s", json["samples_per_s"].get<double>());
  fmt::print("  step   {} (median; {} to {}), {}\n",
             human_seconds(json["step_time_s"]["median"].get<double>()),
             human_seconds(json["step_time_s"]["min"].get<double>()),
             human_seconds(json["step_time_s"]["max"].get<double>()), rate);
  if (tokens_per_s == 0) fmt::print("  data   {}\n", json["data"].get<std::string>());
  fmt::print("  loss   {:.4f} -> {:.4f}\n", json["loss"].front().get<double>(),
             json["loss"].back().get<double>());
  fmt::print("  memory {} on the fullest rank, {} of them the process itself\n",
             human_bytes(json["memory_bytes"].get<double>()),
             human_bytes(json["context_bytes"].get<double>()));
  if (json.contains("asynchronous")) {
    const Json& asynchronous = json["asynchronous"];
    fmt::print("  stale  {:.1f} updates of others between pull and push (mean; at most {:.0f}), batches {}\n",
               asynchronous["stale_updates"]["mean"].get<double>(),
               asynchronous["stale_updates"]["max"].get<double>(), asynchronous["batches_of_ranks"].dump());
  }
  fmt::print("  busy   rank {}:", json["critical_rank"].get<int>());
  for (const auto& [kind, seconds] : json["by_kind_s"].items())
    fmt::print(" {} {}", kind, human_seconds(seconds.get<double>()));
  fmt::print("\n");
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
