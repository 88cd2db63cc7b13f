// The layers' mathematics on one device: CPU (oneDNN, OpenBLAS and vectorised loops) or CUDA (cuBLASLt and
// small kernels).
//
// All matrices are row-major; `rows` are tokens, sample by sample. Arithmetic is fp32 (products: see
// set_product_type). What can be an activation, or the gradient of one, is Numbers, all of one type in a
// call; results are rounded to it where they are written. Products and convolutions take any types together.
// Calls are asynchronous on CUDA (one compute stream, in order) and immediate on the CPU. Pointers are the
// device's memory unless said otherwise; they may not overlap unless said otherwise. A count of 0 rows or
// elements is a no-op.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "exec/device/dropout.h"
#include "exec/device/numbers.h"
#include "workloads/workload.h"

namespace orrery::exec {

// By what each pair of a head turns a position, and what it is multiplied by.
constexpr int kMostRotaryPairs = 128;
struct RotaryAngles {
  int pairs = 0;
  std::array<double, kMostRotaryPairs> frequency{};  // radians
  double amplitude = 1;
  bool operator==(const RotaryAngles&) const = default;
};

// The shape of one softmax attention. qkv is batch*seq rows x (heads + 2*kv_heads)*head_dim, laid out q | k |
// v; query head h reads key and value head h / (heads / kv_heads).
struct AttentionSize {
  int batch = 0;
  int seq = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool causal = true;
  int first_position = 0;  // of each sequence's first row
  int window = 0;          // causal: keys back from the query, itself included; 0: all
  AttentionDropout dropout{};
  float scale = 0;    // of the scores; 0: 1 / sqrt(head_dim)
  float softcap = 0;  // c: scores become c tanh(score / c); 0: none
  float score_scale() const { return scale > 0 ? scale : 1 / std::sqrt(static_cast<float>(head_dim)); }
  int qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

// A part of an attention whose keys and values come from elsewhere (ring attention): queries [query_begin,
// seq) of each sequence against all of the first `keys` of its `seq` rows of keys and values.
struct AttentionBlock {
  AttentionSize size;
  int query_begin = 0;
  int keys = 0;
};

// A convolution or pool of a batch of images, which stand sample by sample as ImageShape says.
struct WindowSize {
  std::int64_t batch = 0;
  std::int64_t groups = 1;  // of a convolution
  ImageOperator image;
};

// Constants of Adam (Kingma & Ba, arXiv 1412.6980); `decoupled`: AdamW (Loshchilov & Hutter, arXiv
// 1711.05101).
struct AdamConstants {
  float rate = 0;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0;
  bool decoupled = false;
};

// A point in the compute stream (see mark()).
using Mark = std::uint64_t;
using Recording = std::size_t;

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual bool host_memory() const = 0;  // pointers can be read by the host (and by MPI)

  // Of this rank on the host, for what is made there before training and after it: a processor is one core.
  int host_threads() const { return host_threads_; }
  void use_host_threads(int threads) { host_threads_ = threads; }

  virtual void* allocate(std::size_t bytes) = 0;  // 64-byte aligned; throws NoAnswer("out of memory …")
  virtual void release(void* data) = 0;           // null is allowed
  virtual std::size_t peak_bytes() const = 0;     // most allocated at once
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;  // ordered, may return
                                                                                       // before it is done;
                                                                                       // host may be reused
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;    // synchronises
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;                // within the device
  // rows x columns; strides in elements.
  virtual void copy_matrix(Numbers to, std::int64_t to_stride, ConstNumbers from, std::int64_t from_stride,
                           std::int64_t rows, std::int64_t columns) = 0;
  // Matrices become their transposes, `batch` of rows x columns; strides in elements from one to the next.
  virtual void transpose(ConstNumbers from, std::int64_t from_stride, Numbers to, std::int64_t to_stride,
                         std::int64_t batch, std::int64_t rows, std::int64_t columns) = 0;
  virtual void synchronize() = 0;

  // Timing without stopping the stream: the time at which the device passes this point.
  virtual Mark mark() = 0;
  // On the host's steady clock, in seconds since its epoch; waits for the point.
  virtual double seconds_of(Mark mark) = 0;
  virtual void release_marks() = 0;  // all marks so far are forgotten

