#include "program/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/enum_names.h"
#include "base/error.h"
#include "base/hash.h"

namespace orrery {
namespace {

constexpr std::array<std::string_view, 4> kOptimizers = {"sgd", "momentum", "adam", "adamw"};
constexpr std::array<std::string_view, 5> kSchedules = {"gpipe", "1f1b", "interleaved", "zero-bubble",
                                                        "dualpipe-v"};
constexpr std::array<std::string_view, 3> kRecomputes = {"none", "selective", "full"};
constexpr std::array<std::string_view, 4> kCompressions = {"none", "fp16", "int8", "topk"};
constexpr std::array<std::string_view, 4> kSyncs = {"all-reduce", "parameter-server",
                                                    "async-parameter-server", "data-parallel-single-process"};
constexpr std::array<std::string_view, 5> kDimensions = {"tp", "cp", "ep", "dp", "pp"};

}  // namespace

std::string_view name_of(Optimizer value) {
  return name_in(kOptimizers, value);
}
std::string_view name_of(Schedule value) {
  return name_in(kSchedules, value);
}
std::string_view name_of(Recompute value) {
  return name_in(kRecomputes, value);
}
std::string_view name_of(Compression value) {
  return name_in(kCompressions, value);
}
std::string_view name_of(Sync value) {
  return name_in(kSyncs, value);
}
std::string_view name_of(Dimension value) {
  return name_in(kDimensions, value);
}
Optimizer optimizer_from_name(std::string_view name) {
  return value_in<Optimizer>(kOptimizers, name, "optimizer");
}
Schedule schedule_from_name(std::string_view name) {
  return value_in<Schedule>(kSchedules, name, "schedule");
}
Recompute recompute_from_name(std::string_view name) {
  return value_in<Recompute>(kRecomputes, name, "recomputation");
}
Compression compression_from_name(std::string_view name) {
  return value_in<Compression>(kCompressions, name, "gradient compression");
}
Sync sync_from_name(std::string_view name) {
  return value_in<Sync>(kSyncs, name, "synchronisation");
}
Dimension dimension_from_name(std::string_view name) {
  return value_in<Dimension>(kDimensions, name, "dimension");
}

int optimizer_states(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::sgd:
      return 0;
    case Optimizer::momentum:
      return 1;
    case Optimizer::adam:
    case Optimizer::adamw:
      return 2;
  }
  return 0;
}

std::uint64_t degrees_key(const Choices& choices) {
  std::uint64_t key = 0;
  for (const auto& [form, degree] : choices.degrees)
    key = fnv_step(fnv_of(form, key), static_cast<std::uint64_t>(degree));
  return key;
}

std::int64_t Plan::micro_batches() const {
  if (!choices.replica_batches.empty()) {
    return *std::max_element(choices.replica_batches.begin(), choices.replica_batches.end()) /
           choices.micro_batch;
  }
  return job->training.samples_each(choices.dp) / choices.micro_batch;
}

double Plan::wait_for_longest() const {
  const Training& training = job->training;
  if (!training.lengths.any()) return 1;
  Division division;
  division.replicas = choices.asynchronous() ? 1 : choices.dp;
  division.micro_batches = micro_batches();
  division.micro_batch = choices.micro_batch;
  division.stages = choices.pp;
  division.at_each = choices.zero == 3 || choices.ep > 1;
  if (training.lengths.packed) {
    const auto attended = static_cast<int>(std::lround(content(training.lengths, training.seq_len).attended));
    const double linear = job->workload.forward_flops_per_sample(1);
    const double whole = job->workload.forward_flops_per_sample(attended) / std::max(1, attended);
    division.attention_share = whole > 0 ? std::clamp(1 - linear / whole, 0.0, 1.0) : 0;
  }
  return orrery::wait_for_longest(training.lengths, training.seq_len, division);
}

double Plan::padded_share() const {
  const Training& training = job->training;
  if (!training.lengths.any()) return 0;
  return 1 -
         training.tokens_each() / computed(training.lengths, training.seq_len, choices.micro_batch).tokens;
}

std::int64_t Plan::micro_batches_of(int replica) const {
  if (choices.replica_batches.empty()) return micro_batches();
  return choices.replica_batches.at(static_cast<std::size_t>(replica)) / choices.micro_batch;
}

DType Plan::activation_type() const {
  switch (job->training.precision) {
    case DType::fp8:  // a type of matrix products' operands; what stands between them is bf16
    case DType::fp4:
      return DType::bf16;
    case DType::tf32:
      return DType::fp32;
    default:
      return job->training.precision;
  }
}

DType Plan::parameter_type() const {
  return activation_type();
}

DType Plan::gradient_type() const {
  return job->runtime.fp32_gradients ? DType::fp32 : activation_type();
}

