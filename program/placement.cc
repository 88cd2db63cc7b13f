#include "program/placement.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "program/forms.h"

namespace orrery {
namespace {

int size_of(const Choices& choices, Dimension dimension) {
  switch (dimension) {
    case Dimension::tp:
      return choices.tp;
    case Dimension::cp:
      return choices.cp;
    case Dimension::dp:
      return choices.dp;
    case Dimension::pp:
      return choices.pp;
    case Dimension::ep:
      break;
  }
  return 1;  // ep does not multiply the world
}

int& digit_of(Coordinates& at, Dimension dimension) {
  switch (dimension) {
    case Dimension::tp:
      return at.tp;
    case Dimension::cp:
      return at.cp;
    case Dimension::dp:
      return at.dp;
    case Dimension::pp:
      return at.pp;
    case Dimension::ep:
      break;
  }
  return at.ep;
}

std::ptrdiff_t position_in(const Choices& choices, Dimension dimension) {
  return std::find(choices.order.begin(), choices.order.end(), dimension) - choices.order.begin();
}

bool context_inside_data(const Choices& choices) {
  return position_in(choices, Dimension::cp) < position_in(choices, Dimension::dp);
}

bool experts_outermost(const Choices& choices) {
  const auto ep = position_in(choices, Dimension::ep);
  return ep > position_in(choices, Dimension::cp) && ep > position_in(choices, Dimension::dp);
}

// Position in the data group: of the digits cp and dp, the one that stands first in the order varies faster.
int data_position(const Choices& choices, const Coordinates& at) {
  return context_inside_data(choices) ? at.cp + choices.cp * at.dp : at.dp + choices.dp * at.cp;
}

Coordinates at_data_position(const Choices& choices, Coordinates at, int position) {
  if (context_inside_data(choices)) {
    at.cp = position % choices.cp;
    at.dp = position / choices.cp;
  } else {
    at.dp = position % choices.dp;
    at.cp = position / choices.dp;
  }
  return at;
}

// Among the ranks that experts see different tokens on: the data group, and with sequence parallelism each
// rank's tensor group, innermost, of which etp neighbours share each expert.
int tensor_ranks_of_experts(const Choices& choices) {
  return choices.sequence_parallel ? choices.tp / choices.etp : 1;
}

int expert_position(const Choices& choices, const Coordinates& at) {
  const int tensor = tensor_ranks_of_experts(choices);
  return data_position(choices, at) * tensor + (tensor > 1 ? at.tp / choices.etp : 0);
}

Coordinates at_expert_position(const Choices& choices, Coordinates at, int position) {
  const int tensor = tensor_ranks_of_experts(choices);
  if (tensor > 1) at.tp = position % tensor * choices.etp + at.tp % choices.etp;
  return at_data_position(choices, at, position / tensor);
}

int expert_of_position(const Choices& choices, int position) {
  return experts_outermost(choices) ? position / (expert_ranks(choices) / choices.ep) : position % choices.ep;
}

using Members = std::vector<std::int32_t>;

// Members of the data group at `begin`, `begin` + `step` … before `end`. Of 300,000 ranks each asks: only
// those that are members may be looked at.
Members data_positions(const Plan& plan, int rank, int begin, int end, int step) {
  const Choices& choices = plan.choices;
  const Coordinates at = coordinates_of(plan, rank);
  Members ranks;
  ranks.reserve(static_cast<std::size_t>((end - begin + step - 1) / step));
  for (int position = begin; position < end; position += step)
    ranks.push_back(rank_of(plan, at_data_position(choices, at, position)));
  return ranks;
}

template <typename Predicate>
Members select_experts(const Plan& plan, int rank, Predicate is_member) {
  const Coordinates at = coordinates_of(plan, rank);
  Members ranks;
  for (int position = 0; position < expert_ranks(plan.choices); ++position)
    if (is_member(position)) ranks.push_back(rank_of(plan, at_expert_position(plan.choices, at, position)));
  return ranks;
}

int shard_size(const Choices& choices) {
  return choices.shard_group > 0 ? choices.shard_group : choices.dp * choices.cp;
}

// ---- Kinds of groups ----

Members tensor_members(const Plan& plan, int rank) {
  Coordinates at = coordinates_of(plan, rank);
  Members ranks;
  for (at.tp = 0; at.tp < plan.choices.tp; ++at.tp) ranks.push_back(rank_of(plan, at));
  return ranks;
}

Members data_members(const Plan& plan, int rank) {
  return data_positions(plan, rank, 0, plan.choices.dp * plan.choices.cp, 1);
}

Members shard_members(const Plan& plan, int rank) {
  const int size = shard_size(plan.choices);
  const int first = data_position(plan.choices, coordinates_of(plan, rank)) / size * size;
  return data_positions(plan, rank, first, std::min(first + size, plan.choices.dp * plan.choices.cp), 1);
}

Members replicate_members(const Plan& plan, int rank) {
  const int size = shard_size(plan.choices);
  const int place = data_position(plan.choices, coordinates_of(plan, rank)) % size;
  return data_positions(plan, rank, place, plan.choices.dp * plan.choices.cp, size);
}

Members pipeline_members(const Plan& plan, int rank) {
  Coordinates at = coordinates_of(plan, rank);
  Members ranks;
  for (at.pp = 0; at.pp < plan.choices.pp; ++at.pp) ranks.push_back(rank_of(plan, at));
  return ranks;
}

Members embedding_members(const Plan& plan, int rank) {
  Coordinates at = coordinates_of(plan, rank);
  const int first = place_of_part(plan.choices, 0).stage;
  const int last = place_of_part(plan.choices, parts_of(plan.choices) - 1).stage;
  if (first == last || (at.pp != first && at.pp != last)) return {rank};
  Members ranks;
  for (const int stage : {first, last}) {
    at.pp = stage;
    ranks.push_back(rank_of(plan, at));
  }
  return ranks;
}

Members expert_members(const Plan& plan, int rank) {
  const Choices& choices = plan.choices;
  const int own = expert_position(choices, coordinates_of(plan, rank));
  const int stride = expert_ranks(choices) / choices.ep;
  return select_experts(plan, rank, [&](int position) {
    return experts_outermost(choices) ? position % stride == own % stride
                                      : position / choices.ep == own / choices.ep;
  });
}

Members expert_data_members(const Plan& plan, int rank) {
  const int own = coordinates_of(plan, rank).ep;
  return select_experts(plan, rank,
                        [&](int position) { return expert_of_position(plan.choices, position) == own; });
}

Members context_members(const Plan& plan, int rank) {
  Coordinates at = coordinates_of(plan, rank);
  Members ranks;
  for (at.cp = 0; at.cp < plan.choices.cp; ++at.cp) ranks.push_back(rank_of(plan, at));
  return ranks;
}

Members world_members(const Plan& plan, int) {
  Members ranks(static_cast<std::size_t>(plan.choices.world()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Members expert_tensor_members(const Plan& plan, int rank) {
  Coordinates at = coordinates_of(plan, rank);
  Members ranks;
  at.tp -= at.tp % plan.choices.etp;
  for (int part = 0; part < plan.choices.etp; ++part, ++at.tp) ranks.push_back(rank_of(plan, at));
  return ranks;
}

bool always(const Plan&) {
  return true;
}

// Experts, and what a general graph's tensor ranks hold whole, are reduced by themselves.
bool reduces_apart(const Plan& plan) {
  const Workload& workload = plan.job->workload;
  return plan.choices.ep > 1 ||
         (plan.choices.sequence_parallel && (!workload.transformer || workload.transformer->moe));
}

}  // namespace

int expert_ranks(const Choices& choices) {
  return choices.dp * choices.cp * tensor_ranks_of_experts(choices);
}

Coordinates coordinates_of(const Plan& plan, int rank) {
  const Choices& choices = plan.choices;
  ORRERY_CHECK(rank >= 0 && rank < choices.world(), "rank " + std::to_string(rank));
  Coordinates at;
  for (const Dimension dimension : choices.order) {
    if (dimension == Dimension::ep) continue;
    const int size = size_of(choices, dimension);
    digit_of(at, dimension) = rank % size;
    rank /= size;
  }
  at.ep = expert_of_position(choices, expert_position(choices, at));
  return at;
}

int rank_of(const Plan& plan, const Coordinates& at) {
  Coordinates digits = at;
  int rank = 0;
  int weight = 1;
  for (const Dimension dimension : plan.choices.order) {
    if (dimension == Dimension::ep) continue;
    rank += weight * digit_of(digits, dimension);
    weight *= size_of(plan.choices, dimension);
  }
  return rank;
}

std::vector<GroupRule> built_in_group_rules() {
  return {
      {GroupKind::tensor, "tensor", tensor_members, always, true, false, true},
      {GroupKind::data, "data", data_members, always, false, true, false},
      {GroupKind::shard, "shard", shard_members,
       [](const Plan& plan) { return plan.choices.shard_group > 0; }, false, false, false},
      {GroupKind::replicate, "replicate", replicate_members,
       [](const Plan& plan) { return plan.choices.shard_group > 0; }, false, false, false},
      {GroupKind::pipeline, "pipeline", pipeline_members,
       [](const Plan& plan) { return plan.choices.pp > 1; }, false, false, false},
      {GroupKind::embedding, "embedding", embedding_members,
       [](const Plan& plan) { return plan.choices.pp > 1; }, false, false, false},
      {GroupKind::expert, "expert", expert_members, [](const Plan& plan) { return plan.choices.ep > 1; },
       true, false, false},
      {GroupKind::expert_data, "expert_data", expert_data_members, reduces_apart, false, true, false},
      {GroupKind::context, "context", context_members, [](const Plan& plan) { return plan.choices.cp > 1; },
       true, false, false},
      {GroupKind::world, "world", world_members, always, false, false, false},
      {GroupKind::expert_tensor, "expert_tensor", expert_tensor_members,
       [](const Plan& plan) { return plan.choices.etp > 1; }, true, false, true},
  };
}

Group group_of(GroupKind kind, const Plan& plan, int rank) {
  for (const GroupRule& rule : group_rules())
    if (rule.kind == kind) return {kind, rule.members(plan, rank)};
  throw InternalError("a group of kind " + std::to_string(static_cast<int>(kind)) +
                      ", which no form of parallelism has");
}

ServerSlice server_slice(std::int64_t elements, int servers, int server) {
  const std::int64_t begin = elements * server / servers;
  return {begin, elements * (server + 1) / servers - begin};
}

int device_of(const Plan& plan, int rank) {
  return rank % plan.job->cluster.devices();
}

}  // namespace orrery
