// Which layouts and which kinds of plans a job admits: what check_plan refuses, and on this machine what the
// executor cannot train, anywhere what the runtime cannot run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

class Admission {
 public:
  // `fixed`: what is the same in all plans.
  Admission(std::shared_ptr<const Job> job, const Pins& pins, Choices fixed);

  // Whether check_plan lets this *kind* of plan pass: asked once for each combination of forms, because the
  // answer depends on the forms and refusing by exception is slow.
  bool supported(const Choices& choices);
  // Whether the runtime has states sharded or whole as these are, beside what `supported` says of them.
  bool keeps_states_so(const Choices& choices) const;
  // Whether tensor ranks hold sequences so, whole or split.
  bool holds_sequences_so(const Choices& choices) const {
    return choices.tp == 1 || choices.sequence_parallel || !splits_sequences_;
  }
  // Whether gradients can be reduced beside its backward passes.
  bool reduces_beside(const Choices& choices) const { return choices.pp == 1 || !reduces_behind_; }
  // Whether this very plan passes, asked anew: its refusal counts as that of a plan that came far.
  bool passes(const Choices& choices) { return accepted(choices, /*depth=*/2, /*whole=*/true); }
  // Whether the layout itself (tp, pp, dp, cp, ep) can be had: heads, layers, the batch.
  bool plausible(const Choices& choices);

  // An uneven division of the batch that the schedule admits, whatever the devices' speed; empty: none.
  std::vector<std::int64_t> some_shares(const Choices& choices) const;
  // Tensor ranks of a general graph do so always (workloads/graph_split.h).
  bool shares_samples(const Choices& c) const { return !job_->workload.transformer && c.tp > 1; }

  // On this machine a plan is there to be run: what the executor cannot train is not proposed, unless it can
  // train nothing of what the pins leave.
  bool only_executable() const { return local_; }
  void admit_unexecutable();

  // Only what the runtime can run is proposed, with what the pins ask of it, unless that leaves nothing. Then
  // more is admitted, if only pins can be what asks for it: first a pinned sharding in pipelines, too, then
  // whatever can be planned. Returns whether it was.
  bool admit_unable();

  // What is not tried because of the batch or a pin is noted, the first of each kind: where nothing is left,
  // what check_plan says of it may be why.
  enum class Skipped { batch, micro_batch, sequence, schedule, recompute, count };
  void skip(const Choices& choices, Skipped kind);
  void skip(const UserError& why);

  // Nothing is left: says why. What the batch and the pins cause goes before what nobody asked for, what no
  // runtime could run before what this one cannot, what came furthest before the rest, and the first of
  // these.
  [[noreturn]] void refuse() const;

 private:
  // `whole`: not of the layout alone.
  bool accepted(const Choices& choices, int depth, bool whole);
  void refused(const std::string& text, int weight);
  void forget();  // what was answered under what no longer counts

  std::shared_ptr<const Job> job_;
  const Pins& pins_;
  Choices fixed_;
  bool local_ = false;
  RuntimeProfile runtime_;  // whose abilities count
  // Plans begin without sharding and with whole sequences: what is not of `runtime_` here is said of leaves.
  bool shards_beside_others_ = false, splits_sequences_ = false, reduces_behind_ = false;
  std::unordered_map<std::uint32_t, bool> supported_;
  std::map<std::array<int, 5>, bool> plausible_;
  std::vector<std::string> asked_;  // options that are pinned, and the batch, as messages write them
  std::array<bool, static_cast<std::size_t>(Skipped::count)> skipped_{};
  std::string refusal_;
  int refusal_weight_ = 0;
};

}  // namespace orrery::planner
