#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "base/parse.h"
#include "base/suggest.h"
#include "planner/space/pin_options.h"
#include "request/request.h"

namespace orrery {
namespace {

// A step of more is nobody's: eighty sequences for each of the largest cluster's devices. Their micro-batches
// would fill memory.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 26;
constexpr int kMostReported = 1000;
constexpr Numbers kProbability = {0.01, false, 0.999};
constexpr int kMostFrozenLayers = 1 << 16;

constexpr std::array kObjectives = {planner::Objective::step_time, planner::Objective::cost,
                                    planner::Objective::energy, planner::Objective::memory};

planner::Objective objective_from_name(std::string_view name) {
  for (const planner::Objective objective : kObjectives)
    if (planner::name_of(objective) == name) return objective;
  throw UserError(fmt::format("`objective` {} is unknown", name),
                  "expected step-time, cost, energy or memory");
}

planner::Rank rank_from_name(std::string_view name) {
  for (const planner::Rank rank : {planner::Rank::robust, planner::Rank::nominal})
    if (planner::name_of(rank) == name) return rank;
  throw UserError(fmt::format("`rank` {} is unknown", name), "expected robust or nominal");
}

DType precision_from_name(std::string_view name) {
  const DType type = dtype_from_name(name);
  if (type == DType::int8 || type == DType::int32 || type == DType::int64)
    throw UserError(fmt::format("`precision` {} is no precision to train in", name),
                    "expected fp32, tf32, fp16, bf16, fp8 or fp4");
  return type;
}

bool fused_from_name(std::string_view name) {
  if (name != "fused" && name != "unfused")
    throw UserError(fmt::format("`attention` {} is unknown", name), "expected fused or unfused");
  return name == "fused";
}

bool overlapped_from_name(std::string_view name) {
  const std::optional<bool> on = parse_switch(name);
  if (!on) throw UserError(fmt::format("`overlap_tensor` {} is unknown", name), "expected on or off");
  return *on;
}

Option input(std::string key, std::string help) {
  Option option;
  option.key = std::move(key);
  option.help = std::move(help);
  option.positional = option.required = option.varied = true;
  return option;
}

Option training(std::string key, std::string unit, std::string help, std::string fallback = {}) {
  Option option;
  option.key = std::move(key);
  option.unit = std::move(unit);
  option.help = std::move(help);
  option.fallback = std::move(fallback);
  option.group = "Training";
  option.varied = true;
  return option;
}

void add_training(Request& request, std::vector<Setting>& all) {
  all.push_back(text_option(
      training(
          "runtime", "NAME|FILE",
          "the training software to model, by its name in `orrery catalog`, or a .textproto that describes "
          "it",
          fmt::format(
              "on GPUs {}; there {} for general graphs with layer norms, {} for other networks without "
              "sequences and tables, and where a configuration is imported the software that it is "
              "for. On TPUs {}, on processors {}",
              default_runtime(RuntimeUse::gpu).name, default_runtime(RuntimeUse::gpu_graphs).name,
              default_runtime(RuntimeUse::gpu_images).name, default_runtime(RuntimeUse::tpu).name,
              default_runtime(RuntimeUse::cpu).name)),
      request.runtime));
  all.push_back(count_option(
      training(
          "global_batch", "N", "sequences (or samples) per step; 2k is 2,048, 1e3 is 1,000",
          "1 sequence, or 32 samples, per device; more where a pinned micro-batch or dualpipe-v needs more"),
      request.global_batch, {1, kMostSamples, 1024}));
  all.push_back(count_option(
      training("seq_len", "N", "tokens per sequence; 8k is 8,192",
               "the workload's own, at most 8,192; refused where the workload says how large its "
               "samples are"),
      request.seq_len, {1, 1 << 24, 1024}));
  all.push_back(text_option(training("lengths", "lognormal:MEAN,SD|FILE",
                                     "lengths of unequal sequences in tokens, each cut to at most the tokens "
                                     "per sequence; a FILE has one length per line",
                                     "all sequences are of that length"),
                            request.lengths));
  all.push_back(switch_option(
      training(
          "packed", "",
          "pack sequences of these lengths into rows of the tokens per sequence, with attention inside each "
          "sequence only; otherwise each micro-batch is padded to its longest sequence"),
      request.packed));
  all.push_back(switch_option(
      training(
          "balanced", "",
          "deal sequences out by length, so that micro-batches computed at the same time take equally long"),
      request.balanced));
  all.push_back(bytes_option(
      training("sample_bytes", "B",
               "bytes of one sample on the nodes' storage, read one step ahead; K, M, G are binary",
               "samples are in host memory"),
      request.sample_bytes));
  all.push_back(
      name_option(training("precision", "fp32|tf32|fp16|bf16|fp8|fp4", "number format of matrix products",
                           "bf16 where every device has it, fp16 on older GPUs, fp32 on processors"),
                  request.precision, precision_from_name));
  all.push_back(name_option(training("optimizer", "sgd|momentum|adam|adamw", "the optimizer",
                                     "adam; momentum for networks without sequences or layer norms on GPUs"),
                            request.optimizer, optimizer_from_name));
  all.push_back(name_option(training("attention", "fused|unfused", "the attention kernel", "the runtime's"),
                            request.fused_attention, fused_from_name));
  all.push_back(name_option(
      training("overlap_tensor", "on|off",
               fmt::format(
                   "whether the software is told to run tensor ranks' collectives beside their "
                   "products ({} in megatron-core, {} in torchtitan); the answer says where that is faster",
                   catalog_runtime("megatron-core").tensor_overlap_setting,
                   catalog_runtime("torchtitan").tensor_overlap_setting),
               "the runtime's"),
      request.overlap_tensor, overlapped_from_name));
  all.push_back(name_option(training("offload", "none|optimizer|all",
                                     "what is kept in host memory. optimizer: its states and the gradients, "
                                     "which the host processors update; all: the weights too",
                                     "what the runtime keeps there, usually none"),
                            request.offload, planner::offload_from_name));
}

Option tuning(std::string key, std::string unit, std::string help, std::string fallback = {}) {
  Option option = training(std::move(key), std::move(unit), std::move(help), std::move(fallback));
  option.group = "Fine-tuning";
  return option;
}

void add_fine_tuning(Request& request, std::vector<Setting>& all) {
  all.push_back(count_option(
      tuning("lora_rank", "R", "rank of the low-rank adapters that are trained beside frozen weights",
             "all weights are trained"),
      request.lora_rank, {0, kLargestAdapterRank}));
  all.push_back(name_option(tuning("lora_targets", "LIST",
                                   "projections that get adapters: some of q,k,v,o,gate,up,down; qkv; all; "
                                   "or names that PEFT or Megatron use",
                                   "all"),
                            request.lora_targets, projections_from));
  all.push_back(number_option(
      tuning("lora_alpha", "A", "scales the adapters' outputs by A / R; does not change the time", "R"),
      request.lora_alpha, kPositive));
  all.push_back(
      switch_option(tuning("dora", "", "train magnitudes beside the adapters (DoRA)"), request.dora));
  all.push_back(name_option(tuning("quantize_base", "none|int8|nf4|nf4-dq",
                                   "how frozen projections are stored; they are dequantized before each "
                                   "product; nf4-dq: with scales in 8 bits",
                                   "none: in the training precision"),
                            request.quantize_base, base_type_from_name));
  all.push_back(count_option(tuning("freeze", "LAYERS",
                                    "number of first layers that are not trained and get no adapters; the "
                                    "embedding is frozen with them",
                                    "0"),
                             request.freeze, {0, kMostFrozenLayers}));
  all.push_back(
      text_option(tuning("from_peft", "FILE",
                         "take the adapters from PEFT's adapter_config.json; options given beside it win"),
                  request.from_peft));
}

void add_search(Request& request, std::vector<Setting>& all) {
  all.push_back(name_option(
      training(
          "objective", "step-time|cost|energy|memory",
          "what the best plan minimises: seconds, USD or joules per step, or bytes on the fullest device (of "
          "plans within 5% of the least, the fastest is best)",
          "step-time"),
      request.search.objective, objective_from_name));
  all.push_back(name_option(
      training("rank", "robust|nominal",
               "how plans are ranked. robust: by expected regret over what is uncertain about runtime, "
               "device and network; nominal: by the predicted objective (energy and memory always are)",
               "robust"),
      request.search.rank, rank_from_name));
  all.push_back(number_option(training("fit_probability", "P",
                                       "least probability with which a proposed plan fits in memory; if no "
                                       "plan reaches it, those about as likely to fit as the likeliest "
                                       "are proposed",
                                       fmt::format("{}", planner::SearchOptions{}.fit_probability)),
                              request.search.fit_probability, kProbability));
  Option top = training(
      "top", "K", "number of plans to report; only plans that were simulated are, so there may be fewer",
      std::to_string(request.search.top));
  top.varied = false;  // it changes what is told, not what is planned
  all.push_back(count_option(std::move(top), request.search.top, {1, kMostReported}));
  all.push_back(
      number_option(training("budget", "SECONDS",
                             "simulate no further plan after this much work, in seconds of a nominal "
                             "processor core, so that the answer does not depend on the machine",
                             fmt::format("{}", planner::SearchOptions{}.budget_s)),
                    request.search.budget_s, kPositive));
  all.push_back(
      switch_option(training("prove", "",
                             "continue to simulate plans, least lower bound first, until none can be better "
                             "or a few more seconds are spent; the answer says how far it is from the bound"),
                    request.search.prove));
  all.push_back(text_option(
      training("from_megatron", "FLAGS",
               "pin what Megatron-LM's arguments say, quoted as for a shell; options given beside it win"),
      request.from_megatron));
  Option deepspeed =
      training("from_deepspeed", "FILE", "pin what a DeepSpeed JSON says; options given beside it win");
  deepspeed.excludes = "from_megatron";
  all.push_back(text_option(std::move(deepspeed), request.from_deepspeed));
  Option torchtitan = training("from_torchtitan", "FILE",
                               "pin what a torchtitan TOML (v0.2.2) says; options given beside it win");
  torchtitan.excludes = "from_megatron";
  all.push_back(text_option(std::move(torchtitan), request.from_torchtitan));
  Option nemo = training(
      "from_nemo", "FILE",
      "pin what a YAML of NeMo (2 or 1) or Megatron Bridge says, adapters too; options given beside it win");
  nemo.excludes = "from_megatron";
  all.push_back(text_option(std::move(nemo), request.from_nemo));
}

}  // namespace

std::vector<Setting> size_options(std::optional<NodeCounts>& nodes, std::optional<int>& gpus) {
  Option by_node = {.key = "nodes",
                    .unit = "N[+N...]",
                    .help =
                        "number of nodes; of a cluster with several kinds of nodes that of each, in the "
                        "order of its file (3+1; 3+0 leaves the second kind out)",
                    .fallback = "all",
                    .range = range_of_node_counts()};
  Option by_device = {
      .key = "gpus",
      .unit = "N",
      .help =
          "number of devices, of a cluster with one kind of node: whole nodes, or the first N of one "
          "node, or as many of each of several racks (512: 64 of 72 of each of eight); on localhost, ranks",
      .fallback = "all",
      .excludes = "nodes"};
  by_node.varied = by_device.varied = true;
  Setting counts = {std::move(by_node), [&nodes](const std::string& text) {
                      nodes = read_node_counts(text);
                      return nodes.has_value();
                    }};
  return {std::move(counts), count_option(std::move(by_device), gpus)};
}

std::vector<Setting> request_options(Request& request) {
  std::vector<Setting> all = {
      text_option(
          input("workload", "a Hugging Face config.json, an .onnx file, a .textproto or a catalog name"),
          request.workload),
      text_option(input("cluster", "a .textproto, a SimGrid platform .xml or a catalog name"),
                  request.cluster)};
  for (Setting& setting : size_options(request.nodes, request.gpus)) all.push_back(std::move(setting));
  Option device = {.key = "device",
                   .unit = "NAME",
                   .help =
                       "replace every node's devices with this device of the catalog, from the same vendor; "
                       "the nodes' links stay",
                   .fallback = "the cluster's"};
  device.varied = true;
  all.push_back(text_option(std::move(device), request.device));
  add_training(request, all);
  add_fine_tuning(request, all);
  add_search(request, all);
  for (Setting& setting : planner::pin_settings(request.pins)) all.push_back(std::move(setting));
  return all;
}

void set(Request& request, std::string_view key, const std::string& text) {
  std::vector<std::string> known;
  for (const Setting& setting : request_options(request)) {
    if (setting.option.key == option_key(key)) return set(setting, text);
    known.push_back(setting.option.key);
  }
  throw UserError(fmt::format("there is no option {}", key), suggestion(key, known));
}

}  // namespace orrery
