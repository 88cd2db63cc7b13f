#include "evidence/published_throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <regex>
#include <string_view>

#include "base/error.h"
#include "evidence/published_fields.h"
#include "evidence/published_rows.h"
#include "planner/evaluation/evaluation.h"
#include "topologies/readers/catalog.h"
#include "workloads/readers/catalog.h"

namespace orrery::planner {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct Measured {
  double predicted = 0, measured = 0;
  std::string plan;
};

// What a table calls a device; the catalog cluster of which it is one, and the device instead of its. The
// first match counts.
struct Accelerator {
  std::string_view word, cluster, device;
};
constexpr std::array<Accelerator, 16> kAccelerators = {{
    {"A100-PCI", "pcie-4090", "a100-pcie-80g"},
    {"A100-SXM-40GB", "dgx-a100-40g", ""},
    {"A100-SXM4-40GB", "dgx-a100-40g", ""},
    {"A100 40GB", "dgx-a100-40g", ""},
    {"A100-SXM", "dgx-a100", ""},
    {"A100", "dgx-a100", ""},
    {"H100-PCI", "pcie-4090", "h100-pcie-80g"},
    {"H100", "dgx-h100", ""},
    {"H200", "dgx-h200", ""},
    {"L40S", "pcie-4090", "l40s"},
    {"V100-SXM2-16GB", "dgx-v100-16g", ""},
    {"V100 16G", "dgx-v100-16g", ""},
    {"V100S-PCIe", "pcie-4090", "v100-pcie-32g"},
    {"V100", "dgx-v100-32g", ""},
    {"P100", "v100-ib100", "p100-pcie-16g"},
    {"T4", "pcie-4090", "t4"},
}};

// A machine of `devices` in nodes of `per_node`, joined by `ports` a node of `gigabits` (0: the catalog's).
Cluster cluster_of(const std::string& accelerator, int devices, int per_node, int ports, double gigabits,
                   Transport transport) {
  const auto known = std::find_if(kAccelerators.begin(), kAccelerators.end(),
                                  [&](const Accelerator& a) { return has(accelerator, a.word); });
  if (known == kAccelerators.end())
    throw Unreadable{"no profile of the accelerator '" + accelerator + "'", false};
  Cluster cluster = load_cluster(std::string(known->cluster));
  NodeType& node = cluster.groups.front().node;
  if (!known->device.empty()) cluster.profiles[node.profile] = catalog_device(std::string(known->device));
  per_node = std::min(per_node, devices);
  if (node.intra.kind == IntraKind::pcie) node.intra.devices_per_bridge = std::max(1, per_node / 2);
  if (per_node != node.devices) {
    node.devices = per_node;
    if (node.intra.kind == IntraKind::nvlink_mesh) {
      if (per_node > 8) {  // DGX-2: NVSwitch, six links of 25 GB/s
        node.intra.kind = IntraKind::nvswitch;
        node.intra.bandwidth_bytes_per_s = 150e9;
        node.intra.mesh_links.clear();
      } else {
        node.intra.mesh_links.assign(static_cast<std::size_t>(per_node) * per_node, 2);
        for (int d = 0; d < per_node; ++d)
          node.intra.mesh_links[static_cast<std::size_t>(d) * per_node + d] = 0;
      }
    }
    node.nic.count = std::max(1, std::min(node.nic.count, per_node));
  }
  if (ports > 0) {
    node.nic.count = std::min(ports, per_node);
    node.nic.bandwidth_bytes_per_s = gigabits * 1e9 / 8 * ports / node.nic.count;
    node.nic.pcie_bandwidth_bytes_per_s = std::max(node.nic.pcie_bandwidth_bytes_per_s, gigabits * 1e9 / 8);
    node.nic.direct = transport != Transport::tcp;
    cluster.fabric.transport = transport;
  }
  node.nic.of_device.clear();
  for (int d = 0; d < per_node; ++d) node.nic.of_device.push_back(d * node.nic.count / per_node);
  cluster.groups.front().count = 1;
  return per_node == devices ? with_devices(std::move(cluster), devices)
                             : with_nodes(std::move(cluster), (devices + per_node - 1) / per_node);
}

struct DataParallel {
  std::string workload;
  std::string runtime;
  int devices = 1;
  int batch = 0;  // of one device and micro-batch
  int accumulation = 1;
  DType precision = DType::fp16;
  Optimizer optimizer = Optimizer::momentum;
  bool overlap = true;
};

// Only the masked positions reach the head: `share` of the tokens.
void shorten_head(Workload* workload, double share) {
  for (Operator& op : workload->operators) {
    if (op.layer < workload->layers) continue;
    for (MatmulShape& shape : op.matmuls) shape.rows_per_row *= share;
    op.vector_elements *= share;
  }
}

Plan plan_of(const DataParallel& t, Cluster cluster) {
  auto job = std::make_shared<Job>();
  job->workload = load_workload(t.workload);
  job->cluster = std::move(cluster);
  job->runtime = catalog_runtime(t.runtime);
  job->training.precision = t.precision;
  job->training.optimizer = t.optimizer;
  job->training.seq_len = 0;
  job->training.fused_attention = true;
  job->training.global_batch = static_cast<std::int64_t>(t.devices) * t.batch * t.accumulation;
  Plan plan;
  plan.choices.dp = t.devices;
  plan.choices.micro_batch = t.batch;
  plan.choices.overlap_grad_reduce = t.overlap;
  plan.job = job;
  return plan;
}

double samples_per_s(const Plan& plan) {
  return static_cast<double>(plan.job->training.global_batch) / estimate_step_seconds(plan);
}

// ---- MLPerf Training ----

// "2x ConnectX-6 IB HDR 200Gb/Sec"; of several, the one that says "Compute".
void read_ports(const std::string& words, int* ports, double* gigabits) {
  static const std::regex pattern(R"((\d+)x ?[^,|]*?(\d+) ?Gb)");
  const std::size_t compute = words.find("Compute");
  const std::string part = compute == std::string::npos ? words : words.substr(compute);
  std::smatch found;
  if (!std::regex_search(part, found, pattern)) return;
  *ports = std::stoi(found[1]);
  *gigabits = std::stod(found[2]);
}

Measured read_mlperf(const Fields& row) {
  const std::string& benchmark = row.text("benchmark");
  if (benchmark != "resnet" && benchmark != "bert")
    throw Unreadable{"no model '" + benchmark + "' in the catalog", false};
  const int devices = row.count("n_accelerators");
  if (devices <= 0) throw Unreadable{"the number of accelerators is not stated", true};
  const std::string& accelerator = row.text("accelerator");
  if (accelerator.empty()) throw Unreadable{"no accelerator is stated", true};
  Measured result;
  if (benchmark == "resnet") {
    result.measured = row.real("epoch_derived_images_per_s");
  } else {
    result.measured = row.real("logged_throughput_median_samples_per_s");
    if (result.measured <= 0) {
      result.measured = row.real("bert_train_samples_over_runtime_per_s_incl_eval");
      if (row.real("time_to_train_median_minutes") < 5)
        throw Unreadable{"only a rate that counts evaluation in, of a run of under five minutes", true};
    }
  }
  if (result.measured <= 0) throw Unreadable{"no throughput is stated", true};
  DataParallel t;
  t.devices = devices;
  t.accumulation = std::max(1, row.count("grad_accum"));
  const int batch = row.count("global_batch_size_samples");
  if (batch <= 0) throw Unreadable{"the global batch is not stated", true};
  if (batch % (devices * t.accumulation) != 0)
    throw Unreadable{
        fmt::format("{} devices x {} do not divide the batch {}", devices, t.accumulation, batch), false};
  t.batch = batch / devices / t.accumulation;
  int ports = 0;
  double gigabits = 0;
  read_ports(row.text("host_networking"), &ports, &gigabits);
  Cluster cluster = cluster_of(accelerator, devices, std::max(1, row.count("accel_per_node")), ports,
                               gigabits, Transport::infiniband);
  t.runtime = "horovod";
  t.workload = benchmark == "resnet" ? "resnet50" : "bert-large";
  Plan plan;
  if (benchmark == "resnet") {
    plan = plan_of(t, std::move(cluster));
  } else {
    // NVIDIA's H100 submissions train in fp8. Sequences of at most 512 tokens, packed: 256 in the mean (Krell
    // et al., arXiv 2107.02027, figure 1: half of Wikipedia's tokens at 512 are padding); 76 of 512 positions
    // masked.
    if (has(accelerator, "H100") || has(accelerator, "H200")) t.precision = DType::fp8;
    t.optimizer = Optimizer::adam;
    plan = plan_of(t, std::move(cluster));
    auto job = std::make_shared<Job>(*plan.job);
    job->training.seq_len = 256;
    job->runtime.dropout = true;  // 0.1, as Devlin et al. train it
    if (row.text("framework").substr(0, 2) == "tf") {
      // Not NVIDIA's packed sequences nor its fused attention.
      job->training.seq_len = 512;
      job->training.fused_attention = false;
    }
    shorten_head(&job->workload, 76.0 / 512);
    plan.job = job;
    plan.choices.zero = devices > 1 ? 1 : 0;  // distributed LAMB
  }
  result.plan = fmt::format("dp{} mb{} x{} {}", devices, t.batch, t.accumulation,
                            name_of(plan.job->training.precision));
  result.predicted = samples_per_s(plan);
  return result;
}

// ---- DeepLearningExamples ----

Measured read_examples(const Fields& row) {
  const std::string& path = row.text("model_path");
  if (!has(path, "resnet50"))
    throw Unreadable{"no model '" + path.substr(path.rfind('/') + 1) + "' in the catalog", false};
  Measured result;
  result.measured = row.real("throughput");
  const std::string& precision = row.text("precision");
  DataParallel t;
  t.workload = "resnet50";
  t.devices = row.count("n_gpus");
  if (t.devices <= 0 || result.measured <= 0)
    throw Unreadable{"the number of devices or the throughput is not stated", true};
  t.precision = has(precision, "TF32") ? DType::tf32 : has(precision, "FP32") ? DType::fp32 : DType::fp16;
  // 256 images a device, 128 in fp32: as the README's commands have it, and the column where there is one.
  t.batch = t.precision == DType::fp32 ? 128 : 256;
  const bool tensorflow = has(row.text("framework"), "TensorFlow");
  t.runtime = tensorflow ? "horovod" : "pytorch-ddp";
  const std::string& heading = row.text("system_heading");
  Cluster cluster =
      cluster_of(heading, t.devices, has(heading, "DGX-2") ? 16 : 8, 0, 0, Transport::infiniband);
  Plan plan = plan_of(t, std::move(cluster));
  if (tensorflow) {
    // XLA fuses element-wise kernels, but not the statistics of a batch norm, as MXNet's own kernel does.
    auto job = std::make_shared<Job>(*plan.job);
    job->runtime.fused_normalization = false;
    plan.job = job;
  }
  result.plan = fmt::format("dp{} mb{} {} {}", t.devices, t.batch, name_of(t.precision), t.runtime);
  result.predicted = samples_per_s(plan);
  return result;
}

// ---- Papers of the data-parallel years ----

Measured read_scaling(const Fields& row) {
  const std::string& source = row.text("source");
  const std::string& model = row.text("model");
  const std::string& metric = row.text("metric");
  Measured result;
  const std::string value = row.text("value").substr(row.text("value").rfind('~') + 1);
  result.measured = std::strtod(value.c_str(), nullptr);
  const std::string workload = model == "ResNet-101"   ? "resnet101"
                               : model == "ResNet-50"  ? "resnet50"
                               : model == "VGG-16"     ? "vgg16"
                               : model == "BERT-large" ? "bert-large"
                                                       : "";
  const int devices = row.count("n_gpus");
  if (has(metric, "->") || has(row.text("value"), "->") || has(metric, "torch DDP vs"))
    throw Unreadable{"a ratio of two implementations", false};
  if (has(metric, "speed-up"))
    throw Unreadable{devices > 0 ? "a ratio of two systems" : "the number of devices is not stated", false};
  if (has(metric, "BytePS")) throw Unreadable{"parameter servers on hosts that are not described", false};
  if (has(source, "Megatron")) throw Unreadable{"the model's dimensions and batch are not stated", true};
  if (workload.empty()) throw Unreadable{"no model '" + model + "' in the catalog", false};
  DataParallel t;
  t.workload = workload;
  t.runtime = "horovod";
  t.devices = devices;
  t.batch = 64;  // tf_cnn_benchmarks' default
  t.precision = DType::fp32;
  int per_node = 4;
  std::string accelerator = "P100";
  double gigabits = 25;
  if (workload == "bert-large") {
    accelerator = "V100";
    per_node = 8;
    gigabits = 100;
    t.precision = DType::fp16;
    t.optimizer = Optimizer::adam;
  }
  const auto rate = [&](int count) {
    t.devices = count;
    Plan plan = plan_of(t, cluster_of(accelerator, count, per_node, 1, gigabits, Transport::roce));
    if (workload == "bert-large") {
      auto job = std::make_shared<Job>(*plan.job);
      job->training.seq_len = 128;
      job->training.fused_attention = false;
      plan.job = job;
    }
    return samples_per_s(plan);
  };
  result.plan = fmt::format("dp{} mb{} {}", devices, t.batch, name_of(t.precision));
  result.predicted = has(metric, "efficiency") ? 100 * rate(devices) / devices / rate(1) : rate(devices);
  return result;
}

bool is_mlperf(const CsvTable& table) {
  return table.column("benchmark") >= 0 && table.column("epoch_derived_images_per_s") >= 0;
}
bool is_examples(const CsvTable& table) {
  return table.column("model_path") >= 0 && table.column("throughput") >= 0;
}
bool is_scaling(const CsvTable& table) {
  return table.column("gpu_and_network") >= 0 && table.column("metric") >= 0;
}

}  // namespace

