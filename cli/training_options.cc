#include "cli/training_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "cli/output.h"
#include "topologies/network.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

namespace orrery::cli {
namespace {

// Far beyond any machine, and small enough that products of a few stay within 64 bits.
constexpr int kMaxCount = 1 << 24;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 40;
// Samples a device when --global-batch is not given.
constexpr std::int64_t kDefaultSequencesPerDevice = 1;
constexpr std::int64_t kDefaultSamplesPerDevice = 32;

template <typename T>
CLI::Option* add_count(CLI::App& verb, const std::string& name, std::optional<T>& value,
                       const std::string& help, T least = 1) {
  const T most = sizeof(T) > 4 ? static_cast<T>(kMaxBatch) : static_cast<T>(kMaxCount);
  return verb.add_option(name, value, help)->check(CLI::Range(least, most).description(""))->type_name("N");
}

CLI::Option* add_word(CLI::App& verb, const std::string& name, std::string& value, const std::string& words,
                      const std::string& help) {
  return verb.add_option(name, value, help)->type_name(words);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

int parse_count(const std::string& text, std::string_view option, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > kMaxCount)
    throw UserError(fmt::format("{} holds '{}'", option, text),
                    fmt::format("expected whole numbers from {} to {}", least, kMaxCount));
  return value;
}

bool parse_switch(const std::string& text, std::string_view option) {
  if (text == "on") return true;
  if (text == "off") return false;
  throw UserError(fmt::format("{} {} is unknown", option, text), "expected on or off");
}

double parse_ratio(const std::string& text, std::string_view option) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || value > 1)
    throw UserError(fmt::format("{} has the ratio '{}'", option, text),
                    "expected a number above 0, at most 1");
  return value;
}

std::array<Dimension, 5> parse_order(const std::string& text) {
  const auto names = split(text);
  std::array<Dimension, 5> order{};
  std::array<bool, 5> seen{};
  const auto refuse = [&]() -> UserError {
    return UserError(fmt::format("--order {} is not an order of the dimensions", text),
                     "expected tp, cp, ep, dp and pp, each once, innermost first");
  };
  if (names.size() != order.size()) throw refuse();
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = dimension_from_name(names[i]);
    if (std::exchange(seen[static_cast<std::size_t>(order[i])], true)) throw refuse();
  }
  return order;
}

bool on_gpus(const Cluster& cluster) {
  return cluster.profiles[cluster.groups.front().node.profile].kind == DeviceKind::gpu;
}

// bf16 on devices that have it; fp16 on older GPUs; fp32 on processors.
DType default_precision(const Cluster& cluster) {
  if (!on_gpus(cluster)) return DType::fp32;
  const auto has = [&](DType type) {
    return std::all_of(cluster.groups.begin(), cluster.groups.end(), [&](const NodeGroup& group) {
      return cluster.profiles[group.node.profile].peak_flops_per_s[static_cast<std::size_t>(type)] > 0;
    });
  };
  return has(DType::bf16) ? DType::bf16 : has(DType::fp16) ? DType::fp16 : DType::fp32;
}

DType parse_precision(const std::string& name) {
  const DType type = dtype_from_name(name);
  if (type == DType::int8 || type == DType::int32 || type == DType::int64)
    throw UserError(fmt::format("--precision {} is no precision to train in", name),
                    "expected fp32, tf32, fp16, bf16, fp8 or fp4");
  return type;
}

// Dead ports may cut nodes off; nothing can be trained across the gap.
void check_connected(const Cluster& cluster, const std::string& file_or_name) {
  if (cluster.overrides.empty()) return;
  const Network network(cluster);
  try {
    for (int node = 1; node < cluster.nodes(); ++node)
      network.route(cluster.first_device(node - 1), cluster.first_device(node));
  } catch (const NoAnswer& gap) {
    throw UserError(file_or_name, 0, gap.what(), "expected a connected cluster");
  }
}

planner::Objective parse_objective(const std::string& name) {
  if (name == "step-time") return planner::Objective::step_time;
  if (name == "cost") return planner::Objective::cost;
  if (name == "energy") return planner::Objective::energy;
  if (name == "memory") return planner::Objective::memory;
  throw UserError(fmt::format("--objective {} is unknown", name),
                  "expected step-time, cost, energy or memory");
}

}  // namespace

