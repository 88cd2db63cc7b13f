#include "planner/space/admission.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "planner/space/abilities.h"
#include "program/executable/executable.h"
#include "program/schedule.h"

namespace orrery::planner {

namespace {

// Of a refusal: of what the runtime or the executor cannot do; of choices that nobody made; of those that
// somebody did.
constexpr int kUnable = 1, kUnasked = 10, kAsked = 20;

std::vector<std::string> options_asked(const Pins& p) {
  std::vector<std::string> found = {"`global_batch`"};
  for (const auto& [name, asked] : {std::pair("tp", p.tp.has_value()),
                                    {"pp", p.pp.has_value()},
                                    {"dp", p.dp.has_value()},
                                    {"cp", p.cp.has_value()},
                                    {"ep", p.ep.has_value()},
                                    {"etp", p.etp.has_value()},
                                    {"micro_batch", p.micro_batch.has_value()},
                                    {"interleave", p.interleave.has_value()},
                                    {"zero", p.zero.has_value()},
                                    {"shard_group", p.shard_group.has_value()},
                                    {"servers", p.servers.has_value()},
                                    {"staleness", p.staleness.has_value()},
                                    {"schedule", p.schedule.has_value()},
                                    {"recompute", p.recompute.has_value()},
                                    {"stage_layers", p.stage_layers.has_value()},
                                    {"sequence_parallel", p.sequence_parallel.has_value()},
                                    {"overlap_experts", p.overlap_experts.has_value()},
                                    {"capacity_factor", p.capacity_factor.has_value()},
                                    {"grad_compression", p.grad_compression.has_value()},
                                    {"sync", p.sync.has_value()}})
    if (asked) found.push_back(fmt::format("`{}`", name));
  return found;
}

}  // namespace

Admission::Admission(std::shared_ptr<const Job> job, const Pins& pins, Choices fixed)
    : job_(std::move(job)),
      pins_(pins),
      fixed_(std::move(fixed)),
      local_(job_->cluster.fabric.transport == Transport::host && !why_not_executable({job_, {}})),
      runtime_(able(job_->runtime, pins)),
      asked_(options_asked(pins)) {
  if (!runtime_.abilities) return;
  shards_beside_others_ = std::erase(runtime_.abilities->without, "zero_0_beside_others") > 0;
  splits_sequences_ = splits_all_sequences(runtime_, job_->workload);
  let_keep_sequences_whole(*runtime_.abilities);
  reduces_behind_ = reduces_behind_pipelines(runtime_);
  let_reduce_beside_pipelines(*runtime_.abilities);
}

bool Admission::keeps_states_so(const Choices& c) const {
  return !shards_beside_others_ || !keeps_whole_states_beside_others(c);
}

bool Admission::supported(const Choices& c) {
  std::uint32_t forms = 0;
  const auto add = [&](int value, std::size_t bits) {
    forms = forms << bits | static_cast<std::uint32_t>(value);
  };
  add(c.shard_group > 0, 1);
  add(c.tp > 1, 1);
  add(c.pp > 1, 1);
  add(c.cp > 1, 1);
  add(c.ep > 1, 1);
  add(static_cast<int>(c.schedule), 3);
  add(static_cast<int>(c.recompute), 2);
  add(c.recompute_layers > 0, 1);
  add(c.recompute_modules, kSelectiveModules.size());
  add(c.zero, 2);
  add(c.overlap_experts, 1);
  add(c.sequence_parallel, 1);
  add(c.overlap_grad_reduce, 1);
  add(!c.replica_batches.empty(), 1);
  add(static_cast<int>(c.grad_compression), 2);
  add(static_cast<int>(c.sync), 2);
  const auto [entry, fresh] = supported_.try_emplace(forms, true);
  if (!fresh) return entry->second;
  Choices kind = c;
  if (kind.recompute_layers > 0) kind.recompute_layers = 1;  // how many a stage has depends on the layout
  return entry->second = accepted(kind, /*depth=*/2, /*whole=*/true);
}

bool Admission::plausible(const Choices& c) {
  const std::array<int, 5> layout = {c.tp, c.pp, c.cp, c.ep, c.sequence_parallel};
  const auto [entry, fresh] = plausible_.try_emplace(layout, true);
  if (!fresh) return entry->second;
  Choices plain = fixed_;
  plain.tp = c.tp;
  plain.pp = c.pp;
  plain.dp = c.dp;
  plain.cp = c.cp;
  plain.ep = c.ep;
  plain.sequence_parallel = c.sequence_parallel;
  if (shares_samples(c)) plain.micro_batch = c.tp;  // a sample each
  if (!job_->training.divides_over(c.dp)) plain.replica_batches = some_shares(plain);
  plain.schedule =
      pins_.schedule && fixed_chunks(*pins_.schedule) == 1 ? *pins_.schedule : Schedule::one_f_one_b;
  // Where the pinned layers are of chunks, the leaves decide.
  const bool several = pins_.interleave || (pins_.schedule && fixed_chunks(*pins_.schedule) != 1);
  const bool chunks = plain.schedule == Schedule::one_f_one_b && pins_.stage_layers && several;
  if (!chunks) entry->second = accepted(plain, /*depth=*/1, /*whole=*/false);
  return entry->second;
}

std::vector<std::int64_t> Admission::some_shares(const Choices& c) const {
  const MicroBatchRule rule = micro_batch_rule(c.schedule, c.pp);
  const std::int64_t least = std::int64_t{c.micro_batch} * rule.least;
  const std::int64_t first = job_->training.global_batch - least * (c.dp - 1);
  if (first < least || first % (std::int64_t{c.micro_batch} * rule.unit) != 0) return {};
  std::vector<std::int64_t> shares(static_cast<std::size_t>(c.dp), least);
  shares.front() = first;
  return shares;
}

void Admission::admit_unexecutable() {
  local_ = false;
  forget();
}

bool Admission::admit_unable() {
  const bool asked = pins_.dp || pins_.pp || pins_.stage_layers || pins_.zero || pins_.shard_group;
  if (!asked || !runtime_.abilities) return false;
  std::vector<int>& in_pipeline = runtime_.abilities->zero_in_pipeline;
  const int zero = pins_.zero.value_or(0);
  if (zero > 0 && std::find(in_pipeline.begin(), in_pipeline.end(), zero) == in_pipeline.end()) {
    in_pipeline.push_back(zero);
  } else {
    runtime_.abilities.reset();
    shards_beside_others_ = splits_sequences_ = reduces_behind_ = false;
  }
  forget();
  return true;
}

void Admission::forget() {
  supported_.clear();
  plausible_.clear();
  skipped_.fill(false);
  refusal_.clear();
  refusal_weight_ = 0;
}

void Admission::skip(const Choices& choices, Skipped kind) {
  bool& known = skipped_[static_cast<std::size_t>(kind)];
  if (known) return;
  known = true;
  try {
    check_plan({job_, choices});
  } catch (const UserError& error) {
    skip(error);
  }
}

void Admission::skip(const UserError& why) {
  refused(why.what(), /*weight=*/1);
}

void Admission::refused(const std::string& text, int weight) {
  const bool asked = std::any_of(asked_.begin(), asked_.end(), [&](const std::string& option) {
    return text.find(option) != std::string::npos;
  });
  weight += asked ? kAsked : kUnasked;
  if (weight > refusal_weight_) refusal_ = text;
  refusal_weight_ = std::max(weight, refusal_weight_);
}

bool Admission::accepted(const Choices& choices, int depth, bool whole) {
  try {
    const Plan plan{job_, choices};
    check_plan(plan);
    Choices asked = choices;
    if (!whole) asked.pp = 1, asked.zero = 0;  // schedule and sharding are still to be chosen
    std::string unable;
    if (const auto why = why_cannot_run(runtime_, job_->workload, asked))
      unable = UserError(*why, "expected a plan that the runtime can run, or `any_runtime`").what();
    else if (local_)
      unable = why_not_executable(plan).value_or("");
    if (unable.empty()) return true;
    if (refusal_weight_ < kUnable) refusal_ = unable;
    refusal_weight_ = std::max(kUnable, refusal_weight_);
  } catch (const UserError& error) {
    refused(error.what(), depth);
  }
  return false;
}

void Admission::refuse() const {
  if (!refusal_.empty()) throw UserError(refusal_);
  throw UserError(fmt::format("no layout of {} devices suits {} with a global batch of {}",
                              job_->cluster.devices(), job_->workload.name, job_->training.global_batch),
                  "expected pins with tp*pp*dp*cp = devices, dp*micro-batch dividing the batch, pp dividing "
                  "the layers");
}

}  // namespace orrery::planner
