// Data parallelism: which gradients are reduced together and when, and what ends a step.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "base/error.h"
#include "program/lower/workbench.h"

namespace orrery::internal {
namespace {

struct Owner {
  int op = 0;
  int parameter = 0;
};

std::vector<LayerRange> local_ranges(const Lowering& lowering) {
  std::vector<LayerRange> ranges;
  ranges.reserve(static_cast<std::size_t>(lowering.choices().interleave));
  for (int chunk = 0; chunk < lowering.choices().interleave; ++chunk) {
    ranges.push_back(operators_of(lowering.plan(), lowering.program.at.pp, chunk));
  }
  return ranges;
}

bool is_local(const std::vector<LayerRange>& ranges, int op) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [op](const LayerRange& range) { return op >= range.begin && op < range.end; });
}

// Tensors with an alias: by name, the operator that owns it and the operators that use it.
struct Tie {
  Owner owner;
  std::vector<Owner> aliases;
};

std::map<std::string, Tie> find_ties(const Lowering& lowering) {
  std::map<std::string, Tie> ties;
  for (int i = 0; i < lowering.op_count(); ++i) {
    const auto& parameters = lowering.op(i).parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].tied_to.empty()) {
        ties[parameters[p].tied_to].aliases.push_back({i, static_cast<int>(p)});
      }
    }
  }
  for (int i = 0; i < lowering.op_count() && !ties.empty(); ++i) {
    const auto& parameters = lowering.op(i).parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const auto tie = ties.find(parameters[p].name);
      if (tie != ties.end() && parameters[p].tied_to.empty()) tie->second.owner = {i, static_cast<int>(p)};
    }
  }
  return ties;
}

// Where a parameter of this rank lives: `alias` parameters share another's place; `shared` ones are held by
// another stage too.
struct Residence {
  Owner place;
  bool shared = false;
};

class BucketLayout {
 public:
  BucketLayout(Lowering& lowering) : lowering_(lowering), ranges_(local_ranges(lowering)) {
    lowering_.bucket_of.resize(static_cast<std::size_t>(lowering_.op_count()));
    for (int i = 0; i < lowering_.op_count(); ++i) {
      lowering_.bucket_of[static_cast<std::size_t>(i)].assign(lowering_.op(i).parameters.size(), -1);
    }
    for (const auto& [name, tie] : find_ties(lowering_)) resolve(tie);
  }

  void run() {
    for (int chunk = lowering_.choices().interleave - 1; chunk >= 0; --chunk) {
      lay_out_chunk(chunk, /*expert=*/false);
      lay_out_chunk(chunk, /*expert=*/true);
      for (const Owner& at : shared_) {
        if (at.op < ranges_[static_cast<std::size_t>(chunk)].begin ||
            at.op >= ranges_[static_cast<std::size_t>(chunk)].end) {
          continue;
        }
        append(at, chunk);
        close(/*shared=*/true);
      }
    }
    for (const auto& [alias, place] : aliases_) {
      lowering_.bucket_of[static_cast<std::size_t>(alias.first)][static_cast<std::size_t>(alias.second)] =
          lowering_.bucket_of[static_cast<std::size_t>(place.op)][static_cast<std::size_t>(place.parameter)];
    }
  }

 private:
  void resolve(const Tie& tie) {
    const bool owned_here = is_local(ranges_, tie.owner.op);
    bool used_elsewhere = !owned_here;
    bool held = owned_here;
    Owner place = tie.owner;
    for (const Owner& alias : tie.aliases) {
      if (!is_local(ranges_, alias.op)) {
        used_elsewhere = true;
        continue;
      }
      if (!held) {
        place = alias;
        held = true;
      } else {
        aliases_[{alias.op, alias.parameter}] = place;
      }
    }
    if (held && used_elsewhere) shared_.push_back(place);
  }

  void lay_out_chunk(int chunk, bool expert) {
    const LayerRange range = ranges_[static_cast<std::size_t>(chunk)];
    for (int i = range.end - 1; i >= range.begin; --i) {
      // FSDP's unit is the layer: what is gathered together is used together.
      const bool enters_layer = i + 1 < range.end && lowering_.op(i + 1).layer != lowering_.op(i).layer;
      if (lowering_.choices().zero == 3 && enters_layer) close(false);
      for (std::size_t p = 0; p < lowering_.op(i).parameters.size(); ++p) {
        const Owner at{i, static_cast<int>(p)};
        const bool is_shared = std::any_of(shared_.begin(), shared_.end(), [&](const Owner& other) {
          return other.op == at.op && other.parameter == at.parameter;
        });
        if (set_apart(i, lowering_.op(i).parameters[p]) != expert || is_shared ||
            aliases_.count({at.op, at.parameter}) != 0) {
          continue;
        }
        const double limit = lowering_.choices().zero == 3 ? 0 : lowering_.plan().bucket_bytes();
        const auto elements = local_elements(lowering_.op(i).parameters[p], lowering_.shard());
        const double element_bytes = bytes_of(lowering_.plan().gradient_type());
        if (limit > 0 && !bucket_.parameters.empty() &&
            static_cast<double>(bucket_.elements + elements) * element_bytes > limit) {
          close(false);
        }
        expert_ = expert;
        append(at, chunk);
      }
    }
    close(false);
  }

