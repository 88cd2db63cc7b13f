// What is trained: a graph of operators with their parameters, FLOPs and activations.
//
// Figures are per *row*. A transformer's row is one token; another model's row is one sample. A sample has
// `rows_per_sample` rows (the sequence length, or 1).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/fine_tuning.h"

namespace orrery::proto {
class Workload;
}

namespace orrery {

class FieldCheck;

enum class OperatorKind : std::uint8_t {
  embedding,      // token (and position, and type) lookup
  norm,           // layer norm, RMS norm
  linear,         // matrix product
  attention,      // scores, softmax, context: no parameters
  activation,     // GELU, SiLU-and-multiply, ReLU
  residual,       // bias of the row-split product before it, plus the residual stream
  router,         // scores of the experts and the top-k choice
  dispatch,       // tokens to their experts
  expert_linear,  // grouped product, one weight per expert
  combine,        // outputs back to their tokens, weighted
  head,           // product with the vocabulary
  loss_max,       // row maximum of the local logits
  loss_sum,       // sum of exponentials and target logit of the local logits
  loss,           // cross entropy and the gradient of the logits
  conv,           // convolution as a product
  batch_norm,
  pool,
  elementwise,
  interaction,  // DLRM's pairwise dot products
  scan,         // state-space core (Mamba-2): causal convolution, selective scan, gated norm
};

std::string_view name_of(OperatorKind kind);  // "expert_linear"

// How tensor parallelism splits an operator.
enum class TensorSplit : std::uint8_t {
  replicated,  // same on every tensor-parallel rank; sharded along the sequence with sequence parallelism
  column,      // output features split: input must be whole, output is a shard
  row,         // input features split: output is a partial sum to be reduced
  heads,       // attention heads split
  vocabulary,  // rows of the embedding or of the head split
  table,       // of general graphs: tables are dealt out whole, each to one rank
};

// A tensor with split_dim -1 inside a column-, row- or head-split operator (a row-split product's bias, the
// norms of queries and keys in `qkv`) is held whole by every tensor-parallel rank.
struct ParameterTensor {
  // Hugging Face name ("transformer.h.0.attn.c_attn.weight") where there is one. Experts are stacked: one
  // tensor, with `*` where Hugging Face has the number of the expert.
  std::string name;
  std::vector<std::int64_t> shape;
  int split_dim = -1;      // dimension that tensor parallelism shards; -1: replicated
  int split_parts = 1;     // fused tensors (q|k|v, gate|up): each of this many equal parts is split by itself
  bool expert = false;     // leading dimension is the expert
  bool dealt_out = false;  // whole on one tensor rank, on the others nothing (TensorSplit::table)
  std::string tied_to;     // name of the tensor that this is an alias of; counted once
  std::int64_t elements() const;
};

// A product of (rows * rows_per_row) x k by k x n; grouped: n / groups columns and k rows each (k is one
// group's). 2 * rows * rows_per_row * n * k FLOPs either way. Of `expert_linear`: one expert's product; each
// row goes through Operator::active_experts of them. Several shapes (multi-head latent attention's queries
// beside keys and values): each reads its own columns of the input.
struct MatmulShape {
  double rows_per_row = 1;  // output pixels of a convolution; 1 otherwise
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t groups = 1;
};

// Forward FLOPs of a sample of s tokens: 2 * s * keys * heads * (qk_head_dim + v_head_dim), keys the mean
// number that a query attends to: s / 2 when causal (the half of the square), w - w^2 / 2s with a window w,
// w / 2 in chunks of w tokens that s tokens fill. Sparse attention chooses its `window` keys by scores of
// index_heads x index_head_dim over all keys before the query: 2 * s * (s / 2) * index_heads *
// index_head_dim.
struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;
  int qk_head_dim = 0;
  int v_head_dim = 0;
  bool causal = true;
  int window = 0;        // keys back from the query, itself included; 0: none
  bool chunked = false;  // the keys of the query's own chunk of `window` tokens (Llama 4)
  bool qk_norm = false;  // queries and keys are normalised before they are turned
  int index_heads = 0;   // DeepSeek sparse attention (DeepSeek-V3.2); 0: none
  int index_head_dim = 0;
};

