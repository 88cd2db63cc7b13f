#include "cost/compute_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "cost/host_cost.h"
#include "program/forms.h"
#include "program/schedule.h"

namespace orrery {
namespace {

constexpr int kComputeKinds = 6;

bool is_backward(ComputeKind kind) {
  return does_input_gradient(kind) || does_weight_gradient(kind);
}

// Of the rate of a streaming kernel, what mamba_ssm's Triton kernels of the chunked scan reach: their tiles
// of 64 x 64 wait for one another's loads. Fitted to Nemotron-H 56B on H100 and Nemotron 3 Nano on B300 and
// B200 (NVIDIA's recipes, 13 rows); fla-org/flash-linear-attention#50 measured 0.9 TB/s by this count (a
// 16-bit forward, 131,072 tokens).
constexpr double kScanShare = 0.25;

// Of the same rate, what Transformer Engine's kernels reach that cast to 8 bits, plain and transposed at
// once, whatever a framework's other kernels do: 8192 x 8192 elements take 51 us on B200
// (ROCm/TransformerEngine#598), 5.2 TB/s. MPT-1b in fp8 on H100 (LLM Foundry, three lengths) wants no more
// time than that.
constexpr double kCastShare = 0.8;
// To 4 bits the transposed copy passes through a product with a Hadamard matrix, and gradients are rounded by
// random numbers: from what Llama 3 70B takes longer in NVFP4 than its products do, against MXFP8, on GB300.
constexpr double kFourBitCastShare = 0.5;
// Turning 4-bit weights back (bitsandbytes 0.41, kDequantizeBlockwise): what LitGPT's QLoRA takes longer than
// its LoRA on an A100, 10 ps an element in each pass (eight rows of four models: litgpt_lora_a100_40gb),
// fitted together with what that software's host takes (evidence/profiles/litgpt.textproto).
constexpr double kDequantiseShare = 0.17;

double rate_of(std::string_view family, bool backward, const DeviceProfile& device) {
  for (const VectorModel& model : device.vector) {
    if (model.operator_name != family) continue;
    return backward && model.backward_bytes_per_s > 0 ? model.backward_bytes_per_s
                                                      : model.forward_bytes_per_s;
  }
  const double share = family == "scan"         ? kScanShare
                       : family == "cast"       ? kCastShare
                       : family == "cast_fp4"   ? kFourBitCastShare
                       : family == "dequantise" ? kDequantiseShare
                                                : 1;
  return share * device.memory_efficiency * device.memory_bandwidth_bytes_per_s;
}

// Of products and attention in a training run, beside a cool device that is benchmarked.
double warm_speed(const DeviceProfile& device) {
  return device.sustained_clock * device.training_speed;
}

struct Tile {
  double m, n;
};
// Shapes that cuBLAS's kernels commonly come in. More of them make the model too hopeful: cuBLAS chooses by a
// heuristic, not by trial (on A100 the median error of shapes left out rises from 4.4% to 5.3% with
// fourteen).
constexpr std::array<Tile, 8> kTiles = {
    {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}, {256, 64}, {64, 256}}};
constexpr std::array<double, 9> kSplits = {1, 2, 3, 4, 6, 8, 16, 32, 64};
// Of more than eight parts each is at least this deep: weight gradients of convolutions, whose k is the
// pixels of a batch.
constexpr double kDeepSplit = 8192;

// Seconds of all output tiles, each of depth k, over the multiprocessors.
double main_loop_seconds(const Product& p, Tile tile, double k, double splits, const MatmulModel& model,
                         double peak, int multiprocessors) {
  const double tiles = std::ceil(p.m / tile.m) * std::ceil(p.n / tile.n) * p.count * splits;
  double slots = tiles;  // tiles and idle multiprocessors of the last wave
  if (multiprocessors > 0) {
    const double waves = tiles / multiprocessors;
    slots = multiprocessors *
            ((1 - model.wave_overlap) * std::ceil(waves) + model.wave_overlap * std::max(waves, 1.0));
  }
  const double efficiency = model.efficiency / (1 + model.tile_penalty * (1 / tile.m + 1 / tile.n));
  return slots * 2 * tile.m * tile.n * (k + model.half_k) / (efficiency * peak);
}

double compute_seconds(const Product& p, const MatmulModel& model, double peak, const DeviceProfile& device) {
  if (!model.tile_choice)
    return main_loop_seconds(p, {model.tile_m, model.tile_n}, p.k, 1, model, peak, device.multiprocessors);
  double best = std::numeric_limits<double>::infinity();
  for (const double splits : kSplits) {
    const double partial_sums = splits > 1
                                    ? model.split_overhead_s + 8 * splits * p.count * p.m * p.n /
                                                                   (3 * device.memory_bandwidth_bytes_per_s)
                                    : 0;
    if (partial_sums >= best || (splits > 8 && p.k / splits < kDeepSplit)) break;
    for (const Tile& tile : kTiles) {
      const double seconds =
          main_loop_seconds(p, tile, p.k / splits, splits, model, peak, device.multiprocessors);
      best = std::min(best, seconds + partial_sums);
    }
  }
  return best;
}

// Kernels written for earlier devices use Hopper's tensor units by mma.sync, which reaches 0.62 of what its
// own wgmma does (arXiv 2402.13499); FlashAttention-2 reaches 328 TFLOP/s of this model's 500 to 607 there,
// by clock (operators/hardware_microbench.csv).
double kernels_before(const DeviceProfile& device) {
  return device.generation == "hopper" ? 0.62 : 1;
}

// Fraction of the rate of aligned operands that a product on tensor units reaches, by the bytes that divide
// all strides: kernels load 16 bytes a thread where they can, 8 or 4 by asynchronous copies, 2 through
// registers (NVIDIA, "Matrix Multiplication Background User's Guide", section 3: multiples of 16 bytes).
// Fractions: from the step times of GPT with 50,257 tokens, unpadded, split 1, 2, 4 and 8 ways on A100
// (vTrain's single-node rows: what a step takes beyond its layers). Hopper's copies of whole tiles need 16
// bytes (CUDA driver API, cuTensorMapEncodeTiled), so cuBLAS takes kernels of Turing there: GPT-2's head of
// 50,257 tokens ran at 0.13 to 0.2 of the rate of 50,304 on an H200.
double alignment_fraction(const Product& p, DType type, const DeviceProfile& device) {
  if (device.kind != DeviceKind::gpu || type == DType::fp32) return 1;
  const double bytes = bytes_of(type);
  const auto divides = [&](double alignment) {
    // 8-bit products read transposed copies, whose stride the rows are.
    const double stride = p.over_rows && !is_narrow(type) ? p.m : p.k;
    return std::fmod(p.n * bytes, alignment) == 0 && std::fmod(stride * bytes, alignment) == 0;
  };
  if (divides(16)) return 1;
  const bool convolution = p.left_share < 1 || p.output_share < 1;  // cuDNN pads what it reads
  return (convolution ? 1 : kernels_before(device)) * (divides(8) ? 0.7 : divides(4) ? 0.4 : 0.32);
}

}  // namespace