bool ThroughputJudge::is_throughput_table(const CsvTable& table) {
  return is_mlperf(table) || is_examples(table) || is_scaling(table);
}

void ThroughputJudge::add_table(const std::string& name, const CsvTable& table, Json* rows) {
  Source source;
  source.name = name;
  for (const CsvRow& fields : table.rows) {
    const Fields row(table, fields);
    Json json;
    json["file"] = name;
    json["line"] = fields.line;
    json["source"] = row.text("source");
    json["model"] = is_mlperf(table)     ? row.text("benchmark")
                    : is_examples(table) ? row.text("model_path")
                                         : row.text("model");
    json["gpu"] = is_mlperf(table)     ? row.text("accelerator")
                  : is_examples(table) ? row.text("system_heading")
                                       : row.text("gpu_and_network");
    try {
      const Measured judged = is_mlperf(table)     ? read_mlperf(row)
                              : is_examples(table) ? read_examples(row)
                                                   : read_scaling(row);
      json["plan"] = judged.plan;
      json["predicted_per_s"] = judged.predicted;
      json["measured_per_s"] = judged.measured;
      json["relative_error"] = judged.predicted / judged.measured - 1;
      source.rows.push_back({judged.predicted, judged.measured, fmt::format("{}:{}", name, fields.line), ""});
    } catch (const Unreadable& why) {
      json["skipped"] = why.why;
      ++source.skipped;
    } catch (const UserError& error) {
      json["skipped"] = error.what();
      ++source.skipped;
    }
    rows->push_back(std::move(json));
  }
  sources_.push_back(std::move(source));
}

Json ThroughputJudge::json() const {
  std::vector<Judged> all;
  int skipped = 0;
  Json json;
  json["all"] = Json::object();
  json["sources"] = Json::object();
  for (const Source& source : sources_) {
    json["sources"][source.name] = figures(source.rows, source.skipped);
    all.insert(all.end(), source.rows.begin(), source.rows.end());
    skipped += source.skipped;
  }
  json["all"] = figures(all, skipped);
  return json;
}

}  // namespace orrery::planner