// Mean number of keys that a query of a sequence attends to.
double attended_keys(const AttentionShape& shape, int seq_len);
// Forward FLOPs of a query, over all heads; and of choosing its keys.
double attention_flops_per_query(const AttentionShape& shape, int seq_len);
double index_flops_per_query(const AttentionShape& shape, int seq_len);

enum class StateSpaceKind : std::uint8_t {
  mamba2,       // arXiv 2405.21060
  mamba1,       // arXiv 2312.00752: a state a channel (head_dim 1), step sizes of a low rank
  gated_delta,  // gated delta rule (arXiv 2412.06464): values, keys and queries for input, B and C
  lightning,    // lightning attention (arXiv 2501.08313): the same without a convolution
};
std::string_view name_of(StateSpaceKind kind);

// Mamba-2's state-space core as its chunked form computes it (arXiv 2405.21060, section 6). A head keeps a
// state of head_dim x state; heads of a group share the input and output maps B and C. Forward FLOPs of a
// token: heads * (4 * head_dim * state + chunk * head_dim) for the states and the causal half of a chunk's
// square, 2 * groups * chunk * state for its scores, 2 * conv_kernel a channel of the convolution.
// gated_delta also solves a triangle of a chunk's keys for what each value changes: of its causal halves
// heads * chunk * (2 * state + head_dim) for the scores of keys with keys and the two products with its
// inverse (section 3.2 there), and heads * 2 * head_dim * state to take out what the state knew. mamba1 scans
// token by token: 6 * inner * state (dt A, dt x B, a multiply-add into the state, one out of it).
struct StateSpaceShape {
  int heads = 0;
  int head_dim = 0;
  int state = 0;
  int groups = 1;
  int conv_kernel = 4;
  int chunk = 128;  // tokens
  StateSpaceKind kind = StateSpaceKind::mamba2;
  int step_rank = 0;  // mamba1: of the projection to step sizes
  bool conv_bias = true;
  bool proj_bias = false;    // of the projections in and out
  bool inner_norms = false;  // mamba1: of step sizes, B and C (Jamba)
  std::int64_t inner() const { return static_cast<std::int64_t>(heads) * head_dim; }
  std::int64_t convolved() const { return inner() + 2 * static_cast<std::int64_t>(groups) * state; }
  double forward_flops_per_token() const;
};

// gelu: GPT-2's tanh form; gelu_erf: x times the normal distribution (BERT, GPT-NeoX).
enum class Activation : std::uint8_t { gelu, silu, relu, gelu_erf };

// Channels x height x width of one sample, in this order in memory. A vector is channels x 1 x 1.
struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t elements() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

// What an operator computes on images, beyond what it costs: conv, linear, batch_norm, activation, pool,
// elementwise (addition) and loss (softmax cross entropy) of a general graph. Models whose file does not say
// are simulated, not executed.
//
// A sequence (`sequence`) is `height` tokens of `channels` features, 1 wide, in memory token by token. Of
// these:
// - elementwise of one input: an image's pixels become tokens, behind a class token where there is one more
//   of them than pixels; positions are added. Parameters: class token (if any), positions.
// - norm: of each token's features (layer norm: weight, bias).
// - linear: of the first output.height tokens, each by itself; of several weights and biases (all weights
//   first) the outputs side by side. Without weights: softmax attention, not causal, of the `heads` whose
//   queries, keys and values its input has side by side.
// - activation and addition, as of images.
struct ImageOperator {
  ImageShape input;  // of each input
  ImageShape output;
  // Of conv and pool: rows, then columns. Output row r begins at input row r * stride - padding; what lies
  // outside is zero to a convolution and not there to a pool.
  std::array<int, 2> kernel = {1, 1};
  std::array<int, 2> stride = {1, 1};
  std::array<int, 2> padding = {0, 0};  // before the first row and column
  std::array<int, 2> dilation = {1, 1};
  bool average = false;        // pool: the mean of what is in the window; else its maximum
  bool weight_in_out = false;  // linear: the weight is inputs x outputs; else outputs x inputs
  double epsilon = 1e-5;       // batch_norm, norm
  double dropout = 0;          // activation, pool: the share of its output that training leaves out
  bool sequence = false;       // it puts out tokens, and reads them but for what makes them of an image
  int heads = 0;               // linear of a sequence: of attention, and of what makes its input
  Activation activation = Activation::relu;
  bool operator==(const ImageOperator&) const = default;
};