namespace {

double product_seconds_at(const Product& product, DType precision, const DeviceProfile& device,
                          double clock) {
  if (product.m <= 0 || product.n <= 0 || product.k <= 0 || product.count <= 0) return 0;
  const DType type = device.compute_type(precision);
  const MatmulModel& model = device.matmul[static_cast<int>(type)];
  const double bytes =
      product.count *
      ((product.m * product.k * product.left_share + product.k * product.n) * packed_bytes_of(type) +
       product.m * product.n * product.output_share * bytes_of(storage_type(type)));
  const double peak = device.peak_flops_per_s[static_cast<int>(type)] * clock;
  const double compute =
      compute_seconds(product, model, peak, device) / alignment_fraction(product, type, device);
  const double reached = model.memory_efficiency > 0 ? model.memory_efficiency : device.memory_efficiency;
  double memory = bytes / (reached * device.memory_bandwidth_bytes_per_s);
  if (model.cached_bytes > 0) {
    const double hit = 1 / (1 + std::pow(bytes / model.cached_bytes, 16));
    memory *= 1 - hit + hit / model.cached_gain;
  }
  const double longer = std::max(compute, memory);
  const double seconds =
      model.sharpness > 0
          ? longer * std::pow(1 + std::pow(std::min(compute, memory) / longer, model.sharpness),
                              1 / model.sharpness)
          : longer;
  return seconds + model.kernel_overhead_s * (product.batched ? 1 : product.count);
}

}  // namespace

