#include "request/request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "handover/import.h"
#include "handover/keys/known_keys.h"
#include "planner/evaluation/hardware.h"
#include "planner/space/abilities.h"
#include "planner/space/pin_options.h"
#include "planner/space/space.h"
#include "planner/space/tensor_overlap.h"
#include "planner/uncertainty/site.h"
#include "topologies/network.h"
#include "topologies/readers/catalog.h"
#include "topologies/readers/site_calibration.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

// More takes minutes to search, and no machine has them.
constexpr int kMostDevices = 800'000;  // planned in a minute or two

// Samples a device when no global batch is given.
constexpr std::int64_t kDefaultSequencesPerDevice = 1;
constexpr std::int64_t kDefaultSamplesPerDevice = 32;

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

// The option that names another system's settings; null where none does.
const char* source_of(const Request& request) {
  const std::vector<std::pair<const char*, const std::string*>> sources = {
      {"from_megatron", &request.from_megatron},
      {"from_deepspeed", &request.from_deepspeed},
      {"from_torchtitan", &request.from_torchtitan},
      {"from_nemo", &request.from_nemo}};
  const char* first = nullptr;
  for (const auto& [name, text] : sources) {
    if (text->empty()) continue;
    if (first != nullptr) throw UserError(fmt::format("`{}` with `{}`", first, name), "expected one of them");
    first = name;
  }
  return first;
}

planner::Imported imported(const Request& request, const Workload& workload, int devices) {
  if (!request.from_megatron.empty())
    return planner::import_megatron(request.from_megatron, workload.layers, devices);
  if (!request.from_deepspeed.empty())
    return planner::import_deepspeed(read_file(request.from_deepspeed), request.from_deepspeed);
  if (!request.from_torchtitan.empty())
    return planner::import_torchtitan(read_file(request.from_torchtitan), request.from_torchtitan,
                                      workload.layers, devices,
                                      workload.transformer && workload.transformer->moe);
  if (!request.from_nemo.empty())
    return planner::import_nemo(read_file(request.from_nemo), request.from_nemo, workload.layers, devices);
  return {};
}

// Whoever misspells a setting that is planned would be answered about another plan.
void check_spelling(const planner::Imported& imports, const char* source, const Request& request) {
  if (imports.misspelt.empty()) return;
  const planner::Misspelt& first = imports.misspelt.front();
  const std::string expected = fmt::format("did you mean {}?", first.meant);
  if (source == std::string_view("from_megatron"))
    throw UserError(fmt::format("`from_megatron`: {} is not known here", first.name), expected);
  for (const std::string* file : {&request.from_deepspeed, &request.from_torchtitan, &request.from_nemo})
    if (!file->empty())
      throw UserError(*file, first.line, fmt::format("{} is not known here", first.name), expected);
}

// What was said, over what the workload says itself.
FineTuning fine_tuning_of(const Request& request, const Workload& workload, const planner::Imported& imports,
                          std::vector<std::string>* ignored) {
  FineTuning tuning = workload.transformer ? workload.transformer->fine_tuning : FineTuning{};
  if (!workload.transformer) tuning.frozen_layers = workload.frozen_layers;
  tuning = imports.tuning.value_or(tuning);
  if (!request.from_peft.empty())
    tuning = planner::import_peft(read_file(request.from_peft), request.from_peft, workload.layers, tuning,
                                  ignored);
  tuning.rank = request.lora_rank.value_or(tuning.rank);
  tuning.targets = request.lora_targets.value_or(tuning.targets);
  tuning.alpha = request.lora_alpha.value_or(tuning.alpha);
  tuning.dora = tuning.dora || request.dora;
  tuning.base = request.quantize_base.value_or(tuning.base);
  tuning.frozen_layers = request.freeze.value_or(tuning.frozen_layers);
  if (tuning.base != BaseType::none && tuning.rank == 0 && !request.quantize_base)
    throw UserError(
        fmt::format("{} keeps its weights in {} bits (quantization_config), which only adapters train",
                    request.workload, tuning.base == BaseType::int8 ? 8 : 4),
        "expected `lora_rank` beside it, or a configuration without");
  if (request.lora_targets && tuning.rank == 0)
    throw UserError("`lora_targets` without `lora_rank`", "expected adapters of some rank beside it");
  return tuning;
}

