// Networks, and what is trained on: configurations, graphs, workloads, lengths of sequences; plans and
// runtimes.
#include <regex>

#include "program/plan.h"
#include "program/runtime_profile.h"
#include "program/samples/sequence_lengths.h"
#include "proto/plan.pb.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/target.h"
#include "tests/workloads/readers/onnx_models.h"
#include "workloads/readers/catalog.h"
#include "workloads/readers/huggingface.h"
#include "workloads/readers/onnx.h"
#include "workloads/workload.h"

namespace orrery::fuzz {
namespace {

void check_workload(const Workload& workload) {
  possible(workload.layers > 0 && !workload.operators.empty(), "an empty workload");
  possible(workload.parameters() >= 0, "a negative number of parameters");
  const double flops = workload.forward_flops_per_sample(128);
  possible(std::isfinite(flops) && flops >= 0, "impossible FLOPs");
  int layer = -1;
  for (std::size_t i = 0; i < workload.operators.size(); ++i) {
    const Operator& op = workload.operators[i];
    possible(op.layer >= layer && op.layer <= workload.layers, "layers fall: " + op.name);
    layer = op.layer;
    for (const int input : op.inputs)
      possible(input >= 0 && static_cast<std::size_t>(input) < i, "out of order: " + op.name);
  }
}

bool huggingface(std::string_view bytes) {
  return sound_or_refused([&] { return workload_from_huggingface(bytes, "fuzz"); }, check_workload);
}
// Real configurations; of two layers where they may be, which are read in a tenth of the time.
std::vector<std::string> huggingface_seeds() {
  static const std::regex layers(
      R"j(("(?:num_hidden_layers|num_layers|n_layer|n_layers|encoder_layers|decoder_layers)": *)[0-9]+)j");
  std::vector<std::string> seeds = folder_of("tests/data/huggingface", ".json");
  for (std::string& seed : seeds)
    if (const std::string fewer = std::regex_replace(seed, layers, "$012"); huggingface(fewer)) seed = fewer;
  return seeds;
}

bool onnx(std::string_view bytes) {
  return sound_or_refused([&] { return workload_from_onnx(bytes, "fuzz"); }, check_workload);
}
std::vector<std::string> onnx_seeds() {
  test::OnnxBuilder b;
  b.input("x", {3, 16, 16});
  b.node("Flatten", {b.relu(b.batch_norm(b.conv("c", "x", 3, 4, 3, 1), 4))}, "f");
  b.node("MatMul", {"f", b.weight("w", {1024, 10})}, "y");
  b.output("y", 2);
  return {b.bytes()};
}

Workload workload_of(std::string_view bytes) {
  proto::Workload message;
  parse_textproto(bytes, "fuzz", &message);
  return workload_from_proto(message, "fuzz", bytes);
}
bool workload(std::string_view bytes) {
  return sound_or_refused([&] { return workload_of(bytes); },
                          [](const Workload& read) {
                            check_workload(read);
                            proto::Workload message;
                            to_proto(read, &message);
                            accepted_again([&] { workload_of(to_textproto(message)); });
                          });
}
std::vector<std::string> workload_seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"gpt2-tiny", "deepseek-v3", "bert-base", "resnet50", "dlrm"}) {
    proto::Workload message;
    to_proto(load_workload(name), &message);
    const std::string text = to_textproto(message);
    if (text.size() <= 4 * kMostSeedBytes) seeds.push_back(text);
  }
  return joined(seeds, {own_seed("transformer.textproto")});
}

bool lengths(std::string_view bytes) {
  const bool said = bytes.starts_with("lognormal:");
  return sound_or_refused(
      [&] { return sequence_lengths_from(said ? std::string(bytes) : as_file(bytes, "lengths"), 4096); },
      [](const SequenceLengths& read) {
        possible(read.any(), "no lengths");
        for (const int tokens : read.tokens) possible(tokens > 0 && tokens <= 4096, "an impossible length");
      });
}
std::vector<std::string> lengths_seeds() {
  return {"lognormal:512,300", "12\n700\n 4096\r\n\n9000\n"};
}

Plan plan_of(std::string_view bytes) {
  proto::Plan message;
  parse_textproto(bytes, "fuzz", &message);
  return plan_from_proto(message, "fuzz", bytes);
}
bool plan(std::string_view bytes) {
  return sound_or_refused([&] { return plan_of(bytes); },
                          [](const Plan& read) {
                            possible(read.choices.world() > 0, "a plan for nobody");
                            proto::Plan message;
                            to_proto(read, &message);
                            accepted_again([&] { plan_of(to_textproto(message)); });
                          });
}
std::vector<std::string> plan_seeds() {
  return {own_seed("plan.textproto"), own_seed("plan_moe.textproto")};
}

bool runtime(std::string_view bytes) {
  return sound_or_refused([&] { return runtime_from_text(bytes, "fuzz"); }, [](const RuntimeProfile&) {});
}
std::vector<std::string> runtime_seeds() {
  return folder_of("program/runtimes", ".textproto");
}

}  // namespace

std::vector<Target> networks() {
  return {{"huggingface", huggingface, huggingface_seeds, 2000},
          {"onnx", onnx, onnx_seeds, 2000},
          {"workload", workload, workload_seeds, 500},
          {"lengths", lengths, lengths_seeds, 300},
          {"plan", plan, plan_seeds, 300},
          {"runtime", runtime, runtime_seeds, 1000}};
}

}  // namespace orrery::fuzz