  void append(const Owner& at, int chunk) {
    const Operator& op = lowering_.op(at.op);
    const ParameterTensor& tensor = op.parameters[static_cast<std::size_t>(at.parameter)];
    const std::int64_t elements = local_elements(tensor, lowering_.shard());
    bucket_.chunk = chunk;
    bucket_.parameters.push_back({at.op, at.parameter, bucket_.elements, elements});
    bucket_.elements += elements;
    if (gradient_is_partial(op, tensor, lowering_.shard()) && !expert_) {
      partial_.push_back({at.op, at.parameter, bucket_.parameters.back().offset, elements});
    }
    lowering_.bucket_of[static_cast<std::size_t>(at.op)][static_cast<std::size_t>(at.parameter)] =
        static_cast<int>(lowering_.program.buckets.size());
  }

  void close(bool shared) {
    if (bucket_.parameters.empty()) return;
    bucket_.group = gradient_group(lowering_, expert_);
    const std::int64_t members =
        bucket_.group < 0 ? 1 : static_cast<std::int64_t>(lowering_.group_at(bucket_.group).ranks.size());
    bucket_.elements = (bucket_.elements + members - 1) / members * members;
    lowering_.partial_elements.push_back(owned_partial(members));
    lowering_.program.buckets.push_back(std::move(bucket_));
    lowering_.tied_bucket.push_back(shared);
    bucket_ = {};
    partial_.clear();
    expert_ = false;
  }

  // Elements of partial gradients in what this rank owns of the bucket once it is reduced.
  std::int64_t owned_partial(std::int64_t members) const {
    std::int64_t begin = 0;
    std::int64_t end = bucket_.elements;
    if (lowering_.choices().zero >= 1 && members > 1) {
      const auto& ranks = lowering_.group_at(bucket_.group).ranks;
      const auto position = std::find(ranks.begin(), ranks.end(), lowering_.program.rank) - ranks.begin();
      begin = bucket_.elements / members * position;
      end = begin + bucket_.elements / members;
    }
    std::int64_t elements = 0;
    for (const BucketParameter& slice : partial_) {
      elements += std::max<std::int64_t>(
          0, std::min(end, slice.offset + slice.elements) - std::max(begin, slice.offset));
    }
    return elements;
  }

  // Where experts are on every rank and see what the rest of the layer sees, they are parameters like any
  // other.
  // So are a general graph's that every tensor rank holds whole: each saw samples of its own.
  bool set_apart(int op, const ParameterTensor& tensor) const {
    if (!lowering_.plan().job->workload.transformer)
      return gradient_is_partial(lowering_.op(op), tensor, lowering_.shard());
    return tensor.expert && (lowering_.choices().ep > 1 || lowering_.shard().sequence_parallel);
  }

  static int gradient_group(Lowering& lowering, bool expert) {
    const Choices& choices = lowering.choices();
    if (expert) return lowering.group(GroupKind::expert_data);
    return lowering.group(choices.hybrid() ? GroupKind::shard : GroupKind::data);
  }

  Lowering& lowering_;
  std::vector<LayerRange> ranges_;
  std::map<std::pair<int, int>, Owner> aliases_;
  std::vector<Owner> shared_;
  Bucket bucket_;
  bool expert_ = false;
  std::vector<BucketParameter> partial_;
};

Instruction on_bucket(CollectiveKind kind, int group, TensorRef tensor, double elements, DType type) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::data;
  instruction.collective = kind;
  instruction.group = group;
  instruction.dtype = type;
  instruction.bytes = elements * bytes_of(type);
  instruction.micro_batch = tensor.micro_batch;
  instruction.reads.push_back(tensor);
  instruction.writes.push_back(tensor);
  return instruction;
}

}  // namespace

void lay_out_buckets(Lowering& lowering) {
  BucketLayout(lowering).run();
}

