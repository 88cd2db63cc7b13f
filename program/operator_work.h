// What one operator costs on one rank, before any device is known: products, FLOPs, bytes, kernels.
//
// Conventions: a multiply-add is 2 FLOPs; causal attention counts the half of the square that is needed;
// its backward counts twice its forward (scores that a fused kernel computes again are a matter of
// efficiency). "Row" is workloads/workload.h's. All figures are of one micro-batch on one rank.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/program.h"
#include "workloads/workload.h"

namespace orrery {

struct FormOfParallelism;

// A form of parallelism that a plan makes use of (program/forms.h), with a degree above 1.
struct FormInUse {
  const FormOfParallelism* form = nullptr;
  int degree = 1;
};

// The part of an operator that one rank works on.
struct Shard {
  double rows = 0;     // tokens (or samples) of the micro-batch on this rank, before sequence parallelism
  double samples = 0;  // sequences in the micro-batch
  int seq_len = 0;     // of the whole sequence; context parallelism divides `rows`, not this
  int tp = 1;
  int cp = 1;
  int ep = 1;
  int etp = 1;
  // Of tables that are dealt out to tensor ranks whole, what the fullest rank holds, and the most that one
  // puts out, as shares of all (workloads/graph_split.h).
  double table_elements = 1, table_outputs = 1;
  bool sequence_parallel = false;
  DType precision = DType::bf16;
  bool fused_attention = true;
  bool copies_attention_output = false;  // a fused kernel's is kept in two orders
  // Processors: attention never has all its scores at once, fused or not.
  bool scores_by_blocks = false;
  bool gated_experts = true;  // SwiGLU, which grouped kernels fuse; else a plain activation
  bool relu = false;          // of a plain MLP: its gradient reads what it put out, as the product behind it
  bool gelu_experts = false;  // gated by clamped GELU (GPT-OSS)
  double capacity_factor = 0;
  // Tanh's GELU of a plain MLP, which Hugging Face writes in Python (gelu_new of GPT-2 and Phi).
  bool python_gelu = false;
  double accumulating = 0;           // share of a step's micro-batches that add to earlier ones' gradients
  int reserved_multiprocessors = 0;  // of a device, which carry experts' traffic meanwhile
  std::vector<FormInUse> forms;
};

struct Product {  // m x k times k x n, `count` times (separate kernels unless `batched`)
  double m = 0, n = 0, k = 0;
  double count = 1;
  bool batched = false;  // one launch for all of `count`
  // Bytes moved for each element of the output: written once (0: in the storage type), or read and written by
  // a product that accumulates.
  double output_bytes = 0;
  // Parts of the left operand and of the output that are in memory: a convolution's product reads each pixel
  // once for every place of its kernel, but from the cache.
  double left_share = 1, output_share = 1;
  // Sums over rows (a weight gradient): both operands lie row by row, k is no stride of theirs.
  bool over_rows = false;
};

struct OperatorWork {
  std::vector<Product> products;
  double attention_flops = 0;    // of the attention core, or of a scan, for AttentionModel
  double attention_queries = 0;  // rows x heads of it
  double attention_head_dim = 0;
  double vector_bytes = 0;      // of memory-bound arithmetic, for VectorModel
  double quantize_bytes = 0;    // of casts to 8 or 4 bits, for VectorModel "cast" or "cast_fp4"
  double dequantise_bytes = 0;  // of 4-bit weights turned back, for VectorModel "dequantise"
  double scalar_flops = 0;  // of a scan token by token, at the rate of fp32's units (program/scan_work.cc)
  double flops = 0;         // all FLOPs together
  double bytes = 0;         // all bytes together, products' operands included
  double kernels = 0;       // launches
  double fullest = 1;       // rows of the rank that has most, whose time counts, by those figured here
};

// Type that activations, weights and gradients are stored in when computing in `precision`: fp8 and fp4 train
// on bf16 tensors, tf32 on fp32 ones.
DType storage_type(DType precision);
// Type that an operator's products compute in: the precision, but the head, the router and attention of an
// fp8 or fp4 run stay in bf16 (Transformer Engine's recipes).
DType product_type(OperatorKind kind, DType precision);

// Of what is computed: rows and lengths of a micro-batch of the slowest replica, in the mean over
// micro-batches.
Shard shard_of(const Plan& plan);
// The largest that a micro-batch can be, for which memory must have room.
Shard largest_shard_of(const Plan& plan);
// `optimizer` counts kernels and bytes of updating all local parameters of the operator (before ZeRO).
// The attention core of an unfused run has both `attention_flops` (for devices with a model of the whole
// core) and the two batched products with the softmax's `vector_bytes` (for devices without).
OperatorWork operator_work(const Operator& op, ComputeKind kind, const Shard& shard,
                           const RuntimeProfile& runtime);

// Of a weight without a bias: PyTorch makes it of several kernels where none is fused.
bool is_rms_norm(const Operator& op);

// Bytes of the operator's output on one rank, and of what it keeps for the backward pass (Korthikanti et al.,
// arXiv 2205.05198, section 4), for one micro-batch. `saved_bytes` counts the operator's input where the
// backward needs it (transformer operators; general graphs: what is beyond the input).
double output_bytes(const Operator& op, const Shard& shard);
double saved_bytes(const Operator& op, const Shard& shard, const RuntimeProfile& runtime);
// The part of its output that a rank sends to the next pipeline stage: of what tensor ranks hold alike its
// own alone where the runtime partitions messages (proto/runtime_profile.proto, partitioned_messages).
double message_share(const Plan& plan);
// Whether selective recomputation of `modules` runs operator `i` again: what it puts out is then not kept for
// those behind it (of the attention core: what it keeps for itself, scores, softmax and mask).
bool brought_back(const std::vector<Operator>& operators, int i, ModuleSet modules);
// Of `modules`, those that the model's layers have something of.
ModuleSet modules_of(const Workload& workload, ModuleSet modules);
// The same over operators [begin, end) with tensors that several operators keep counted once, and without
// what selective recomputation of `modules` brings back.
double saved_bytes(const std::vector<Operator>& operators, int begin, int end, ModuleSet modules,
                   const Shard& shard, const RuntimeProfile& runtime);

// Of what is frozen (workloads/fine_tuning.h): bytes of a rank's part of a tensor as it is stored; of the
// operator's largest quantised matrix once it is turned back for a product; of what adapters keep for the
// backward pass beyond their inputs.
double frozen_bytes(const Operator& op, const ParameterTensor& tensor, const Shard& shard,
                    const RuntimeProfile& runtime);
double dequantised_bytes(const Operator& op, const Shard& shard);
double adapter_saved_bytes(const Operator& op, const Shard& shard);

// Elements of the largest of the operator's tensors, of what one rank holds of it (before ZeRO).
double largest_local_tensor(const Operator& op, const Shard& shard);
// Elements of the operator's parameters that one rank holds (before ZeRO). A vocabulary that `tp` does not
// divide is padded to the next multiple, as every rank holds ceil(vocab / tp) rows; tied aliases count 0.
std::int64_t local_parameters(const Operator& op, const Shard& shard);

// Bytes of a parameter's gradient, as it is kept from its backward pass to its update.
double gradient_bytes_per_parameter(DType precision, const RuntimeProfile& runtime);
// Bytes that the optimizer keeps of a parameter: its states, and fp32 master weights where the weights are
// stored in fewer bits and the update is not of these.
double optimizer_bytes_per_parameter(Optimizer optimizer, DType precision, const RuntimeProfile& runtime);
// Bytes that the optimizer reads and writes per parameter: the runtime profile's, or counted from the states
// (gradient and states read, states and weights written).
double optimizer_traffic_per_parameter(Optimizer optimizer, DType precision, const RuntimeProfile& runtime);

namespace internal {

// For operator_work: products are added to `products`, everything else to `work`.
struct AdapterPass {
  bool forward = false, input_gradient = false, weight_gradient = false;
};
void add_adapters(const Operator& op, AdapterPass pass, const Shard& shard, const RuntimeProfile& runtime,
                  std::vector<Product>* products, OperatorWork* work);
void add_dequantisation(const Operator& op, const Shard& shard, OperatorWork* work);
// Of a state-space core: scan_work.cc.
void add_scan(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work);

// What experts compute besides their products, by the kernels that a framework runs it with (expert_work.cc).
enum class ExpertKernels : std::uint8_t {
  plain,    // as those of a dense MLP
  eager,    // PyTorch's, operator by operator (RuntimeProfile::eager_experts)
  grouped,  // products of all experts in one launch; between them a kernel of its own, biases apart
  fused,    // inside the grouped products (RuntimeProfile::fused_experts)
};

// Transformer Engine's grouped layer takes gated experts in 8 bits, and computes plain SwiGLU inside its
// products; what is clamped before it is gated (GPT-OSS) has a kernel of its own between them.
ExpertKernels expert_kernels(const Shard& shard, const RuntimeProfile& runtime);

// Rows of an expert in 8 and 4 bits, filled up to the block that shares a scale.
double padded_rows(double rows);

// The expected share of the fullest of `ranks` that hold `experts` between them, by the mean share, where
// each token chooses `chosen` of them and popularities are a Dirichlet distribution of
// RuntimeProfile::expert_spread. From 1 (no spread) to what one rank can have at most.
double fullest_share(int experts, int ranks, int chosen, double spread);
// How many times as many rows as the mean the fullest of the ranks has that share the experts, for which the
// others wait at the next all-to-all: rows go to ranks as a multinomial, of equal chances or of those that
// RuntimeProfile::expert_spread says. 1 for what is not between dispatch and combine, and where experts take
// a fixed number of tokens or are dealt in turn.
double fullest_rank(const Operator& op, const Shard& shard, const RuntimeProfile& runtime);

// Of the router and of what stands between dispatch and combine: what `eager` kernels move and launch beyond
// the products, and biases of experts that are added apart. Adds to `vector_bytes` and `kernels`.
void add_expert_arithmetic(const Operator& op, ComputeKind kind, const Shard& shard,
                           const RuntimeProfile& runtime, OperatorWork* work);

// Of RuntimeProfile::autocast, in a precision of 16 bits: autocast_work.cc. Casts of a product's weights, of
// its input and of their gradients; arithmetic of norms, activations and residual additions; rotary positions
// and norms of queries and keys; logits' casts and log_softmax; gathering from tables and their gradients.
// What an operator keeps for the backward pass instead of its input (norms and activations), in bytes.
bool autocasts(const Shard& shard, const RuntimeProfile& runtime);
double autocast_inputs(const Operator& op);  // copies of a product's input that are kept
void add_autocast_product(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work);
void add_autocast_arithmetic(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work);
void add_autocast_rotary(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work);
void add_autocast_loss(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work);
void add_autocast_embedding(const Operator& op, ComputeKind kind, const Shard& shard, OperatorWork* work);
double autocast_kept(const Operator& op, const Shard& shard);

}  // namespace internal

}  // namespace orrery
