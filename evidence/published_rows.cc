#include "evidence/published_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <regex>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "evidence/published_models.h"
#include "evidence/published_recipes.h"
#include "program/placement.h"
#include "topologies/readers/catalog.h"

namespace orrery::planner {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// 0 where the field is empty or no number.
double number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end != text.c_str() && std::isfinite(value) ? value : 0;
}

class Row {
 public:
  Row(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {}
  const std::string& text(std::string_view column) const { return table_.field(row_, column); }
  double real(std::string_view column) const { return number(text(column)); }
  int count(std::string_view column) const { return static_cast<int>(std::lround(real(column))); }

 private:
  const CsvTable& table_;
  const CsvRow& row_;
};

// "~250k" is BLOOM's vocabulary (250,680 tokens, padded to 250,880).
int vocabulary(const std::string& text) {
  if (has(text, "250k")) return 250880;
  return static_cast<int>(number(text));
}

// What a table calls a device, and the catalog cluster of which it is one. The first match counts.
struct Machine {
  std::string_view word;
  std::string_view cluster;
  std::string_view device;  // instead of the cluster's; empty: the cluster's
};
constexpr std::array<Machine, 15> kMachines = {{
    {"A100-40GB", "dgx-a100-40g", ""},
    {"A100", "dgx-a100", ""},
    {"H100-96GB HBM2e SXM (500W)", "dgx-h100", "h100-sxm-96g-500w"},
    {"H100", "dgx-h100", ""},
    {"H200", "dgx-h200", ""},
    {"GB300", "gb200-nvl72", "gb300-288g"},
    {"GB200", "gb200-nvl72", ""},
    {"B300", "dgx-b200", "b300-sxm-288g"},
    {"B200", "dgx-b200", ""},
    {"V100-16GB", "dgx-v100-16g", ""},
    {"V100-SXM2-16GB", "dgx-v100-16g", ""},
    {"V100 16GB", "dgx-v100-16g", ""},
    {"V100", "dgx-v100-32g", ""},
    {"T4", "pcie-4090", "t4"},
    {"RTX 4090", "pcie-4090", ""},
}};

// What NCCL reached of a 100 Gb/s port of Jean Zay, through the host: 54.2 Gb/s
// (bigscience-workshop/bigscience experiments/bandwidth, all_reduce of 4 GB over 16 nodes).
constexpr double kOmniPathGigabits = 54.2;

// Ports of a node and bytes a second of one, as the words of the column have them.
void read_network(const std::string& words, Cluster* cluster) {
  NodeType& node = cluster->groups.front().node;
  const auto set = [&](int ports, double gigabits, Transport transport) {
    node.nic.count = ports;
    node.nic.bandwidth_bytes_per_s = gigabits * 1e9 / 8;
    node.nic.of_device.clear();
    for (int d = 0; d < node.devices; ++d) node.nic.of_device.push_back(d * ports / node.devices);
    cluster->fabric.transport = transport;
    node.nic.direct = transport != Transport::tcp;
  };
  std::smatch found;
  static const std::regex ports(R"((\d+) ?x ?(\d+) ?Gb)");
  static const std::regex per_node(R"((\d+) Gbps/node)");
  static const std::regex ethernet(R"((\d+) Gb/s Ethernet)");
  static const std::regex per_gpu(R"((\d+) Gb/s RDMA per GPU)");
  static const std::regex omni_path(R"((\d+)x Omni-Path)");
  if (std::regex_search(words, found, ports))
    set(std::stoi(found[1]), std::stod(found[2]), Transport::infiniband);
  else if (std::regex_search(words, found, per_node))
    set(node.devices, std::stod(found[1]) / node.devices, Transport::roce);
  else if (std::regex_search(words, found, ethernet))
    set(1, std::stod(found[1]), Transport::tcp);
  else if (std::regex_search(words, found, per_gpu))
    set(node.devices, std::stod(found[1]), Transport::roce);
  else if (std::regex_search(words, found, omni_path))
    set(std::stoi(found[1]), kOmniPathGigabits, Transport::infiniband);
  else if (has(words, "Omni-Path"))
    set(1, kOmniPathGigabits, Transport::infiniband);
}

bool is_vtrain(const Row& row) {
  return has(row.text("source"), "vTrain") || has(row.text("source_ref"), "vTrain");
}

bool vtrain_single_node(const Row& row) {
  return is_vtrain(row) && has(row.text("source"), "ground_truth_single");
}

Cluster cluster_of(const Row& row, int devices) {
  const std::string& gpu = row.text("gpu");
  const Machine* machine = nullptr;
  for (const Machine& known : kMachines)
    if (machine == nullptr && has(gpu, known.word)) machine = &known;
  if (machine == nullptr) throw Unreadable{"no catalog cluster of the device '" + gpu + "'", false};
  Cluster cluster = load_cluster(std::string(machine->cluster));
  if (!machine->device.empty()) {
    DeviceProfile device = catalog_device(machine->device);
    cluster.profiles[cluster.groups.front().node.profile] = device;
  }
  NodeType& node = cluster.groups.front().node;
  // g4dn.12xlarge: PCIe 3.0 x8 a card, no peer access (AWS instance description; PCI Express base 3.0).
  if (machine->device == "t4") {
    node.intra.bandwidth_bytes_per_s = 7.9e9;
    node.intra.bridge_bandwidth_bytes_per_s = 7.9e9;
  }
  const int per_node = row.count("gpus_per_node");
  const bool rack = has(machine->cluster, "nvl72");
  if (!rack && per_node > 0 && per_node < node.devices && devices > per_node) {
    // Boards of four V100 or A100 (Jean Zay, p3.8xlarge): every pair joined alike.
    node.nic.count = std::max(1, node.nic.count * per_node / node.devices);
    node.nic.of_device.clear();
    for (int d = 0; d < per_node; ++d) node.nic.of_device.push_back(d * node.nic.count / per_node);
    node.devices = per_node;
    if (node.intra.kind == IntraKind::nvlink_mesh) {
      node.intra.mesh_links.assign(static_cast<std::size_t>(per_node) * per_node, 2);
      for (int d = 0; d < per_node; ++d)
        node.intra.mesh_links[static_cast<std::size_t>(d) * per_node + d] = 0;
    }
  }
  // vTrain's large system: 64 nodes of 8 A100, four 200 Gb/s ports a node (MICRO 2024, section IV).
  read_network(is_vtrain(row) ? "4x200Gb" : row.text("inter_link"), &cluster);
  if (devices < node.devices || devices % node.devices == 0) {
    cluster.groups.front().count = 1;
    return with_devices(std::move(cluster), devices);
  }
  // A rack of which each job takes its part.
  const int racks = (devices + node.devices - 1) / node.devices;
  if (rack && devices % racks == 0) {
    node.devices = devices / racks;
    node.nic.count = node.devices;
    node.nic.of_device.clear();
    for (int d = 0; d < node.devices; ++d) node.nic.of_device.push_back(d);
    return with_nodes(std::move(cluster), racks);
  }
  throw Unreadable{fmt::format("{} devices are no whole number of nodes of {}", devices, node.devices),
                   false};
}

// The runtime profile whose list of frameworks has the longest name that is a part of the row's.
RuntimeProfile runtime_of(const Row& row) {
  const std::string& framework = row.text("framework");
  std::string best;
  std::size_t longest = 0;
  for (const std::string& name : catalog_runtimes()) {
    for (const std::string& known : catalog_runtime(name).frameworks) {
      if (known.size() <= longest || !has(framework, known)) continue;
      longest = known.size();
      best = name;
    }
  }
  // Megatron-LM became Megatron-Core in 2023.
  if (best == "megatron-lm-2022" && number(row.text("date").substr(0, 4)) >= 2023) best = "megatron-core";
  // Megatron-Bridge numbers its releases by year and month: from 26.06 on it is today's Megatron-Core.
  if (best == "nemo" && has(framework, "Megatron-Bridge") && number(row.text("date").substr(0, 5)) >= 26.06)
    best = "megatron-core";  // of 2026
  if (best.empty()) throw Unreadable{"no runtime profile of the framework '" + framework + "'", false};
  return catalog_runtime(best);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

DType precision_of(const Row& row) {
  const std::string text = lower(row.text("precision"));
  if (has(text, "fp4")) return DType::fp4;
  if (has(text, "fp8") || has(text, "float8")) return DType::fp8;
  if (has(text, "bf16")) return DType::bf16;
  if (has(text, "fp16")) return DType::fp16;
  if (has(text, "tf32")) return DType::tf32;
  if (has(text, "fp32")) return DType::fp32;
  return DType::bf16;
}

void read_recompute(const Row& row, const RuntimeProfile& runtime, Choices* choices) {
  const std::string text = lower(row.text("act_recompute"));
  choices->sequence_parallel = runtime.sequence_parallel && choices->tp > 1;
  if (has(text, "sequence parallel")) choices->sequence_parallel = choices->tp > 1;
  // DeepSpeed's 3D example of Megatron-LM v1.1.5 (ds_pretrain_gpt2_pipe.sh) passes --checkpoint-activations.
  const bool unstated = has(text, "not stated") && has(row.text("framework"), "DeepSpeed 3D");
  // NVIDIA's recipes: MaxText's save_qkv_proj and PaxML's SAVE_QKV_OUT_PROJ of 175B keep the projections (the
  // runtime says so); PaxML's 5B keeps every product (SAVE_DOT_ONLY), so that attention alone runs again
  // (dgxc-benchmarking maxtext/configure.sh, paxml/paxml_mod_configs.py).
  const bool remat = text.empty() && runtime.name == "jax";
  if (remat && has(row.text("framework"), "PaxML") && has(row.text("model"), "5B") &&
      !has(row.text("model"), "175B")) {
    choices->recompute = Recompute::selective;
    return;
  }
  const bool recipe = text.empty() && recipe_of(row.text("framework")).checkpoints && row.count("n_gpus") > 1;
  if (has(text, "full") || unstated || remat || recipe) {
    choices->recompute = Recompute::full;
    // Korthikanti's baseline is full recomputation without sequence parallelism.
    if (runtime.name == "megatron-lm-2022") choices->sequence_parallel = false;
  } else if (has(text, "selective")) {
    choices->recompute = Recompute::selective;
  }
  // vTrain's single nodes run its own model, whose forward has no checkpoints (src/model/gpt_modeling.py @
  // f8dda847); the column repeats its simulator's switch, which that simulator heeds on all stages but the
  // last (src/predictor.py): in half of these rows never, and it is within 8.4% of them all (MICRO 2024). One
  // stage and several took the same time a layer: nothing was recomputed.
  if (vtrain_single_node(row)) choices->recompute = Recompute::none;
}

void read_sharding(const Row& row, const RuntimeProfile& runtime, Choices* choices) {
  const std::string& text = row.text("dp_sharding");
  choices->zero = runtime.default_zero;
  std::smatch found;
  static const std::regex fsdp(R"(FSDP=(\d+))");
  if (std::regex_search(text, found, fsdp)) {
    const int group = std::stoi(found[1]);
    choices->zero = group > 1 ? 3 : runtime.default_zero == 3 ? 3 : 1;
    if (group > 1 && group < choices->dp * choices->cp) choices->shard_group = group;
  } else if (has(text, "SHARD_GRAD_OP") || has(text, "ZeRO-2")) {
    choices->zero = 2;
  } else if (has(text, "ZeRO-1") || has(text, "distributed optimizer")) {
    choices->zero = 1;  // before FSDP: "distributed optimizer (… FSDP column absent)"
  } else if (has(text, "FSDP") || has(text, "ZeRO-3")) {
    choices->zero = 3;
  } else if (has(text, "ZeRO-0")) {
    choices->zero = 0;
  }
  if (choices->dp * choices->cp == 1) choices->zero = 0;
}

// AMP's tables name where its pipelines are cut, among the layers and as many modules before them as behind
// (embedding, casts and transposes; norm, head and loss).
void read_cuts(const Row& row, int layers, Choices* choices) {
  static const std::regex named(R"(pipeline cut points \[([0-9, ]+)\])");
  std::smatch found;
  if (choices->pp == 1 || !std::regex_search(row.text("notes"), found, named)) return;
  std::vector<int> cuts;
  std::istringstream list(found[1]);
  for (std::string cut; std::getline(list, cut, ',');) cuts.push_back(std::stoi(cut));
  if (static_cast<int>(cuts.size()) != choices->pp + 1) return;
  const int before = (cuts.back() - layers) / 2;
  std::vector<int> stages;
  for (int stage = 0; stage < choices->pp; ++stage) {
    const int begin = std::clamp(cuts[stage] - before, 0, layers);
    stages.push_back(std::clamp(cuts[stage + 1] - before, 0, layers) - begin);
  }
  if (*std::min_element(stages.begin(), stages.end()) > 0) choices->stage_layers = stages;
}

// Sequences of a micro-batch. Where its size is not stated, the number of micro-batches may be (Alpa).
// torchtitan's pipelines cut a "local batch" into as many micro-batches as they have stages
// (torchtitan/parallelisms/pipelining_utils.py: n_microbatches = pipeline_parallel_degree).
int micro_batch_of(const Row& row, int replica_batch, int stages) {
  const std::string& stated = row.text("mbs_sequences");
  if (has(stated, "local batch")) return std::max(1, replica_batch / stages);
  if (stated.empty() && row.count("grad_accum") > 0)
    return std::max(1, replica_batch / row.count("grad_accum"));
  return std::max(1, row.count("mbs_sequences"));
}

// AutoModel runs its pipeline once for each "local batch" and steps after several: what stands in a row is
// that many steps of this plan, but for the optimizer's.
int pipelines_of_a_step(const Row& row, int replica_batch) {
  static const std::regex local_batch(R"(LBS=(\d+))");
  std::smatch found;
  if (row.count("pp") <= 1 || !std::regex_search(row.text("notes"), found, local_batch)) return 1;
  return std::max(1, replica_batch / std::stoi(found[1]));
}

// FLOPs of a sequence as NeMo counts them: the backward twice the forward, attention's whole square (its rows
// of Llama 2 7B that state both FLOP/s and seconds say so to 0.1%).
double counted_flops(const Workload& workload, int seq_len) {
  double flops = workload.forward_flops_per_sample(seq_len);
  for (const Operator& op : workload.operators) {
    if (!op.attention || !op.attention->causal) continue;
    const AttentionShape& shape = *op.attention;
    flops += static_cast<double>(seq_len) * seq_len * shape.heads * (shape.qk_head_dim + shape.v_head_dim);
  }
  return 3 * flops;
}

// 0: the row has neither a step time nor a throughput.
double measured_seconds(const Row& row, const Workload& workload, int seq_len, double batch, int devices) {
  const double tokens = batch * seq_len;
  if (row.real("step_time_s") > 0) return row.real("step_time_s");
  if (row.real("tokens_per_s") > 0) return tokens / row.real("tokens_per_s");
  if (row.real("tokens_per_s_per_gpu") > 0) return tokens / row.real("tokens_per_s_per_gpu") / devices;
  if (row.real("sequences_per_s") > 0) return batch / row.real("sequences_per_s");
  // What others count (recomputation, the causal half) is not known well enough.
  if (row.real("tflops_per_gpu") > 0 && has(row.text("framework"), "NeMo"))
    return batch * counted_flops(workload, seq_len) / (row.real("tflops_per_gpu") * 1e12 * devices);
  return 0;
}

// Per row of a linear operator: each of its weights' adapters reads the input again, and the product of the
// two is added to the output. (Back it is half as much again, as of any element-wise operator: the output's
// gradient read twice, the input read and its gradient added to.)
double adapter_elements(const Operator& op) {
  double elements = 0;
  for (const ParameterTensor& weight : op.parameters)
    if (weight.shape.size() == 2) elements += static_cast<double>(weight.shape[1] + 3 * weight.shape[0]);
  return elements;
}

// NeMo's and Megatron-Bridge's performance recipes adapt queries, keys and values alone (`target_modules`),
// AutoModel's every projection (`match_all_linear`).
bool has_adapter(const Operator& op, const Row& row) {
  return op.kind == OperatorKind::linear &&
         (op.name.ends_with("qkv") || recipe_of(row.text("framework")).adapts_everything);
}

// DeepEP and HybridEP, the dispatchers of Megatron-Bridge's recipes and of AutoModel, send a token once to
// each node that has some of its experts, not once to each expert: of k copies to n nodes k (1 - 1 / n) would
// leave the node, (n - 1) (1 - (1 - 1 / n)^k) do.
double sent_once_a_node(int expert_ranks, int devices_of_node, const MixtureOfExperts& moe) {
  const double nodes = std::max(1.0, static_cast<double>(expert_ranks) / devices_of_node);
  const double other = 1 - 1 / nodes;
  return nodes > 1
             ? (nodes - 1) * (1 - std::pow(other, moe.experts_per_token)) / (moe.experts_per_token * other)
             : 1;
}

// Experts that are dealt in turn (NeMo AutoModel's components/moe/layers.py, FakeBalancedGate): a token's k
// are neighbours among E, so that of n nodes 1 + (k - 1) n / E have some.
double dealt_in_turn(int expert_ranks, int devices_of_node, const MixtureOfExperts& moe) {
  const double nodes = std::max(1.0, static_cast<double>(expert_ranks) / devices_of_node);
  return nodes > 1
             ? std::min(nodes, 1 + (moe.experts_per_token - 1) * nodes / moe.experts) / moe.experts_per_token
             : 1;
}

}  // namespace

PublishedStep read_published_step(const CsvTable& table, const CsvRow& fields) {
  const Row row(table, fields);
  PublishedModel model;
  model.name = row.text("model");
  model.layers = row.count("n_layers");
  model.hidden = row.count("hidden");
  model.heads = row.count("n_heads");
  model.kv_heads = row.count("n_kv_heads");
  model.ffn_hidden = row.count("ffn_hidden");
  model.vocab = vocabulary(row.text("vocab"));
  model.seq_len = row.count("seq_len_tokens");
  // vTrain's single nodes train its own GPT: GPT-2's vocabulary without padding, each rank a whole share of
  // it (src/config.py and gpt_modeling.py @ f8dda847). Megatron-DeepSpeed, on its 64 to 512 devices, pads to
  // a multiple of 128 a rank (megatron/tokenizer: _vocab_size_with_padding).
  if (is_vtrain(row) && model.vocab == 0) {
    const int tp = std::max(1, row.count("tp"));
    const int share = 128 * tp;
    model.vocab = vtrain_single_node(row) ? 50257 / tp * tp : (50257 + share - 1) / share * share;
  }
  const int devices = row.count("n_gpus");
  auto batch = static_cast<std::int64_t>(std::llround(row.real("gbs_sequences")));
  if (devices <= 0) throw Unreadable{"the number of devices is not stated", true};
  if (model.seq_len <= 0) throw Unreadable{"the sequence length is not stated", true};
  if (batch <= 0) throw Unreadable{"the global batch is not stated", true};

  if (has(row.text("notes"), "layout not published")) throw Unreadable{"the layout is not published", true};

  PublishedStep step;
  auto job = std::make_shared<Job>();
  job->workload = published_workload(model);
  step.measured_s = measured_seconds(row, job->workload, model.seq_len, static_cast<double>(batch), devices);
  // A GB of a framework's memory column is 2^30 bytes: they print PyTorch's counters so.
  step.measured_bytes = row.real("mem_per_gpu_gb") * 1073741824.0;
  step.out_of_memory = has(row.text("source_ref"), "OOM") || has(row.text("notes"), "OOM");
  if (step.measured_s <= 0 && step.measured_bytes <= 0 && !step.out_of_memory)
    throw Unreadable{"neither a step time nor a throughput is stated", true};

  const Recipe& recipe = recipe_of(row.text("framework"));
  job->runtime = runtime_of(row);
  if (has(row.text("notes"), "LoRA") || has(row.text("model"), "LORA")) {
    // Low-rank adaptation: the weights are frozen. They have no gradients to compute, reduce or apply. The
    // adapters' products are thin (well below 1% of the parameters): what they cost is traffic. Of memory
    // nothing can be said so.
    for (Operator& op : job->workload.operators) {
      if (has_adapter(op, row)) op.vector_elements = adapter_elements(op);
      if (op.kind != OperatorKind::norm) op.parameters.clear();  // a norm's are next to nothing
    }
    if (recipe.adapts_everything) job->runtime.fused_elementwise = false;
    step.measured_bytes = 0;
    if (step.measured_s <= 0) throw Unreadable{"no step time is stated", true};
  }
  job->training.global_batch = batch;
  job->training.seq_len = model.seq_len;
  job->training.precision = precision_of(row);
  job->training.fused_attention = job->runtime.fused_attention;
  // Composer's FSDP: DEFAULT reduces gradients in fp32, PURE in the precision
  // (composer/trainer/mosaic_fsdp_utils.py, get_mixed_precision).
  if (has(row.text("precision"), "/DEFAULT") || has(row.text("precision"), "fp32_allreduce"))
    job->runtime.fp32_gradients = true;
  // Microsoft's Megatron-DeepSpeed of 2023 sums the gradients of column-split products' inputs beside their
  // weight gradients (async_tensor_model_parallel_allreduce, its default); BigScience's fork is older.
  if (is_vtrain(row) && !vtrain_single_node(row)) job->runtime.overlap_tensor = true;
  if (job->runtime.name == "torchtitan") {
    // Its reports list what each row was run with.
    const std::string& notes = row.text("notes");
    if (has(notes, "FSDP") && !has(notes, "compile")) job->runtime.fused_elementwise = false;
    if (has(notes, "async TP") || has(notes, "AsyncTP")) job->runtime.overlap_tensor = true;
  }
  if (recipe.plain_experts) {
    job->runtime.eager_experts = false;
    job->runtime.expert_exposed = 1;
  }
  // A row that says "full" recomputes all.
  if (!row.text("act_recompute").empty()) job->runtime.recompute_keeps_projections = false;
  job->cluster = cluster_of(row, devices);

  Choices& c = step.plan.choices;
  const auto at_least_one = [&](std::string_view column) { return std::max(1, row.count(column)); };
  c.tp = at_least_one("tp");
  c.pp = at_least_one("pp");
  c.cp = at_least_one("cp");
  c.ep = at_least_one("ep");
  // Megatron-Core splits experts as it splits the rest, unless told otherwise, as in all of DeepSeek's
  // recipes.
  const bool whole_experts = recipe.whole_experts || job->workload.transformer->mla;
  if (c.ep > 1 && c.tp > 1 && job->workload.transformer->moe && !whole_experts) c.etp = c.tp;
  // The world is tp pp dp cp: what a table calls dp is not always that.
  if (devices % (c.tp * c.pp * c.cp) != 0)
    throw Unreadable{fmt::format("tp {} pp {} cp {} do not divide {} devices", c.tp, c.pp, c.cp, devices),
                     false};
  c.dp = devices / (c.tp * c.pp * c.cp);
  if (batch % c.dp != 0)
    throw Unreadable{fmt::format("dp {} does not divide the batch {}", c.dp, batch), false};
  if (const int pipelines = pipelines_of_a_step(row, static_cast<int>(batch / c.dp)); pipelines > 1) {
    batch /= pipelines;
    job->training.global_batch = batch;
    step.measured_s /= pipelines;
  }
  c.micro_batch = micro_batch_of(row, static_cast<int>(batch / c.dp), c.pp);
  if ((batch / c.dp) % c.micro_batch != 0)
    throw Unreadable{
        fmt::format("micro-batch {} does not divide a replica's {}", c.micro_batch, batch / c.dp), false};
  int chunks = at_least_one("vp_interleave");
  const std::int64_t micro_batches = batch / c.dp / c.micro_batch;
  if (row.text("vp_interleave").empty() && recipe.chunk_a_layer && c.pp > 1)
    chunks = std::max(1, job->workload.layers / c.pp);
  // torchtitan's Interleaved1F1B has two stages a rank.
  if (row.count("vp_interleave") == 0 && has(row.text("notes"), "Interleaved 1F1B")) chunks = 2;
  if (c.pp > 1 && chunks > 1 && micro_batches % c.pp == 0) {
    c.schedule = Schedule::interleaved;
    c.interleave = chunks;
  }
  if (c.pp * c.interleave > model.layers && c.pp * c.interleave > job->workload.layers)
    throw Unreadable{fmt::format("{} model chunks of {} layers", c.pp * c.interleave, job->workload.layers),
                     false};
  step.recompute_stated = !row.text("act_recompute").empty();
  // "FSDP=1" beside rows of "FSDP=0" may say that it is on.
  step.sharding_stated = !row.text("dp_sharding").empty() && row.text("dp_sharding") != "FSDP=1" &&
                         !has(row.text("dp_sharding"), "FSDP=1 ");
  read_recompute(row, job->runtime, &c);
  if (expert_ranks(c) % c.ep != 0)
    throw Unreadable{fmt::format("ep {} does not divide {} ranks", c.ep, expert_ranks(c)), false};
  const bool once_a_node = recipe.once_a_node || has(row.text("notes"), "DeepEP");
  if (once_a_node && c.ep > 1) {
    const auto sent = recipe.deals_in_turn ? dealt_in_turn : sent_once_a_node;
    job->runtime.expert_exposed *=
        sent(c.ep, job->cluster.groups.front().node.devices, *job->workload.transformer->moe);
  }
  if (c.interleave == 1) read_cuts(row, job->workload.layers, &c);
  read_sharding(row, job->runtime, &c);
  c.overlap_grad_reduce = job->runtime.overlap_grad_reduce;

  step.group =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", table.file, row.text("framework"),
                  row.text("date"), model.name, job->workload.layers, model.hidden, model.heads,
                  model.ffn_hidden, model.seq_len, row.text("gpu"), devices, row.text("precision"), batch);
  step.label =
      fmt::format("tp{} pp{} dp{} cp{} ep{} v{} mb{} zero{} {}{}", c.tp, c.pp, c.dp, c.cp, c.ep, c.interleave,
                  c.micro_batch, c.zero, name_of(c.recompute), c.sequence_parallel ? " sp" : "");
  step.plan.job = std::move(job);
  return step;
}

}  // namespace orrery::planner