double product_seconds(const Product& product, DType precision, const DeviceProfile& device) {
  return product_seconds_at(product, precision, device, warm_speed(device));
}

double benchmark_product_seconds(const Product& product, DType precision, const DeviceProfile& device) {
  const double seconds = product_seconds_at(product, precision, device, 1);
  if (seconds <= 0) return 0;
  const double warmed = device.power_loss > 0 ? seconds / (seconds + device.power_ramp_s) : 0;
  return seconds * (1 + device.power_loss * warmed);
}

double attention_seconds(double flops, double seq_len, double queries, DType precision, bool fused,
                         bool backward, const DeviceProfile& device, double head_dim) {
  if (flops <= 0) return 0;
  const DType type = device.compute_type(product_type(OperatorKind::attention, precision));
  const AttentionModel& model = device.attention[static_cast<int>(type)][fused ? 1 : 0];
  const double efficiency =
      backward && model.backward_efficiency > 0 ? model.backward_efficiency : model.forward_efficiency;
  const double ramp = seq_len > 0 ? seq_len / (seq_len + model.half_sequence) : 1;
  const double occupied = queries > 0 ? queries / (queries + model.half_queries) : 1;
  const double width =
      head_dim > 0 ? (1 + model.half_head_dim / 128) / (1 + model.half_head_dim / head_dim) : 1;
  return flops / (efficiency * ramp * occupied * width * device.peak_flops_per_s[static_cast<int>(type)] *
                  warm_speed(device));
}

double waiting_seconds(const Instruction& instruction, int ranks, const RuntimeProfile& runtime) {
  const bool waits = instruction.op == Op::collective && ranks > 1 && form_of(instruction.form).waited_for;
  return waits ? runtime.collective_overhead_s : 0;
}

double pieces_seconds(CollectiveKind kind, double bytes, int ranks, const RuntimeProfile& runtime,
                      const Cluster& cluster) {
  const bool gathers = kind == CollectiveKind::all_gather;
  if (ranks <= 1 || (!gathers && kind != CollectiveKind::reduce_scatter)) return 0;
  double seconds = (runtime.gathers_on_demand ? runtime.collective_overhead_s : 0) +
                   host_shard_seconds(kind, bytes, ranks, runtime, cluster);
  if (runtime.piece_overhead_s > 0) {
    const auto profile = static_cast<std::size_t>(cluster.groups.front().node.profile);
    const double moved = (gathers ? 3 : 2) * bytes;
    seconds += runtime.piece_overhead_s * ranks + moved / rate_of("copy", false, cluster.profiles[profile]);
  }
  return seconds;
}

std::string_view vector_family(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::embedding:
      return "embedding";
    case OperatorKind::norm:
      return "norm";
    case OperatorKind::attention:
      return "softmax";
    case OperatorKind::activation:
      return "activation";
    case OperatorKind::residual:
      return "residual";
    case OperatorKind::router:
      return "router";
    case OperatorKind::dispatch:
    case OperatorKind::combine:
      return "dispatch";
    case OperatorKind::loss_max:
    case OperatorKind::loss_sum:
    case OperatorKind::loss:
      return "loss";
    case OperatorKind::batch_norm:
      return "batch_norm";
    case OperatorKind::pool:
      return "pool";
    case OperatorKind::elementwise:
      return "elementwise";
    case OperatorKind::interaction:
      return "interaction";
    case OperatorKind::scan:
      return "scan";
    case OperatorKind::linear:
    case OperatorKind::expert_linear:
    case OperatorKind::head:
    case OperatorKind::conv:
      return "accumulate";
  }
  return "elementwise";
}

double vector_seconds(double bytes, OperatorKind kind, bool backward, const DeviceProfile& device) {
  return bytes <= 0 ? 0 : bytes / rate_of(vector_family(kind), backward, device);
}

double optimizer_seconds(double bytes, const DeviceProfile& device) {
  return bytes <= 0 ? 0 : bytes / rate_of("optimizer", false, device);
}