void add_size_options(CLI::App& verb, std::optional<int>& nodes, std::optional<int>& gpus) {
  auto* by_node = add_count(verb, "--nodes", nodes, "nodes of a cluster with one node type (default: all)");
  add_count(verb, "--gpus", gpus,
            "devices: whole nodes, or the first N of one node; on localhost, ranks (default: all)")
      ->excludes(by_node);
}

Cluster sized_cluster(const std::string& file_or_name, std::optional<int> nodes, std::optional<int> gpus) {
  Cluster cluster = load_cluster(file_or_name);
  if (nodes) cluster = with_nodes(std::move(cluster), *nodes);
  if (gpus) cluster = with_devices(std::move(cluster), *gpus);
  check_connected(cluster, file_or_name);
  return cluster;
}

void TrainingOptions::add_options(CLI::App& verb) {
  verb.add_option("WORKLOAD", workload_,
                  "a Hugging Face config.json, an .onnx file, a .textproto or a catalog name")
      ->required();
  verb.add_option("CLUSTER", cluster_, "a .textproto, a SimGrid platform .xml or a catalog name")->required();
  add_size_options(verb, nodes_, gpus_);

  const auto training = "Training";
  add_word(verb, "--runtime", runtime_, "NAME",
           "framework generation that is modelled; `orrery catalog` lists them (default: megatron-core on "
           "GPUs, orrery on localhost and other processors)")
      ->group(training);
  add_count(verb, "--global-batch", global_batch_,
            "sequences (or samples) a step (default: 1 sequence, or 32 samples, a device)")
      ->group(training);
  add_count(verb, "--seq-len", seq_len_,
            "tokens a sequence (default: the workload's own; unused by models without sequences)")
      ->group(training);
  add_word(verb, "--sample-bytes", sample_bytes_, "B",
           "bytes of a sample on the nodes' storage, read a step ahead; K, M, G are binary (default: samples "
           "are in the hosts' memory)")
      ->group(training);
  add_word(verb, "--precision", precision_, "fp32|tf32|fp16|bf16|fp8|fp4",
           "arithmetic of the products (default: bf16 where every device has it, fp16 on older GPUs, fp32 on "
           "processors)")
      ->group(training);
  add_word(verb, "--optimizer", optimizer_, "sgd|momentum|adam|adamw", "optimizer (default: adam)")
      ->group(training);
  add_word(verb, "--attention", attention_, "fused|unfused", "attention kernel (default: the runtime's)")
      ->group(training);
  add_word(verb, "--objective", objective_, "step-time|cost|energy|memory",
           "what the best plan has least of: seconds, USD or joules a step, bytes of the fullest device "
           "(default: step-time)")
      ->group(training);
  verb.add_option("--top", top_, "plans to report (default: 10)")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("K")
      ->group(training);

  verb.add_option(
          "--budget", budget_s_,
          fmt::format("simulated work after which no further plan is simulated, in seconds of a nominal "
                      "processor core, so that the answer does not depend on the machine (default: {})",
                      budget_s_))
      ->check(positive_number().description(""))
      ->type_name("SECONDS")
      ->group(training);

  auto* megatron =
      add_word(verb, "--from-megatron", from_megatron_, "FLAGS",
               "pins what a shell-quoted list of Megatron-LM's arguments says; options beside it win")
          ->group(training);
  add_word(verb, "--from-deepspeed", from_deepspeed_, "FILE",
           "pins what a DeepSpeed JSON says; options beside it win")
      ->excludes(megatron)
      ->group(training);

  const auto pins = "Dimensions (each is searched unless given)";
  const auto pin = [&](const char* name, std::optional<int>& value, const char* help, int least = 1) {
    add_count(verb, name, value, help, least)->group(pins);
  };
  pin("--tp", numbers_.tp, "tensor-parallel ranks");
  pin("--pp", numbers_.pp, "pipeline stages");
  pin("--dp", numbers_.dp, "data-parallel replicas");
  pin("--cp", numbers_.cp, "context-parallel ranks");
  pin("--ep", numbers_.ep, "expert-parallel ranks; divides dp*cp, with sequence parallelism tp/etp*dp*cp");
  pin("--etp", numbers_.etp,
      "tensor-parallel ranks that share each expert; divides tp (default: 1, not searched)");
  pin("--micro-batch", numbers_.micro_batch, "samples of one micro-batch on one replica");
  add_word(verb, "--schedule", schedule_, "gpipe|1f1b|interleaved|zero-bubble", "pipeline schedule")
      ->group(pins);
  pin("--interleave", numbers_.interleave, "model chunks a stage");
  verb.add_option("--zero", numbers_.zero,
                  "what ZeRO shards: 0 nothing, 1 optimizer state, 2 gradients too, 3 weights too")
      ->check(CLI::Range(0, 3).description(""))
      ->type_name("0|1|2|3")
      ->group(pins);
  add_word(verb, "--recompute", recompute_, "none|selective|full|full:K",
           "activations computed again in the backward pass; full:K in the first K layers of a stage")
      ->group(pins);
  pin("--shard-group", numbers_.shard_group, "ranks over which ZeRO shards (default: all of dp*cp)");
  add_word(verb, "--stage-layers", stage_layers_, "A,B,…",
           "layers of each pipeline stage, of each chunk when interleaved (default: even)")
      ->group(pins);
  add_word(verb, "--order", order_, "tp,cp,ep,dp,pp",
           "dimensions on the machine, innermost first (default: as shown)")
      ->group(pins);
  add_word(verb, "--sequence-parallel", sequence_parallel_, "on|off",
           "norms and residuals sharded over the tensor-parallel ranks")
      ->group(pins);
  add_word(verb, "--overlap-grad-reduce", overlap_grad_reduce_, "on|off",
           "gradient reduction beside the backward pass")
      ->group(pins);
  add_word(verb, "--bucket-bytes", bucket_bytes_, "B",
           "bytes of gradients reduced together; K, M, G are binary (default: the runtime's)")
      ->group(pins);
  add_word(verb, "--grad-compression", grad_compression_, "none|fp16|int8|topk:RATIO",
           "compression of gradients before their reduction; lossy, so never chosen unasked (default: none)")
      ->group(pins);
  add_word(verb, "--sync", sync_,
           "all-reduce|parameter-server|async-parameter-server|data-parallel-single-process",
           "how replicas agree (default: all-reduce)")
      ->group(pins);
  verb.add_flag("--search-compression", numbers_.search_compression,
                "search --grad-compression too (lossy: the same steps train otherwise)")
      ->group(pins);
  verb.add_flag(
          "--search-sync", numbers_.search_sync,
          "search parameter servers (1, one a node, one a device) and one process too; each is simulated "
          "rank by rank")
      ->group(pins);
  pin("--servers", numbers_.servers, "parameter servers");
  pin("--staleness", numbers_.staleness, "steps that a replica may run ahead (parameter servers)", 0);
  verb.add_option("--capacity-factor", numbers_.capacity_factor,
                  "tokens that an expert takes, as a multiple of its even share; 0: all (default: 0)")
      ->check(non_negative_number().description(""))
      ->type_name("F")
      ->group(pins);
}

