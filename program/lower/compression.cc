// Gradient compression around the data-parallel collective: half precision; eight bits with a scale a block
// (Seide et al., 2014; Dettmers, arXiv 1511.04561); the largest entries (Lin et al., arXiv 1712.01887). The
// last two keep what they leave out for the next step (error feedback).
#include <cmath>

#include "program/lower/workbench.h"

namespace orrery {

double compressed_bytes(const Choices& choices, double elements) {
  constexpr double kBlock = 1024;  // elements that share a scale
  switch (choices.grad_compression) {
    case Compression::none:
      break;
    case Compression::fp16:
      return elements * bytes_of(DType::fp16);
    case Compression::int8:
      return elements + std::ceil(elements / kBlock) * bytes_of(DType::fp32);
    case Compression::topk:
      return std::ceil(elements * choices.topk_ratio) * (bytes_of(DType::int32) + bytes_of(DType::fp32));
  }
  return 0;
}

namespace internal {
namespace {

Instruction conversion(Op op, int bucket, double bytes) {
  Instruction instruction;
  instruction.op = op;
  instruction.stream = Stream::compute;
  instruction.op_begin = bucket;
  instruction.op_end = bucket + 1;
  instruction.bytes = bytes;
  const TensorRef gradients{TensorKind::gradients, bucket, -1};
  const TensorRef compressed{TensorKind::compressed, bucket, -1};
  instruction.reads.push_back(op == Op::pack ? gradients : compressed);
  instruction.writes.push_back(op == Op::pack ? compressed : gradients);
  return instruction;
}

double elements_of(const Lowering& lowering, int bucket) {
  return static_cast<double>(lowering.program.buckets[static_cast<std::size_t>(bucket)].elements);
}

// Rows and their numbers, of tables that know which were looked up; else null.
const Lowering::SparseBucket* rows_of(const Lowering& lowering, int bucket) {
  const Lowering::SparseBucket& own = lowering.sparse_bucket[static_cast<std::size_t>(bucket)];
  return own.sparse ? &own : nullptr;
}

bool keeps_error(const Lowering& lowering) {
  return lowering.choices().grad_compression != Compression::fp16;
}

}  // namespace

bool compresses(const Lowering& lowering, int bucket) {
  return (lowering.choices().grad_compression != Compression::none || rows_of(lowering, bucket) != nullptr) &&
         lowering.program.buckets[static_cast<std::size_t>(bucket)].group >= 0;
}

std::uint32_t pack_bucket(Lowering& lowering, int bucket, const std::vector<std::uint32_t>& after) {
  const double elements = elements_of(lowering, bucket);
  const Lowering::SparseBucket* rows = rows_of(lowering, bucket);
  // The gradient is read; with error feedback what was left out is read and written.
  const double touched = elements * bytes_of(DType::fp32) * (keeps_error(lowering) ? 3 : 1);
  Instruction pack = conversion(
      Op::pack, bucket,
      rows != nullptr ? 2 * rows->payload_bytes : touched + compressed_bytes(lowering.choices(), elements));
  for (const std::uint32_t other : after) {
    if (lowering.program.instructions[other].stream != Stream::compute) pack.after.push_back(other);
  }
  return lowering.emit(std::move(pack));
}

Instruction compressed_collective(const Lowering& lowering, int index) {
  const Bucket& bucket = lowering.program.buckets[static_cast<std::size_t>(index)];
  const Choices& choices = lowering.choices();
  const Lowering::SparseBucket* rows = rows_of(lowering, index);
  const double payload =
      rows != nullptr ? rows->payload_bytes : compressed_bytes(choices, elements_of(lowering, index));
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::data;
  instruction.form = Parallelism::data;
  instruction.group = bucket.group;
  if (choices.grad_compression == Compression::fp16) {
    instruction.collective = choices.zero >= 1 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
    instruction.dtype = DType::fp16;
    instruction.bytes = payload;
  } else {
    // What others sent cannot be added up on the way: everyone gets everyone's.
    instruction.collective = CollectiveKind::all_gather;
    instruction.dtype = DType::int8;
    instruction.bytes = payload * static_cast<double>(lowering.group_at(bucket.group).ranks.size());
  }
  const TensorRef compressed{TensorKind::compressed, index, -1};
  instruction.reads.push_back(compressed);
  instruction.writes.push_back(compressed);
  return instruction;
}

std::uint32_t unpack_bucket(Lowering& lowering, int index, std::uint32_t after) {
  const Bucket& bucket = lowering.program.buckets[static_cast<std::size_t>(index)];
  const auto ranks = static_cast<double>(lowering.group_at(bucket.group).ranks.size());
  const Choices& choices = lowering.choices();
  if (const Lowering::SparseBucket* rows = rows_of(lowering, index)) {
    // What came is read and added to the rows' sum, which is read and written.
    Instruction unpack = conversion(Op::unpack, index, 3 * ranks * rows->payload_bytes);
    unpack.after.push_back(after);
    return lowering.emit(std::move(unpack));
  }
  const bool half = choices.grad_compression == Compression::fp16;
  const double share = half && choices.zero >= 1 ? 1 / ranks : 1;
  const double elements = elements_of(lowering, index) * share;
  const double received = compressed_bytes(choices, elements_of(lowering, index)) * (half ? share : ranks);
  Instruction unpack = conversion(Op::unpack, index, received + elements * bytes_of(DType::fp32));
  unpack.after.push_back(after);
  return lowering.emit(std::move(unpack));
}

}  // namespace internal
}  // namespace orrery