namespace {

// FlashAttention in Triton takes 1.3 to 2.5 times as long as FlashAttention-2 (arXiv 2307.08691, section
// 4.1): the least of these.
constexpr double kTritonAttentionShare = 0.77;

// Of fused attention.
double attention_generation(const RuntimeProfile& runtime, const DeviceProfile& device) {
  return (runtime.portable_attention ? kernels_before(device) : 1) *
         (runtime.triton_attention ? kTritonAttentionShare : 1);
}

// How much longer products and attention take on the multiprocessors that experts' traffic leaves them. What
// memory bounds has enough of them still.
double fewer_multiprocessors(const Shard& shard, const DeviceProfile& device) {
  const int left = device.multiprocessors - shard.reserved_multiprocessors;
  return shard.reserved_multiprocessors > 0 && left > 0 ? static_cast<double>(device.multiprocessors) / left
                                                        : 1;
}

// What a runtime that fills products up to multiples of eight, or cuts them there, multiplies.
Product even(Product product) {
  const auto up = [](double size) { return std::ceil(size / 8) * 8; };
  product.m = up(product.m);
  product.n = up(product.n);
  product.k = up(product.k);
  return product;
}

// `product_time`(product, type): seconds of one product.
template <typename ProductTime>
double seconds_of(const OperatorWork& work, OperatorKind kind, ComputeKind compute, const Shard& shard,
                  const DeviceProfile& device, const RuntimeProfile& runtime, ProductTime product_time) {
  if (compute == ComputeKind::optimizer)
    return optimizer_seconds(work.vector_bytes, device) / runtime.memory_bound_efficiency;
  const bool backward = is_backward(compute);
  double seconds = 0;
  // A scan's kernels chain small products with exponentials between them, as fused attention does.
  if (kind == OperatorKind::scan)
    seconds += attention_seconds(work.attention_flops, 0, 0, shard.precision, true, backward, device,
                                 work.attention_head_dim) /
               (runtime.attention_efficiency * attention_generation(runtime, device));
  // A scan by tokens computes while it moves its bytes: what takes longer counts.
  const double moving =
      vector_seconds(work.vector_bytes, kind, backward, device) / runtime.memory_bound_efficiency;
  if (work.scalar_flops > 0) seconds += std::max(0.0, work.scalar_flops / device.peak(DType::fp32) - moving);
  // A processor's calibration measures the unfused core as a whole; on a GPU it is its kernels.
  const bool whole_core = shard.fused_attention || device.kind == DeviceKind::cpu;
  if (kind == OperatorKind::attention && work.attention_flops > 0 && whole_core)
    seconds +=
        attention_seconds(work.attention_flops, shard.seq_len, work.attention_queries, shard.precision,
                          shard.fused_attention, backward, device, work.attention_head_dim) /
        (runtime.attention_efficiency * (shard.fused_attention ? attention_generation(runtime, device) : 1));
  if (kind == OperatorKind::attention && whole_core && !shard.fused_attention) return seconds;
  const DType type = product_type(kind, shard.precision);
  for (const Product& product : work.products)
    seconds +=
        product_time(runtime.even_products ? even(product) : product, type) / runtime.matmul_efficiency;
  seconds *= fewer_multiprocessors(shard, device);
  seconds += moving;
  if (work.quantize_bytes > 0)
    seconds += work.quantize_bytes / rate_of(type == DType::fp4 ? "cast_fp4" : "cast", backward, device);
  if (work.dequantise_bytes > 0) seconds += work.dequantise_bytes / rate_of("dequantise", backward, device);
  return seconds * work.fullest;
}

// Layers repeat their products, and a backward pass those of its halves: each is looked at once.
class ProductTimes {
 public:
  explicit ProductTimes(const DeviceProfile& device) : device_(device) {}

  double operator()(const Product& product, DType type) {
    for (const Known& known : known_)
      if (known.type == type && same(known.product, product)) return known.seconds;
    return known_.emplace_back(product, type, product_seconds(product, type, device_)).seconds;
  }

 private:
  struct Known {
    Known(const Product& of, DType in, double takes) : product(of), type(in), seconds(takes) {}
    Product product;
    DType type;
    double seconds;
  };
  static bool same(const Product& a, const Product& b) {
    return a.m == b.m && a.n == b.n && a.k == b.k && a.count == b.count && a.batched == b.batched &&
           a.output_bytes == b.output_bytes && a.left_share == b.left_share &&
           a.output_share == b.output_share && a.over_rows == b.over_rows;
  }

