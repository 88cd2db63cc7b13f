// Tiny models and plans for tests that train for real.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "program/plan.h"
#include "program/runtime_profile.h"
#include "topologies/readers/catalog.h"
#include "workloads/graph_split.h"
#include "workloads/networks/graph_builder.h"
#include "workloads/networks/tower_builder.h"
#include "workloads/workload.h"

namespace orrery::exec::test {

struct PlanCase {
  std::string name;
  bool llama = false;
  Choices choices;
  Optimizer optimizer = Optimizer::sgd;
  bool clip = false;
  std::vector<std::int64_t> replica_batches = {};
  // Lossy forms: how far the mean loss of the last steps may be from the serial run's, relatively. 0: exact
  // to rounding, step by step.
  double lossy = 0;
  int steps = 20;
  DType precision = DType::fp32;
  std::function<void(Transformer&)> model = {};  // what it has beyond the tiny model
  std::function<Workload()> network = {};        // on images, instead of the tiny model
  std::function<void(Workload&)> workload = {};  // what becomes of its operators
  // Of each tensor's norm.
  double parameter_tolerance = 1e-5;
  bool learns = true;        // within its steps
  double learning_rate = 0;  // 0: by the optimizer and the model
};

std::vector<PlanCase> all_cases();
std::vector<PlanCase> dropout_cases();  // of these, those with dropout
std::vector<PlanCase> patch_cases();    // and those of vision transformers
std::vector<PlanCase> v_cases();        // and those whose pipelines' chunks lie in a V
// Of a form of parallelism that only tests know (rehearsal.cc); once a process.
std::vector<PlanCase> rehearsal_cases(int world);
// So many sound plans of `world` ranks, drawn by a seed; the same on every rank. `series`: other ones.
std::vector<PlanCase> random_cases(int world, int count, std::uint64_t series);

constexpr int kGlobalBatch = 8;
constexpr int kSeqLen = 24;  // divides into the parts of 2, 3 and 4 context ranks

inline Workload tiny_model(bool llama, const std::function<void(Transformer&)>& change = {}) {
  Transformer t;
  t.layers = 4;
  t.hidden = 32;
  t.heads = 4;
  t.head_dim = 8;
  t.norm_epsilon = 1e-5;
  if (llama) {
    t.family = "llama";
    t.kv_heads = 2;
    t.ffn_hidden = 48;
    t.vocab = 256;
    t.max_positions = 64;
    t.gated_ffn = true;
    t.activation = Activation::silu;
    t.norm = NormKind::rms_norm;
  } else {
    t.family = "gpt2";
    t.kv_heads = 4;
    t.ffn_hidden = 64;
    t.vocab = 259;  // does not divide: tensor ranks pad
    t.max_positions = 32;
    t.learned_positions = true;
    t.tied_embeddings = true;
    t.qkv_bias = true;
    t.linear_bias = true;
  }
  if (change) change(t);
  Workload workload;
  workload.name = llama ? "tiny-llama" : "tiny-gpt2";
  workload.transformer = t;
  workload.operators = transformer_operators(t);
  workload.layers = t.layers;
  workload.default_seq_len = kSeqLen;
  return workload;
}

// Two residual blocks on images of 12 x 12.
inline Workload tiny_resnet() {
  internal::GraphBuilder b;
  internal::GraphTensor x = b.relu("relu", b.batch_norm("bn1", b.conv("conv1", {-1, 3, 12}, 8, 3, 1, false)));
  x = b.max_pool("maxpool", x, 3, 2);
  x = b.basic_block("layer1.0.", x, 8, 1);
  x = b.basic_block("layer2.0.", x, 12, 2);
  b.loss(b.linear("fc", b.average_pool("avgpool", x), 10));
  return b.finish("tiny-resnet", "", 0);
}

// Biases, no norms, fully connected layers over pixels.
inline Workload tiny_vgg() {
  internal::GraphBuilder b;
  internal::GraphTensor x = b.relu("relu1", b.conv("features.0", {-1, 3, 10}, 6, 3, 1, true));
  x = b.max_pool("pool1", x, 2, 2);
  x = b.relu("relu2", b.conv("features.3", x, 8, 3, 1, true));
  x = b.relu("relu3", b.linear("classifier.0", x, 24));
  b.loss(b.linear("classifier.2", x, 10));
  return b.finish("tiny-vgg", "", 0);
}

// Its operators of these names split for tensor ranks.
inline Workload with_splits(Workload workload,
                            std::initializer_list<std::pair<const char*, TensorSplit>> splits) {
  for (Operator& op : workload.operators)
    for (const auto& [name, split] : splits)
      if (op.name == name) set_split(&op, split);
  const int fault = complete_splits(&workload.operators);
  if (fault >= 0) throw InternalError("no such split: " + workload.operators[fault].name);
  return workload;
}

inline Workload tiny_perceptron() {
  internal::GraphBuilder b;
  internal::GraphTensor x = b.relu("relu1", b.linear("fc1", {-1, 1, 9}, 32));
  x = b.relu("relu2", b.linear("fc2", x, 16));
  b.loss(b.linear("fc3", x, 10));
  return b.finish("tiny-perceptron", "", 0);
}

// Three blocks over nine patches and a class token.
inline Workload tiny_vit() {
  internal::TowerBuilder b;
  b.set_mathematics(1e-6, Activation::gelu_erf);
  internal::TowerBlock block;
  block.heads = 4;
  block.head_dim = 4;
  block.ffn = 24;
  internal::TokenTensor x = b.patches("", 3, 12, 4, 16, true, {});
  for (int i = 0; i < 3; ++i) {
    if (i > 0) b.next_layer();
    x = b.block(std::to_string(i) + ".", block, x, false);
  }
  b.loss({b.project("classifier", b.norm("final_norm", x, true), 1, 16, 10, true)});
  Workload workload;
  workload.name = "tiny-vit";
  b.finish(&workload);
  return workload;
}

inline Plan make_plan(const PlanCase& c) {
  auto job = std::make_shared<Job>();
  job->workload = c.network ? c.network() : tiny_model(c.llama, c.model);
  if (c.workload) c.workload(job->workload);
  job->cluster = with_devices(load_cluster("localhost"), c.choices.world());
  job->runtime = catalog_runtime("orrery");
  job->runtime.bucket_bytes = 16 << 10;  // several buckets even for a tiny model
  job->runtime.clip_gradients = c.clip;
  job->training.global_batch = kGlobalBatch;
  job->training.seq_len = c.network ? 0 : kSeqLen;
  job->training.precision = c.precision;
  job->training.optimizer = c.optimizer;
  // High enough that a wrong gradient shows within twenty steps, low enough that rounding does not grow.
  const double sgd = c.network ? 0.02 : c.llama ? 0.05 : 0.1;
  job->training.learning_rate = c.optimizer == Optimizer::sgd        ? sgd
                                : c.optimizer == Optimizer::momentum ? (c.network ? 0.005 : 0.02)
                                                                     : 3e-3;
  if (c.learning_rate > 0) job->training.learning_rate = c.learning_rate;
  Plan plan{job, c.choices};
  plan.choices.replica_batches = c.replica_batches;
  check_plan(plan);
  return plan;
}

// The serial reference: one rank, the same micro-batches in the same order.
inline PlanCase serial_of(const PlanCase& c) {
  PlanCase serial = c;
  serial.choices = Choices{};
  // Tensor ranks share the samples of a micro-batch of images, and norms go by each rank's own.
  serial.choices.micro_batch = c.choices.micro_batch / (c.network ? c.choices.tp : 1);
  serial.choices.capacity_factor = c.choices.capacity_factor;  // defined by micro-batch
  serial.replica_batches.clear();
  return serial;
}

}  // namespace orrery::exec::test
