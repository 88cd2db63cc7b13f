// Encoders with decoders, and towers of images: parameters and FLOPs summed by hand from the dimensions.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "base/error.h"
#include "proto/workload.pb.h"
#include "tests/workloads/readers/huggingface_files.h"
#include "workloads/image_operator.h"
#include "workloads/readers/catalog.h"
#include "workloads/readers/huggingface.h"

namespace orrery {
namespace {

using test::load;

using TowerCount = std::int64_t;

// Four projections with biases, two layer norms, an MLP.
constexpr TowerCount layer(TowerCount h, TowerCount f) {
  return 4 * (h * h + h) + 2 * h * f + f + h + 4 * h;
}
// A decoder's second attention, and its norm.
constexpr TowerCount cross(TowerCount h) {
  return 4 * (h * h + h) + 2 * h;
}

// With the 60 and 220 million of arXiv 1910.10683, 39 of arXiv 2212.04356 (37.8 as Hugging Face stores it:
// the head is the embedding), 86 of arXiv 2010.11929.
TEST_CASE("towers: parameters are what the dimensions add up to") {
  // No biases; one table of 32 relative positions by head on either side.
  CHECK(load("t5-small").parameters() == 32128 * 512 + 6 * (4 * 512 * 512 + 2 * 512 * 2048 + 2 * 512) +
                                             6 * (8 * 512 * 512 + 2 * 512 * 2048 + 3 * 512) +
                                             2 * (32 * 8 + 512));
  CHECK(load("t5-small").parameters() == 60'506'624);
  // Three matrices an MLP, a head of its own.
  CHECK(load("t5-v1.1-base").parameters() ==
        2 * 32128 * 768 + 12 * (4 * 768 * 768 + 3 * 768 * 2048 + 2 * 768) +
            12 * (8 * 768 * 768 + 3 * 768 * 2048 + 3 * 768) + 2 * (32 * 12 + 768));
  // Positions from the second row on, a norm behind either embedding.
  CHECK(load("bart-base").parameters() ==
        50265 * 768 + 2 * (1026 * 768 + 2 * 768) + 12 * layer(768, 3072) + 6 * cross(768));
  // Two convolutions over three frames; keys have no bias.
  CHECK(load("whisper-tiny").parameters() == 80 * 384 * 3 + 384 + 384 * 384 * 3 + 384 +
                                                 (1500 + 448 + 51865) * 384 + 8 * (layer(384, 1536) - 384) +
                                                 4 * (cross(384) - 384) + 2 * 2 * 384);
  CHECK(load("vit-base-patch16-224").parameters() ==
        3 * 16 * 16 * 768 + 768 + 768 + 197 * 768 + 12 * layer(768, 3072) + 2 * 768 + 768 * 1000 + 1000);
  CHECK(load("vit-base-patch16-224").parameters() == 86'567'656);
  // A token for what is hidden, two scales a layer, positions of 37 x 37 patches.
  CHECK(load("dinov2-base").parameters() ==
        3 * 14 * 14 * 768 + 768 + 2 * 768 + 1370 * 768 + 12 * (layer(768, 3072) + 2 * 768) + 2 * 768);
  CHECK(load("clip-vit-base-patch32").parameters() ==
        (49408 + 77) * 512 + 12 * layer(512, 2048) + 2 * 512 + 3 * 32 * 32 * 768 + 768 + 50 * 768 +
            12 * layer(768, 3072) + 2 * 2 * 768 + 768 * 512 + 512 * 512 + 1);
}

TEST_CASE("towers: FLOPs are two a multiply-add, causal attention's half, by hand") {
  const double h = 768, s = 197;
  CHECK(load("vit-base-patch16-224").forward_flops_per_sample(0) ==
        2 * 196 * 768.0 * h + 12 * (2 * s * 12 * h * h + 4 * s * s * h) + 2 * h * 1000);
  // Texts attend backwards.
  const double t = 77, w = 512, p = 50;
  CHECK(load("clip-vit-base-patch32").forward_flops_per_sample(0) ==
        12 * (2 * t * 12 * w * w + 4 * t * t * w / 2) + 2 * 49 * 3072.0 * h +
            12 * (2 * p * 12 * h * h + 4 * p * p * h) + 2 * w * 512 + 2 * h * 512);
  // Encoder 1500, decoder 448 beside it, and the head.
  const double d = 384, a = 1500, b = 448;
  CHECK(load("whisper-tiny").forward_flops_per_sample(0) ==
        2 * 3000 * 240 * d + 2 * a * 3 * d * d + 4 * (2 * a * 12 * d * d + 4 * a * a * d) +
            4 * (2 * b * 14 * d * d + 2 * a * 2 * d * d + 4 * b * b * d / 2 + 4 * b * a * d) +
            2 * b * d * 51865);
}

TEST_CASE("towers: a block is a layer, tables stand at the start, shared ones are one tensor") {
  const Workload t5 = load("t5-small");
  CHECK(t5.layers == 12);
  CHECK_FALSE(t5.transformer.has_value());
  int tables = 0;
  for (const Operator& op : t5.operators) {
    if (op.kind == OperatorKind::embedding) {
      CHECK(op.layer == 0);
      ++tables;
    }
    if (op.name == "head") {
      CHECK(op.layer == 11);
      CHECK(op.parameters.front().tied_to == "shared.weight");
    }
  }
  CHECK(tables == 2);
  CHECK(load("clip-vit-base-patch32").layers == 24);
  CHECK(load("dinov2-base").ignored_keys.empty());
  CHECK(load("bart-base").ignored_keys.empty());
  CHECK(load("whisper-tiny").ignored_keys.empty());
  CHECK_THAT(load("dinov2-base").notes.front(), Catch::Contains("backbone"));
}

TEST_CASE("towers: a classifier of images says what it computes, under Hugging Face's names") {
  const Workload vit = load("vit-base-patch16-224");
  std::set<std::string> names;
  for (std::size_t i = 0; i < vit.operators.size(); ++i) {
    const Operator& op = vit.operators[i];
    REQUIRE(op.image.has_value());
    INFO(op.name);
    CHECK(fault_of_image(vit.operators, static_cast<int>(i)).empty());
    for (const ParameterTensor& tensor : op.parameters) names.insert(tensor.name);
    if (op.kind == OperatorKind::norm) CHECK(op.image->epsilon == 1e-12);
    if (op.kind == OperatorKind::activation) CHECK(op.image->activation == Activation::gelu_erf);
  }
  // As model.safetensors of google/vit-base-patch16-224 has them: 5 + 12 x 16 + 3.
  CHECK(names.size() == 200);
  for (const char* name :
       {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings",
        "vit.embeddings.patch_embeddings.projection.weight",
        "vit.embeddings.patch_embeddings.projection.bias", "vit.encoder.layer.0.layernorm_before.weight",
        "vit.encoder.layer.3.attention.attention.query.weight",
        "vit.encoder.layer.3.attention.attention.key.bias",
        "vit.encoder.layer.11.attention.attention.value.weight",
        "vit.encoder.layer.0.attention.output.dense.bias", "vit.encoder.layer.0.layernorm_after.bias",
        "vit.encoder.layer.0.intermediate.dense.weight", "vit.encoder.layer.0.output.dense.weight",
        "vit.layernorm.weight", "classifier.weight", "classifier.bias"}) {
    INFO(name);
    CHECK(names.contains(name));
  }
  proto::Workload message;
  to_proto(vit, &message);
  const Workload again = workload_from_proto(message, "again", "");
  for (std::size_t i = 0; i < vit.operators.size(); ++i)
    CHECK(again.operators[i].image == vit.operators[i].image);
  // Scales of branches, and several towers: no.
  for (const char* name : {"dinov2-base", "clip-vit-base-patch32", "whisper-tiny", "t5-small"})
    for (const Operator& op : load(name).operators) CHECK_FALSE(op.image.has_value());
}

TEST_CASE("towers: keys of a classifier's mathematics are done or said not to be") {
  const auto vit = [](const std::string& more) {
    return workload_from_huggingface(
        R"({"model_type": "vit", "hidden_size": 16, "image_size": 32, "patch_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 4, "intermediate_size": 8)" +
            more + "}",
        "config.json");
  };
  CHECK(vit("").ignored_keys.empty());
  // The number of classes beside their names.
  const Workload named = vit(R"(, "num_labels": 2, "id2label": {"0": "cat", "1": "dog"})");
  CHECK(named.ignored_keys.empty());
  CHECK(named.operators.back().image->input.elements() == 2);
  CHECK_THROWS_WITH(vit(R"(, "num_labels": 3, "id2label": {"0": "cat", "1": "dog"})"),
                    Catch::Contains("num_labels: 3"));
  const auto activation = [&](const std::string& more) {
    for (const Operator& op : vit(more).operators)
      if (op.kind == OperatorKind::activation) return op.image->activation;
    return Activation::silu;
  };
  CHECK(activation(R"(, "hidden_act": "gelu_new")") == Activation::gelu);
  CHECK(activation(R"(, "hidden_act": "relu")") == Activation::relu);
  CHECK(vit(R"(, "hidden_act": "quick_gelu")").ignored_keys == std::vector<std::string>{"hidden_act"});
  CHECK(vit(R"(, "hidden_dropout_prob": 0.1)").ignored_keys ==
        std::vector<std::string>{"hidden_dropout_prob"});
  CHECK(vit(R"(, "attention_probs_dropout_prob": 0.1)").ignored_keys ==
        std::vector<std::string>{"attention_probs_dropout_prob"});
  CHECK(vit(R"(, "layer_norm_eps": 1e-3)").operators[2].image->epsilon == 1e-3);
  CHECK(vit("").parameters() - vit(R"(, "qkv_bias": false)").parameters() == 3 * 16);
  CHECK_THROWS_WITH(vit(R"(, "layer_norm_eps": 0)"), Catch::Contains("layer_norm_eps"));
}

TEST_CASE("towers: an activation that nobody has is refused, gated or not") {
  const auto t5 = [](const std::string& activation) {
    return workload_from_huggingface(
        R"({"model_type": "t5", "d_model": 64, "d_ff": 128, "num_layers": 1, "num_heads": 4, "d_kv": 16,
            "vocab_size": 100, "feed_forward_proj": ")" +
            activation + "\"}",
        "config.json");
  };
  CHECK(t5("gated-gelu").parameters() == t5("relu").parameters() + 2 * 64 * 128);
  for (const char* unknown : {"banana", "gated-banana", "gated", ""})
    CHECK_THROWS_WITH(t5(unknown),
                      Catch::Contains(fmt::format("feed_forward_proj: '{}' is not known", unknown)));
}

TEST_CASE("towers: errors name the file and the key") {
  const auto refused = [](const std::string& text, const std::string& what) {
    CHECK_THROWS_WITH(workload_from_huggingface(text, "config.json"),
                      Catch::StartsWith("config.json:") && Catch::Contains(what));
  };
  refused("{\"model_type\": \"t5\"}", "d_model: missing");
  refused("{\"model_type\": \"vit\", \"hidden_size\": 10, \"image_size\": 4, \"patch_size\": 8}",
          "patch_size: 8");
  refused("{\"model_type\": \"clip\"}", "text_config: missing");
  refused("{\"model_type\": \"dinov2\", \"use_swiglu_ffn\": true}", "use_swiglu_ffn: true");
  refused(
      "{\"model_type\": \"vit\", \"hidden_size\": 10, \"image_size\": 32, \"patch_size\": 8, "
      "\"num_hidden_layers\": 1, \"num_attention_heads\": 3, \"intermediate_size\": 4}",
      "num_attention_heads: 3 does not divide");
}

}  // namespace
}  // namespace orrery