  const DeviceProfile& device_;
  std::vector<Known> known_;
};

// Outputs that adapters add to.
double adapted_outputs(const Operator& op) {
  double outputs = 0;
  for (const LowRankAdapter& adapter : op.adapters) outputs += static_cast<double>(adapter.out);
  return outputs;
}

}  // namespace

double exposed_beside(double communication_s, double product_s, int pieces) {
  return std::max(0.0, communication_s - product_s * (pieces - 1) / pieces);
}

double shown_seconds(const Instruction& instruction, double alone_s, double beside_s, const GroupShape& shape,
                     double expert_exposed) {
  const double shown_s = instruction.form == Parallelism::expert ? expert_exposed * alone_s : alone_s;
  return shape.nodes == 1 ? exposed_beside(shown_s, beside_s, shape.ranks) : shown_s;
}

double work_seconds(const OperatorWork& work, OperatorKind kind, ComputeKind compute, const Shard& shard,
                    const DeviceProfile& device, const RuntimeProfile& runtime) {
  return seconds_of(work, kind, compute, shard, device, runtime, [&](const Product& product, DType type) {
    return product_seconds(product, type, device);
  });
}

double kept_speed(int ranks, const Cluster& cluster, const DeviceProfile& device) {
  const std::vector<double>& scale = device.concurrency_scale;
  if (scale.empty()) return 1;
  const int busy = std::min(ranks, devices_beside(cluster));
  return scale[static_cast<std::size_t>(std::clamp(busy, 1, static_cast<int>(scale.size()))) - 1];
}

double slowest_of(const Cluster& cluster, const DeviceProfile& device) {
  if (device.speed_spread <= 0 || cluster.devices() <= 8) return 1;
  const auto expected_largest = [](double draws) {
    constexpr double kEuler = 0.5772156649;
    constexpr double kLogOf4Pi = 2.5310242469;
    const double scale = std::sqrt(2 * std::log(draws));
    return scale + (kEuler - (std::log(std::log(draws)) + kLogOf4Pi) / 2) / scale;
  };
  return 1 + device.speed_spread * (expected_largest(cluster.devices()) - expected_largest(8));
}

ComputeCost::ComputeCost(const Plan& plan, const DeviceProfile& device)
    : plan_(&plan), device_(&device), shard_(shard_of(plan)) {
  const RuntimeProfile& runtime = plan.job->runtime;
  // A device without a launch's time runs a step as one compiled program, whatever the software does
  // elsewhere.
  launch_s_ = device.kind != DeviceKind::gpu || device.launch_overhead_s <= 0 ? 0
              : runtime.kernel_launch_s > 0                                   ? runtime.kernel_launch_s
                                                                              : device.launch_overhead_s;
  keep_ = kept_speed(plan.choices.world(), plan.job->cluster, device) / slowest_of(plan.job->cluster, device);
  ProductTimes times(device);
  const std::vector<Operator>& operators = plan.job->workload.operators;
  seconds_before_.resize(operators.size() + 1);
  kernels_before_.resize(operators.size() + 1);
  for (std::size_t i = 0; i < operators.size(); ++i) {
    for (int k = 0; k < kComputeKinds; ++k) {
      const auto kind = static_cast<ComputeKind>(k);
      const OperatorWork work = operator_work(operators[i], kind, shard_, runtime);
      double seconds = seconds_of(work, operators[i].kind, kind, shard_, device, runtime,
                                  [&](const Product& product, DType type) { return times(product, type); });
      seconds = std::max(seconds, host_pass_seconds(operators[i], kind, shard_, plan, device) * keep_);
      const bool forward = does_forward(kind);
      const double stall_s = forward ? runtime.adapter_index_s * adapted_outputs(operators[i]) : 0;
      const bool of_layer = operators[i].kind == OperatorKind::attention && kind != ComputeKind::optimizer &&
                            kind != ComputeKind::backward_weight;
      seconds_before_[i + 1][k] = seconds_before_[i][k] + seconds + stall_s * keep_;
      kernels_before_[i + 1][k] =
          kernels_before_[i][k] + work.kernels +
          (launch_s_ > 0 ? (stall_s + (of_layer ? runtime.layer_host_s : 0)) / launch_s_ : 0);
    }
  }
}

