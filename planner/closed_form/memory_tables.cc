// What the fullest device holds. Activations: Korthikanti et al., arXiv 2205.05198, section 4.
#include "planner/closed_form/memory_tables.h"

#include <algorithm>
#include <numeric>

#include "planner/closed_form/communicators.h"
#include "planner/closed_form/figures.h"
#include "program/operator_work.h"
#include "program/placement.h"
#include "program/schedule.h"
#include "workloads/layer_graph.h"

namespace orrery::planner {
namespace {

struct StateBytes {
  double weight = 0, gradient = 0, optimizer = 0;  // per parameter
};

StateBytes state_bytes(const Plan& plan) {
  StateBytes bytes;
  const DType storage = plan.parameter_type();
  bytes.weight = bytes_of(storage);
  const RuntimeProfile& runtime = plan.job->runtime;
  const Training& training = plan.job->training;
  bytes.gradient = gradient_bytes_per_parameter(training.precision, runtime);
  if (runtime.bf16_gradient_copy && storage == DType::bf16) bytes.gradient += 4;
  bytes.optimizer = optimizer_bytes_per_parameter(training.optimizer, training.precision, runtime);
  // Under autocast the weights are what is fp32, and their copies are counted apart (`cast_weights`).
  const bool casts = internal::autocasts(shard_of(plan), runtime) && !runtime.updates_stored_weights;
  if (casts) {
    bytes.weight = bytes_of(DType::fp32);
    bytes.optimizer -= bytes_of(DType::fp32);
  }
  if (runtime.gathered_weights_only && plan.choices.zero >= 3 && !casts) bytes.optimizer -= bytes.weight;
  bytes.optimizer *= 1 - runtime.host_states;
  if (runtime.host_parameters) bytes.weight = 0;  // but for what is gathered
  if (runtime.host_gradients) bytes.gradient = 0;
  return bytes;
}

// Least memory, and most context, of the devices that a stage's ranks run on.
// Of each stage.
std::vector<const DeviceProfile*> smallest_devices(const Plan& plan) {
  const Cluster& cluster = plan.job->cluster;
  std::vector<const DeviceProfile*> smallest(static_cast<std::size_t>(plan.stages()), nullptr);
  for (int rank = 0; rank < plan.choices.world(); ++rank) {
    const DeviceProfile*& of = smallest[static_cast<std::size_t>(coordinates_of(plan, rank).pp)];
    const DeviceProfile& device = cluster.profile_of(device_of(plan, rank));
    if (of == nullptr || device.memory_bytes < of->memory_bytes) of = &device;
  }
  return smallest;
}

// Expert: whose states are sharded over another group than the rest's, of experts and, in a general graph,
// what tensor ranks hold whole.
struct Parameters {
  double dense = 0, expert = 0;
};

// Whether a stage holds less and less of a micro-batch while its backward runs. Split backward passes keep
// what weights' gradients need; beside a forward pass as much comes as goes.
bool frees_layer_by_layer(const Choices& choices) {
  return !splits_backward(choices.schedule) && !choices.overlap_experts;
}

bool is_product(OperatorKind kind) {
  return kind == OperatorKind::linear || kind == OperatorKind::expert_linear || kind == OperatorKind::head;
}

// Gradients that stand beside each other while operator `i` runs its backward: of its output, of its inputs
// and of the residual stream. Under sequence parallelism a row-split product gathers the gradient of its
// output, a column-split one its input and makes the whole gradient of it.
double flow_bytes(const std::vector<Operator>& operators, int i, const Shard& shard) {
  const Operator& op = operators[i];
  const double ranks = shard.sequence_parallel ? shard.tp : 1;
  const bool column = op.split == TensorSplit::column || op.split == TensorSplit::vocabulary;
  double bytes = output_bytes(op, shard) * (op.split == TensorSplit::row ? ranks : 1);
  for (const int input : op.inputs) {
    if (op.kind == OperatorKind::residual && input != op.inputs.front()) continue;  // passed on as they are
    const double whole = output_bytes(operators[input], shard) * (column ? ranks : 1);
    bytes += whole + (column && ranks > 1 ? whole : 0);
  }
  return bytes;
}

// What selective recomputation by products keeps of operators [begin, end): their input, the output of every
// second product (each matrix of a fused one by itself) and the attention core's (torchtitan
// models/llama3/infra/parallelize.py: _apply_ac_to_transformer_block).
double bytes_kept_by_products(const std::vector<Operator>& operators, int begin, int end,
                              const Shard& shard) {
  double bytes = begin > 0 ? output_bytes(operators[begin - 1], shard) : 0;
  int products = 0;
  for (int i = begin; i < end; ++i) {
    const Operator& op = operators[i];
    const double output = output_bytes(op, shard);
    if (op.kind == OperatorKind::attention) {
      bytes += output + shard.rows * (op.attention ? op.attention->heads : 0) / shard.tp * 4;
      continue;
    }
    if (!is_product(op.kind)) continue;
    double all = 0, kept = 0;
    for (const ParameterTensor& tensor : op.frozen.empty() ? op.parameters : op.frozen) {
      if (tensor.shape.size() < 2) continue;
      const auto features = static_cast<double>(tensor.elements());
      all += features;
      if (++products % 2 == 1) kept += features;
    }
    if (all > 0) bytes += output * kept / all;
  }
  return bytes;
}

Parameters parameters_of(const Operator& op, const Shard& shard, bool graph) {
  if (op.parameters.empty()) return {};
  if (graph && shard.tp > 1) {
    Parameters sum;
    Operator single = op;
    for (const ParameterTensor& tensor : op.parameters) {
      single.parameters.assign(1, tensor);
      (tensor.split_dim < 0 ? sum.expert : sum.dense) += static_cast<double>(local_parameters(single, shard));
    }
    return sum;
  }
  const auto elements = static_cast<double>(local_parameters(op, shard));
  return op.parameters.front().expert ? Parameters{0, elements} : Parameters{elements, 0};
}

}  // namespace

// What one micro-batch leaves on a chunk until its backward, and what its backward needs for a moment.
struct MemoryTables::Activations {
  double kept = 0;       // every micro-batch in flight
  double embedding = 0;  // of the embedding, kept likewise
  double head = 0;       // of final norm, head and loss, kept
  double flow = 0;       // the largest layer that is computed again, or whose gradients flow
  double loss = 0;  // while the loss is computed, beyond `head`; or the head's backward runs, in its stead
  double head_backward = 0;
  double logits = 0;  // elements
  double embedding_backward = 0;
};

MemoryTables::MemoryTables(std::shared_ptr<const Job> job)
    : job_(std::move(job)),
      parts_(layer_parts(job_->workload)),
      cuts_(job_, parts_, job_->cluster.groups.size() == 1) {
  alike_ = job_->cluster.profiles.size() == 1 && parts_.layers_alike();
}

MemoryTables::PartBytes MemoryTables::part_bytes(int part, const Shard& shard, const Choices& choices) const {
  const std::vector<Operator>& operators = job_->workload.operators;
  const int begin = parts_.begin[part];
  const int end = parts_.begin[part + 1];
  PartBytes bytes;
  bytes.saved = saved_bytes(operators, begin, end, 0, shard, job_->runtime);
  bytes.saved_selective = bytes.saved;
  if (const ModuleSet modules = modules_run_again(choices, job_->runtime); modules != 0)
    bytes.saved_selective = job_->runtime.selective_keeps_products && choices.recompute_modules == 0
                                ? bytes_kept_by_products(operators, begin, end, shard)
                                : saved_bytes(operators, begin, end, modules, shard, job_->runtime);
  // A gradient of low precision that is added to the accumulated one by a kernel of its own.
  const RuntimeProfile& runtime = job_->runtime;
  const double element = bytes_of(storage_type(shard.precision));
  const bool apart = runtime.fp32_gradients && element < 4 &&
                     (!runtime.fused_gradient_accumulation || runtime.dummy_weight_gradients);
  if (!crossing_.empty() && part > 0 && part < parts_.count())
    for (const int i : crossing_[static_cast<std::size_t>(part) - 1])
      bytes.crossing += output_bytes(operators[i], shard);
  for (int i = begin; i < end; ++i) {
    const Operator& op = operators[i];
    bytes.last = output_bytes(op, shard);
    if (op.kind != OperatorKind::loss_max && op.kind != OperatorKind::loss_sum &&
        op.kind != OperatorKind::loss)
      bytes.flow = std::max(bytes.flow, flow_bytes(operators, i, shard));
    if (op.kind == OperatorKind::head) {
      // Logits and their fp32 copy; or, where the loss is not fused, three of these: what log_softmax put
      // out, the gradient of that and the gradient of the logits (PyTorch's cross_entropy going back; the
      // logits themselves are freed by then). saved_bytes counts the first already.
      const double at_once = bytes.last / std::max(1, runtime.loss_chunks);
      bytes.logits = std::max(bytes.logits, at_once);
      bytes.logit_elements = bytes.logits / element;
      const bool counted = runtime.logits_in_place || runtime.logit_bytes > 0;
      const double copies = counted ? 0 : runtime.fused_loss ? 4 : 8;
      bytes.loss = std::max(bytes.loss, at_once / element * copies);
      // A soft cap's slopes, until the head's backward.
      const auto& transformer = job_->workload.transformer;
      if (transformer && transformer->final_softcap > 0) bytes.loss += at_once / element * 4;
    }
    if (is_product(op.kind) || op.kind == OperatorKind::embedding) {
      Operator alone = op;
      for (ParameterTensor& tensor : alone.parameters) tensor.tied_to.clear();
      const Parameters weights = parameters_of(alone, shard, !crossing_.empty());
      // Experts are parameters of their own.
      const double experts = std::max(1.0, static_cast<double>(op.experts) / shard.ep);
      const double one = weights.dense + weights.expert / experts;
      const bool edge = op.kind == OperatorKind::head || op.kind == OperatorKind::embedding;
      if (apart && (edge || !runtime.dummy_weight_gradients))
        bytes.product_gradient = std::max(bytes.product_gradient, element * one);
      if (!edge && std::find(bytes.weights.begin(), bytes.weights.end(), one) == bytes.weights.end())
        bytes.weights.push_back(one);
    }
    const Parameters own = parameters_of(op, shard, !crossing_.empty());
    bytes.dense += own.dense;
    bytes.expert += own.expert;
    bytes.largest_tensor = std::max(bytes.largest_tensor, largest_local_tensor(op, shard));
    const bool tied = std::any_of(op.parameters.begin(), op.parameters.end(),
                                  [](const ParameterTensor& tensor) { return !tensor.tied_to.empty(); });
    Parameters copy = own;
    if (tied) {
      Operator alone = op;
      for (ParameterTensor& tensor : alone.parameters) tensor.tied_to.clear();
      copy = parameters_of(alone, shard, !crossing_.empty());
    }
    for (const ParameterTensor& tensor : op.frozen) {
      const double still = frozen_bytes(op, tensor, shard, runtime);
      (tensor.expert ? bytes.frozen.expert : bytes.frozen.dense_copy) += still;
      if (!tensor.expert && tensor.tied_to.empty()) bytes.frozen.dense += still;
    }
    bytes.dequantised = std::max(bytes.dequantised, dequantised_bytes(op, shard));
    bytes.dense_copy += copy.dense;
    bytes.expert_copy += copy.expert;
  }
  return bytes;
}

const MemoryTables::Table& MemoryTables::table(const Plan& plan) {
  const Choices& c = plan.choices;
  const TableKey key = {{c.tp, c.cp, c.ep, c.etp, c.micro_batch, c.sequence_parallel,
                         modules_run_again(c, job_->runtime), c.recompute_modules},
                        degrees_key(c)};
  if (last_ != nullptr && key == last_key_) return *last_;
  const auto [entry, fresh] = tables_.try_emplace(key);
  last_key_ = key;
  last_ = &entry->second;
  if (fresh) {
    const Shard shard = largest_shard_of(plan);
    Table& table = entry->second;
    for (int part = 0; part < parts_.count(); ++part) {
      const int twin = parts_.twin[part];
      table.push_back(twin < part ? table[twin] : part_bytes(part, shard, c));
    }
  }
  return entry->second;
}

MemoryTables::Activations MemoryTables::activations_of(const Plan& plan, int begin, int end,
                                                       const Table& parts, int* layer_of_stage) const {
  const Choices& c = plan.choices;
  const bool selective = c.recompute == Recompute::selective;
  // A layer that is computed again does not stand beside what the layers behind it kept.
  const bool frees = frees_layer_by_layer(c);
  const auto keep = [frees](double kept, double moment, Activations* sum) {
    sum->kept += kept;
    sum->flow = std::max(sum->flow - (frees ? kept : 0), moment);
  };
  Activations out;
  for (int part = begin; part < end; ++part) {
    if (parts_.begin[part] == parts_.begin[part + 1]) continue;
    const PartBytes& bytes = parts[part];
    const bool edge = part == 0 || part == parts_.count() - 1;
    const bool again = c.recompute == Recompute::full && !edge && bytes.saved > 0 &&
                       (c.recompute_layers == 0 || *layer_of_stage < c.recompute_layers);
    const bool away = !edge && *layer_of_stage < job_->runtime.host_activation_layers;
    if (part == 0) {
      out.embedding += bytes.saved;
      out.embedding_backward = bytes.product_gradient + bytes.last;
    } else if (edge) {
      out.head += bytes.saved;
      out.loss = bytes.loss;
      out.logits = bytes.logit_elements;
      out.head_backward = bytes.logits + bytes.product_gradient + (bytes.logits > 0 ? 0 : bytes.flow);
    } else if (again) {
      // The layer's input is the output of the operator before it, in this chunk or received.
      const double kept = parts_.begin[part] > 0 ? parts[part - 1].last : 0;
      keep(away ? 0 : kept, bytes.saved + bytes.flow + bytes.product_gradient + (away ? kept : 0), &out);
    } else {
      const double kept = selective ? bytes.saved_selective : bytes.saved;
      // What comes back from the host: this layer's, and the next one's on its way.
      keep(away ? 0 : kept, bytes.saved - kept + bytes.flow + bytes.product_gradient + (away ? 2 * kept : 0),
           &out);
    }
    if (!edge) ++*layer_of_stage;
  }
  return out;
}

// Elements of one placeholder a weight shape of parts [begin, end).
double MemoryTables::placeholders(int begin, int end, const Table& parts) const {
  const auto kind = [&](int part) { return parts_.twin[part]; };
  const bool one_kind = std::all_of(parts_.twin.begin() + begin, parts_.twin.begin() + end,
                                    [&](int twin) { return twin == kind(begin); });
  if (one_kind && begin < end)
    return std::accumulate(parts[begin].weights.begin(), parts[begin].weights.end(), 0.0);
  std::vector<double> shapes;
  int last = -1;  // kind of layer: neighbours are mostly of one
  for (int part = begin; part < end; ++part) {
    if (kind(part) == last) continue;
    last = kind(part);
    for (const double shape : parts[part].weights)
      if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  std::sort(shapes.begin(), shapes.end());
  double elements = 0;
  for (const double shape : shapes) elements += shape;
  return elements;
}

namespace {

// An asynchronous server's own copy of its slices (mixed precision has one anyway), and for each other worker
// what it pushes and what it is answered, a bucket's slice each.
double server_bytes(const Plan& plan, double parameters) {
  const double share = 1.0 / plan.choices.servers;
  const double limit = plan.bucket_bytes();
  const double bucket = limit > 0 ? std::min(parameters, limit / bytes_of(plan.gradient_type())) : parameters;
  const double copy = plan.parameter_type() == DType::fp32 ? parameters * share : 0;
  return bytes_of(DType::fp32) * (copy + 2 * (plan.choices.dp - 1) * bucket * share);
}

}  // namespace

MemoryTables::StageSums MemoryTables::stage_sums(const Plan& plan, int stage, const Table& parts) const {
  const Choices& c = plan.choices;
  StageSums sums;
  sums.stage = stage;
  int layer_of_stage = 0;
  const bool copy = !ends_meet(c) && stage == c.pp - 1;  // of what is tied
  for (int chunk = 0; chunk < c.interleave; ++chunk) {
    const LayerRange layers = layers_of(plan, stage, chunk);
    const bool first = holds_first_part(c, stage, chunk);
    const bool last = holds_last_part(c, stage, chunk);
    const int begin = first ? 0 : 1 + layers.begin;
    const int end = last ? parts_.count() : 1 + layers.end;
    for (int part = begin; part < end; ++part) {
      sums.dense += copy ? parts[part].dense_copy : parts[part].dense;
      sums.expert += copy ? parts[part].expert_copy : parts[part].expert;
      const FrozenBytes& still = parts[part].frozen;
      sums.frozen.dense += copy ? still.dense_copy : still.dense;
      sums.frozen.expert += still.expert;
      sums.largest_frozen = std::max(sums.largest_frozen, still.dense + still.expert);
      sums.dequantised = std::max(sums.dequantised, parts[part].dequantised);
      sums.largest_layer = std::max(sums.largest_layer, job_->runtime.gathers_hold_one_tensor
                                                            ? parts[part].largest_tensor
                                                            : parts[part].dense + parts[part].expert);
      if (chunk == 0 && parts_.begin[part] < parts_.begin[part + 1]) sums.sent = parts[part].last;
    }
    if (chunk == 0 && !crossing_.empty())
      sums.sent = std::max(parts[begin].crossing, end < parts_.count() ? parts[end].crossing : 0);
    const Activations a = activations_of(plan, begin, end, parts, &layer_of_stage);
    sums.kept += a.kept;
    sums.embedding += a.embedding;
    sums.head += a.head;
    sums.flow = std::max(sums.flow, a.flow);
    sums.loss = std::max(sums.loss, a.loss);
    sums.logits = std::max(sums.logits, a.logits);
    sums.head_backward = std::max(sums.head_backward, a.head_backward);
    sums.embedding_backward = std::max(sums.embedding_backward, a.embedding_backward);
    if (job_->runtime.dummy_weight_gradients)
      sums.dummies = std::max(sums.dummies, placeholders(begin, end, parts));
  }
  return sums;
}

const std::vector<MemoryTables::StageSums>& MemoryTables::sums_of(const Plan& plan, const Table& parts) {
  const Choices& c = plan.choices;
  const Choices& of = last_sums_.of;
  if (last_sums_.table == &parts && of.pp == c.pp && of.interleave == c.interleave &&
      of.recompute == c.recompute && of.recompute_layers == c.recompute_layers &&
      of.recompute_modules == c.recompute_modules && of.stage_layers == c.stage_layers &&
      ends_meet(of) == ends_meet(c) && frees_layer_by_layer(of) == frees_layer_by_layer(c))
    return last_sums_.stages;
  last_sums_.table = &parts;
  last_sums_.of = c;
  last_sums_.stages.clear();
  // Where layers are alike and evenly cut, a later middle stage has no more layers than stage 1 and no more
  // micro-batches in flight.
  const bool few = alike_ && c.stage_layers.empty();
  // Nor has one that holds the same as an earlier one.
  const Cut* cut = few || c.pp <= 2 ? nullptr : &cuts_.of(c);
  for (int stage = 0; stage < c.pp; ++stage) {
    if (few && stage > 1 && stage < c.pp - 1) continue;
    if (cut != nullptr && cut->twin[stage] != stage) continue;
    last_sums_.stages.push_back(stage_sums(plan, stage, parts));
  }
  return last_sums_.stages;
}

namespace {

// What stands for attention beside what layers keep: masks, and scores to multiply into.
double attention_buffers(const Plan& plan) {
  const RuntimeProfile& runtime = plan.job->runtime;
  const auto& transformer = plan.job->workload.transformer;
  const bool scores = runtime.score_buffer && !plan.job->training.fused_attention && transformer;
  if (!scores && runtime.loaded_masks == 0) return 0;
  const Shard shard = largest_shard_of(plan);
  const double of_scores =
      scores ? bytes_of(storage_type(shard.precision)) * transformer->heads / shard.tp : 0;
  const auto masks = static_cast<double>(std::min<std::int64_t>(runtime.loaded_masks, plan.micro_batches()));
  return shard.rows * shard.seq_len * (masks + of_scores);
}

double workspace_bytes(const Job& job, const DeviceProfile& device) {
  const RuntimeProfile& runtime = job.runtime;
  const bool older = before_hopper(device);
  const auto of = [older](double bytes, double older_bytes) {
    return older && older_bytes > 0 ? older_bytes : bytes;
  };
  const bool experts = job.workload.transformer && job.workload.transformer->moe;
  return of(runtime.workspace_bytes, runtime.older_workspace_bytes) +
         (experts ? of(runtime.expert_workspace_bytes, runtime.older_expert_workspace_bytes) : 0);
}

// Copies of weights that autocast makes going forward and keeps until each layer's backward pass; gathered
// ones are counted where they are gathered.
double cast_weights(const Plan& plan, double parameters) {
  const RuntimeProfile& runtime = plan.job->runtime;
  const bool whole = plan.choices.zero < 3 && !runtime.updates_stored_weights;
  return whole && internal::autocasts(shard_of(plan), runtime) ? parameters * bytes_of(plan.parameter_type())
                                                               : 0;
}

// Gradients come as activations and copies of weights go: with one micro-batch the fullest moment is at the
// loss or at the update. Buckets that replicas reduce stand all the time (DistributedDataParallel).
void free_gradients(const Plan& plan, double copies, Memory* memory) {
  const Choices& c = plan.choices;
  const bool buckets = c.dp * c.cp > 1 && c.zero < 2;
  if (!plan.job->runtime.frees_gradients || plan.micro_batches() > 1 || c.pp > 1 || buckets) return;
  if (memory->activations + copies > memory->gradients) {
    memory->gradients = 0;
  } else {
    memory->activations = memory->transient = 0;
    memory->buffers -= copies;
  }
}

// Copies of gradients that come when activations are gone; but what an allocator took for these it keeps.
// `parameters`: of the rank, `share`: of its update. The bucket is given back before the update, which puts
// what it flattens in that place.
double update_bytes(const Plan& plan, double parameters, double share) {
  const RuntimeProfile& runtime = plan.job->runtime;
  const Choices& c = plan.choices;
  const bool accumulated = runtime.bf16_gradient_copy && plan.parameter_type() == DType::bf16;
  const double gradient = accumulated ? bytes_of(DType::fp32) : bytes_of(plan.gradient_type());
  const double bucket = c.dp * c.cp > 1 ? gradient * std::min(parameters, runtime.flat_bucket_parameters) : 0;
  if (accumulated || plan.parameter_type() == DType::fp32) return bucket;
  // Of one replica no plan says whether its optimizer would shard: taken to be the one that does.
  const bool whole = c.zero == 0 && c.dp * c.cp > 1;
  const double beside = whole ? bytes_of(DType::fp32) : gradient;
  const double pieces = runtime.flat_bucket_parameters > 0 ? beside * share : 0;
  return std::max(bucket, pieces) + runtime.update_gradient_bytes * share;
}

// Of what stands in `memory` already: `update` bytes of it are there only while the optimizer works.
// `context`: what is gone from the device beside what the allocator took.
void add_up(const RuntimeProfile& runtime, double context, double update, Memory* memory) {
  memory->allocated =
      memory->weights + memory->gradients + memory->optimizer + memory->activations + memory->buffers;
  memory->reserved = memory->allocated * (1 + runtime.allocator_margin);
  memory->total = memory->reserved + context;
  memory->needed = memory->total - std::min(update, memory->activations) * (1 + runtime.allocator_margin);
  // What an allocator merely keeps fills the device at most.
  if (memory->needed <= memory->capacity && memory->total > memory->capacity) {
    memory->total = memory->capacity;
    memory->reserved = memory->capacity - context;
  }
}

}  // namespace

Memory MemoryTables::stage_memory(const Plan& plan, const StageSums& sums) {
  const Job& job = *plan.job;
  const DeviceProfile& device = smallest_device(plan, sums.stage);
  const Choices& c = plan.choices;
  Memory memory;
  memory.stage = sums.stage;
  memory.capacity = device.memory_bytes;

  const StateBytes bytes = state_bytes(plan);
  const double dense_group = c.shard_group > 0 ? c.shard_group : c.dp * c.cp;
  const double tensor_ranks = static_cast<double>(expert_ranks(c)) / (c.dp * c.cp);
  const double expert_group = std::max(1.0, dense_group * tensor_ranks / c.ep);
  // Bytes of one kind of state, sharded from ZeRO stage `from` on.
  const auto sharded = [&](double per_parameter, int from) {
    const bool split = c.zero >= from;
    return per_parameter *
           (sums.dense / (split ? dense_group : 1) + sums.expert / (split ? expert_group : 1));
  };
  memory.weights = sharded(bytes.weight, 3);
  if (!job.runtime.host_parameters)
    memory.weights += sums.frozen.dense / (c.zero >= 3 ? dense_group : 1) +
                      sums.frozen.expert / (c.zero >= 3 ? expert_group : 1);
  memory.gradients = sharded(bytes.gradient, 2);
  memory.optimizer = sharded(bytes.optimizer, 1);
  if (c.zero >= 1 && job.runtime.state_shard_ranks > dense_group)
    memory.optimizer *= dense_group / std::min<double>(job.runtime.state_shard_ranks, c.dp * c.cp);
  if (c.has_servers()) memory.optimizer /= c.servers;  // of the slices that a server keeps

  const int micro_batches = static_cast<int>(std::max<std::int64_t>(1, plan.micro_batches()));
  const int in_flight =
      peak_in_flight(c.schedule, sums.stage, c.pp, c.interleave, micro_batches, c.overlap_experts);
  // kept / interleave is what one micro-batch leaves on a mean chunk. Embedding's masks wait like a layer's;
  // head and loss run their backward at once, but for GPipe.
  const double waiting = static_cast<double>(in_flight) / c.interleave;
  const bool gpipe = c.schedule == Schedule::gpipe && c.pp > 1;
  const double heads = gpipe ? in_flight - 1 : 0;  // that wait beside the one at work
  const double forward = sums.kept * waiting + sums.embedding * (c.pp > 1 ? waiting : 1) + sums.head * heads;
  // The fullest moment: the loss, the head's backward, a layer's backward, or the embedding's, when the
  // layers of its micro-batch are done.
  // In a V a pass of the other chunk runs between the head's two.
  const double held_head = c.schedule == Schedule::dualpipe_v ? sums.head : 0;
  memory.transient = std::max({sums.head + sums.loss, sums.head_backward, sums.flow + held_head,
                               sums.embedding_backward - sums.kept * std::min(1.0, waiting)});
  const RuntimeProfile& runtime = job.runtime;
  const double held_logits = sums.logits * (runtime.held_logit_bytes + runtime.waiting_logit_bytes * c.pp);
  memory.activations = forward + memory.transient + held_logits;

  if (c.zero >= 3) {
    const double stage_parameters = sums.dense + sums.expert;
    const double weight = bytes_of(plan.parameter_type()), gradient = bytes_of(plan.gradient_type());
    // Gathered weights of the layer at work and the next, and its whole gradient (FSDP).
    // torchtitan, whose pipelines keep them, gathers the weights of 8-bit products in 8 bits.
    const double gathered = is_narrow(job.training.precision) ? 1 : weight;
    memory.buffers += runtime.pipeline_keeps_gathered && c.pp > 1
                          ? stage_parameters * (gathered + gradient) + sums.frozen.dense + sums.frozen.expert
                          : sums.largest_layer * (2 * weight + gradient) + 2 * sums.largest_frozen;
  }
  // What comes from the host whole, and goes there: the layer at work and the next.
  if (runtime.host_parameters && c.zero < 3)
    memory.buffers += 2 * (sums.largest_layer * bytes_of(plan.parameter_type()) + sums.largest_frozen);
  if (runtime.host_gradients && c.zero < 2)
    memory.buffers += 2 * sums.largest_layer * bytes_of(plan.gradient_type());
  if (c.asynchronous()) memory.buffers += server_bytes(plan, sums.dense + sums.expert);
  if (c.pp > 1) memory.buffers += 2 * sums.sent;  // one tensor each being received and sent
  memory.buffers += sums.dequantised + attention_buffers(plan);
  const double update = update_bytes(plan, sums.dense + sums.expert, sharded(1, 1));
  const double copies = cast_weights(plan, sums.dense + sums.expert);
  memory.buffers +=
      sums.dummies * bytes_of(plan.parameter_type()) + workspace_bytes(job, device) + update + copies;
  free_gradients(plan, copies, &memory);
  add_up(runtime, device.context_bytes + communicators(plan), update, &memory);
  return memory;
}

const DeviceProfile& MemoryTables::smallest_device(const Plan& plan, int stage) {
  const Cluster& cluster = job_->cluster;
  if (cluster.profiles.size() == 1) return cluster.profiles.front();
  const Choices& c = plan.choices;
  const auto [entry, fresh] = smallest_.try_emplace({c.tp, c.pp, c.dp, c.cp, c.order});
  if (fresh) entry->second = smallest_devices(plan);
  return *entry->second[static_cast<std::size_t>(stage)];
}

double MemoryTables::communicators(const Plan& plan) {
  if (job_->runtime.communicator_sets == 0) return 0;
  const Choices& c = plan.choices;
  const auto [entry, fresh] = communicators_.try_emplace({c.tp, c.pp, c.dp, c.cp, c.order});
  if (fresh) entry->second = communicator_bytes(plan);
  return entry->second;
}

Memory MemoryTables::predict(const Choices& choices) {
  const Plan plan{job_, choices};
  const Table& parts = table(plan);
  Memory fullest;
  double least_room = 0;
  for (const StageSums& sums : sums_of(plan, parts)) {
    const Memory memory = stage_memory(plan, sums);
    const double room = memory.capacity - memory.needed;
    if (sums.stage == 0 || room < least_room) {
      least_room = room;
      fullest = memory;
    }
  }
  return fullest;
}

LayerBytes MemoryTables::layer_bytes(const Choices& choices) {
  const Plan plan{job_, choices};
  const Table& parts = table(plan);
  const StateBytes each = state_bytes(plan);
  const double per_parameter = each.weight + each.gradient + each.optimizer;
  const int layers = parts_.count() - 2;
  LayerBytes bytes;
  bytes.state.assign(static_cast<std::size_t>(layers), 0);
  bytes.kept = bytes.state;
  double transient = 0, crossing = 0;
  for (int part = 0; part < parts_.count(); ++part) {
    const PartBytes& own = parts[part];
    const int layer = std::clamp(part - 1, 0, layers - 1);
    bytes.state[layer] += (own.dense + own.expert) * per_parameter + own.frozen.dense + own.frozen.expert;
    bytes.kept[layer] += own.saved;
    transient = std::max(transient, own.flow + own.product_gradient + own.loss);
    crossing = std::max(crossing, own.crossing);
  }
  bytes.beside = transient + 2 * crossing + workspace_bytes(*job_, job_->cluster.profiles.front());
  return bytes;
}

Memory MemoryTables::predict_stage(const Choices& choices, int stage) {
  const Plan plan{job_, choices};
  return stage_memory(plan, stage_sums(plan, stage, table(plan)));
}

Memory predict_memory_of_stage(const Plan& plan, int stage) {
  return MemoryModel(plan.job).predict_stage(plan.choices, stage);
}

Memory predict_memory(const Plan& plan) {
  return MemoryModel(plan.job).predict(plan.choices);
}

}  // namespace orrery::planner