int sequence_length(const Request& request, const planner::Imported& imports, const Workload& workload) {
  if (!workload.transformer) {
    if (request.seq_len)
      throw UserError(fmt::format("`seq_len` does not apply to {}", request.workload),
                      "expected none: the workload says how large its samples are");
    return 0;
  }
  const int tokens = request.seq_len.value_or(imports.seq_len.value_or(workload.default_seq_len));
  if (tokens == 0)
    throw UserError(fmt::format("{} says nothing about its sequence length", request.workload),
                    "expected `seq_len`, in tokens");
  return tokens;
}

}  // namespace

Cluster sized_cluster(const std::string& file_or_name, const std::optional<NodeCounts>& nodes,
                      std::optional<int> gpus) {
  if (nodes && gpus) throw UserError("`nodes` with `gpus`", "expected one of them");
  Cluster cluster = with_site_calibration(load_cluster(file_or_name));
  if (nodes) cluster = with_nodes(std::move(cluster), *nodes);
  if (gpus) cluster = with_devices(std::move(cluster), *gpus);
  if (cluster.devices() > kMostDevices)
    throw UserError(
        fmt::format("{} with {} devices in {} nodes", file_or_name, cluster.devices(), cluster.nodes()),
        fmt::format("expected at most {} devices", kMostDevices));
  check_connected(cluster, file_or_name);
  return cluster;
}

namespace {

// Networks with layer norms are trained as language models are, on whatever they are trained.
bool has_layer_norms(const Workload& workload) {
  return std::any_of(workload.operators.begin(), workload.operators.end(),
                     [](const Operator& op) { return op.kind == OperatorKind::norm; });
}

// Images, encoders with decoders and the like: what trains them splits nothing but the batch.
bool is_graph_with_norms(const Workload& workload) {
  return !workload.transformer && has_layer_norms(workload);
}

// Recommenders: their tables are shared between devices, which plain data parallelism does not do.
bool has_tables(const Workload& workload) {
  return std::any_of(workload.operators.begin(), workload.operators.end(),
                     [](const Operator& op) { return op.kind == OperatorKind::embedding; });
}

// A graph's attention is one operator, whichever kernel runs it; a Mamba has none.
void check_attention(const Workload& workload) {
  if (std::none_of(workload.operators.begin(), workload.operators.end(),
                   [](const Operator& op) { return op.attention.has_value(); }))
    throw UserError(fmt::format("`attention` does not apply to {}", workload.name),
                    "expected none: only attention in stacks of transformer layers is fused or unfused");
}

// Of each device, where nobody gives a batch: enough whole micro-batches of those that are pinned, whatever
// the replicas.
std::int64_t samples_for(const planner::Pins& pins, std::int64_t of_each) {
  const std::int64_t micro_batch = std::max(1, pins.micro_batch.value_or(1));
  const std::int64_t whole = (of_each + micro_batch - 1) / micro_batch * micro_batch;
  // A V without other ranks beside its stages wants two micro-batches of each.
  return pins.schedule == Schedule::dualpipe_v ? std::max(whole, 2 * micro_batch) : whole;
}

// Whoever pins a schedule that the runtime runs without its compiler is answered about that: what was
// assumed; nothing where it runs as it is.
std::string settle_compiler(const planner::Pins& pins, RuntimeProfile* runtime) {
  if (!pins.schedule || pins.pp.value_or(2) == 1 || pins.any_runtime ||
      !planner::is_compiled_in_vain(*runtime, *pins.schedule))
    return "";
  runtime->fused_elementwise = false;
  return fmt::format("{} runs `schedule` {} without its compiler, which fuses kernels elsewhere",
                     runtime->name, name_of(*pins.schedule));
}

}  // namespace

