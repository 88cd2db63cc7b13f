#include "program/operator_work.h"

#include <algorithm>
#include <cmath>

#include "program/forms.h"
#include "program/operator_shard.h"
#include "workloads/graph_split.h"

namespace orrery {
namespace {

double product_bytes(const Product& p, DType type, DType storage) {
  const double output = p.output_bytes > 0 ? p.output_bytes : bytes_of(storage);
  return p.count * ((p.m * p.k * p.left_share + p.k * p.n) * packed_bytes_of(type) +
                    p.m * p.n * p.output_share * output);
}

void add_product(OperatorWork* work, const Product& p, DType type, DType storage) {
  if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.count <= 0) return;
  work->products.push_back(p);
  work->flops += 2 * p.m * p.n * p.k * p.count;
  work->bytes += product_bytes(p, type, storage);
  work->kernels += p.batched ? 1 : p.count;
}

// The product of one shape of the operator as this rank computes it in the forward pass.
Product forward_product(const Operator& op, const MatmulShape& shape, const Shard& shard) {
  const auto groups = static_cast<double>(std::max<std::int64_t>(1, shape.groups));
  Product p;
  p.k = static_cast<double>(shape.k);
  p.n = static_cast<double>(shape.n);
  if (op.kind == OperatorKind::expert_linear) {
    // Tokens of ep ranks meet on experts / ep experts: evenly, as balanced routing has it.
    p.count = local_experts(op.experts, shard);
    // One launch an expert, as Transformer Engine's grouped linear layer makes them.
    p.m = local_rows(op, shard) * std::max(1, op.active_experts) / p.count;
    if (op.split == TensorSplit::column) p.n /= shard.etp;
    if (op.split == TensorSplit::row) p.k /= shard.etp;
    return p;
  }
  p.m = local_rows(op, shard) * shape.rows_per_row;
  p.count = groups;
  p.batched = groups > 1;
  p.n /= groups;
  switch (op.split) {
    case TensorSplit::column:
    case TensorSplit::heads:
      p.n /= shard.tp;
      break;
    case TensorSplit::vocabulary:
      p.n = std::ceil(p.n / shard.tp);
      break;
    case TensorSplit::row:
      p.k /= shard.tp;
      break;
    case TensorSplit::replicated:
    case TensorSplit::table:
      break;
  }
  return p;
}

// Places of a convolution's kernel, each of which reads its input again; 1 for everything else.
double kernel_places(const Operator& op) {
  if (op.kind != OperatorKind::conv || op.parameters.empty()) return 1;
  const std::vector<std::int64_t>& shape = op.parameters.front().shape;  // out, in, height, width
  return shape.size() == 4 ? static_cast<double>(shape[2] * shape[3]) : 1;
}

// Whether the operator's own weights have gradients, rather than adapters beside them.
bool trains_product(const Operator& op) {
  return !op.parameters.empty() && op.adapters.empty();
}

// Adapters beside frozen weights, and these turned back into the type that products read.
void add_fine_tuning(const Operator& op, ComputeKind kind, const Shard& shard, const RuntimeProfile& runtime,
                     OperatorWork* work) {
  const bool input_gradient = does_input_gradient(kind) && op.passes_gradient;
  if (does_forward(kind) || input_gradient) internal::add_dequantisation(op, shard, work);
  if (op.adapters.empty()) return;
  std::vector<Product> products;
  internal::add_adapters(op, {does_forward(kind), input_gradient, does_weight_gradient(kind)}, shard, runtime,
                         &products, work);
  for (const Product& product : products)
    add_product(work, product, product_type(op.kind, shard.precision), storage_type(shard.precision));
}

void add_products(const Operator& op, ComputeKind kind, const Shard& shard, const RuntimeProfile& runtime,
                  OperatorWork* work) {
  const DType type = product_type(op.kind, shard.precision);
  const DType storage = storage_type(shard.precision);
  const double accumulated =
      runtime.fused_gradient_accumulation ? 2 * gradient_bytes_per_parameter(shard.precision, runtime) : 0;
  const double share = 1 / kernel_places(op);
  const bool experts = op.kind == OperatorKind::expert_linear;
  const internal::ExpertKernels own = internal::expert_kernels(shard, runtime);
  const bool grouped =
      experts && (own == internal::ExpertKernels::fused || own == internal::ExpertKernels::grouped);
  for (const MatmulShape& shape : op.matmuls) {
    Product p = forward_product(op, shape, shard);
    if (experts && is_narrow(type)) p.m = internal::padded_rows(p.m);
    p.left_share = share;
    p.batched = p.batched || grouped;
    if (does_forward(kind)) add_product(work, p, type, storage);
    // dX = dY W^T; what reads the batch itself needs no gradient of its input.
    if (does_input_gradient(kind) && !op.inputs.empty() && op.passes_gradient)
      for (int input = 0; input < (op.multiplies_inputs() ? 2 : 1); ++input)
        add_product(work, {p.m, p.k, p.n, p.count, p.batched, 0, 1, share}, type, storage);
    // dW = X^T dY
    if (does_weight_gradient(kind) && trains_product(op))
      add_product(work, {p.k, p.n, p.m, p.count, p.batched, accumulated, share, 1, true}, type, storage);
    if (is_narrow(type)) {
      // Quantised copies, plain and transposed: of the input going forward, of the gradient going back.
      // Before rows are gathered, with sequence parallelism: each tensor rank casts its own (Transformer
      // Engine's LayerNormLinear and row-parallel Linear gather fp8).
      const bool gathered = shard.sequence_parallel && (does_forward(kind) ? op.split == TensorSplit::column
                                                                           : op.split == TensorSplit::row);
      const bool back = does_input_gradient(kind) && (op.passes_gradient || trains_product(op));
      const double elements = p.m * p.count / (gathered ? shard.tp : 1) *
                              (does_forward(kind) ? p.k
                               : back             ? p.n
                                                  : 0);
      // What a fused grouped layer computes between its two products it casts on the way.
      const bool inside =
          grouped && own == internal::ExpertKernels::fused &&
          (does_forward(kind) ? op.split == TensorSplit::row : op.split == TensorSplit::column);
      if (elements <= 0 || inside) continue;
      // NVFP4 reads its input for the scales of the whole tensor, for the plain copy and for the transposed
      // one (Transformer Engine's NVFP4Quantizer: the largest of the tensor and of its Hadamard transform,
      // then a kernel for each copy; arXiv 2509.25149).
      const double reads = type == DType::fp4 ? 3 : 1;
      work->quantize_bytes += elements * (reads * bytes_of(storage) + 2 * packed_bytes_of(type));
      // Each expert's operand is cast, and its scales are found or rearranged, by itself.
      work->kernels += experts && own == internal::ExpertKernels::eager ? 2 * p.count : 1;
    }
  }
  if (internal::autocasts(shard, runtime)) {
    if (!op.parameters.empty() && !op.matmuls.empty() && op.adapters.empty())
      internal::add_autocast_product(op, kind, shard, work);
    return;
  }
  if (does_weight_gradient(kind) && !op.parameters.empty() && !op.matmuls.empty()) {
    const auto parameters = static_cast<double>(local_parameters(op, shard));
    if (!runtime.fused_gradient_accumulation) {
      work->vector_bytes +=
          parameters * (bytes_of(storage) + 2 * gradient_bytes_per_parameter(shard.precision, runtime));
      work->kernels += 1;
    }
    if (trains_product(op) && op.parameters.size() > 1)
      work->kernels += 1;  // bias: a reduction over the rows
  }
}

// Bytes an element of the scores that the softmax moves beyond the fused one's, and its further kernels,
// where the fused kernel cannot run and PyTorch casts to fp32, scales, masks, exponentiates and casts back.
constexpr double kLooseSoftmaxForward = 6 + 8 + 8 + 8 + 6 - 4, kLooseSoftmaxBackward = 6 + 12 + 8 + 8 + 6 - 6;
constexpr double kLooseSoftmaxKernels = 4;
// The same of scores that are stored in fp32, which no fused kernel takes (is_kernel_available:
// input_in_float16): nothing is cast and the product has scaled them, so the mask alone is in kernels of its
// own. It is filled in place; going back a copy of the gradient is made first.
constexpr double kMaskForward = 8, kMaskBackward = 8 + 8;

// Scores, softmax, dropout and context of an unfused core as PyTorch runs them: the whole square, causal or
// not, in memory.
void add_unfused_attention(const AttentionShape& shape, ComputeKind kind, const Shard& shard,
                           const RuntimeProfile& runtime, OperatorWork* work) {
  const DType type = product_type(OperatorKind::attention, shard.precision);
  const DType storage = storage_type(shard.precision);
  const double keys = shard.seq_len;
  const double queries = local_seq_len(shard);
  const double batch = shard.rows / std::max(1.0, queries) * local_attention(shape, shard).heads;
  const double scores = batch * queries * keys;
  const double element = bytes_of(storage);
  const Product score{queries, keys, static_cast<double>(shape.qk_head_dim), batch, true};
  const Product context{queries, static_cast<double>(shape.v_head_dim), keys, batch, true};
  const double attention_flops = work->flops;
  // Megatron-LM's fused masked softmax takes four rows of a batch of heads at a time (fused_softmax.py,
  // is_kernel_available: attn_batches % 4 == 0).
  const bool loose =
      runtime.fused_softmax_multiple > 0 && std::fmod(batch, runtime.fused_softmax_multiple) != 0;
  if (runtime.fused_softmax_multiple > 0 && storage == DType::fp32) {
    work->vector_bytes += scores * (does_forward(kind) ? kMaskForward : kMaskBackward);
    work->kernels += does_forward(kind) ? 1 : 2;
  } else if (loose) {
    work->vector_bytes += scores * (does_forward(kind) ? kLooseSoftmaxForward : kLooseSoftmaxBackward);
    work->kernels += kLooseSoftmaxKernels;
  }
  if (does_forward(kind)) {
    add_product(work, score, type, storage);
    add_product(work, context, type, storage);
    work->vector_bytes += scores * 2 * element;                             // masked softmax
    if (runtime.dropout) work->vector_bytes += scores * (2 * element + 1);  // dropout and its mask
    work->kernels += 4 + (runtime.dropout ? 1 : 0);  // softmax, layout changes of q, k, v
  }
  if (does_input_gradient(kind)) {
    for (const Product& p : {score, context}) {
      add_product(work, {p.m, p.k, p.n, p.count, true}, type, storage);
      add_product(work, {p.k, p.n, p.m, p.count, true}, type, storage);
    }
    work->vector_bytes += scores * 3 * element;
    if (runtime.dropout) work->vector_bytes += scores * (2 * element + 1);
    work->kernels += 5 + (runtime.dropout ? 1 : 0);
  }
  work->flops = attention_flops;  // the model's FLOPs are counted once, by attention_flops
}

// Joining the blocks of ring attention (Transformer Engine's context_parallel.py): forward each block's
// output is scaled in fp32 and added (16 bytes an element; after the first block the later half of the rows
// alone has new keys or all rows half of them: (cp + 1) / 2 of the rows in all), backward gradients of
// queries, keys and values are added to what came before (6 bytes).
void add_ring(const AttentionShape& shape, bool forward, const Shard& shard, OperatorWork* work) {
  if (shard.cp <= 1) return;
  const AttentionShape own = local_attention(shape, shard);
  const double output = shard.rows * own.heads * own.v_head_dim;
  const double key_value = shard.rows * own.kv_heads * (own.qk_head_dim + own.v_head_dim);
  work->vector_bytes += forward ? 16 * output * (shard.cp + 1) / 2 : 6 * shard.cp * (output + key_value);
  work->kernels += 3.0 * shard.cp;
}

void add_attention(const Operator& op, ComputeKind kind, const Shard& shard, const RuntimeProfile& runtime,
                   OperatorWork* work) {
  if (!op.attention || kind == ComputeKind::backward_weight) return;
  const AttentionShape& shape = *op.attention;
  const AttentionShape own = local_attention(shape, shard);
  const double factor = does_forward(kind) ? 1 : 2;
  work->attention_flops = factor * 2 * shard.rows * attended_keys(shape, shard.seq_len) * own.heads *
                          (own.qk_head_dim + own.v_head_dim);
  // Every tensor rank has the whole indexer.
  work->attention_flops += factor * shard.rows * index_flops_per_query(shape, shard.seq_len);
  work->attention_queries = shard.rows * own.heads;
  work->attention_head_dim = (shape.qk_head_dim + shape.v_head_dim) / 2.0;
  work->flops += work->attention_flops;
  const double element = bytes_of(storage_type(shard.precision));
  // Rotary positions and the like, where the operator has them.
  // One kernel each, or PyTorch's complex product in fp32 with a cast before and behind (16 bytes for 4).
  if (internal::autocasts(shard, runtime)) {
    internal::add_autocast_rotary(op, kind, shard, work);
  } else {
    const double rotary = shard.rows * vector_elements(op) / shard.tp * element;
    work->vector_bytes += runtime.fused_elementwise ? rotary : 4 * rotary;
    if (op.vector_elements > 0) work->kernels += runtime.fused_elementwise ? 2 : 6;
  }
  add_ring(shape, does_forward(kind), shard, work);
  if (!shard.fused_attention) {
    add_unfused_attention(shape, kind, shard, runtime, work);
    return;
  }
  const double tensors = static_cast<double>(own.heads + own.kv_heads) * (own.qk_head_dim + own.v_head_dim);
  work->bytes += factor * shard.rows * tensors * element;
  work->kernels += does_forward(kind) ? 1 : 3;  // backward: row sums, the core, the queries' gradient
}

// Passes over the logits, in bytes per logit: Megatron's vocabulary-parallel cross entropy casts to fp32,
// subtracts the maximum, exponentiates, sums and divides in kernels of their own; a fused one reads the
// logits once for each of maximum and sum, and writes the gradient once.
double loss_bytes_per_logit(OperatorKind kind, bool backward, double element, bool fused) {
  if (backward) {
    if (kind != OperatorKind::loss) return 0;
    return fused ? 2 * element : 2 * 4 + 4 + element;
  }
  switch (kind) {
    case OperatorKind::loss_max:
      return fused ? element : element + 4 + 4;
    case OperatorKind::loss_sum:
      return fused ? element : 8 + 8 + 4;
    case OperatorKind::loss:
      return fused ? 0 : 8;
    default:
      return 0;
  }
}

void add_loss(const Operator& op, ComputeKind kind, const Shard& shard, const RuntimeProfile& runtime,
              OperatorWork* work) {
  if (internal::autocasts(shard, runtime) && op.vector_elements > 0) {
    internal::add_autocast_loss(op, kind, shard, work);
    return;
  }
  const double passes = op.kind == OperatorKind::loss ? 2 : 1;
  const double logits =
      shard.rows * (op.vector_elements > 0 ? op.vector_elements / passes / shard.tp : op.output_elements);
  const double element = bytes_of(storage_type(shard.precision));
  const bool backward = does_input_gradient(kind);
  if (!backward && !does_forward(kind)) return;
  const double bytes = logits * loss_bytes_per_logit(op.kind, backward, element, runtime.fused_loss);
  work->vector_bytes += bytes;
  if (bytes > 0) work->kernels += runtime.fused_loss ? 1 : 3;
}

// Bytes and kernels of element-wise operators, per pass of the forward's: what fusion saves and what the
// backward adds.
struct Passes {
  double forward = 1, backward = 1;  // times the forward's fused traffic
  double forward_kernels = 1, backward_kernels = 1;
};

// An RMS norm (a weight, no bias) without a kernel of its own, as PyTorch decomposes it: cast to fp32,
// square, mean, scale, weigh, cast back; by element 36 bytes forward and 68 back, where one kernel moves 4.
constexpr Passes kEagerRmsNorm = {9, 17, 6, 12};

Passes passes_of(const Operator& op, bool fused) {
  if (!fused && is_rms_norm(op)) return kEagerRmsNorm;
  switch (op.kind) {
    case OperatorKind::norm:
      // Back: x, dy read, dx written, and dx added to the residual stream's gradient (3 more).
      return {1, 3, 1, 3};
    case OperatorKind::activation:
      // Back: x, dy read, dx written. Unfused: the bias is added in a kernel of its own.
      return fused ? Passes{1, 1.5, 1, 1} : Passes{2, 2.5, 2, 2};
    case OperatorKind::residual:
      // Bias, dropout and addition in one (3 h), or a kernel each (2 h + 2 h + 3 h). Back: the branch's
      // gradient is read and written once.
      return fused ? Passes{1, 2.0 / 3, 1, 1} : Passes{7.0 / 3, 4.0 / 3, 3, 2};
    case OperatorKind::batch_norm:
      return {1, 5.0 / 3, 2, 2};
    case OperatorKind::router:
      return {1, 2, 6, 6};
    case OperatorKind::dispatch:
    case OperatorKind::combine:
    case OperatorKind::embedding:
      return {1, 1, 2, 2};
    default:
      return {1, 1.5, 1, 1};
  }
}

void add_elementwise(const Operator& op, ComputeKind kind, const Shard& shard, const RuntimeProfile& runtime,
                     OperatorWork* work) {
  if (kind == ComputeKind::backward_weight) return;
  const bool plain = op.kind == OperatorKind::norm || op.kind == OperatorKind::activation ||
                     op.kind == OperatorKind::residual;
  if (plain && internal::autocasts(shard, runtime)) {
    internal::add_autocast_arithmetic(op, kind, shard, work);
    return;
  }
  // One kernel with the batch norm before them: in-place ReLU, and the addition of the shortcut, which is
  // read once more and whose gradient is written.
  if (op.kind == OperatorKind::activation && of_experts(op)) {
    const internal::ExpertKernels own = internal::expert_kernels(shard, runtime);
    if (own == internal::ExpertKernels::fused || own == internal::ExpertKernels::eager)
      return;  // add_expert_arithmetic counts it
  }
  const bool in_norm = runtime.fused_normalization && !op.keeps_input;
  if (in_norm && op.kind == OperatorKind::activation) return;
  const Passes passes = in_norm && op.kind == OperatorKind::elementwise
                            ? Passes{1.0 / 3, 1.0 / 3, 0, 0}
                            : passes_of(op, runtime.fused_elementwise);
  const double element = bytes_of(storage_type(shard.precision));
  const double rows = local_rows(op, shard);
  const double split = output_split(op, shard);
  const double elements = rows * vector_elements(op) / split;
  const bool forward = does_forward(kind);
  if (elements <= 0) return;
  work->vector_bytes += elements * element * (forward ? passes.forward : passes.backward);
  work->kernels += forward ? passes.forward_kernels : passes.backward_kernels;
  const bool masked =
      runtime.dropout && (op.kind == OperatorKind::residual || op.kind == OperatorKind::embedding);
  if (masked) work->vector_bytes += rows * static_cast<double>(op.output_elements) / split;
}

// The gradient of a table of embeddings is dense (zeros are written, touched rows added, the whole
// accumulated), or touched rows are read and added to in place, as those of a sparse gradient are.
void add_embedding_gradient(const Operator& op, const Shard& shard, const RuntimeProfile& runtime,
                            OperatorWork* work) {
  const double element = bytes_of(storage_type(shard.precision));
  if (runtime.embedding_gradient_in_place || op.sparse) {
    const double tokens = local_outputs(op, shard);
    work->vector_bytes += tokens * (element + 2 * gradient_bytes_per_parameter(shard.precision, runtime));
    work->kernels += 1;
    return;
  }
  work->vector_bytes += static_cast<double>(local_parameters(op, shard)) *
                        (2 * element + 2 * gradient_bytes_per_parameter(shard.precision, runtime));
  work->kernels += 3;
}

double moment_bytes(const RuntimeProfile& runtime) {
  return runtime.moment_bytes > 0 ? runtime.moment_bytes : 4;
}

}  // namespace