// Beside one frozen weight: the input times A, rank x in, times B, out x rank, is added to the output.
struct LowRankAdapter {
  int rank = 0;
  std::int64_t in = 0, out = 0;
  bool magnitude = false;  // DoRA: columns of the sum are scaled to trained lengths
  int weight = 0;          // in Operator::frozen
};

// A table whose gradient is rows and their numbers, not a tensor of the table's size: what nobody looked up
// is neither sent nor updated.
struct SparseGradient {
  double rows_per_sample = 1;  // that a sample looks up
  double share = 0;  // of the rows, those that one replica's step touches; 0: what its samples look up
  bool operator==(const SparseGradient&) const = default;
};
// Mean number of different rows, of a table of `rows`, that a step of `replicas` with so many samples each
// touches, every row as likely.
double touched_rows(const SparseGradient& gradient, double rows, double samples, double replicas);

// What one operator keeps for its backward pass is its inputs (unless keeps_input is false), the attention
// core's as AttentionShape implies (program/operator_work.h), and saved_elements.
struct Operator {
  OperatorKind kind = OperatorKind::elementwise;
  TensorSplit split = TensorSplit::replicated;
  std::string name;  // "h.3.mlp_up"
  // Block that it belongs to, never falling: the unit of pipeline cuts and recomputation. -1: before the
  // first (embedding), Workload::layers: after the last (final norm, head, loss, multi-token prediction).
  int layer = -1;
  std::vector<int> inputs;  // operators whose outputs it reads: a residual's branches first, its stream last
  std::vector<ParameterTensor> parameters;
  std::vector<ParameterTensor> frozen;  // weights that training leaves as they are
  BaseType base = BaseType::none;       // that frozen matrices are stored in
  // Their tensors are then `parameters`: A, B and, of DoRA, the magnitudes, adapter after adapter.
  std::vector<LowRankAdapter> adapters;
  // Whether the gradients of its inputs are wanted: not before the first operator that is trained.
  bool passes_gradient = true;
  std::vector<MatmulShape> matmuls;  // linear-like operators: usually one
  std::optional<AttentionShape> attention;
  std::optional<StateSpaceShape> state_space;  // of a scan
  std::optional<ImageOperator> image;
  std::optional<SparseGradient> sparse;  // of an embedding
  std::int64_t output_elements = 0;      // per row, of the whole (unsplit) operator
  // Per row, of the whole operator, at the compute precision: kept for backward beyond its inputs (indices of
  // a maximum, a softmax's output). Transformers' operators have none; masks of dropout are the runtime's.
  std::int64_t saved_elements = 0;
  // False: the backward needs no input, only what the next operator keeps anyway (ReLU in place, an addition,
  // a reshape).
  bool keeps_input = true;
  // Per row, of the whole (unsplit) operator: elements that its memory-bound forward arithmetic reads plus
  // writes when it is one kernel: norm 2h, activation in + out (2f; gated 3f), residual 3h, embedding 2h,
  // loss_max V, loss_sum V, loss 2V, dispatch and combine (1 + experts per token) h, router 4 experts,
  // attention its rotary positions (queries and keys, read and written; again for their norms); a residual of
  // b branches (b + 2) h. 0: none (products).
  double vector_elements = 0;
  // dispatch, expert_linear, the activation between two of these, combine: experts per token, experts.
  // Figures per row are then over all chosen experts (dispatch's output is experts per token x h).
  int active_experts = 0;
  int experts = 0;
  std::int64_t parameter_count() const;  // without tied aliases
  double forward_flops_per_row(int seq_len) const;
  // Forward and backward; three times the forward's where everything is trained.
  double training_flops_per_row(int seq_len) const;
  // A product of two inputs, such as a graph's attention: either has a gradient of as many FLOPs.
  bool multiplies_inputs() const {
    return kind == OperatorKind::linear && !matmuls.empty() && parameters.empty() && frozen.empty();
  }
};
// Whether a backward pass has anything to do for it.
inline bool works_backward(const Operator& op) {
  return op.passes_gradient || !op.parameters.empty();
}