std::uint32_t reduce_bucket(Lowering& lowering, int index, std::int32_t micro_batch, bool last,
                            std::vector<std::uint32_t> after) {
  const Bucket& bucket = lowering.program.buckets[static_cast<std::size_t>(index)];
  const Choices& choices = lowering.choices();
  const DType type = lowering.plan().gradient_type();
  const auto elements = static_cast<double>(bucket.elements);
  const TensorRef whole{TensorKind::gradients, index, -1};
  if (has_servers(lowering)) return push_gradients(lowering, index, std::move(after));
  if (choices.asynchronous()) return push_and_pull(lowering, index, after);
  if (compresses(lowering, index)) {
    const std::uint32_t packed = pack_bucket(lowering, index, after);
    Instruction compressed = compressed_collective(lowering, index);
    compressed.after.push_back(packed);
    return lowering.emit(std::move(compressed));
  }
  Instruction instruction =
      on_bucket(choices.zero >= 1 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce, bucket.group,
                {TensorKind::gradients, index, micro_batch}, elements, type);
  if (has_one_process(lowering)) instruction.collective = CollectiveKind::reduce;
  instruction.writes.assign(1, whole);
  instruction.after = std::move(after);
  const std::uint32_t reduced = lowering.emit(std::move(instruction));
  const Group& group = lowering.group_at(bucket.group);
  if (!last || group.kind != GroupKind::shard) return reduced;
  // Hybrid sharding: the shards' sums over the copies of the shard group.
  Instruction across = on_bucket(CollectiveKind::all_reduce, lowering.group(GroupKind::replicate), whole,
                                 elements / static_cast<double>(group.ranks.size()), type);
  across.after.push_back(reduced);
  return lowering.emit(std::move(across));
}

namespace {

// Tensors that the first and the last stage share: the sum of both stages' gradients, then the data group's.
void reduce_shared(Lowering& lowering, std::vector<std::int64_t>* reduced) {
  for (std::size_t i = 0; i < lowering.program.buckets.size(); ++i) {
    if (!lowering.tied_bucket[i]) continue;
    const Bucket& bucket = lowering.program.buckets[i];
    Instruction instruction =
        on_bucket(CollectiveKind::all_reduce, lowering.group(GroupKind::embedding),
                  {TensorKind::tied_gradient, bucket.parameters.front().op, -1},
                  static_cast<double>(bucket.elements), lowering.plan().gradient_type());
    const TensorRef gradients{TensorKind::gradients, static_cast<std::int32_t>(i), -1};
    instruction.reads.push_back(gradients);
    instruction.writes.push_back(gradients);
    instruction.after.push_back(lowering.last_compute());
    const std::uint32_t summed = lowering.emit(std::move(instruction));
    (*reduced)[i] =
        bucket.group < 0 ? summed : reduce_bucket(lowering, static_cast<int>(i), -1, true, {summed});
  }
}

// What makes the gradients of the given buckets what they are: their reductions, or the last computation.
std::vector<std::uint32_t> makers_of(const Lowering& lowering, const std::vector<std::int64_t>& ready,
                                     const std::vector<std::int32_t>& buckets) {
  std::vector<std::uint32_t> makers;
  for (const std::int32_t bucket : buckets) {
    const std::int64_t maker = ready[static_cast<std::size_t>(bucket)];
    makers.push_back(maker >= 0 ? static_cast<std::uint32_t>(maker) : lowering.last_compute());
  }
  std::sort(makers.begin(), makers.end());
  makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
  return makers;
}

// The sums over the tensor group of gradients that its ranks hold in parts.
void reduce_partial(Lowering& lowering, std::vector<std::int64_t>* ready) {
  std::vector<std::int32_t> buckets;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < lowering.partial_elements.size(); ++i) {
    if (lowering.partial_elements[i] == 0) continue;
    buckets.push_back(static_cast<std::int32_t>(i));
    elements += lowering.partial_elements[i];
  }
  if (elements == 0) return;
  Instruction instruction = on_bucket(CollectiveKind::all_reduce, lowering.group(GroupKind::tensor),
                                      {TensorKind::replicated_gradient, 0, -1}, static_cast<double>(elements),
                                      lowering.plan().gradient_type());
  instruction.stream = Stream::tensor;
  instruction.after = makers_of(lowering, *ready, buckets);
  for (const std::int32_t bucket : buckets) {
    instruction.reads.push_back({TensorKind::gradients, bucket, -1});
    instruction.writes.push_back({TensorKind::gradients, bucket, -1});
  }
  const std::uint32_t summed = lowering.emit(std::move(instruction));
  for (const std::int32_t bucket : buckets) (*ready)[static_cast<std::size_t>(bucket)] = summed;
}