DType storage_type(DType precision) {
  switch (precision) {
    case DType::fp8:
    case DType::fp4:
      return DType::bf16;
    case DType::tf32:
      return DType::fp32;
    default:
      return precision;
  }
}

DType product_type(OperatorKind kind, DType precision) {
  if (is_narrow(precision) && kind != OperatorKind::linear && kind != OperatorKind::expert_linear)
    return DType::bf16;
  return precision;
}

Shard largest_shard_of(const Plan& plan) {
  Shard shard = shard_of(plan);
  const Training& t = plan.job->training;
  if (!t.lengths.any()) return shard;
  shard.seq_len = longest_of(t.lengths, t.seq_len);
  shard.rows = static_cast<double>(plan.choices.micro_batch) * shard.seq_len / plan.choices.cp;
  return shard;
}

namespace {

// proto/runtime_profile.proto, copies_attention_output.
bool copies_attention_output(const Plan& plan) {
  const RuntimeProfile& runtime = plan.job->runtime;
  const std::vector<DeviceProfile>& devices = plan.job->cluster.profiles;
  if (!runtime.copies_attention_output || !plan.job->training.fused_attention || devices.empty() ||
      plan.choices.cp > 1)
    return false;
  const DeviceProfile& device = devices.front();
  return before_hopper(device) || (runtime.deterministic_attention && device.generation != "hopper");
}

}  // namespace

