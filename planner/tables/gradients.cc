#include "planner/tables/gradients.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cost/compute_cost.h"
#include "planner/tables/layer_sums.h"
#include "program/lower/lowering.h"

namespace orrery::planner {
namespace {

std::uint64_t pair_of(int a, int b) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b);
}

// Puts them in order; each has its own gathering, and then all before it too.
void add_up(std::vector<Reductions::Use>& uses) {
  std::stable_sort(uses.begin(), uses.end(), [](const Reductions::Use& a, const Reductions::Use& b) {
    return std::pair(a.chunk, a.part) < std::pair(b.chunk, b.part);
  });
  for (std::size_t i = 1; i < uses.size(); ++i) {
    uses[i].gathered_s += uses[i - 1].gathered_s;
    uses[i].gathered_least_s += uses[i - 1].gathered_least_s;
  }
}

}  // namespace

Gradients::Gradients(std::shared_ptr<const Job> job, const LayerParts& parts, Geometries& geometries)
    : job_(std::move(job)), parts_(parts), geometries_(geometries), ties_(tied_tensors(job_->workload)) {
  const std::vector<Operator>& operators = job_->workload.operators;
  const auto first = std::find_if(operators.begin(), operators.end(),
                                  [](const Operator& op) { return !op.parameters.empty(); });
  first_op_ = static_cast<int>(first - operators.begin());
  has_sparse_ = std::any_of(operators.begin(), operators.end(),
                            [](const Operator& op) { return op.sparse.has_value(); });
}

std::uint64_t Gradients::sparse_key(const Plan& plan) const {
  return has_sparse_ ? pair_of(plan.choices.dp, keeps_rows_sparse(plan) ? 2 : 1) : 0;
}

bool Gradients::read_backward(const HeldParameters& held, const LaidBucket& laid) const {
  for (int i = laid.begin; i < laid.end; ++i) {
    const int op = held.parameters[static_cast<std::size_t>(i)].at.op;
    if (job_->workload.operators[static_cast<std::size_t>(op)].passes_gradient) return true;
  }
  return false;
}

// The layout has a chunk's experts behind all else of it; a backward pass completes both layer by layer.
void Gradients::in_order_of_completion(std::vector<Bucket>* buckets) {
  for (auto begin = buckets->begin(); begin != buckets->end();) {
    const auto end = std::find_if(begin, buckets->end(), [&](const Bucket& other) {
      return other.chunk != begin->chunk || other.frozen != begin->frozen;
    });
    std::stable_sort(begin, end, [](const Bucket& a, const Bucket& b) { return a.part > b.part; });
    begin = end;
  }
}

const Gradients::Buckets& Gradients::buckets(const Plan& plan, const Cut& cut, int stage) {
  const Choices& c = plan.choices;
  const double limit = c.zero == 3 ? -1 : plan.bucket_bytes();
  std::uint64_t key = mixed(pair_of(c.tp, c.ep), pair_of(c.etp, cut.id));
  key = mixed(key, pair_of(stage, c.sequence_parallel ? 1 : 0));
  key = mixed(mixed(key, std::bit_cast<std::uint64_t>(limit)), degrees_key(c));
  if (has_sparse_) key = mixed(key, sparse_key(plan));
  const auto [entry, fresh] = buckets_.try_emplace(key);
  Buckets& result = entry->second;
  if (!fresh) return result;
  const HeldModel& model = held(plan);
  const BucketLayout layout = bucket_layout(plan, stage, ties_, model);
  result.buckets.reserve(layout.buckets.size());
  for (const LaidBucket& laid : layout.buckets) {
    result.partial += static_cast<double>(laid.partial);
    if (laid.tied) {
      result.tied += static_cast<double>(laid.elements);
      continue;
    }
    const HeldParameters& held = laid.frozen ? model.of_frozen(laid.apart) : model.of(laid.apart);
    const int last = held.parameters[static_cast<std::size_t>(laid.end) - 1].at.op;
    // Part 0 is what stands before the first layer (layer_kinds.h).
    const int part = job_->workload.operators[static_cast<std::size_t>(last)].layer + 1;
    result.buckets.push_back({static_cast<double>(laid.elements), std::clamp(part, 0, parts_.count() - 1),
                              laid.chunk, laid.apart, laid.end - laid.begin, laid.frozen,
                              laid.frozen && !read_backward(held, laid), !laid.frozen && last == first_op_,
                              laid.sparse, laid.payload_bytes, laid.touched});
  }
  in_order_of_completion(&result.buckets);
  return result;
}

