// What one rank does in one training step.
//
// A Program is a list of instructions in *issue order*. Each stands on a stream; a stream runs its
// instructions one after another in that order; `after` adds dependencies on earlier instructions of other
// streams. An instruction may start when its predecessor on the stream and everything in `after` has ended.
// Exactly CUDA's streams and events.
//
// Nothing here knows of a clock: sim/ gives the instructions virtual time, exec/ real time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace orrery {

enum class Stream : std::uint8_t {
  compute,
  tensor,                     // tensor-parallel collectives (and the loss's)
  data,                       // gradient reduction, parameter gathering
  pipeline_forward,           // sends of activations to the next stage
  pipeline_backward,          // sends of gradients to the previous stage
  expert,                     // all-to-all
  context,                    // ring attention
  input,                      // data loading, host to device
  storage,                    // samples read a step ahead
  pipeline_forward_receive,   // receives of activations from the previous stage
  pipeline_backward_receive,  // receives of gradients from the next stage
  data_receive,               // receives of asynchronous servers and of their workers
  // The same four between chunks that come back from the last stage to the first (plan.h, part_of).
  pipeline_return_forward,
  pipeline_return_backward,
  pipeline_return_forward_receive,
  pipeline_return_backward_receive,
};
constexpr int kStreamCount = 16;
// Receives have streams of their own: a receive that waits for its sender must not hold up this stage's
// sends. Nor must a send to one neighbour hold up those to the other.

enum class Op : std::uint8_t { compute, collective, exchange, pack, unpack, load };

// The form of parallelism that a communication belongs to. Added ones have other values (program/forms.h).
enum class Parallelism : std::uint8_t {
  none,
  data,      // replicas and what they share: gradients, parameters, their norm
  tensor,    // the ranks that share a layer's features, or a general graph's samples
  pipeline,  // stages
  expert,
  context,  // sequences
  server,   // workers and parameter servers
};

enum class ComputeKind : std::uint8_t {
  forward,
  backward_input,
  backward_weight,
  backward,
  recompute,
  optimizer
};
// `backward` is input and weight gradients together (every schedule but zero-bubble).

// Which halves of a step's work a kind does.
constexpr bool does_forward(ComputeKind kind) {
  return kind == ComputeKind::forward || kind == ComputeKind::recompute;
}
constexpr bool does_input_gradient(ComputeKind kind) {
  return kind == ComputeKind::backward || kind == ComputeKind::backward_input;
}
constexpr bool does_weight_gradient(ComputeKind kind) {
  return kind == ComputeKind::backward || kind == ComputeKind::backward_weight;
}

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
};
enum class Reduction : std::uint8_t { sum, max };

enum class TensorKind : std::uint8_t {
  parameters,           // index: bucket
  gradients,            // index: bucket
  optimizer_state,      // index: bucket
  activation,           // index: operator whose output it is
  activation_gradient,  // index: operator whose output's gradient it is
  saved,                // index: operator; what its backward needs beyond its inputs
  batch,                // the micro-batch's input tokens and labels
  loss_max,             // row maxima of the local logits
  loss_sum,             // row sums of exponentials and target logits
  loss,                 // of the micro-batch
  gradient_norm,        // one scalar
  tied_gradient,        // index: operator; gradient of a tensor shared by two stages
  replicated_gradient,  // gradients, partial on each tensor rank, of parameters that every tensor rank holds
  key_value,  // index: attention operator; the block of keys and values that ring attention passes on
  key_value_gradient,  // index: attention operator; its gradient, passed on with it
  compressed,          // index: bucket; its gradients as they travel, compressed
  next_batch,          // the samples of the next step, read ahead
};

// Micro-batch -1: not of any micro-batch. Block: of ring attention (docs/program.md), else -1.
struct TensorRef {
  TensorKind kind = TensorKind::activation;
  std::int32_t index = 0;
  std::int32_t micro_batch = -1;
  std::int32_t block = -1;
  bool operator==(const TensorRef&) const = default;
};

struct Transfer {
  std::int32_t peer = 0;  // global rank
  double bytes = 0;
  std::int32_t tag =
      0;  // matches sender and receiver; unique per (pair, direction, tensor, micro-batch) in a step
  bool send = false;
  TensorRef tensor;
};