Shard shard_of(const Plan& plan) {
  const Choices& c = plan.choices;
  const Training& t = plan.job->training;
  Shard shard;
  shard.samples = c.micro_batch;
  shard.seq_len = t.seq_len;
  shard.rows = static_cast<double>(c.micro_batch) * std::max(1, t.seq_len) / c.cp;
  if (t.lengths.any()) {
    const Extent each = computed(t.lengths, t.seq_len, c.micro_batch);
    shard.seq_len = static_cast<int>(std::lround(each.attended));
    // An expected number that is odd is not what odd rows are: these are no stride of any product.
    constexpr double kRows = 8;
    shard.rows = kRows * std::ceil(c.micro_batch * each.tokens * plan.wait_for_longest() / c.cp / kRows);
  }
  shard.tp = c.tp;
  shard.cp = c.cp;
  shard.ep = c.ep;
  shard.etp = c.etp;
  if (c.tp > 1 && !plan.job->workload.transformer) {
    const DealtTables dealt = dealt_tables(plan.job->workload.operators, c.tp);
    shard.table_elements = dealt.elements;
    shard.table_outputs = dealt.outputs;
  }
  shard.sequence_parallel = c.sequence_parallel && c.tp > 1;
  shard.precision = t.precision;
  shard.fused_attention = t.fused_attention;
  const std::vector<DeviceProfile>& devices = plan.job->cluster.profiles;
  shard.scores_by_blocks = !devices.empty() && devices.front().kind == DeviceKind::cpu;
  shard.copies_attention_output = copies_attention_output(plan);
  shard.capacity_factor = c.capacity_factor;
  if (c.overlap_experts) shard.reserved_multiprocessors = plan.job->runtime.expert_multiprocessors;
  const auto& transformer = plan.job->workload.transformer;
  const bool plain = transformer && !transformer->gated_ffn;
  shard.gated_experts = !plain;
  shard.relu = plain && transformer->activation == Activation::relu;
  for (const FormOfParallelism& form : forms_of_parallelism())
    if (const int degree = degree_of(form, c); degree > 1) shard.forms.push_back({&form, degree});
  shard.python_gelu = plain && transformer->activation == Activation::gelu;
  shard.accumulating = 1 - 1 / static_cast<double>(std::max<std::int64_t>(1, plan.micro_batches()));
  shard.gelu_experts =
      transformer && transformer->gated_ffn &&
      (transformer->activation == Activation::gelu || transformer->activation == Activation::gelu_erf);
  return shard;
}