Question question_of(const Request& request) {
  for (const auto& [key, input] : {std::pair("workload", &request.workload), {"cluster", &request.cluster}})
    if (input->empty())
      throw UserError(fmt::format("no `{}`", key), "expected a file or a name of the catalog");
  auto job = std::make_shared<Job>();
  job->workload = load_workload(request.workload);
  std::vector<std::string> ignored;
  job->cluster = sized_cluster(request.cluster, request.nodes, request.gpus);
  const char* source = source_of(request);
  planner::Imported imports = imported(request, job->workload, job->cluster.devices());
  check_spelling(imports, source, request);
  const FineTuning tuning = fine_tuning_of(request, job->workload, imports, &ignored);
  if (tuning != FineTuning{}) fine_tune(job->workload, tuning);
  if (!request.device.empty()) job->cluster = planner::with_device(std::move(job->cluster), request.device);
  const bool sequences = job->workload.default_seq_len > 0 || has_layer_norms(job->workload);
  const RuntimeUse use = !on_gpus(job->cluster)                          ? RuntimeUse::cpu
                         : job->cluster.profile_of(0).vendor == "google" ? RuntimeUse::tpu
                         : is_graph_with_norms(job->workload)            ? RuntimeUse::gpu_graphs
                         : sequences || has_tables(job->workload)        ? RuntimeUse::gpu
                                                                         : RuntimeUse::gpu_images;
  std::vector<std::string> assumed;
  if (!request.runtime.empty()) {
    job->runtime = load_runtime(request.runtime);
  } else if (source != nullptr && use != RuntimeUse::cpu) {
    job->runtime = catalog_runtime(imports.software);
    assumed.push_back(fmt::format("`runtime` {}, which `{}` is for", imports.software, source));
  } else {
    job->runtime = default_runtime(use);
  }
  Training& training = job->training;
  training.seq_len = sequence_length(request, imports, job->workload);
  const std::int64_t of_each =
      job->workload.transformer ? kDefaultSequencesPerDevice : kDefaultSamplesPerDevice;
  planner::Pins pins = planner::merged(request.pins, imports.pins);
  if (!request.global_batch)
    if (const std::string text = planner::settle_batch(&imports, &pins, job->cluster.devices());
        !text.empty())
      assumed.push_back(text);
  training.global_batch = request.global_batch.value_or(
      imports.global_batch.value_or(job->cluster.devices() * samples_for(pins, of_each)));
  training.precision =
      request.precision.value_or(imports.precision.value_or(default_precision(job->cluster)));
  if (!request.lengths.empty()) {
    if (training.seq_len == 0)
      throw UserError(fmt::format("`lengths` does not apply to {}", request.workload),
                      "expected none: the workload says how large its samples are");
    CutOff cut;
    training.lengths = sequence_lengths_from(request.lengths, training.seq_len, &cut);
    if (cut.lengths > 0)
      assumed.push_back(
          fmt::format("{} of {} `lengths` are cut to `seq_len` {}", cut.lengths, cut.of, training.seq_len));
  }
  training.lengths.packed = request.packed;
  training.lengths.balanced = request.balanced;
  training.sample_bytes = request.sample_bytes.value_or(0);
  training.optimizer = request.optimizer.value_or(imports.optimizer.value_or(
      on_gpus(job->cluster) && !sequences ? Optimizer::momentum : Optimizer::adam));
  training.fused_attention =
      request.fused_attention.value_or(imports.fused_attention.value_or(job->runtime.fused_attention));
  if (request.fused_attention) check_attention(job->workload);
  if (request.overlap_tensor) imports.runtime.overlap_tensor.reset();  // and what comes with it
  planner::apply(imports.runtime, &job->runtime);
  // A pipeline's engine may not ask what the file says of all others (DeepSpeed's overlap_comm).
  if (!request.pins.overlap_grad_reduce && pins.overlap_grad_reduce == true && pins.pp.value_or(1) > 1 &&
      !pins.any_runtime && planner::reduces_behind_pipelines(job->runtime))
    pins.overlap_grad_reduce.reset();
  if (std::string text = settle_compiler(pins, &job->runtime); !text.empty())
    assumed.push_back(std::move(text));
  if (request.overlap_tensor)
    planner::set_tensor_overlap(*request.overlap_tensor, pins.any_runtime, job.get());
  if (request.offload)
    planner::set_offload(*request.offload, job.get());
  else if (imports.offload)
    planner::set_offload(*imports.offload, job.get(), imports.offloaded_share.value_or(1));
  planner::calibrate(job.get());
  ignored.insert(ignored.end(), imports.ignored.begin(), imports.ignored.end());
  if (job->workload.transformer)
    if (const auto others = planner::other_dimensions(imports, *job->workload.transformer); !others.empty())
      assumed.push_back(fmt::format("the model is {}, where `{}` says another: {}", job->workload.name,
                                    source, fmt::join(others, ", ")));
  const int experts = planner::experts_of(job->workload);
  if (imports.experts && *imports.experts != experts)
    ignored.push_back(fmt::format("number of experts: {}, but the model has {}", *imports.experts, experts));
  return {
      std::move(job),     std::move(pins), request.search,    !request.global_batch && !imports.global_batch,
      std::move(ignored), imports.read,    std::move(assumed)};
}

bool is_harmless(std::string_view ignored) {
  return planner::is_harmless(ignored);
}

}  // namespace orrery