struct MixtureOfExperts {
  int experts = 0;  // routed ones
  int experts_per_token = 0;
  int expert_ffn_hidden = 0;
  int shared_ffn_hidden = 0;  // all shared experts together
  int first_dense_layers = 0;
  int layer_period = 1;      // every n-th layer has experts
  bool expert_bias = false;  // of what each puts out
  int latent = 0;  // width that experts work on between two projections (Nemotron 3); 0: the hidden size
  bool shared_gate = false;
  bool selection_bias = false;      // added to the scores that experts are chosen by, to balance them
  bool router_linear_bias = false;  // of the router's product, trained as any
  bool scaled_weights = true;       // the chosen experts' probabilities are scaled to add up to one
  double auxiliary_loss = 0;        // coefficient of the load-balancing loss (arXiv 2101.03961, equation 4)
  int layer_offset = 0;             // layers with experts: those where layer % layer_period == layer_offset
  bool expert_up_bias = false;      // of what goes into each one's activation
};

struct LatentAttention {
  int q_lora_rank = 0;
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;
  // The indexer of sparse attention, which lets each query attend to index_top_k keys; 0: none.
  int index_heads = 0;
  int index_head_dim = 0;
  int index_top_k = 0;
};

enum class NormKind : std::uint8_t { layer_norm, rms_norm };

std::string_view name_of(Activation activation);
std::string_view name_of(NormKind norm);

// How rotary positions reach beyond the lengths that a model was first trained on; fields as configurations
// name them. Pair i of a head of d turns by theta^(-2i/d) a position.
enum class RopeScaling : std::uint8_t {
  none,
  linear,   // all frequencies divided by the factor (arXiv 2306.15595)
  dynamic,  // a larger theta where sequences are longer than max_positions
  llama3,   // long waves divided by the factor, short ones not, a smooth way between (Llama 3.1)
  yarn,     // a ramp between wave lengths, and larger scores (arXiv 2309.00071)
};
std::string_view name_of(RopeScaling scaling);
struct RotaryScaling {
  RopeScaling kind = RopeScaling::none;
  double factor = 1;
  int original_positions = 0;                    // llama3, yarn
  double low_frequency = 1, high_frequency = 4;  // llama3: original_positions by wave length
  double beta_fast = 32, beta_slow = 1;          // yarn: turns within original_positions
  double attention_factor = 1;                   // yarn: of cosines and sines
  bool operator==(const RotaryScaling&) const = default;
};

// The shares that training leaves out (arXiv 1207.0580), by where, as Hugging Face's classes have them.
struct Dropouts {
  double embedding = 0;      // of the sum of embeddings, or of its norm
  double attention = 0;      // of the probabilities
  double attention_out = 0;  // of what attention adds to the stream
  double mlp_out = 0;        // of what MLP or experts add
  bool any() const { return embedding > 0 || attention > 0 || attention_out > 0 || mlp_out > 0; }
  bool operator==(const Dropouts&) const = default;
};

