// Device on one processor core: oneDNN for products and convolutions, exec/cpu/kernels for the rest.
#include <sys/mman.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "exec/cpu/attention.h"
#include "exec/cpu/compression.h"
#include "exec/cpu/convolution.h"
#include "exec/cpu/dropout.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/images.h"
#include "exec/cpu/kernels.h"
#include "exec/cpu/narrow.h"
#include "exec/device/device.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kHugePage = 2U << 20;

class CpuDevice : public Device {
 public:
  CpuDevice() { cpu::one_thread(); }  // one core a rank
  ~CpuDevice() override {
    convolutions_.reset();  // gives its memory back
    for (const auto& [data, bytes] : allocated_) std::free(data);
  }
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  std::string name() const override { return "cpu"; }
  bool host_memory() const override { return true; }

  void* allocate(std::size_t bytes) override {
    const bool large = bytes >= 2 * kHugePage;
    const std::size_t alignment = large ? kHugePage : 64;
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* data = std::aligned_alloc(alignment, rounded);
    if (data == nullptr)
      throw NoAnswer("out of memory: " + human_bytes(static_cast<double>(bytes)) + " more than the " +
                     human_bytes(static_cast<double>(current_)) + " already allocated cannot be had");
    if (large) madvise(data, rounded, MADV_HUGEPAGE);
    allocated_[data] = bytes;
    current_ += bytes;
    peak_ = std::max(peak_, current_);
    return data;
  }
  void release(void* data) override {
    if (data == nullptr) return;
    const auto found = allocated_.find(data);
    ORRERY_CHECK(found != allocated_.end(), "released twice");
    current_ -= found->second;
    allocated_.erase(found);
    std::free(data);
  }
  std::size_t peak_bytes() const override { return peak_; }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    copy(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_matrix(Numbers to, std::int64_t to_stride, ConstNumbers from, std::int64_t from_stride,
                   std::int64_t rows, std::int64_t columns) override {
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(to.floats() + r * to_stride, from.floats() + r * from_stride,
                  sizeof(float) * static_cast<std::size_t>(columns));
  }
  void transpose(ConstNumbers from, std::int64_t from_stride, Numbers to, std::int64_t to_stride,
                 std::int64_t batch, std::int64_t rows, std::int64_t columns) override {
    for (std::int64_t i = 0; i < batch; ++i)
      cpu::transpose(from.floats() + i * from_stride, to.floats() + i * to_stride, rows, columns);
  }
  void synchronize() override {}

  Mark mark() override {
    using std::chrono::steady_clock;
    return std::bit_cast<Mark>(std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count());
  }
  double seconds_of(Mark mark) override { return std::bit_cast<double>(mark); }
  void release_marks() override {}

  void fill(Numbers data, std::size_t count, float value) override { cpu::fill(data.floats(), count, value); }
  void add(Numbers into, ConstNumbers from, std::size_t count) override {
    cpu::add(into.floats(), from.floats(), count);
  }
  void scale(Numbers data, std::size_t count, float factor) override {
    cpu::scale(data.floats(), count, factor);
  }
  void multiply(Numbers into, ConstNumbers by, std::size_t count) override {
    cpu::multiply(into.floats(), by.floats(), count);
  }
  void softcap(float cap, Numbers x, Numbers slopes, std::size_t count) override {
    cpu::softcap(cap, x.floats(), slopes.floats(), count);
  }
  double sum_of_squares(const float* data, std::size_t count) override {
    return cpu::sum_of_squares(data, count);
  }

  void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
            ConstNumbers a, std::int64_t lda, ConstNumbers b, std::int64_t ldb, float beta, Numbers c,
            std::int64_t ldc) override {
    if (m == 0 || n == 0) return;
    cpu::gemm(transpose_a, transpose_b, m, n, k, alpha, a.floats(), lda, b.floats(), ldb, beta, c.floats(),
              ldc);
  }
  void linear(bool out_by_in, std::int64_t rows, std::int64_t out, std::int64_t in, ConstNumbers x,
              std::int64_t x_stride, ConstNumbers weight, const float* bias, Numbers y,
              std::int64_t y_stride) override {
    gemm(false, out_by_in, rows, out, in, 1, x.floats(), x_stride, weight.floats(), out_by_in ? in : out, 0,
         y.floats(), y_stride);
    if (bias != nullptr) add_bias(y.floats(), bias, rows, out, y_stride);
  }
  void add_bias(Numbers data, const float* bias, std::int64_t rows, std::int64_t columns,
                std::int64_t stride) override {
    cpu::add_bias(data.floats(), bias, rows, columns, stride);
  }
  void bias_gradient(ConstNumbers gradient, float* bias_gradient, std::int64_t rows, std::int64_t columns,
                     std::int64_t stride) override {
    cpu::bias_gradient(gradient.floats(), bias_gradient, rows, columns, stride);
  }
  void residual_forward(ConstNumbers branch, const float* bias, ConstNumbers stream, Numbers out,
                        std::int64_t rows, std::int64_t columns) override {
    cpu::residual(branch.floats(), bias, stream.floats(), out.floats(), rows, columns);
  }
  void dropout(const Dropout& of, ConstNumbers x, Numbers y, std::int64_t rows,
               std::int64_t columns) override {
    cpu::dropout(of, x.floats(), y.floats(), rows, columns);
  }
  void dropout_residual(const Dropout& of, ConstNumbers branch, const float* bias, ConstNumbers stream,
                        Numbers out, std::int64_t rows, std::int64_t columns) override {
    cpu::dropout_residual(of, branch.floats(), bias, stream.floats(), out.floats(), rows, columns);
  }

