// What the fullest device holds. Activations: Korthikanti et al., arXiv 2205.05198, section 4.
#include <algorithm>

#include "planner/evaluation.h"
#include "program/operator_work.h"
#include "program/placement.h"
#include "program/schedule.h"

namespace orrery::planner {
namespace {

// Operators between two layers' ends, of one model chunk.
struct Span {
  int begin = 0, end = 0;
};

// What one micro-batch leaves on a chunk until its backward, and what its backward needs for a moment.
struct ChunkActivations {
  double kept = 0;       // every micro-batch in flight
  double edge = 0;       // of embedding, head and loss
  double transient = 0;  // the largest layer that is computed again, or whose gradients flow
};

struct StateBytes {
  double weight = 0, gradient = 0, optimizer = 0;  // per parameter
};

StateBytes state_bytes(const Plan& plan) {
  StateBytes bytes;
  const DType storage = plan.parameter_type();
  bytes.weight = bytes_of(storage);
  bytes.gradient = bytes_of(plan.gradient_type());
  switch (plan.job->training.optimizer) {
    case Optimizer::sgd:
      break;
    case Optimizer::momentum:
      bytes.optimizer = 4;
      break;
    case Optimizer::adam:
    case Optimizer::adamw:
      bytes.optimizer = 8;
      break;
  }
  if (storage != DType::fp32) bytes.optimizer += 4;  // master weights
  return bytes;
}

// Parameters of operators [begin, end): dense and expert ones. A stage that holds only the alias of a tied
// tensor holds a copy of it.
struct Parameters {
  double dense = 0, expert = 0;
};

Parameters parameters_of(const std::vector<Operator>& operators, Span span, const Shard& shard,
                         bool alias_is_copy) {
  Parameters sum;
  for (int i = span.begin; i < span.end; ++i) {
    const Operator& op = operators[i];
    if (op.parameters.empty()) continue;
    const bool expert = op.parameters.front().expert;
    double elements = static_cast<double>(local_parameters(op, shard));
    if (alias_is_copy) {
      Operator alone = op;
      for (ParameterTensor& tensor : alone.parameters) tensor.tied_to.clear();
      elements = static_cast<double>(local_parameters(alone, shard));
    }
    (expert ? sum.expert : sum.dense) += elements;
  }
  return sum;
}

ChunkActivations activations_of(const Plan& plan, Span span, const Shard& shard) {
  const Job& job = *plan.job;
  const std::vector<Operator>& operators = job.workload.operators;
  const Choices& c = plan.choices;
  const bool selective = c.recompute == Recompute::selective;
  ChunkActivations out;
  int layer_of_chunk = 0;
  for (int begin = span.begin; begin < span.end;) {
    const int layer = operators[begin].layer;
    int end = begin;
    while (end < span.end && operators[end].layer == layer) ++end;
    const bool edge = layer < 0 || layer >= job.workload.layers;
    const double all = saved_bytes(operators, begin, end, false, shard, job.runtime);
    const bool again = c.recompute == Recompute::full && !edge &&
                       (c.recompute_layers == 0 || layer_of_chunk < c.recompute_layers);
    double widest = 0;  // gradients of the widest output stand beside its input's
    for (int i = begin; i < end; ++i) widest = std::max(widest, output_bytes(operators[i], shard));
    if (edge) {
      out.edge += all;
      out.transient = std::max(out.transient, 2 * widest);
    } else if (again) {
      // The layer's input is the output of the operator before it, in this chunk or received.
      out.kept += begin > 0 ? output_bytes(operators[begin - 1], shard) : 0;
      out.transient = std::max(out.transient, all + 2 * widest);
    } else {
      const double kept = selective ? saved_bytes(operators, begin, end, true, shard, job.runtime) : all;
      out.kept += kept;
      out.transient = std::max(out.transient, all - kept + 2 * widest);
    }
    if (!edge) ++layer_of_chunk;
    begin = end;
  }
  return out;
}

Memory stage_memory(const Plan& plan, int stage, const Shard& shard, double capacity) {
  const Job& job = *plan.job;
  const Choices& c = plan.choices;
  const std::vector<Operator>& operators = job.workload.operators;
  Memory memory;
  memory.stage = stage;
  memory.capacity = capacity;

  Parameters parameters;
  double largest_layer = 0;  // parameters, for ZeRO-3's gathered copies
  double kept = 0, edge = 0, transient = 0;
  for (int chunk = 0; chunk < c.interleave; ++chunk) {
    const LayerRange range = operators_of(plan, stage, chunk);
    const Span span{range.begin, range.end};
    const bool alias_is_copy = c.pp > 1 && stage == c.pp - 1;
    const Parameters p = parameters_of(operators, span, shard, alias_is_copy);
    parameters.dense += p.dense;
    parameters.expert += p.expert;
    const ChunkActivations a = activations_of(plan, span, shard);
    kept += a.kept;
    edge += a.edge;
    transient = std::max(transient, a.transient);
    if (c.zero >= 3) {
      for (int begin = span.begin; begin < span.end;) {
        int end = begin;
        while (end < span.end && operators[end].layer == operators[begin].layer) ++end;
        const Parameters layer = parameters_of(operators, {begin, end}, shard, false);
        largest_layer = std::max(largest_layer, layer.dense + layer.expert);
        begin = end;
      }
    }
  }

  const StateBytes bytes = state_bytes(plan);
  const double dense_group = c.shard_group > 0 ? c.shard_group : c.dp * c.cp;
  const double expert_group = std::max(1.0, dense_group / c.ep);
  // Bytes of one kind of state, sharded from ZeRO stage `from` on.
  const auto sharded = [&](double per_parameter, int from) {
    const bool split = c.zero >= from;
    return per_parameter *
           (parameters.dense / (split ? dense_group : 1) + parameters.expert / (split ? expert_group : 1));
  };
  memory.weights = sharded(bytes.weight, 3);
  memory.gradients = sharded(bytes.gradient, 2);
  memory.optimizer = sharded(bytes.optimizer, 1);

  const int micro_batches = static_cast<int>(std::max<std::int64_t>(1, plan.micro_batches()));
  const int in_flight = peak_in_flight(c.schedule, stage, c.pp, c.interleave, micro_batches);
  // kept / interleave is what one micro-batch leaves on a mean chunk. Embedding's masks wait like a layer's;
  // head and loss run their backward at once, but for GPipe.
  const bool edges_wait = c.schedule == Schedule::gpipe || stage == 0;
  const double edge_in_flight = edges_wait && c.pp > 1 ? static_cast<double>(in_flight) / c.interleave : 1;
  memory.activations = kept / c.interleave * in_flight + edge * edge_in_flight + transient;

  // Gathered weights of the layer at work and the next, and its unsharded gradient (FSDP).
  if (c.zero >= 3) memory.buffers += largest_layer * (2 * bytes.weight + bytes.gradient);
  if (c.pp > 1) {
    // One tensor each being received and sent.
    const LayerRange range = operators_of(plan, stage, 0);
    if (range.end > range.begin) memory.buffers += 2 * output_bytes(operators[range.end - 1], shard);
  }
  const double allocated =
      memory.weights + memory.gradients + memory.optimizer + memory.activations + memory.buffers;
  memory.total = allocated * (1 + job.runtime.allocator_margin);
  return memory;
}

// Least memory, and most context, of the devices that a stage's ranks run on.
const DeviceProfile& smallest_device(const Plan& plan, int stage) {
  const Cluster& cluster = plan.job->cluster;
  if (cluster.profiles.size() == 1) return cluster.profiles.front();
  const DeviceProfile* smallest = nullptr;
  for (int rank = 0; rank < plan.choices.world(); ++rank) {
    if (coordinates_of(plan, rank).pp != stage) continue;
    const DeviceProfile& device = cluster.profile_of(device_of(plan, rank));
    if (smallest == nullptr || device.memory_bytes < smallest->memory_bytes) smallest = &device;
  }
  return *smallest;
}

}  // namespace

Memory predict_memory(const Plan& plan) {
  const Shard shard = shard_of(plan);
  Memory fullest;
  double least_room = 0;
  for (int stage = 0; stage < plan.choices.pp; ++stage) {
    const DeviceProfile& device = smallest_device(plan, stage);
    Memory memory = stage_memory(plan, stage, shard, device.memory_bytes);
    memory.total += device.context_bytes;
    const double room = memory.capacity - memory.total;
    if (stage == 0 || room < least_room) {
      least_room = room;
      fullest = memory;
    }
  }
  return fullest;
}

}  // namespace orrery::planner