double ComputeCost::operator_seconds(int op, ComputeKind kind) const {
  const int k = static_cast<int>(kind);
  return (seconds_before_[op + 1][k] - seconds_before_[op][k]) / keep_;
}

double ComputeCost::operator_kernels(int op, ComputeKind kind) const {
  const int k = static_cast<int>(kind);
  return kernels_before_[op + 1][k] - kernels_before_[op][k];
}

double ComputeCost::range_seconds(int begin, int end, ComputeKind kind) const {
  const int k = static_cast<int>(kind);
  if (end <= begin) return 0;
  return (seconds_before_[end][k] - seconds_before_[begin][k]) / keep_;
}

double ComputeCost::beside_seconds(const Instruction& instruction) const {
  if (instruction.op != Op::collective) return 0;
  return range_seconds(instruction.op_begin, instruction.op_end, instruction.compute);
}

double ComputeCost::host_seconds(const Instruction& instruction) const {
  switch (instruction.op) {
    case Op::compute: {
      if (instruction.compute == ComputeKind::optimizer) return launch_s_;
      const int k = static_cast<int>(instruction.compute);
      const double share = is_backward(instruction.compute) ? plan_->job->runtime.backward_launch_share : 1;
      return share * (kernels_before_[instruction.op_end][k] - kernels_before_[instruction.op_begin][k]) *
             launch_s_;
    }
    case Op::load:
      return 0;
    default:
      return launch_s_;
  }
}

std::vector<bool> ComputeCost::host_waits(const Program& program) const {
  std::vector<bool> waits(program.instructions.size(), false);
  if (launch_s_ <= 0) return waits;
  const bool exchanges = pipeline_blocks(*plan_);
  const bool passes = plan_->job->runtime.synchronous_passes;
  const auto pass_of = [](const Instruction& i) {
    return std::pair(i.micro_batch, i.compute == ComputeKind::forward);
  };
  std::size_t last = waits.size();  // compute instruction
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    // Megatron-LM before its overlapped pipeline calls torch.cuda.synchronize() after every exchange
    // (p2p_communication.py: "to protect against race condition when using batch_isend_irecv()").
    if (exchanges && instruction.op == Op::exchange && instruction.form == Parallelism::pipeline)
      waits[i] = true;
    if (!passes || instruction.op != Op::compute) continue;
    if (last < i && pass_of(program.instructions[last]) != pass_of(instruction)) waits[last] = true;
    last = i;
  }
  return waits;
}

double ComputeCost::update_seconds(double elements) const {
  return parameter_update_seconds(elements, *plan_->job, *device_) / keep_;
}

double ComputeCost::seconds(const Program& program, const Instruction& instruction) const {
  switch (instruction.op) {
    case Op::compute: {
      if (instruction.compute != ComputeKind::optimizer) {
        const double whole = range_seconds(instruction.op_begin, instruction.op_end, instruction.compute);
        return instruction.block < 0 ? whole
                                     : whole / plan_->choices.cp;  // one of ring attention's equal blocks
      }
      const Choices& c = plan_->choices;
      const double group = c.shard_group > 0 ? c.shard_group : c.dp * c.cp;
      double elements = 0;
      for (int b = instruction.op_begin; b < instruction.op_end; ++b) {
        const Bucket& bucket = program.buckets[b];
        double shards = 1;
        // With ZeRO each rank updates its share of the bucket.
        if (c.zero >= 1 && bucket.group >= 0)
          shards = c.shard_group > 0 ? group : static_cast<double>(program.groups[bucket.group].ranks.size());
        if (c.has_servers()) shards = c.servers;
        elements += bucket.updated.value_or(static_cast<double>(bucket.elements)) / shards;
      }
      return update_seconds(elements);
    }
    case Op::pack:
    case Op::unpack:
      return instruction.bytes / rate_of("copy", false, *device_) / keep_;
    case Op::collective:
    case Op::exchange:
    case Op::load:
      break;
  }
  throw InternalError("compute cost asked for an instruction that computes nothing");
}

}  // namespace orrery