// The global norm of the gradients: one scalar over the world.
std::int64_t reduce_norm(Lowering& lowering, const std::vector<std::int64_t>& ready,
                         const std::vector<std::int32_t>& buckets) {
  if (!lowering.plan().job->runtime.clip_gradients || has_one_process(lowering) ||
      lowering.choices().asynchronous())
    return -1;
  const int world = lowering.group(GroupKind::world);
  if (world < 0) return -1;
  Instruction instruction =
      on_bucket(CollectiveKind::all_reduce, world, {TensorKind::gradient_norm, 0, -1}, 1, DType::fp32);
  instruction.after = makers_of(lowering, ready, buckets);
  for (const std::int32_t bucket : buckets) instruction.reads.push_back({TensorKind::gradients, bucket, -1});
  return lowering.emit(std::move(instruction));
}

}  // namespace

Instruction update_of(const Lowering& lowering, const std::vector<std::int32_t>& buckets) {
  Instruction optimizer;
  optimizer.op = Op::compute;
  optimizer.stream = Stream::compute;
  optimizer.compute = ComputeKind::optimizer;
  optimizer.op_begin = buckets.front();
  optimizer.op_end = buckets.back() + 1;
  optimizer.dtype = DType::fp32;
  const Training& training = lowering.plan().job->training;
  const double traffic =
      optimizer_traffic_per_parameter(training.optimizer, training.precision, lowering.plan().job->runtime);
  for (const std::int32_t i : buckets) {
    const Bucket& bucket = lowering.program.buckets[static_cast<std::size_t>(i)];
    auto elements = static_cast<double>(bucket.elements);
    if (lowering.choices().zero >= 1 && bucket.group >= 0) {
      elements /= static_cast<double>(lowering.group_at(bucket.group).ranks.size());
    }
    if (lowering.choices().has_servers()) elements /= lowering.choices().servers;
    optimizer.bytes += elements * traffic;
    for (const TensorKind kind :
         {TensorKind::gradients, TensorKind::optimizer_state, TensorKind::parameters}) {
      optimizer.reads.push_back({kind, i, -1});
    }
    optimizer.writes.push_back({TensorKind::optimizer_state, i, -1});
    optimizer.writes.push_back({TensorKind::parameters, i, -1});
  }
  return optimizer;
}

void finish_step(Lowering& lowering, std::vector<std::int64_t> ready) {
  std::vector<std::int32_t> buckets(lowering.program.buckets.size());
  std::iota(buckets.begin(), buckets.end(), 0);
  if (!lowering.choices().overlap_grad_reduce) {
    const std::uint32_t last_backward = lowering.last_compute();
    for (const std::int32_t i : buckets) {
      const auto b = static_cast<std::size_t>(i);
      if (lowering.program.buckets[b].group < 0 || lowering.tied_bucket[b] || ready[b] >= 0) continue;
      ready[b] = reduce_bucket(lowering, i, -1, true, {last_backward});
    }
  }
  reduce_shared(lowering, &ready);
  for (const std::int32_t i : buckets) {
    auto& maker = ready[static_cast<std::size_t>(i)];
    if (compresses(lowering, i)) maker = unpack_bucket(lowering, i, static_cast<std::uint32_t>(maker));
  }
  reduce_partial(lowering, &ready);
  std::vector<std::int32_t> own = buckets;  // that this rank updates
  if (!updates_buckets(lowering) || lowering.choices().asynchronous()) own.clear();
  const std::int64_t norm = reduce_norm(lowering, ready, own);
  if (!own.empty()) {
    std::vector<std::uint32_t> after;
    if (norm >= 0) {
      after.push_back(static_cast<std::uint32_t>(norm));
    } else {
      after = makers_of(lowering, ready, own);
      std::erase_if(after, [&](std::uint32_t other) {  // the compute stream has its own order
        return lowering.program.instructions[other].stream == Stream::compute;
      });
    }
    Instruction optimizer = update_of(lowering, own);
    optimizer.after = std::move(after);
    if (norm >= 0) optimizer.reads.push_back({TensorKind::gradient_norm, 0, -1});
    lowering.emit(std::move(optimizer));
  }
  if (has_servers(lowering)) {
    for (const std::int32_t i : buckets) pull_parameters(lowering, i, lowering.last_compute());
  }
  // ZeRO-3 keeps shards; with overlap the next step's forward gathers.
  const bool gathers = (lowering.choices().zero == 1 || lowering.choices().zero == 2) &&
                       !lowering.plan().job->runtime.overlap_param_gather;
  if (!gathers) return;
  for (const std::int32_t i : buckets) {
    if (lowering.program.buckets[static_cast<std::size_t>(i)].group >= 0) {
      gather_parameters(lowering, i, lowering.last_compute());
    }
  }
}

}  // namespace orrery::internal
