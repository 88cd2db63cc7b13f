#include "planner/space/admission.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "planner/space/abilities.h"
#include "program/executable/executable.h"
#include "program/schedule.h"

namespace orrery::planner {

Admission::Admission(std::shared_ptr<const Job> job, const Pins& pins, Choices fixed)
    : job_(std::move(job)),
      pins_(pins),
      fixed_(std::move(fixed)),
      local_(job_->cluster.fabric.transport == Transport::host && !why_not_executable({job_, {}})),
      runtime_(able(job_->runtime, pins)) {}

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
  if (fresh) entry->second = accepted(c, /*depth=*/2, /*whole=*/true);
  return entry->second;
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

void Admission::admit_unable() {
  runtime_.abilities.reset();
  refusal_.clear();
  refusal_depth_ = 0;
  forget();
}

void Admission::forget() {
  supported_.clear();
  plausible_.clear();
}

bool Admission::accepted(const Choices& choices, int depth, bool whole) {
  try {
    const Plan plan{job_, choices};
    check_plan(plan);
    Choices asked = choices;
    if (!whole) asked.pp = 1, asked.zero = 0;  // schedule and sharding are still to be chosen
    if (const auto unable = why_cannot_run(runtime_, asked)) throw UserError(*unable);
    if (!local_) return true;
    const auto refused = why_not_executable(plan);
    if (!refused) return true;
    throw UserError(*refused);
  } catch (const UserError& error) {
    if (depth > refusal_depth_) refusal_ = error.what();
    refusal_depth_ = std::max(depth, refusal_depth_);
    return false;
  }
}

void Admission::refuse() const {
  if (!refusal_.empty()) throw UserError(refusal_);
  throw UserError(fmt::format("no layout of {} devices suits {} with a global batch of {}",
                              job_->cluster.devices(), job_->workload.name, job_->training.global_batch),
                  "expected pins with tp*pp*dp*cp = devices, dp*micro-batch dividing the batch, pp dividing "
                  "the layers");
}

}  // namespace orrery::planner