OperatorWork operator_work(const Operator& op, ComputeKind kind, const Shard& shard,
                           const RuntimeProfile& runtime) {
  OperatorWork work;
  const bool backward =
      kind != ComputeKind::optimizer && (does_input_gradient(kind) || does_weight_gradient(kind));
  if (backward && !works_backward(op)) return work;
  if (kind == ComputeKind::optimizer) {
    work.vector_bytes = static_cast<double>(local_parameters(op, shard)) *
                        optimizer_traffic_per_parameter(Optimizer::adam, shard.precision, runtime);
    work.kernels = op.parameters.empty() ? 0 : 1;
    work.bytes = work.vector_bytes;
    return work;
  }
  // What full recomputation keeps it does not run again.
  if (kind == ComputeKind::recompute && runtime.recompute_keeps_projections &&
      op.kind == OperatorKind::linear && op.name.ends_with("qkv"))
    return work;
  add_products(op, kind, shard, runtime, &work);
  if (!op.frozen.empty()) add_fine_tuning(op, kind, shard, runtime, &work);
  const bool mixture = of_experts(op) || op.kind == OperatorKind::router;
  if (mixture) internal::add_expert_arithmetic(op, kind, shard, runtime, &work);
  switch (op.kind) {
    case OperatorKind::attention:
      add_attention(op, kind, shard, runtime, &work);
      break;
    case OperatorKind::scan:
      internal::add_scan(op, kind, shard, &work);
      break;
    case OperatorKind::loss_max:
    case OperatorKind::loss_sum:
    case OperatorKind::loss:
      add_loss(op, kind, shard, runtime, &work);
      break;
    case OperatorKind::embedding:
      if (internal::autocasts(shard, runtime) && !op.sparse) {
        internal::add_autocast_embedding(op, kind, shard, &work);
        break;
      }
      // Its backward is all weights.
      if (does_forward(kind)) add_elementwise(op, kind, shard, runtime, &work);
      if (does_weight_gradient(kind) && !op.parameters.empty())
        add_embedding_gradient(op, shard, runtime, &work);
      break;
    default:
      add_elementwise(op, kind, shard, runtime, &work);
      break;
  }
  work.bytes += work.vector_bytes + work.quantize_bytes + work.dequantise_bytes;
  work.fullest = internal::fullest_rank(op, shard, runtime);
  return work;
}

