#include "sim/scenario/images.h"

#include "program/placement.h"

namespace orrery::sim {

Images::Images(const Plan& plan) : plan_(&plan) {
  const int world = plan.choices.world();
  at_.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) at_.push_back(coordinates_of(plan, rank));
}

int Images::peer(int rank, int peer, int other) const {
  const Choices& sizes = plan_->choices;
  const Coordinates& from = at_[static_cast<std::size_t>(rank)];
  const Coordinates& to = at_[static_cast<std::size_t>(peer)];
  Coordinates result = at_[static_cast<std::size_t>(other)];
  result.tp = (result.tp + to.tp - from.tp + sizes.tp) % sizes.tp;
  result.cp = (result.cp + to.cp - from.cp + sizes.cp) % sizes.cp;
  result.dp = (result.dp + to.dp - from.dp + sizes.dp) % sizes.dp;
  result.pp = (result.pp + to.pp - from.pp + sizes.pp) % sizes.pp;
  return rank_of(*plan_, result);
}

Group Images::group(const Group& group, int member, int other) const {
  switch (group.kind) {
    case GroupKind::tensor:
      return tensor_group(*plan_, other);
    case GroupKind::data:
      return data_group(*plan_, other);
    case GroupKind::expert:
      return expert_group(*plan_, other);
    case GroupKind::expert_data:
      return expert_data_group(*plan_, other);
    case GroupKind::expert_tensor:
      return expert_tensor_group(*plan_, other);
    case GroupKind::context:
      return context_group(*plan_, other);
    case GroupKind::shard:
      return shard_group(*plan_, other);
    case GroupKind::replicate:
      return replicate_group(*plan_, other);
    case GroupKind::embedding:
      return embedding_group(*plan_, other);
    case GroupKind::world:
      return group;
    case GroupKind::pipeline:
      break;
  }
  Group image{group.kind, {}};
  for (const int rank : group.ranks) image.ranks.push_back(peer(member, rank, other));
  return image;
}

}  // namespace orrery::sim
