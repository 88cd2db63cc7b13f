// Data parallelism: which gradients are reduced together and when, and what ends a step.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "program/buckets.h"
#include "program/lower/workbench.h"

namespace orrery::internal {
namespace {

// Elements of partial gradients in what this rank owns of the bucket once it is reduced. `placed`: its
// parameters.
std::int64_t owned_partial(const Lowering& lowering, const Bucket& bucket,
                           const std::vector<HeldParameter>& placed) {
  std::int64_t begin = 0;
  std::int64_t end = bucket.elements;
  if (lowering.choices().zero >= 1 && bucket.group >= 0) {
    const auto& ranks = lowering.group_at(bucket.group).ranks;
    const auto position = std::find(ranks.begin(), ranks.end(), lowering.program.rank) - ranks.begin();
    const std::int64_t shard = bucket.elements / static_cast<std::int64_t>(ranks.size());
    begin = shard * position;
    end = begin + shard;
  }
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const BucketParameter& slice = bucket.parameters[i];
    if (placed[i].partial)
      elements += std::max<std::int64_t>(
          0, std::min(end, slice.offset + slice.elements) - std::max(begin, slice.offset));
  }
  return elements;
}

}  // namespace

Instruction data_collective(CollectiveKind kind, int group, TensorRef tensor, double elements, DType type) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::data;
  instruction.form = Parallelism::data;
  instruction.collective = kind;
  instruction.group = group;
  instruction.dtype = type;
  instruction.bytes = elements * bytes_of(type);
  instruction.micro_batch = tensor.micro_batch;
  instruction.reads.push_back(tensor);
  instruction.writes.push_back(tensor);
  return instruction;
}

void lay_out_buckets(Lowering& lowering) {
  const Plan& plan = lowering.plan();
  const HeldModel held = held_parameters(plan);
  const BucketLayout layout =
      bucket_layout(plan, lowering.program.at.pp, tied_tensors(plan.job->workload), held);
  lowering.bucket_of.resize(static_cast<std::size_t>(lowering.op_count()));
  for (int i = 0; i < lowering.op_count(); ++i)
    lowering.bucket_of[static_cast<std::size_t>(i)].assign(lowering.op(i).parameters.size(), -1);
  lowering.frozen_bucket_of.resize(static_cast<std::size_t>(lowering.op_count()));
  const auto bucket_of = [&](int op, int parameter) -> int& {
    return lowering.bucket_of[static_cast<std::size_t>(op)][static_cast<std::size_t>(parameter)];
  };
  for (const LaidBucket& laid : layout.buckets) {
    Bucket bucket;
    const std::vector<HeldParameter> placed = parameters_of(layout, laid, held);
    std::int64_t offset = 0;
    const auto index = static_cast<int>(lowering.program.buckets.size());
    bucket.frozen = laid.frozen;
    for (const HeldParameter& parameter : placed) {
      if (laid.frozen) {
        std::vector<int>& of = lowering.frozen_bucket_of[static_cast<std::size_t>(parameter.at.op)];
        if (of.empty() || of.back() != index) of.push_back(index);
        continue;
      }
      bucket.parameters.push_back({parameter.at.op, parameter.at.parameter, offset, parameter.elements});
      bucket_of(parameter.at.op, parameter.at.parameter) = index;
      offset += parameter.elements;
    }
    bucket.chunk = laid.chunk;
    bucket.group = lowering.group(bucket_group(lowering.choices(), is_reduced_apart(laid)));
    const std::int64_t members =
        bucket.group < 0 ? 1 : static_cast<std::int64_t>(lowering.group_at(bucket.group).ranks.size());
    bucket.elements = (laid.elements + members - 1) / members * members;
    lowering.partial_elements.push_back(laid.frozen ? 0 : owned_partial(lowering, bucket, placed));
    lowering.tied_bucket.push_back(laid.tied);
    lowering.sparse_bucket.push_back({laid.sparse, laid.payload_bytes});
    if (laid.sparse)
      bucket.updated = laid.touched;  // rows that nobody looked up stay as they are, their states too
    lowering.program.buckets.push_back(std::move(bucket));
  }
  for (const auto& [alias, place] : layout.aliases)
    bucket_of(alias.op, alias.parameter) = bucket_of(place.op, place.parameter);
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
      data_collective(choices.zero >= 1 || reduces_in_stages(lowering, index) ? CollectiveKind::reduce_scatter
                                                                              : CollectiveKind::all_reduce,
                      bucket.group, {TensorKind::gradients, index, micro_batch}, elements, type);
  if (has_one_process(lowering)) instruction.collective = CollectiveKind::reduce;
  instruction.writes.assign(1, whole);
  instruction.after = std::move(after);
  const std::uint32_t reduced = lowering.emit(std::move(instruction));
  if (!last || lowering.group_at(bucket.group).kind != GroupKind::shard) return reduced;
  const std::uint32_t summed = sum_across_groups(lowering, index, reduced);
  return reduces_in_stages(lowering, index) ? gather_gradients(lowering, index, summed) : summed;
}

namespace {

// Tensors that the first and the last stage share: the sum of both stages' gradients, then the data group's.
void reduce_shared(Lowering& lowering, std::vector<std::int64_t>* reduced) {
  for (std::size_t i = 0; i < lowering.program.buckets.size(); ++i) {
    if (!lowering.tied_bucket[i]) continue;
    const Bucket& bucket = lowering.program.buckets[i];
    Instruction instruction =
        data_collective(CollectiveKind::all_reduce, lowering.group(GroupKind::embedding),
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
  Instruction instruction = data_collective(CollectiveKind::all_reduce, lowering.group(GroupKind::tensor),
                                            {TensorKind::replicated_gradient, 0, -1},
                                            static_cast<double>(elements), lowering.plan().gradient_type());
  instruction.stream = Stream::tensor;
  instruction.form = Parallelism::tensor;
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
      data_collective(CollectiveKind::all_reduce, world, {TensorKind::gradient_norm, 0, -1}, 1, DType::fp32);
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
    double elements = bucket.updated.value_or(static_cast<double>(bucket.elements));
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
  const auto& all = lowering.program.buckets;  // frozen ones last
  std::vector<std::int32_t> buckets(static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const Bucket& bucket) { return !bucket.frozen; })));
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