// A transformer by its dimensions (fields as in proto/workload.proto).
struct Transformer {
  std::string family;
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int ffn_hidden = 0;
  int vocab = 0;
  int max_positions = 0;
  bool learned_positions = false;
  int position_offset = 0;  // rows of the table of positions beyond max_positions (opt: 2)
  bool gated_ffn = false;
  Activation activation = Activation::gelu;
  NormKind norm = NormKind::layer_norm;
  bool post_norm = false;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool linear_bias = false;  // on the output projection and the MLP; the next two: on one of them alone
  bool proj_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;
  bool qk_norm = false;
  bool parallel_residual = false;
  bool bidirectional = false;
  bool single_norm = false;           // with parallel_residual: attention and MLP share norm1 (falcon, phi)
  int sliding_window = 0;             // 0: none; see layer_window
  int sliding_window_from_layer = 0;  // layers before this attend to everything (qwen2's max_window_layers)
  int full_attention_period = 0;      // every n-th layer attends to everything (gemma2: 2); 0: none
  // A letter a layer, where layers attend differently: f to everything, w to the sliding window, c to chunks
  // of sliding_window tokens. Empty: as the three above say.
  std::string attention_pattern;
  bool branch_norms = false;       // what attention and MLP put out is normalised before it is added
  bool no_input_norms = false;     // and what goes into them is not (OLMo 2)
  bool first_norm_absent = false;  // of the first layer's attention (ModernBERT)
  bool embedding_norm = false;     // post_norm has one anyway
  bool unbiased_norm = false;      // layer norms without bias
  bool qk_norm_whole = false;      // with qk_norm: weights for every head's elements, not one head's for all
  bool qk_norm_absent_weights = false;  // with qk_norm: nothing to train in it (Llama 4)
  bool attention_gate = false;   // a sigmoid of a second part of the queries scales what attention puts out
  bool attention_sinks = false;  // a trained score a head beside the keys' (GPT-OSS)
  int token_types = 0;
  bool pooler = false;
  bool unbiased_transform = false;  // of mlm_head
  bool mlm_head = false;
  int multi_token_layers = 0;  // DeepSeek's multi-token prediction modules
  // What each layer is, in Nemotron-H's letters: M state space, * attention without positions, A with rotary
  // ones, - MLP, E experts; each between a norm and its residual. Letters side by side are a layer each; with
  // spaces every word is one ("ME *-": Jamba). Empty: every layer has attention, and an MLP or experts.
  std::string layer_pattern;
  std::string multi_token_pattern;  // of one multi-token prediction module, where there is a layer_pattern
  std::optional<StateSpaceShape> state_space;
  std::optional<MixtureOfExperts> moe;
  std::optional<LatentAttention> mla;
  FineTuning fine_tuning;
  double masked_share = 0;  // BERT: of the tokens, those that reach the head; 0: all
  double rope_theta = 10000;
  double norm_epsilon = 1e-5;
  double rotary_fraction = 1;
  RotaryScaling rotary_scaling;
  Dropouts dropouts;
  double attention_softcap = 0;  // scores become c tanh(score / c) (gemma2); 0: none
  double final_softcap = 0;      // so do the logits
  double attention_scale = 0;    // of the scores; 0: 1 / sqrt(head_dim)
  double embedding_scale = 1;    // of the tokens' embeddings, as they go in
  bool norms_offset = false;     // norms multiply by 1 + their weights (gemma)
  // What its configuration says of its mathematics that is planned, and that the executor does not compute.
  std::vector<std::string> unexecuted;
  bool final_norm = true;

  // Whether a sequence of so many tokens stays within the table of positions, where there is one.
  bool has_positions_for(int tokens) const { return !learned_positions || tokens <= max_positions; }
  bool layer_has_experts(int layer) const;  // without a layer_pattern
  int layer_window(int layer) const;  // sliding window of this layer's attention, 0: attends to everything
};