  // What is asked for from begin_recording() on is not done but kept, until end_recording(); replay() does
  // it, with the same arguments, as often as wanted, and is quicker to start than call after call. Calls that
  // synchronise or take a mark cannot be recorded. Recordings live as long as the device.
  virtual bool records() const { return false; }
  virtual void begin_recording() {}
  virtual Recording end_recording() { return 0; }
  virtual void replay(Recording) {}

  virtual void fill(Numbers data, std::size_t count, float value) = 0;
  virtual void add(Numbers into, ConstNumbers from, std::size_t count) = 0;  // into += from
  virtual void scale(Numbers data, std::size_t count, float factor) = 0;
  virtual void multiply(Numbers into, ConstNumbers by, std::size_t count) = 0;  // into *= by
  // x becomes cap tanh(x / cap), slopes its derivative.
  virtual void softcap(float cap, Numbers x, Numbers slopes, std::size_t count) = 0;
  virtual double sum_of_squares(const float* data, std::size_t count) = 0;  // synchronises

  // In which a device holds activations of a type.
  virtual DType held_as(DType) const { return DType::fp32; }
  // How precisely gemm and convolutions multiply fp32 words from now on; they add up in fp32. A device that
  // is no faster for it may go on in fp32: tf32 only leaves bits out, and where a two-byte type is trained
  // in, operands hold such values. Numbers of two bytes are multiplied as they are, and fp32 words beside
  // them as if they had been rounded.
  virtual void set_product_type(DType) {}
  // c = alpha * op(a) op(b) + beta * c; op(a) is m x k, op(b) k x n. lda, ldb, ldc: elements from one row to
  // the next as stored. beta == 0 never reads c.
  virtual void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                    float alpha, ConstNumbers a, std::int64_t lda, ConstNumbers b, std::int64_t ldb,
                    float beta, Numbers c, std::int64_t ldc) = 0;
  // y = x op(weight) + bias: `rows` x `out`, of rows x `in`. weight: out x in (`out_by_in`) or in x out; bias
  // (may be null): out.
  virtual void linear(bool out_by_in, std::int64_t rows, std::int64_t out, std::int64_t in, ConstNumbers x,
                      std::int64_t x_stride, ConstNumbers weight, const float* bias, Numbers y,
                      std::int64_t y_stride) = 0;
  // `stride`: elements from one row of `data` to the next.
  virtual void add_bias(Numbers data, const float* bias, std::int64_t rows, std::int64_t columns,
                        std::int64_t stride) = 0;
  // Adds the column sums of `gradient` to `bias_gradient`.
  virtual void bias_gradient(ConstNumbers gradient, float* bias_gradient, std::int64_t rows,
                             std::int64_t columns, std::int64_t stride) = 0;
  // out = branch + bias (may be null) + stream. out may be branch or stream.
  virtual void residual_forward(ConstNumbers branch, const float* bias, ConstNumbers stream, Numbers out,
                                std::int64_t rows, std::int64_t columns) = 0;
  // y = x where it is kept, scaled, and 0 elsewhere; y may be x. Also the way back, of gradients.
  virtual void dropout(const Dropout& of, ConstNumbers x, Numbers y, std::int64_t rows,
                       std::int64_t columns) = 0;
  // residual_forward where what the branch adds, with its bias, is dropped out so.
  virtual void dropout_residual(const Dropout& of, ConstNumbers branch, const float* bias,
                                ConstNumbers stream, Numbers out, std::int64_t rows,
                                std::int64_t columns) = 0;

  // Layer norm (bias may be null) or RMS norm over each row. `mean` (null for RMS) and `inverse` keep one
  // value a row for backward.
  virtual void norm_forward(NormKind kind, ConstNumbers x, const float* weight, const float* bias, Numbers y,
                            float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                            float epsilon) = 0;
  // dx is set, or added to with `accumulate`; dweight and dbias (may be null) are added to.
  virtual void norm_backward(NormKind kind, ConstNumbers dy, ConstNumbers x, const float* weight,
                             const float* mean, const float* inverse, Numbers dx, bool accumulate,
                             float* dweight, float* dbias, std::int64_t rows, std::int64_t columns) = 0;