  void norm_forward(NormKind kind, ConstNumbers x, const float* weight, const float* bias, Numbers y,
                    float* mean, float* inverse, std::int64_t rows, std::int64_t columns,
                    float epsilon) override {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * columns;
      if (kind == NormKind::layer_norm)
        cpu::layer_norm_row(x.floats() + at, weight, bias, y.floats() + at, mean + r, inverse + r, columns,
                            epsilon);
      else
        cpu::rms_norm_row(x.floats() + at, weight, y.floats() + at, inverse + r, columns, epsilon);
    }
  }
  void norm_backward(NormKind kind, ConstNumbers dy, ConstNumbers x, const float* weight, const float* mean,
                     const float* inverse, Numbers dx, bool accumulate, float* dweight, float* dbias,
                     std::int64_t rows, std::int64_t columns) override {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * columns;
      if (kind == NormKind::layer_norm)
        cpu::layer_norm_backward_row(dy.floats() + at, x.floats() + at, weight, mean[r], inverse[r],
                                     dx.floats() + at, accumulate, dweight, dbias, columns);
      else
        cpu::rms_norm_backward_row(dy.floats() + at, x.floats() + at, weight, inverse[r], dx.floats() + at,
                                   accumulate, dweight, columns);
    }
  }

  void activation_forward(Activation kind, bool gated, ConstNumbers x, Numbers y, std::int64_t rows,
                          std::int64_t columns) override {
    if (!gated) {
      cpu::activation(kind, x.floats(), nullptr, y.floats(), rows * columns);
      return;
    }
    for (std::int64_t r = 0; r < rows; ++r)
      cpu::activation(kind, x.floats() + 2 * r * columns, x.floats() + (2 * r + 1) * columns,
                      y.floats() + r * columns, columns);
  }
  void activation_backward(Activation kind, bool gated, ConstNumbers x, ConstNumbers dy, Numbers dx,
                           std::int64_t rows, std::int64_t columns) override {
    if (!gated) {
      cpu::activation_gradient(kind, x.floats(), nullptr, dy.floats(), dx.floats(), nullptr, rows * columns);
      return;
    }
    for (std::int64_t r = 0; r < rows; ++r)
      cpu::activation_gradient(kind, x.floats() + 2 * r * columns, x.floats() + (2 * r + 1) * columns,
                               dy.floats() + r * columns, dx.floats() + 2 * r * columns,
                               dx.floats() + (2 * r + 1) * columns, columns);
  }

  void attention_forward(const AttentionSize& size, ConstNumbers qkv, Numbers out,
                         float* statistics) override {
    cpu::attention_forward(size, qkv.floats(), out.floats(), statistics);
  }
  void attention_backward(const AttentionSize& size, ConstNumbers qkv, ConstNumbers out, ConstNumbers dout,
                          const float* statistics, Numbers dqkv) override {
    cpu::attention_backward(size, qkv.floats(), out.floats(), dout.floats(), statistics, dqkv.floats());
  }
  void attention_block_forward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                               ConstNumbers values, Numbers out, float* statistics) override {
    cpu::attention_block_forward(block, qkv.floats(), keys.floats(), values.floats(), out.floats(),
                                 statistics);
  }
  void attention_block_backward(const AttentionBlock& block, ConstNumbers qkv, ConstNumbers keys,
                                ConstNumbers values, ConstNumbers out, ConstNumbers dout,
                                const float* statistics, Numbers dqkv, Numbers dkeys,
                                Numbers dvalues) override {
    cpu::attention_block_backward(block, qkv.floats(), keys.floats(), values.floats(), out.floats(),
                                  dout.floats(), statistics, dqkv.floats(), dkeys.floats(), dvalues.floats());
  }
  void rotary(const AttentionSize& size, Numbers qkv, const RotaryAngles& angles, bool inverse) override {
    const int half = angles.pairs;
    prepare_angles(size.first_position + size.seq, angles);
    for (int b = 0; b < size.batch; ++b)
      for (int position = 0; position < size.seq; ++position) {
        float* row = qkv.floats() + (static_cast<std::int64_t>(b) * size.seq + position) * size.qkv_columns();
        const std::size_t at = static_cast<std::size_t>(size.first_position + position) * half;
        const float* sine = (inverse ? negative_sines_ : sines_).data() + at;
        for (int h = 0; h < size.heads + size.kv_heads; ++h)
          cpu::rotate_pairs(row + static_cast<std::int64_t>(h) * size.head_dim, cosines_.data() + at, sine,
                            half);
      }
  }

  void embedding_forward(const std::int32_t* tokens, const float* table, Numbers out, std::int64_t rows,
                         std::int64_t columns, std::int32_t first, std::int32_t count) override {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t token = tokens[r] - first;
      if (token >= 0 && token < count)
        std::memcpy(out.floats() + r * columns, table + token * columns, sizeof(float) * columns);
      else
        std::memset(out.floats() + r * columns, 0, sizeof(float) * columns);
    }
  }
  void embedding_backward(const std::int32_t* tokens, ConstNumbers dout, float* dtable, std::int64_t rows,
                          std::int64_t columns, std::int32_t first, std::int32_t count) override {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t token = tokens[r] - first;
      if (token >= 0 && token < count)
        cpu::add(dtable + token * columns, dout.floats() + r * columns, columns);
    }
  }
  void positions_forward(const float* table, Numbers out, std::int64_t rows, std::int64_t columns,
                         int seq) override {
    for (std::int64_t r = 0; r < rows; ++r)
      cpu::add(out.floats() + r * columns, table + (r % seq) * columns, columns);
  }
  void positions_backward(ConstNumbers dout, float* dtable, std::int64_t rows, std::int64_t columns,
                          int seq) override {
    for (std::int64_t r = 0; r < rows; ++r)
      cpu::add(dtable + (r % seq) * columns, dout.floats() + r * columns, columns);
  }

  void loss_max(ConstNumbers logits, float* maximum, std::int64_t rows, std::int64_t columns,
                std::int64_t stride) override {
    for (std::int64_t r = 0; r < rows; ++r)
      maximum[r] = cpu::row_maximum(logits.floats() + r * stride, columns);
  }
  void loss_sum(Numbers logits, const float* maximum, const std::int32_t* targets, float* sums,
                std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t first) override {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = logits.floats() + r * stride;
      const std::int64_t target = static_cast<std::int64_t>(targets[r]) - first;
      sums[2 * r + 1] = target >= 0 && target < columns ? row[target] - maximum[r] : 0.0F;
      sums[2 * r] = cpu::exponentials_row(row, maximum[r], columns);
    }
  }
  void loss_gradient(Numbers logits, const float* /*maximum*/, const float* sums, const std::int32_t* targets,
                     float scale, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     std::int32_t first, double* loss) override {
    double total = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = logits.floats() + r * stride;
      if (targets[r] < 0) {
        std::fill_n(row, stride, 0.0F);
        continue;
      }
      cpu::scale(row, columns, scale / sums[2 * r]);
      for (std::int64_t c = columns; c < stride; ++c) row[c] = 0;
      const std::int64_t target = static_cast<std::int64_t>(targets[r]) - first;
      if (target >= 0 && target < columns) row[target] -= scale;
      total += std::log(static_cast<double>(sums[2 * r])) - static_cast<double>(sums[2 * r + 1]);
    }
    *loss += total;
  }

  void convolution_forward(const WindowSize& size, ConstNumbers x, const float* weight, const float* bias,
                           Numbers y) override {
    convolutions_->forward(size, x.floats(), weight, bias, y.floats());
  }
  void convolution_backward_input(const WindowSize& size, ConstNumbers dy, const float* weight,
                                  Numbers dx) override {
    convolutions_->backward_input(size, dy.floats(), weight, dx.floats());
  }
  void convolution_backward_weight(const WindowSize& size, ConstNumbers x, ConstNumbers dy, float* dweight,
                                   float* dbias, bool accumulate) override {
    convolutions_->backward_weight(size, x.floats(), dy.floats(), dweight, dbias, accumulate);
  }
  void pool_forward(const WindowSize& size, ConstNumbers x, Numbers y, std::int32_t* places) override {
    cpu::pool_forward(size, x.floats(), y.floats(), places);
  }
  void pool_backward(const WindowSize& size, ConstNumbers dy, const std::int32_t* places,
                     Numbers dx) override {
    cpu::pool_backward(size, dy.floats(), places, dx.floats());
  }
  void batch_norm_forward(ConstNumbers x, const float* weight, const float* bias, Numbers y, float* mean,
                          float* inverse, float* variance, std::int64_t rows, std::int64_t channels,
                          std::int64_t pixels, float epsilon) override {
    cpu::batch_norm_forward(x.floats(), weight, bias, y.floats(), mean, inverse, variance, rows, channels,
                            pixels, epsilon);
  }
  void running_statistics(const float* mean, const float* variance, float* running_mean,
                          float* running_variance, std::int64_t channels, std::int64_t samples,
                          float momentum) override {
    cpu::running_statistics(mean, variance, running_mean, running_variance, channels, samples, momentum);
  }
  void batch_norm_backward(ConstNumbers dy, ConstNumbers x, const float* weight, const float* mean,
                           const float* inverse, Numbers dx, float* dweight, float* dbias, std::int64_t rows,
                           std::int64_t channels, std::int64_t pixels) override {
    cpu::batch_norm_backward(dy.floats(), x.floats(), weight, mean, inverse, dx.floats(), dweight, dbias,
                             rows, channels, pixels);
  }

  void gather_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                   std::int64_t rows, std::int64_t columns) override {
    const auto count = static_cast<std::size_t>(columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = to.floats() + r * columns;
      if (index[r] < 0)
        std::memset(row, 0, count * sizeof(float));
      else if (scale == nullptr)
        std::memcpy(row, from.floats() + index[r] * columns, count * sizeof(float));
      else
        cpu::copy_scaled(row, from.floats() + index[r] * columns, count, scale[r]);
    }
  }
  void sum_rows(ConstNumbers from, const std::int32_t* index, const float* scale, Numbers to,
                std::int64_t rows, int per_row, std::int64_t columns, bool accumulate) override {
    const auto count = static_cast<std::size_t>(columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = to.floats() + r * columns;
      if (!accumulate) std::memset(row, 0, count * sizeof(float));
      for (std::int64_t at = r * per_row; at < (r + 1) * per_row; ++at)
        if (index[at] >= 0)
          cpu::add_scaled(row, from.floats() + index[at] * columns, count,
                          scale == nullptr ? 1.0F : scale[at]);
    }
  }
  void dot_rows(ConstNumbers a, ConstNumbers b, const std::int32_t* index, float* out, std::int64_t rows,
                int per_row, std::int64_t columns) override {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t at = r * per_row; at < (r + 1) * per_row; ++at)
        out[at] =
            index[at] < 0
                ? 0.0F
                : static_cast<float>(cpu::dot(a.floats() + r * columns, b.floats() + index[at] * columns,
                                              static_cast<std::size_t>(columns)));
  }
  void narrow(DType type, const float* from, std::uint16_t* to, std::size_t count, float scale,
              bool saturate) override {
    cpu::narrow(type, from, to, count, scale, saturate);
  }
  void widen(DType type, const std::uint16_t* from, float* to, std::size_t count, float scale) override {
    cpu::widen(type, from, to, count, scale);
  }
  void round_to(DType type, float* data, std::size_t count) override { cpu::round_to(type, data, count); }
  void quantize(const float* gradient, float* error, std::byte* payload, std::size_t count) override {
    cpu::quantize(gradient, error, payload, count);
  }
  void keep_largest(const float* gradient, float* error, std::byte* payload, std::size_t count,
                    std::size_t kept) override {
    cpu::keep_largest(gradient, error, payload, count, kept);
  }
  void add_quantized(const std::byte* payload, float* gradient, std::size_t count) override {
    cpu::add_quantized(payload, gradient, count);
  }
  void add_largest(const std::byte* payload, float* gradient, std::size_t kept) override {
    cpu::add_largest(payload, gradient, kept);
  }

  void sgd(float* weight, const float* gradient, std::size_t count, float rate) override {
    cpu::sgd(weight, gradient, count, rate);
  }
  void momentum(float* weight, const float* gradient, float* velocity, std::size_t count, float rate,
                float momentum) override {
    cpu::momentum(weight, gradient, velocity, count, rate, momentum);
  }
  void adam(float* weight, const float* gradient, float* first, float* second, std::size_t count,
            const AdamConstants& constants, std::int64_t step) override {
    cpu::adam(weight, gradient, first, second, count, constants, step);
  }

 private:
  // Cosines and sines of every position and frequency, kept until another model asks.
  void prepare_angles(int seq, const RotaryAngles& angles) {
    const auto half = static_cast<std::size_t>(angles.pairs);
    if (angles == angles_ && cosines_.size() >= half * static_cast<std::size_t>(seq)) return;
    angles_ = angles;
    for (auto* table : {&cosines_, &sines_, &negative_sines_}) table->resize(half * seq);
    for (std::size_t i = 0; i < half; ++i) {
      for (std::size_t position = 0; position < static_cast<std::size_t>(seq); ++position) {
        const double angle = static_cast<double>(position) * angles.frequency[i];
        cosines_[position * half + i] = static_cast<float>(angles.amplitude * std::cos(angle));
        sines_[position * half + i] = static_cast<float>(angles.amplitude * std::sin(angle));
        negative_sines_[position * half + i] = static_cast<float>(-angles.amplitude * std::sin(angle));
      }
    }
  }

  RotaryAngles angles_;
  std::vector<float> cosines_, sines_, negative_sines_;  // [position][frequency]
  std::unordered_map<void*, std::size_t> allocated_;
  std::size_t current_ = 0;
  std::size_t peak_ = 0;
  std::optional<cpu::Convolutions> convolutions_{std::in_place, *this};
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace orrery::exec