planner::Imported TrainingOptions::imported() const {
  if (!from_megatron_.empty())
    return planner::import_megatron(from_megatron_, load_workload(workload_).layers);
  if (!from_deepspeed_.empty()) return planner::import_deepspeed(read_file(from_deepspeed_), from_deepspeed_);
  return {};
}

bool TrainingOptions::default_batch() const {
  return !global_batch_ && !imported().global_batch;
}

std::shared_ptr<const Job> TrainingOptions::job() const {
  const planner::Imported imports = imported();
  auto job = std::make_shared<Job>();
  job->workload = load_workload(workload_);
  job->cluster = sized_cluster(cluster_, nodes_, gpus_);
  job->runtime = runtime_.empty() ? default_runtime(on_gpus(job->cluster)) : load_runtime(runtime_);
  Training& training = job->training;
  const bool sequences = job->workload.transformer.has_value();
  if (sequences) {
    training.seq_len = seq_len_.value_or(imports.seq_len.value_or(job->workload.default_seq_len));
    if (training.seq_len == 0)
      throw UserError(fmt::format("{} says nothing about its sequence length", workload_),
                      "expected --seq-len TOKENS");
  } else if (seq_len_) {
    throw UserError(fmt::format("--seq-len does not apply to {}", workload_), "the model has no sequences");
  }
  training.global_batch = global_batch_.value_or(imports.global_batch.value_or(
      job->cluster.devices() * (sequences ? kDefaultSequencesPerDevice : kDefaultSamplesPerDevice)));
  training.precision = !precision_.empty() ? parse_precision(precision_)
                                           : imports.precision.value_or(default_precision(job->cluster));
  if (!sample_bytes_.empty()) training.sample_bytes = parse_bytes(sample_bytes_, "--sample-bytes");
  training.optimizer = optimizer_.empty() ? Optimizer::adam : optimizer_from_name(optimizer_);
  if (!attention_.empty() && attention_ != "fused" && attention_ != "unfused")
    throw UserError(fmt::format("--attention {} is unknown", attention_), "expected fused or unfused");
  training.fused_attention = attention_.empty() ? job->runtime.fused_attention : attention_ == "fused";
  return job;
}