  // y = f(x), rows x columns; gated: x is rows x 2*columns (gate | up), y = f(gate) * up. GELU is the tanh
  // approximation (Hendrycks & Gimpel, arXiv 1606.08415), which GPT-2 was trained with.
  virtual void activation_forward(Activation kind, bool gated, ConstNumbers x, Numbers y, std::int64_t rows,
                                  std::int64_t columns) = 0;
  virtual void activation_backward(Activation kind, bool gated, ConstNumbers x, ConstNumbers dy, Numbers dx,
                                   std::int64_t rows, std::int64_t columns) = 0;

  // Softmax attention; size.dropout leaves out probabilities. out: batch*seq rows
  // x heads*head_dim. `statistics` keeps batch*heads*seq log-sum-exps (of the scaled scores) for backward.
  virtual void attention_forward(const AttentionSize& size, ConstNumbers qkv, Numbers out,
                                 float* statistics) = 0;
  virtual void attention_backward(const AttentionSize& size, ConstNumbers qkv, ConstNumbers out,
                                  ConstNumbers dout, const float* statistics, Numbers dqkv) = 0;
  // One block more of an attention under way. keys and values: batch*seq rows x kv_heads*head_dim. out and
  // statistics hold the blocks so far, and this one afterwards (joined by their log-sum-exps).
  virtual void attention_block_forward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                                       ConstNumbers values, Numbers out, float* statistics) = 0;
  // out and statistics of the whole attention; adds to the queries' part of dqkv; dkeys and dvalues are set.
  virtual void attention_block_backward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                                        ConstNumbers values, ConstNumbers out, ConstNumbers dout,
                                        const float* statistics, Numbers dqkv, Numbers dkeys,
                                        Numbers dvalues) = 0;
  // Rotary embedding (Su et al., arXiv 2104.09864; halves rotated together, as Hugging Face's Llama and
  // GPT-NeoX do) of the first 2 * pairs of each q and k head, in place; `inverse`: of gradients, back.
  virtual void rotary(const AttentionSize& size, Numbers qkv, const RotaryAngles& angles, bool inverse) = 0;

  // Rows of `table` for tokens in [first, first + count) of the vocabulary, zero for others (vocabulary
  // split).
  virtual void embedding_forward(const std::int32_t* tokens, const float* table, Numbers out,
                                 std::int64_t rows, std::int64_t columns, std::int32_t first,
                                 std::int32_t count) = 0;
  // dtable is added to.
  virtual void embedding_backward(const std::int32_t* tokens, ConstNumbers dout, float* dtable,
                                  std::int64_t rows, std::int64_t columns, std::int32_t first,
                                  std::int32_t count) = 0;
  // Row r has position r % seq: out += table[position]; dtable[position] += dout.
  virtual void positions_forward(const float* table, Numbers out, std::int64_t rows, std::int64_t columns,
                                 int seq) = 0;
  virtual void positions_backward(ConstNumbers dout, float* dtable, std::int64_t rows, std::int64_t columns,
                                  int seq) = 0;

  // Cross entropy in three parts, so that a split vocabulary can reduce between them (Megatron-LM, arXiv
  // 1909.08053). logits: rows x columns (this rank's part of the vocabulary, which starts at `first`);
  // `stride` elements from row to row: columns [columns, stride) are padding.
  virtual void loss_max(ConstNumbers logits, float* maximum, std::int64_t rows, std::int64_t columns,
                        std::int64_t stride) = 0;
  // sums: rows x 2: sum of exp(logit - maximum), and logit - maximum of the target where it is in [first,
  // first + columns), else 0. May turn fp32 logits into exp(logit - maximum), in place.
  virtual void loss_sum(Numbers logits, const float* maximum, const std::int32_t* targets, float* sums,
                        std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first) = 0;
  // Turns what loss_sum has left into the gradient of the logits times `scale`, in place (padding: 0); adds
  // the sum of the rows' losses to *loss (device memory, 8-byte aligned). A row whose target is below 0 has
  // neither loss nor gradient.
  virtual void loss_gradient(Numbers logits, const float* maximum, const float* sums,
                             const std::int32_t* targets, float scale, std::int64_t rows,
                             std::int64_t columns, std::int64_t stride, std::int32_t first, double* loss) = 0;

  // Convolution (cross-correlation, as deep learning has it). weight: output channels x input channels /
  // groups x kernel rows x kernel columns; bias (may be null): output channels.
  virtual void convolution_forward(const WindowSize& size, ConstNumbers x, const float* weight,
                                   const float* bias, Numbers y) = 0;
  virtual void convolution_backward_input(const WindowSize& size, ConstNumbers dy, const float* weight,
                                          Numbers dx) = 0;
  // dweight and dbias (may be null) are set, or added to with `accumulate`.
  virtual void convolution_backward_weight(const WindowSize& size, ConstNumbers x, ConstNumbers dy,
                                           float* dweight, float* dbias, bool accumulate) = 0;
  // Maximum (of equal ones the first; `places` keeps its pixel within the channel) or mean of what a window
  // has of the image.
  virtual void pool_forward(const WindowSize& size, ConstNumbers x, Numbers y, std::int32_t* places) = 0;
  virtual void pool_backward(const WindowSize& size, ConstNumbers dy, const std::int32_t* places,
                             Numbers dx) = 0;
  // Batch normalisation (Ioffe & Szegedy, arXiv 1502.03167) by the statistics of these rows x channels x
  // pixels. mean and inverse keep one value a channel for backward; variance is the biased one.
  virtual void batch_norm_forward(ConstNumbers x, const float* weight, const float* bias, Numbers y,
                                  float* mean, float* inverse, float* variance, std::int64_t rows,
                                  std::int64_t channels, std::int64_t pixels, float epsilon) = 0;
  // running = (1 - momentum) * running + momentum * the batch's: its mean, and its variance times samples /
  // (samples - 1). `samples`: of a channel.
  virtual void running_statistics(const float* mean, const float* variance, float* running_mean,
                                  float* running_variance, std::int64_t channels, std::int64_t samples,
                                  float momentum) = 0;
  // dx is set; dweight and dbias are added to.
  virtual void batch_norm_backward(ConstNumbers dy, ConstNumbers x, const float* weight, const float* mean,
                                   const float* inverse, Numbers dx, float* dweight, float* dbias,
                                   std::int64_t rows, std::int64_t channels, std::int64_t pixels) = 0;

  // Rows by index, -1 for none. to[i] = scale[i] * from[index[i]], zero where there is none; scale may be
  // null.
  virtual void gather_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                           std::int64_t rows, std::int64_t columns) = 0;
  // to[r] is, or with `accumulate` grows by, the sum over j < per_row of scale[r][j] * from[index[r][j]].
  virtual void sum_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                        std::int64_t rows, int per_row, std::int64_t columns, bool accumulate) = 0;
  // out[r][j] = a[r] . b[index[r][j]], zero where there is none.
  virtual void dot_rows(ConstNumbers a, ConstNumbers b, const std::int32_t* index, float* out,
                        std::int64_t rows, int per_row, std::int64_t columns) = 0;

  // Between fp32 and two-byte types (fp16, bf16), rounded to nearest even; fp16 saturates only if asked.
  virtual void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale,
                      bool saturate) = 0;
  virtual void widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale) = 0;
  // fp32 values become the nearest ones of the type.
  virtual void round_to(DType type, float* data, std::size_t count) = 0;

  // Gradients as they travel compressed (exec/device/compressed.h says how).
  // Both take gradient + error, and leave in `error` what the payload does not say.
  virtual void quantize(const float* gradient, float* error, std::byte* payload, std::size_t count) = 0;
  virtual void keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                            std::size_t kept) = 0;
  // Adds what a payload says to `gradient`.
  virtual void add_quantized(const std::byte* payload, float* gradient, std::size_t count) = 0;
  virtual void add_largest(const std::byte* payload, float* gradient, std::size_t kept) = 0;

  virtual void sgd(float* weight, const float* gradient, std::size_t count, float rate) = 0;
  // velocity = momentum * velocity + gradient; weight -= rate * velocity.
  virtual void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
                        float momentum) = 0;
  // `step` counts from 1.
  virtual void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
                    const AdamConstants& constants, std::int64_t step) = 0;

 private:
  int host_threads_ = 1;
};

std::unique_ptr<Device> make_cpu_device();
std::unique_ptr<Device> make_cuda_device(int index);  // defined where CUDA was found at configure time

}  // namespace orrery::exec