struct Instruction {
  Op op = Op::compute;
  Stream stream = Stream::compute;
  Parallelism form = Parallelism::none;  // collective, exchange
  std::vector<std::uint32_t> after;
  // compute, pack, unpack, load
  ComputeKind compute = ComputeKind::forward;
  std::int32_t op_begin =
      0;  // operators [op_begin, op_end) of the workload; backward kinds run them in reverse.
  std::int32_t op_end = 0;  // optimizer: buckets [op_begin, op_end) of this rank's Program
  std::int32_t micro_batch = -1;
  std::int32_t block = -1;  // ring attention: of the block of keys and values (docs/program.md); else -1
  double flops = 0;
  double bytes = 0;  // compute: touched in device memory. collective: size as nccl-tests defines it (below)
  // collective; where [op_begin, op_end) is not empty it travels beside these operators' `compute`, in a
  // piece for each member (cost/compute_cost.h, exposed_beside)
  CollectiveKind collective = CollectiveKind::all_reduce;
  std::int32_t group = -1;  // index in Program::groups
  std::int32_t root = 0;    // position in the group
  Reduction reduction = Reduction::sum;
  DType dtype = DType::fp32;
  std::int64_t sequence = 0;  // n-th collective on this group: equal on all members
  // exchange
  std::vector<Transfer> transfers;
  // Bounded staleness: in its n-th run it waits until this rank has applied n - lead pushes of the same
  // parameters from every worker that still trains; -1: it waits for nobody.
  std::int32_t lead = -1;
  std::vector<TensorRef> reads;
  std::vector<TensorRef> writes;
};
// A collective's `bytes` is nccl-tests' size: all_reduce, broadcast, reduce: the buffer; all_gather,
// reduce_scatter, all_to_all, gather, scatter: the whole over all members (n times one member's part).

// Which ranks these are says placement.h, and nobody else. Added ones have other values (program/forms.h).
enum class GroupKind : std::uint8_t {
  tensor,
  data,
  shard,
  replicate,
  pipeline,
  embedding,
  expert,
  expert_data,
  context,
  world,
  expert_tensor,
};

struct Group {
  GroupKind kind = GroupKind::world;
  std::vector<std::int32_t> ranks;  // global, in the order that the collective numbers its members
};

// A slice of one parameter tensor as this rank holds it.
struct BucketParameter {
  std::int32_t op = 0;         // operator of the workload
  std::int32_t parameter = 0;  // index in Operator::parameters
  std::int64_t offset = 0;     // elements from the start of the bucket
  std::int64_t elements = 0;   // of this rank's tensor-parallel (or expert) part
};

// Parameters whose gradients are reduced together, in one flat buffer padded to a multiple of the group.
struct Bucket {
  std::vector<BucketParameter> parameters;
  std::int64_t elements = 0;  // with padding
  std::int32_t group = -1;    // over which it is reduced; -1: on no one
  std::int32_t chunk = 0;     // model chunk that it belongs to
  // Weights that are not trained, sharded: gathered like any other, but neither reduced nor updated. Its
  // elements are bytes in units of the parameters' type, whatever the weights are stored in; no parameters.
  bool frozen = false;
  // Elements that the optimizer updates; absent: all. Fewer where gradients are the rows that were looked up.
  std::optional<double> updated;
};

struct Coordinates {
  int tp = 0, cp = 0, ep = 0, dp = 0, pp = 0;
};

// What an asynchronous parameter server does in a step of one of its workers, whenever that comes and beside
// its own rank's instructions. `after` counts from the service's first instruction. Whose pushes are there
// first is served first: services share the compute stream of their rank, ahead of its own instructions.
struct Service {
  std::int32_t worker = 0;                // global rank
  std::vector<Instruction> instructions;  // bucket after bucket, kServicePhases of them each
};
// Of a bucket: its push is received, applied and answered.
constexpr std::size_t kReceivePush = 0;
constexpr std::size_t kApplyPush = 1;
constexpr std::size_t kAnswerPush = 2;
constexpr std::size_t kServicePhases = 3;

struct Program {
  std::int32_t rank = 0;
  Coordinates at;
  std::vector<Group> groups;
  std::vector<Bucket> buckets;
  std::vector<Instruction> instructions;
  std::vector<Service> services;
};

// As a Timeline numbers them: the rank's own instructions, then those of its services.
std::size_t instruction_count(const Program& program);
const Instruction& instruction_at(const Program& program, std::size_t index);
// Services as Programs of the same rank, in order, for whoever runs or checks them.
std::vector<Program> service_programs(const Program& program);

std::string_view name_of(Stream);
std::string_view name_of(Op);
std::string_view name_of(ComputeKind);
std::string_view name_of(CollectiveKind);
std::string_view name_of(GroupKind);
std::string_view name_of(TensorKind);
std::string_view name_of(Reduction);

// What people and validation group by: "forward", "backward", "recompute", "optimizer", "tensor_comm",
// "data_comm", "pipeline_comm", "expert_comm", "context_comm", "input", "other".
std::string_view kind_of(const Instruction& instruction);
// Such a kind, or a part of `breakdown_s`, in words: "pipeline transfers". What is neither stays as it is.
std::string_view spoken_part(std::string_view part);
// A short label for traces: "forward mb3 layers 4-7", "all_reduce bucket 2".
std::string label_of(const Program& program, std::size_t instruction);

}  // namespace orrery