std::int64_t local_parameters(const Operator& op, const Shard& shard) {
  std::int64_t total = 0;
  for (const ParameterTensor& tensor : op.parameters)
    if (tensor.tied_to.empty()) total += local_elements(tensor, shard);
  return total;
}

double gradient_bytes_per_parameter(DType precision, const RuntimeProfile& runtime) {
  return runtime.fp32_gradients ? 4 : bytes_of(storage_type(precision));
}

double optimizer_bytes_per_parameter(Optimizer optimizer, DType precision, const RuntimeProfile& runtime) {
  // Under autocast the weights are fp32 themselves; what is counted as stored in 16 bits are its copies.
  const bool master = storage_type(precision) != DType::fp32 && !runtime.updates_stored_weights;
  return moment_bytes(runtime) * optimizer_states(optimizer) + (master ? 4 : 0);
}

double optimizer_traffic_per_parameter(Optimizer optimizer, DType precision, const RuntimeProfile& runtime) {
  if (runtime.optimizer_bytes_per_parameter > 0) return runtime.optimizer_bytes_per_parameter;
  const DType storage = storage_type(precision);
  // States, read and written; then the weights: the fp32 master is read and written, and the copy in the
  // storage type written where that is another; or the weights alone, as they are stored.
  const double read = gradient_bytes_per_parameter(precision, runtime) +
                      2 * moment_bytes(runtime) * optimizer_states(optimizer);
  if (runtime.updates_stored_weights) return read + 2 * bytes_of(storage);
  // Under autocast the weights are fp32 themselves, and cast in the next pass.
  return read + 8 + (storage == DType::fp32 || runtime.autocast ? 0 : bytes_of(storage));
}

}  // namespace orrery