double Plan::read_ahead_bytes(int replica) const {
  const bool one_process = choices.sync == Sync::single_process && choices.dp > 1;
  const auto samples = static_cast<double>(one_process ? job->training.global_batch
                                                       : micro_batches_of(replica) * choices.micro_batch);
  return samples * job->training.sample_bytes / (choices.tp * choices.cp);
}

namespace {

// Of a token's copies to its k experts of E, which lie on n nodes, the share that leaves its node when it is
// sent once to each node that has some of them: of k (1 - 1/n) copies (n - 1) (1 - (1 - 1/n)^k) do. Experts
// dealt in turn are neighbours, so that 1 + (k - 1) n / E nodes have some, of k.
double sent_by_node(const Plan& plan, const MixtureOfExperts& moe) {
  const double k = moe.experts_per_token;
  const double nodes =
      std::max(1.0, static_cast<double>(plan.choices.ep) / plan.job->cluster.groups.front().node.devices);
  if (nodes <= 1) return 1;
  if (plan.job->runtime.experts_in_turn) return std::min(nodes, 1 + (k - 1) * nodes / moe.experts) / k;
  const double elsewhere = 1 - 1 / nodes;
  return (nodes - 1) * (1 - std::pow(elsewhere, k)) / (k * elsewhere);
}

}  // namespace

double Plan::expert_exposed() const {
  const RuntimeProfile& runtime = job->runtime;
  const auto& transformer = job->workload.transformer;
  const bool by_node = runtime.experts_by_node && choices.ep > 1 && transformer && transformer->moe;
  const double exposed =
      choices.overlap_experts ? 1 : runtime.expert_exposed;  // what is hidden the Program says
  return exposed * (by_node ? sent_by_node(*this, *transformer->moe) : 1) *
         (choices.etp > 1 ? runtime.shared_expert_traffic : 1);
}

double Plan::bucket_bytes() const {
  return choices.bucket_bytes > 0 ? choices.bucket_bytes : job->runtime.bucket_bytes;
}

namespace {

// In every other chunk the parts come back from the last stage to the first.
bool comes_back(const Choices& choices, int chunk) {
  return choices.schedule == Schedule::dualpipe_v && chunk % 2 == 1;
}

}  // namespace

int part_of(const Choices& choices, int stage, int chunk) {
  return chunk * choices.pp + (comes_back(choices, chunk) ? choices.pp - 1 - stage : stage);
}

ChunkPlace place_of_part(const Choices& choices, int part) {
  const int chunk = part / choices.pp;
  const int along = part % choices.pp;
  return {comes_back(choices, chunk) ? choices.pp - 1 - along : along, chunk};
}

bool ends_meet(const Choices& choices) {
  return place_of_part(choices, 0).stage == place_of_part(choices, parts_of(choices) - 1).stage;
}

LayerRange layers_of(const Plan& plan, int stage, int chunk) {
  const Choices& choices = plan.choices;
  const int layers = plan.job->workload.layers;
  const int parts = parts_of(choices);
  const int part = part_of(choices, stage, chunk);
  if (choices.stage_layers.empty()) {
    const int base = layers / parts;
    const int rest = layers % parts;
    const int begin = part * base + std::min(part, rest);
    return {begin, begin + base + (part < rest ? 1 : 0)};
  }
  const auto& sizes = choices.stage_layers;
  const auto total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (static_cast<int>(sizes.size()) != parts || total != layers ||
      std::any_of(sizes.begin(), sizes.end(), [](int size) { return size < 0; })) {
    throw UserError(fmt::format("`stage_layers` {}: {} entries that add up to {}", fmt::join(sizes, ","),
                                sizes.size(), total),
                    fmt::format("expected {} entries, one a {}, that add up to the model's {} layers", parts,
                                choices.interleave > 1 ? "model chunk" : "stage", layers));
  }
  const int begin = std::accumulate(sizes.begin(), sizes.begin() + part, 0);
  return {begin, begin + sizes[static_cast<std::size_t>(part)]};
}

std::vector<int> layers_by_part(const Plan& plan) {
  std::vector<int> layers;
  for (int part = 0; part < parts_of(plan.choices); ++part) {
    const ChunkPlace place = place_of_part(plan.choices, part);
    const LayerRange range = layers_of(plan, place.stage, place.chunk);
    layers.push_back(range.end - range.begin);
  }
  return layers;
}

LayerRange operators_of(const Plan& plan, int stage, int chunk) {
  const auto& operators = plan.job->workload.operators;
  const LayerRange layers = layers_of(plan, stage, chunk);
  const auto first_of_layer = [&](int layer) {
    const auto at = std::partition_point(operators.begin(), operators.end(),
                                         [layer](const Operator& op) { return op.layer < layer; });
    return static_cast<int>(at - operators.begin());
  };
  const bool first = holds_first_part(plan.choices, stage, chunk);
  const bool last = holds_last_part(plan.choices, stage, chunk);
  return {first ? 0 : first_of_layer(layers.begin),
          last ? static_cast<int>(operators.size()) : first_of_layer(layers.end)};
}

}  // namespace orrery