const HeldModel& Gradients::held(const Plan& plan) {
  const Choices& c = plan.choices;
  std::uint64_t key =
      mixed(mixed(pair_of(c.tp, c.ep), pair_of(c.etp, c.sequence_parallel ? 1 : 0)), degrees_key(c));
  if (has_sparse_) key = mixed(key, sparse_key(plan));
  const auto [entry, fresh] = held_.try_emplace(key);
  if (fresh) entry->second = held_parameters(plan);
  return entry->second;
}

std::uint64_t Gradients::buckets_key(const Plan& plan, const Cut& cut) {
  std::uint64_t key = 3;
  for (const int stage : cut.distinct) {
    for (const Bucket& bucket : buckets(plan, cut, stage).buckets)
      key = mixed(key, std::bit_cast<std::uint64_t>(bucket.sparse ? bucket.payload_bytes : bucket.elements));
    key = mixed(key, 0);
  }
  return key;
}

bool Gradients::one_bucket(const Plan& plan, const Cut& cut) {
  return std::all_of(cut.distinct.begin(), cut.distinct.end(),
                     [&](int stage) { return buckets(plan, cut, stage).buckets.size() <= 1; });
}

void Gradients::fill(const Plan& plan, const Geometry& geometry, const Cut& cut, int stage,
                     Reductions& result) {
  const Choices& c = plan.choices;
  const Buckets& all = buckets(plan, cut, stage);
  const double gradient_bytes = bytes_of(plan.gradient_type());
  const double weight_bytes = bytes_of(plan.parameter_type());
  const Geometry::Sharded* sharded = c.hybrid() ? &geometries_.sharded(c, geometry) : nullptr;
  struct Shapes {
    const GroupShape* shared = nullptr;
    const GroupShape* alone = nullptr;
    std::uint64_t shared_key = 0, alone_key = 0;
  };
  // Alone on the network, rank 0's groups are real groups of the simulation; other stages' may stand
  // otherwise.
  const auto known = [&](GroupKind kind) {
    return stage == 0 || std::find(geometry.data_alike.begin(), geometry.data_alike.end(), kind) !=
                             geometry.data_alike.end();
  };
  const auto find_shapes = [&](bool expert) -> Shapes {
    if (!expert && c.hybrid())
      return {&sharded->shard, stage == 0 || geometry.aligned ? &sharded->shard_alone : nullptr};
    const GroupKind kind = bucket_group(c, expert);
    const auto at = geometry.shapes.find(kind);
    if (at == geometry.shapes.end()) return {};
    const auto alone = geometry.alone.find(kind);
    return {&at->second, known(kind) && alone != geometry.alone.end() ? &alone->second : nullptr};
  };
  std::array<Shapes, 2> found = {find_shapes(false), find_shapes(true)};
  for (Shapes& shapes : found) {
    if (shapes.shared != nullptr) shapes.shared_key = shape_key(*shapes.shared);
    if (shapes.alone != nullptr) shapes.alone_key = shape_key(*shapes.alone);
  }
  const auto shapes_of = [&](bool expert) -> const Shapes& { return found[expert ? 1 : 0]; };
  const bool broadcasts = job_->runtime.updates_by_broadcast && c.zero < 3;
  const auto cost = [&](CollectiveKind kind, double bytes, const GroupShape& shape, std::uint64_t shape_of,
                        int tensors = 1) {
    if (shape.ranks <= 1 || bytes <= 0) return 0.0;
    const bool in_turn = broadcasts && kind == CollectiveKind::all_gather && tensors > 0;
    const std::uint64_t key = mixed(mixed(shape_of, pair_of(static_cast<int>(kind), in_turn ? tensors : 0)),
                                    std::bit_cast<std::uint64_t>(bytes));
    const auto [known, unknown] = collectives_.try_emplace(key, 0.0);
    if (!unknown) return known->second;
    known->second =
        (in_turn ? broadcasts_s(bytes, tensors, shape, *job_) : collective_s(kind, bytes, shape, *job_)) +
        pieces_seconds(kind, bytes, shape.ranks, job_->runtime, job_->cluster);
    return known->second;
  };
  const CollectiveKind reduce = c.zero >= 1 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
  // Inside a bucket's group: with hierarchical all-reduce there and back, the sum across the groups apart.
  const auto reduce_s = [&](bool expert, double bytes, const GroupShape& shape, std::uint64_t key) {
    if (c.zero > 0 || !c.hybrid() || expert) return cost(reduce, bytes, shape, key);
    return cost(CollectiveKind::reduce_scatter, bytes, shape, key) +
           cost(CollectiveKind::all_gather, bytes, shape, key, /*tensors=*/0);
  };
  const bool plain = c.sync == Sync::all_reduce && c.grad_compression == Compression::none;
  // Layers of one kind have buckets of the same few sizes: their costs are looked up once.
  struct Costs {
    double elements = -1, payload_bytes = 0;
    bool apart = false, frozen = false;
    int tensors = 0;
    double reduce = 0, gather = 0, across = 0, least = 0, gather_least = 0;
  };
  std::array<Costs, 8> seen;
  std::size_t fresh = 0;
  const std::uint64_t replicate_key = sharded != nullptr ? shape_key(sharded->replicate) : 0;
  struct Layer {
    int part = 0, chunk = 0;
    double gather_s = 0, elements = 0;
  };
  std::vector<Layer> layers;
  result.steps.reserve(all.buckets.size());
  for (const Bucket& bucket : all.buckets) {
    const Shapes& shapes = shapes_of(bucket.apart);
    const double members = shapes.shared != nullptr ? shapes.shared->ranks : 1;
    if (!bucket.frozen)
      result.owned += (bucket.sparse ? bucket.touched : bucket.elements) / (c.zero >= 1 ? members : 1);
    if (shapes.shared == nullptr) continue;
    Costs* costs = std::find_if(seen.begin(), seen.end(), [&](const Costs& other) {
      return other.elements == bucket.elements && other.apart == bucket.apart &&
             other.payload_bytes == bucket.payload_bytes && other.frozen == bucket.frozen &&
             other.tensors == bucket.tensors;
    });
    if (costs == seen.end()) {
      costs = &seen[fresh++ % seen.size()];
      *costs = {bucket.elements, bucket.payload_bytes, bucket.apart, bucket.frozen, bucket.tensors};
      const double bytes = bucket.frozen ? 0 : bucket.elements * gradient_bytes;
      if (bucket.sparse) {
        costs->reduce = cost(CollectiveKind::all_gather, bucket.payload_bytes * members, *shapes.shared,
                             shapes.shared_key, /*tensors=*/0);
      } else if (c.grad_compression == Compression::fp16) {
        costs->reduce = cost(reduce, compressed_bytes(c, bucket.elements), *shapes.shared, shapes.shared_key);
      } else if (c.grad_compression != Compression::none) {
        costs->reduce = cost(CollectiveKind::all_gather, compressed_bytes(c, bucket.elements) * members,
                             *shapes.shared, shapes.shared_key);
      } else if (c.has_servers()) {
        // Gradients meet at the servers' ports, and leave through the workers'; parameters the other way.
        // Who serves keeps its own slice.
        const double servers = c.servers;
        const double leaving = servers < members ? 1 : (members - 1) / members;
        const double busiest = std::max((members - 1) / servers, leaving);
        const double port = shapes.shared->nodes > 1 ? shapes.shared->port_bandwidth_bytes_per_s
                                                     : shapes.shared->to_one_bandwidth_bytes_per_s;
        costs->reduce = port > 0 ? bytes * busiest / port : 0;
        costs->gather = port > 0 ? bucket.elements * weight_bytes * busiest / port : 0;
      } else {
        costs->reduce = reduce_s(bucket.apart, bytes, *shapes.shared, shapes.shared_key);
      }
      if (c.hybrid() && !bucket.apart)
        costs->across = cost(CollectiveKind::all_reduce, bytes / members, sharded->replicate, replicate_key);
      if (c.zero >= 1)
        costs->gather = cost(CollectiveKind::all_gather, bucket.elements * weight_bytes, *shapes.shared,
                             shapes.shared_key, bucket.tensors);
      if (plain && shapes.alone != nullptr) {
        costs->least = bucket.sparse ? 0 : reduce_s(bucket.apart, bytes, *shapes.alone, shapes.alone_key);
        if (c.zero >= 1)
          costs->gather_least = cost(CollectiveKind::all_gather, bucket.elements * weight_bytes,
                                     *shapes.alone, shapes.alone_key, bucket.tensors);
      }
    }
    if (layers.empty() || layers.back().part != bucket.part || layers.back().chunk != bucket.chunk)
      layers.push_back({bucket.part, bucket.chunk, 0, 0});
    // What is needed again soon stays (ParameterGather::forget_used).
    const double live = job_->runtime.live_parameters;
    const double again = live > 0 && 2 * layers.back().elements > live ? costs->gather : 0;
    layers.back().gather_s += costs->gather;
    layers.back().elements += bucket.elements;
    result.largest_layer = std::max(result.largest_layer, layers.back().elements);
    result.widest_layer_s = std::max(result.widest_layer_s, layers.back().gather_s);
    result.again_s += again;
    result.steps.push_back({costs->reduce, costs->across, costs->gather, again, bucket.part, bucket.chunk,
                            bucket.forward_only ? 0 : costs->gather, costs->gather_least});
    result.total_s += costs->reduce;
    result.gather_s += costs->gather;
    if (!bucket.forward_only) result.gather_back_s += costs->gather;
    if (bucket.forward_only) result.forward_only_least_s += costs->gather_least;
    result.rest_least_s.push_back(costs->least);
    result.total_least_s += costs->least;
    result.gather_least_s += costs->gather_least;
    if (bucket.first_part) result.final_least_s = costs->least;
  }
  for (std::size_t i = result.steps.size(); i-- > 1;) result.rest_least_s[i - 1] += result.rest_least_s[i];
  result.rest_s.assign(result.steps.size() + 1, 0);
  for (std::size_t i = result.steps.size(); i-- > 0;)
    result.rest_s[i] = result.rest_s[i + 1] + result.steps[i].seconds + result.steps[i].across_s;
  if (c.zero == 3) {
    result.rest_gather_back_s.assign(result.steps.size() + 1, 0);
    for (std::size_t i = result.steps.size(); i-- > 0;)
      result.rest_gather_back_s[i] = result.rest_gather_back_s[i + 1] + result.steps[i].gather_back_s;
  }
  const bool beside_forward = (c.zero == 1 || c.zero == 2) && job_->runtime.overlap_param_gather;
  if (beside_forward)
    for (const Reductions::Step& step : result.steps)
      result.uses.push_back({step.chunk, step.part, step.gather_s, step.gather_least_s});
  if (all.tied > 0) {
    // Shared by the first and the last stage: summed over both, then reduced like any other.
    result.last_s +=
        cost(CollectiveKind::all_reduce, all.tied * gradient_bytes, geometry.shapes.at(GroupKind::embedding),
             shape_key(geometry.shapes.at(GroupKind::embedding)));
    const Shapes& shapes = shapes_of(false);
    result.owned += all.tied / (c.zero >= 1 && shapes.shared != nullptr ? shapes.shared->ranks : 1);
    if (shapes.shared != nullptr) {
      result.last_s += reduce_s(false, all.tied * gradient_bytes, *shapes.shared, shapes.shared_key);
      if (c.zero >= 1) {
        const double gather =
            cost(CollectiveKind::all_gather, all.tied * weight_bytes, *shapes.shared, shapes.shared_key);
        result.gather_s += gather;
        if (beside_forward)
          result.uses.push_back(stage == 0 ? Reductions::Use{0, cut.part(0, 0).begin, gather}
                                           : Reductions::Use{cut.chunks - 1, parts_.count() - 1, gather});
      }
    }
  }
  add_up(result.uses);
  const auto tensor = geometry.shapes.find(GroupKind::tensor);
  if (all.partial > 0 && tensor != geometry.shapes.end()) {
    const GroupShape* shape = shapes_of(false).shared;
    const double shards = c.zero >= 1 && shape != nullptr ? shape->ranks : 1;
    result.last_s += cost(CollectiveKind::all_reduce, all.partial / shards * gradient_bytes, tensor->second,
                          shape_key(tensor->second));
  }
}

const Reductions& Gradients::of(const Plan& plan, const Geometry& geometry, const Cut& cut, int stage) {
  const Choices& c = plan.choices;
  std::uint64_t key =
      mixed(pair_of(geometry.id, cut.id), pair_of(stage, c.zero * 2 + (c.sequence_parallel ? 1 : 0)));
  key = mixed(key, pair_of(c.etp, c.shard_group));
  key = mixed(key, pair_of(static_cast<int>(c.sync) * 8 + static_cast<int>(c.grad_compression), c.servers));
  if (c.grad_compression == Compression::topk) key = mixed(key, std::bit_cast<std::uint64_t>(c.topk_ratio));
  if (c.zero < 3) key = mixed(key, std::bit_cast<std::uint64_t>(plan.bucket_bytes()));
  const auto [entry, fresh] = reductions_.try_emplace(key);
  if (fresh) fill(plan, geometry, cut, stage, entry->second);
  return entry->second;
}

}  // namespace orrery::planner
