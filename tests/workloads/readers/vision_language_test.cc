// Language models that read pictures: parameters, FLOPs and blocks summed by hand from the dimensions.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/file.h"
#include "proto/workload.pb.h"
#include "tests/workloads/readers/huggingface_files.h"
#include "workloads/fine_tuning.h"
#include "workloads/readers/catalog.h"
#include "workloads/readers/huggingface.h"

namespace orrery {
namespace {

using test::file_of;
using test::load;

using VisionCount = std::int64_t;

// The file's text with one replacement, read.
Workload changed(const std::string& name, const std::string& from, const std::string& to) {
  std::string text = read_file(file_of(name));
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return workload_from_huggingface(text.replace(at, from.size(), to), "config.json");
}

// A tower's layer: four projections and an MLP with biases, two layer norms.
constexpr VisionCount tower_layer(VisionCount h, VisionCount f) {
  return 4 * (h * h + h) + 2 * h * f + f + h + 4 * h;
}
constexpr VisionCount perceptron(VisionCount in, VisionCount hidden, VisionCount out) {
  return in * hidden + hidden + hidden * out + out;
}
// Qwen2 and Qwen2.5 7B: 7,615,616,512 (biases of queries, keys and values; a head of its own).
constexpr VisionCount kQwen7B = 2 * VisionCount{152064} * 3584 + 3584 +
                                28 * (2 * VisionCount{3584} * 3584 + 2 * VisionCount{3584} * 512 + 3584 +
                                      2 * 512 + 3 * VisionCount{3584} * 18944 + 2 * 3584);

// Counts of the published weights (their safetensors' indices): 7,063,427,072; 8,291,375,616; 8,292,166,656;
// 8,767,123,696.
TEST_CASE("vision and language: parameters are those of the published weights") {
  const VisionCount vicuna = 2 * VisionCount{32064} * 4096 + 4096 +
                             32 * (4 * VisionCount{4096} * 4096 + 3 * VisionCount{4096} * 11008 + 2 * 4096);
  const VisionCount clip =
      3 * 14 * 14 * 1024 + 1024 + 577 * 1024 + 2 * 1024 + 24 * tower_layer(1024, 4096) + 2 * 1024;
  const VisionCount unread = tower_layer(1024, 4096) + 2 * 1024;  // behind the layer that LLaVA reads
  CHECK(vicuna + clip + perceptron(1024, 4096, 4096) == 7'063'427'072);
  CHECK(load("llava-1.5-7b").parameters() == 7'063'427'072 - unread);
  CHECK_THAT(load("llava-1.5-7b").notes.front(), Catch::Contains(std::to_string(unread) + " parameters"));

  REQUIRE(kQwen7B == 7'615'616'512);
  const VisionCount patches = 3 * 2 * 14 * 14 * 1280;
  CHECK(load("qwen2-vl-7b").parameters() ==
        patches + 32 * tower_layer(1280, 5120) + 2 * 1280 + perceptron(5120, 5120, 3584) + kQwen7B);
  CHECK(load("qwen2-vl-7b").parameters() == 8'291'375'616);
  // RMS norms, a gated MLP with biases.
  const VisionCount layer = 4 * (1280 * 1280 + 1280) + 3 * 1280 * 3420 + 2 * 3420 + 1280 + 2 * 1280;
  CHECK(load("qwen2.5-vl-7b").parameters() ==
        patches + 32 * layer + 1280 + perceptron(5120, 5120, 3584) + kQwen7B);
  CHECK(load("qwen2.5-vl-7b").parameters() == 8'292'166'656);
  // Trained positions; three more mergers, whose norms see four patches at once.
  const VisionCount qwen3 = 2 * VisionCount{151936} * 4096 + 4096 +
                            36 * (2 * VisionCount{4096} * 4096 + 2 * VisionCount{4096} * 1024 + 2 * 128 +
                                  3 * VisionCount{4096} * 12288 + 2 * 4096);
  CHECK(load("qwen3-vl-8b").parameters() == 3 * 2 * 16 * 16 * 1152 + 1152 + 2304 * 1152 +
                                                27 * tower_layer(1152, 4304) + 2 * 1152 + 3 * 2 * 4608 +
                                                4 * perceptron(4608, 4608, 4096) + qwen3);
  CHECK(load("qwen3-vl-8b").parameters() == 8'767'123'696);
}

// A decoder of grouped attention on s tokens: products, and the causal half of two squares.
double decoder_flops(double s, double layers, double h, double kv, double f, double vocab) {
  return layers * (2 * s * (2 * h * h + 2 * h * kv + 3 * h * f) + 4 * s * s * h / 2) + 2 * s * h * vocab;
}

TEST_CASE("vision and language: FLOPs are two a multiply-add over one picture and 2,048 tokens, by hand") {
  // 577 rows in the tower, 576 of them through the projector.
  const double p = 577;
  CHECK(load("llava-1.5-7b").forward_flops_per_sample(0) ==
        2.0 * 576 * 588 * 1024 + 23 * (2 * p * 12 * 1024 * 1024 + 4 * p * p * 1024) +
            2.0 * 576 * (1024.0 * 4096 + 4096.0 * 4096) + decoder_flops(2048, 32, 4096, 4096, 11008, 32064));
  // 32 x 32 patches, four to a token.
  const double q = 1024, merger = 2.0 * 256 * (5120.0 * 5120 + 5120.0 * 3584);
  const double words = decoder_flops(2048, 28, 3584, 512, 18944, 152064);
  CHECK(load("qwen2-vl-7b").forward_flops_per_sample(0) ==
        2 * q * 1176 * 1280 + 32 * (2 * q * 12 * 1280 * 1280 + 4 * q * q * 1280) + merger + words);
  // 28 of the 32 layers see windows of 8 x 8 patches.
  CHECK(load("qwen2.5-vl-7b").forward_flops_per_sample(0) ==
        2 * q * 1176 * 1280 + 32 * 2 * q * (4 * 1280.0 * 1280 + 3 * 1280.0 * 3420) + 4 * 4 * q * q * 1280 +
            28 * 4 * q * 64 * 1280 + merger + words);
  // 28 x 28 patches; four mergers.
  const double r = 784;
  CHECK(load("qwen3-vl-8b").forward_flops_per_sample(0) ==
        2 * r * 1536 * 1152 + 27 * (2 * r * (4 * 1152.0 * 1152 + 2 * 1152.0 * 4304) + 4 * r * r * 1152) +
            4 * 2.0 * 196 * (4608.0 * 4608 + 4608.0 * 4096) +
            decoder_flops(2048, 36, 4096, 1024, 12288, 151936));
}

TEST_CASE("vision and language: pictures see themselves alone, however many a sample has") {
  const double one = load("qwen2-vl-7b").forward_flops_per_sample(0);
  const Workload three = changed("qwen2-vl-7b", "\"model_type\"", "\"sample_images\": 3, \"model_type\"");
  const double q = 1024, merger = 2.0 * 256 * (5120.0 * 5120 + 5120.0 * 3584);
  CHECK(three.forward_flops_per_sample(0) ==
        one + 2 * (2 * q * 1176 * 1280 + 32 * (2 * q * 12 * 1280 * 1280 + 4 * q * q * 1280) + merger));
  // Windows at the edge are smaller: 30 patches a side are 8, 8, 8 and 6.
  const Workload odd = changed("qwen2.5-vl-7b", "\"model_type\"", "\"image_size\": 420, \"model_type\"");
  for (const Operator& op : odd.operators)
    if (op.name == "vision.0.attention") CHECK(op.matmuls.front().k == 58);  // (228 / 30) squared
}

TEST_CASE("vision and language: a block is a layer, of the tower, then of the decoder") {
  const Workload llava = load("llava-1.5-7b");
  CHECK_FALSE(llava.transformer.has_value());
  CHECK(llava.layers == 23 + 32);
  CHECK(llava.ignored_keys.empty());
  for (const Operator& op : llava.operators) {
    if (op.name == "vision.22.mlp_up") CHECK(op.layer == 22);
    if (op.name == "projector.linear_1") CHECK(op.layer == 23);
    if (op.name == "language_model.embedding") CHECK(op.layer == 23);
    if (op.name == "language_model.h.31.mlp_up" || op.name == "language_model.head") CHECK(op.layer == 54);
  }
  for (const char* name : {"qwen2-vl-7b", "qwen2.5-vl-7b"}) {
    CHECK(load(name).layers == 32 + 28);
    CHECK(load(name).ignored_keys.empty());
  }
  // Three layers of the decoder add what the tower saw on its way.
  int added = 0;
  for (const Operator& op : load("qwen3-vl-8b").operators)
    if (op.name.ends_with(".into")) CHECK(op.layer == 27 + added++);
  CHECK(added == 3);
}

// As LLaVA is trained: the pictures' tower stays as it is.
TEST_CASE("vision and language: with the tower frozen the projector and the decoder are trained") {
  const Workload whole = load("llava-1.5-7b");
  Workload frozen = whole;
  FineTuning tuning;
  tuning.frozen_layers = 23;
  fine_tune(frozen, tuning);
  VisionCount trained = 0, still = 0;
  for (const Operator& op : frozen.operators) {
    for (const ParameterTensor& tensor : op.parameters) trained += tensor.elements();
    for (const ParameterTensor& tensor : op.frozen) still += tensor.elements();
  }
  const VisionCount tower = 3 * 14 * 14 * 1024 + 1024 + 577 * 1024 + 2 * 1024 + 23 * tower_layer(1024, 4096);
  CHECK(still == tower);
  CHECK(trained == whole.parameters() - tower);
  // Nothing goes back into the tower, nor to the projector's input.
  const double p = 577, linear_1 = 2.0 * 576 * 1024 * 4096;
  const double forward = 2.0 * 576 * 588 * 1024 + 23 * (2 * p * 12 * 1024 * 1024 + 4 * p * p * 1024);
  CHECK(whole.training_flops_per_sample(0) == Approx(3 * whole.forward_flops_per_sample(0)));
  CHECK(frozen.training_flops_per_sample(0) ==
        Approx(3 * whole.forward_flops_per_sample(0) - 2 * forward - linear_1));
  proto::Workload message;
  to_proto(frozen, &message);
  const Workload again = workload_from_proto(message, "again", "");
  CHECK(again.training_flops_per_sample(0) == frozen.training_flops_per_sample(0));
  tuning.frozen_layers = 56;
  Workload other = whole;
  CHECK_THROWS_WITH(fine_tune(other, tuning), Catch::Contains("`freeze` 56 is more than the 55 layers"));
  tuning.frozen_layers = 0;
  tuning.rank = 8;
  CHECK_THROWS_WITH(fine_tune(other, tuning), Catch::Contains("is a graph of operators"));
}

TEST_CASE("vision and language: written as a textproto they are read as they were") {
  const Workload llava = load("llava-1.5-7b");
  proto::Workload message;
  to_proto(llava, &message);
  const Workload again = workload_from_proto(message, "llava.textproto", "");
  CHECK(again.parameters() == llava.parameters());
  CHECK(again.forward_flops_per_sample(0) == llava.forward_flops_per_sample(0));
  CHECK(again.layers == llava.layers);
}

TEST_CASE("vision and language: a decoder that graphs do not have is planned by itself") {
  const Workload alone = changed("llava-1.5-7b", "\"model_type\": \"llama\"",
                                 "\"model_type\": \"mixtral\", \"num_key_value_heads\": 8");
  CHECK(alone.transformer.has_value());
  CHECK_THAT(alone.notes.front(), Catch::Contains("has experts") && Catch::Contains("by itself"));
}

TEST_CASE("vision and language: errors name the file, the line and the key") {
  const auto refused = [](const std::string& name, const std::string& from, const std::string& to,
                          const std::string& what) {
    CHECK_THROWS_WITH(changed(name, from, to), Catch::StartsWith("config.json:") && Catch::Contains(what));
    CHECK_THROWS_AS(changed(name, from, to), UserError);
  };
  refused("llava-1.5-7b", "\"num_attention_heads\": 16", "\"num_attention_heads\": 15",
          "num_attention_heads: 15 does not divide");
  refused("llava-1.5-7b", "clip_vision_model", "pixtral", "model_type: pixtral");
  refused("llava-1.5-7b", "\"vision_feature_layer\": -2", "\"vision_feature_layer\": -40",
          "vision_feature_layer: -40");
  refused("llava-1.5-7b", "\"default\"", "\"odd\"", "vision_feature_select_strategy: odd");
  refused("llava-1.5-7b", "\"model_type\": \"llava\"", "\"model_type\": \"llava\", \"sample_tokens\": 500",
          "sample_tokens: 500");
  refused("llava-1.5-7b", "\"patch_size\": 14", "\"patch_size\": 500", "patch_size: 500");
  refused("qwen2-vl-7b", "\"hidden_size\": 3584,\n  \"in_chans\"", "\"hidden_size\": 3585,\n  \"in_chans\"",
          "hidden_size: 3585");
  refused("qwen2.5-vl-7b", "  31\n", "  99\n", "fullatt_block_indexes");
}

}  // namespace
}  // namespace orrery