struct Workload {
  std::string name;
  std::string source;
  std::optional<Transformer> transformer;  // absent for general graphs
  std::vector<Operator> operators;  // topological order; pipeline stages are contiguous ranges of layers
  int layers = 0;                   // blocks that a pipeline may cut between
  std::int64_t published_parameters = 0;
  int default_seq_len = 0;  // 0: the model has no sequences
  int frozen_layers = 0;    // of a general graph: the first so many are not trained
  std::vector<std::string> ignored_keys;
  std::vector<std::string> notes;  // sentences: how its file was read where it did not say

  std::int64_t parameters() const;  // tied tensors counted once
  bool drops_out() const;           // training leaves something out
  // Forward FLOPs of one sample (2 per multiply-add; causal attention counted once); `model_flops` of a step
  // are three times these. `seq_len` is ignored by models without sequences.
  double forward_flops_per_sample(int seq_len) const;
  // Of its training, which is three times that unless weights are frozen.
  double training_flops_per_sample(int seq_len) const;
};

// Operators of one transformer, in this order (an operator stands only where the model has it):
//   embedding embedding_norm | per layer: norm1 qkv attention proj residual1 norm2 mlp_up activation mlp_down
//   residual2 | final_norm head loss_max loss_sum loss
// with these variations:
// - experts: norm2 router dispatch experts_up activation experts_down combine [shared_up shared_activation
//   shared_down] residual2. router: scores of all experts (and a shared gate's); a dispatch's inputs are
//   norm2 and router, a combine's experts_down and router.
// - gated MLP: mlp_up is gate and up in one product of 2 * ffn_hidden columns; its output is gate, then up.
// - post_norm (BERT): norm1 follows residual1, norm2 follows residual2; no final_norm.
// - parallel_residual: no residual1; residual2's inputs are proj, mlp_down and the stream, so their two
// partial
//   sums can be reduced as one. single_norm: no norm2.
// - multi-head latent attention: for `qkv` stand qkv_down (replicated: to the low ranks, with the rotary key)
//   latent_norm qkv (column split; queries, then keys and values). Without a low rank on queries:
//   q kv_down latent_norm kv, and attention's inputs are q and kv.
// - branch_norms: norm1_after between proj and residual1, norm2_after between mlp_down and residual2;
//   no_input_norms: then no norm1, no norm2.
// - sparse attention: index_q and index_in (keys, weights of the heads; replicated) before attention, whose
//   inputs they are, too.
// - layer_pattern: a letter is norm1, one of state_in scan state_out | qkv attention proj | mlp_up activation
//   mlp_down | router [latent_down] dispatch ... combine [latent_up shared_up ...], and residual1; a layer's
//   second letter norm2 ... residual2. mamba1: state_in state_maps state_steps scan state_out.
// - mlm_head: head_transform head_activation head_norm head. pooler: before the head, on one token of a
// sample
//   (rows_per_row 1 / max_positions); with mlm_head also next_sentence.
// - multi_token_layers: before final_norm, in layer `layers` (the last stage), for each module m:
//   mtp.m.embedding (tied) mtp.m.norm mtp.m.eh_proj, a layer's operators, mtp.m.head_norm mtp.m.head
//   mtp.m.loss_max mtp.m.loss_sum mtp.m.loss.
// Tied tensors: the head's names the embedding's in tied_to.
std::vector<Operator> transformer_operators(const Transformer& model);

// A layer_pattern's layers, each as its letters.
std::vector<std::string> layers_of_pattern(std::string_view pattern);

// Throws UserError(file, line, …) on inconsistent dimensions, unknown kinds, cycles. `text` is the textproto
// that `message` came from; where it is part of a larger one, `at` says which.
Workload workload_from_proto(const proto::Workload& message, std::string_view file, std::string_view text);
Workload workload_from_proto(const proto::Workload& message, const FieldCheck& at);
void to_proto(const Workload& workload, proto::Workload* message);

}  // namespace orrery