namespace {

// `own` where it says something, else `other`.
void fill(planner::Pins& own, const planner::Pins& other) {
  const auto take = [](auto& mine, const auto& theirs) {
    if (!mine) mine = theirs;
  };
  take(own.tp, other.tp);
  take(own.pp, other.pp);
  take(own.dp, other.dp);
  take(own.cp, other.cp);
  take(own.ep, other.ep);
  take(own.etp, other.etp);
  take(own.micro_batch, other.micro_batch);
  if (!own.schedule && !own.interleave) own.interleave = other.interleave;
  take(own.schedule, other.schedule);
  take(own.zero, other.zero);
  if (!own.recompute) own.recompute_layers = other.recompute_layers;
  take(own.recompute, other.recompute);
  take(own.shard_group, other.shard_group);
  take(own.stage_layers, other.stage_layers);
  take(own.order, other.order);
  take(own.sequence_parallel, other.sequence_parallel);
  take(own.overlap_grad_reduce, other.overlap_grad_reduce);
  take(own.bucket_bytes, other.bucket_bytes);
  take(own.capacity_factor, other.capacity_factor);
}

}  // namespace

planner::Pins TrainingOptions::pins() const {
  planner::Pins pins = numbers_;
  if (!schedule_.empty()) pins.schedule = schedule_from_name(schedule_);
  if (recompute_.rfind("full:", 0) == 0) {
    pins.recompute = Recompute::full;
    pins.recompute_layers = parse_count(recompute_.substr(5), "--recompute", 1);
  } else if (!recompute_.empty()) {
    pins.recompute = recompute_from_name(recompute_);
    pins.recompute_layers = 0;
  }
  if (!stage_layers_.empty()) {
    pins.stage_layers.emplace();
    for (const auto& layers : split(stage_layers_))
      pins.stage_layers->push_back(parse_count(layers, "--stage-layers", 0));
  }
  if (!order_.empty()) pins.order = parse_order(order_);
  if (!sequence_parallel_.empty())
    pins.sequence_parallel = parse_switch(sequence_parallel_, "--sequence-parallel");
  if (!overlap_grad_reduce_.empty())
    pins.overlap_grad_reduce = parse_switch(overlap_grad_reduce_, "--overlap-grad-reduce");
  if (!bucket_bytes_.empty()) {
    pins.bucket_bytes = parse_bytes(bucket_bytes_, "--bucket-bytes");
    if (*pins.bucket_bytes < 1)
      throw UserError(fmt::format("--bucket-bytes {} is too small", bucket_bytes_),
                      "expected at least 1 byte");
  }
  if (grad_compression_.rfind("topk:", 0) == 0) {
    pins.grad_compression = Compression::topk;
    pins.topk_ratio = parse_ratio(grad_compression_.substr(5), "--grad-compression");
  } else if (!grad_compression_.empty()) {
    pins.grad_compression = compression_from_name(grad_compression_);
  }
  if (!sync_.empty()) pins.sync = sync_from_name(sync_);
  fill(pins, imported().pins);
  return pins;
}

void TrainingOptions::say_what_is_ignored() const {
  const planner::Imported imports = imported();
  if (!imports.ignored.empty())
    fmt::print(stderr, "orrery: ignored, for it says nothing of the plan: {}\n",
               fmt::join(imports.ignored, " "));
}

planner::SearchOptions TrainingOptions::search_options() const {
  planner::SearchOptions options;
  options.objective = parse_objective(objective_);
  options.top = top_;
  options.budget_s = budget_s_;
  return options;
}

}  // namespace orrery::cli
