#include "planner/space/family.h"

#include <algorithm>
#include <set>

#include "planner/space/recompute_choice.h"

namespace orrery::planner {
namespace {

// Bytes of gradients reduced together that are tried beside the runtime's own.
constexpr std::array<double, 4> kBuckets = {16.0 * (1 << 20), 64.0 * (1 << 20), 256.0 * (1 << 20),
                                            1024.0 * (1 << 20)};

// Nodes that the shards of hybrid sharding span at most, unless pinned.
constexpr int kShardNodes = 8;

}  // namespace

std::int64_t Family::count() const {
  std::int64_t bucketed = 0, whole = 0;  // of overlaps x buckets, under ZeRO 0 to 2 and ZeRO-3
  for (std::size_t o = 0; o < overlaps->size(); ++o)
    for (std::size_t b = 0; b < buckets->size(); ++b) {
      if (distinct(0, o, b)) ++bucketed;
      if (distinct(3, o, b)) ++whole;
    }
  std::int64_t sum = 0;
  for (const Sharding& sharding : *shardings) sum += sharding.zero == 3 ? whole : bucketed;
  return static_cast<std::int64_t>(recomputes->size()) * sum;
}

Choices Family::plan(const Recomputed& recomputed, const Sharding& sharding, bool overlap,
                     double bucket_bytes) const {
  Choices choices = core;
  choices.recompute = recomputed.kind;
  choices.recompute_layers = recomputed.layers;
  choices.recompute_modules = recomputed.modules;
  choices.zero = sharding.zero;
  choices.shard_group = sharding.group;
  choices.overlap_grad_reduce = overlap;
  choices.bucket_bytes = bucket_bytes;
  return choices;
}

FamilyLists::FamilyLists(std::shared_ptr<const Job> job, const Pins& pins, const LayerParts& parts,
                         Geometries& geometries, Cuts& cuts, Admission& admission)
    : job_(std::move(job)),
      pins_(pins),
      cuts_(cuts),
      admission_(admission),
      gradients_(job_, parts, geometries),
      module_sets_(searched_modules(*job_)),
      no_buckets_(std::make_shared<const std::vector<BucketSize>>(
          1, BucketSize{pins.bucket_bytes.value_or(0), false})) {}

void FamilyLists::forget() {
  sharding_lists_.clear();
  recompute_lists_.clear();
}

std::optional<Family> FamilyLists::family_of(const Choices& choices) {
  Family family;
  family.core = choices;
  family.recomputes = recomputes(choices);
  family.shardings = shardings(choices);
  const bool alone = choices.dp * choices.cp == 1 && !admission_.shares_samples(choices);
  // One process reduces in every micro-batch, whatever else goes on.
  const bool only_on = alone || choices.sync == Sync::single_process;
  family.overlaps = overlaps(only_on, !only_on && !admission_.reduces_beside(choices));
  family.buckets = alone ? no_buckets_ : buckets(choices);
  if (family.recomputes->empty() || family.shardings->empty() || family.overlaps->empty()) return {};
  family.core = family.plan(family.recomputes->front(), family.shardings->front(), family.overlaps->front(),
                            family.buckets->front().bytes);
  if (!admission_.supported(family.core)) return {};
  return family;
}

FamilyLists::List<bool> FamilyLists::overlaps(bool only_on, bool only_off) {
  auto& list = overlap_lists_[{only_on, only_off}];
  if (list != nullptr) return list;
  std::vector<bool> found;
  for (const bool overlap : {true, false}) {
    const bool had = overlap ? !only_off : !only_on;
    if (pins_.overlap_grad_reduce.value_or(overlap) == overlap && (had || pins_.overlap_grad_reduce))
      found.push_back(overlap);
  }
  return list = std::make_shared<const std::vector<bool>>(std::move(found));
}

FamilyLists::List<Recomputed> FamilyLists::recomputes(const Choices& choices) {
  const Cut& cut = cuts_.of(choices);
  const int most = *std::max_element(cut.layers.begin(), cut.layers.end());
  auto& list = recompute_lists_[{most, choices.pp > 1, choices.cp > 1, choices.ep > 1,
                                 static_cast<int>(choices.schedule) * 2 + (choices.overlap_experts ? 1 : 0)}];
  if (list != nullptr) return list;
  std::vector<Recomputed> found;
  const auto add = [&](const Recomputed& recomputed) {
    Choices one = choices;
    one.recompute = recomputed.kind;
    one.recompute_modules = recomputed.modules;
    if (admission_.supported(one)) found.push_back(recomputed);
  };
  const auto wanted = [&](Recompute kind) { return pins_.recompute.value_or(kind) == kind; };
  // Megatron-Core refuses what runs experts' traffic again beside that of another micro-batch.
  const bool resends = !choices.overlap_experts || pins_.recompute;
  if (wanted(Recompute::none)) add({Recompute::none});
  if (pins_.recompute == Recompute::selective)
    add({Recompute::selective, 0, pins_.recompute_modules.value_or(0)});
  else if (!pins_.recompute)
    for (const ModuleSet modules : module_sets_)
      if (resends || (modules & module_bit("moe")) == 0) add({Recompute::selective, 0, modules});
  if (wanted(Recompute::full) && resends) {
    for (int k = 1; k < most && !pins_.recompute_layers; ++k) add({Recompute::full, k});
    const Recomputed pinned{Recompute::full, pins_.recompute_layers.value_or(0)};
    if (pinned.layers <= most) {
      add(pinned);
    } else {
      Choices one = choices;
      one.recompute = pinned.kind;
      one.recompute_layers = pinned.layers;
      admission_.skip(one, Admission::Skipped::recompute);
    }
  }
  return list = std::make_shared<const std::vector<Recomputed>>(std::move(found));
}

FamilyLists::List<Sharding> FamilyLists::shardings(const Choices& choices) {
  const int replicas = choices.dp * choices.cp;
  auto& list =
      sharding_lists_[{replicas, choices.tp, choices.ep > 1, choices.pp > 1, choices.cp > 1,
                       static_cast<int>(choices.schedule) * 2 + (choices.overlap_experts ? 1 : 0),
                       choices.sequence_parallel, !choices.replica_batches.empty(),
                       static_cast<int>(choices.grad_compression) * 8 + static_cast<int>(choices.sync)}];
  if (list != nullptr) return list;
  std::vector<Sharding> found;
  const auto add = [&](int zero, int group) {
    Choices one = choices;
    one.zero = zero;
    one.shard_group = group;
    if (admission_.supported(one) && admission_.keeps_states_so(one)) found.push_back({zero, group});
  };
  const std::vector<int> stages = pins_.zero      ? std::vector<int>{*pins_.zero}
                                  : replicas == 1 ? std::vector<int>{0}
                                                  : std::vector<int>{0, 1, 2, 3};
  for (const int zero : stages) {
    if (pins_.shard_group) {
      add(zero, *pins_.shard_group);
      continue;
    }
    add(zero, 0);
    if (choices.ep > 1 || job_->cluster.nodes() <= 1) continue;
    const int on_node = std::max(1, smallest_node(job_->cluster) / choices.tp);
    std::set<int> groups;
    // With nothing sharded a group is what hierarchical all-reduce sums in first; `zero` 0 by itself is
    // without.
    if (zero == 0 && (pins_.zero || !job_->runtime.hierarchical_reduce)) continue;
    for (int nodes = 1; nodes <= (zero == 0 ? 1 : kShardNodes); nodes *= 2) groups.insert(on_node * nodes);
    if (zero == 0 && job_->cluster.fabric.has_rooms())
      groups.insert(on_node * job_->cluster.fabric.nodes_of_group());
    for (const int group : groups)
      if (group > 1 && group < replicas && replicas % group == 0) add(zero, group);
  }
  return list = std::make_shared<const std::vector<Sharding>>(std::move(found));
}

FamilyLists::List<BucketSize> FamilyLists::buckets(const Choices& choices) {
  const bool apart = choices.ep > 1 || choices.sequence_parallel;
  const Cut& cut = cuts_.of(choices);
  auto& list = bucket_lists_[{choices.tp, choices.ep, choices.etp, apart, cut.id}];
  if (list != nullptr) return list;
  std::vector<BucketSize> found;
  std::set<std::uint64_t> seen;
  const auto add = [&](double bytes) {
    Plan one{job_, choices};
    one.choices.zero = 0;
    one.choices.bucket_bytes = bytes;
    if (seen.insert(gradients_.buckets_key(one, cut)).second)
      found.push_back({bytes, choices.interleave == 1 && gradients_.one_bucket(one, cut)});
  };
  add(choices.bucket_bytes);
  for (const double bytes : kBuckets)
    if (!pins_.bucket_bytes) add(bytes);
  return list = std::make_shared<const std::vector<BucketSize>>(std::move(found));
}

}  // namespace orrery::planner
