// Families of models beyond those of huggingface_test.cc: parameters and FLOPs, each summed here by hand from
// the dimensions (a layer's products, biases and norms as the family's modeling_*.py in transformers has
// them).
#include "workloads/readers/huggingface_families.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "proto/workload.pb.h"
#include "tests/workloads/readers/huggingface_files.h"
#include "workloads/huggingface_config.h"
#include "workloads/readers/catalog.h"
#include "workloads/readers/huggingface.h"

namespace orrery {
namespace {

using test::load;

using Count = std::int64_t;

Workload parse(std::string_view text) {
  return workload_from_huggingface(text, "config.json");
}

// Queries, keys, values and output of grouped attention, without biases.
constexpr Count attention(Count h, Count heads, Count kv, Count dim) {
  return 2 * h * heads * dim + 2 * h * kv * dim;
}
constexpr Count gated(Count h, Count f) {
  return 3 * h * f;
}
// Latent attention of DeepSeek-V3: low ranks of queries, of keys and values, their norms, the output.
constexpr Count latent(Count h, Count heads) {
  return h * 1536 + 1536 + 1536 * heads * 192 + h * (512 + 64) + 512 + 512 * heads * 256 + heads * 128 * h;
}

struct Known {
  const char* name;
  Count parameters;
};

TEST_CASE("families: dense decoders have the parameters that their dimensions add up to") {
  const Known models[] = {
      // tied embeddings; four RMS norms a layer
      {"gemma-2-2b", 256000 * 2304 + 2304 + 26 * (attention(2304, 8, 4, 256) + gated(2304, 9216) + 4 * 2304)},
      // and norms of a head's queries and keys
      {"gemma-3-1b",
       262144 * 1152 + 1152 + 26 * (attention(1152, 4, 1, 256) + gated(1152, 6912) + 4 * 1152 + 2 * 256)},
      {"gemma-3-4b",
       262208 * 2560 + 2560 + 34 * (attention(2560, 8, 4, 256) + gated(2560, 10240) + 4 * 2560 + 2 * 256)},
      {"phi-3-mini-4k",
       2 * 32064 * 3072 + 3072 + 32 * (attention(3072, 32, 32, 96) + gated(3072, 8192) + 2 * 3072)},
      {"phi-4",
       2 * 100352 * 5120 + 5120 + 40 * (attention(5120, 40, 10, 128) + gated(5120, 17920) + 2 * 5120)},
      // norms of all queries and all keys, and of what both branches put out
      {"olmo-2-7b",
       2 * 100352 * 4096 + 4096 + 32 * (attention(4096, 32, 32, 128) + gated(4096, 11008) + 4 * 4096)},
      {"granite-3.1-8b",
       49155 * 4096 + 4096 + 40 * (attention(4096, 32, 8, 128) + gated(4096, 12800) + 2 * 4096)},
      // biases everywhere, layer norms, a plain MLP
      {"starcoder2-3b", 49152 * 3072 + 2 * 3072 +
                            30 * (attention(3072, 24, 2, 128) + 2 * 3072 + 2 * 256 + 2 * 3072 * 12288 +
                                  12288 + 3072 + 4 * 3072)},
      {"stablelm-3b-4e1t",
       2 * 50304 * 2560 + 2 * 2560 + 32 * (attention(2560, 32, 32, 80) + gated(2560, 6912) + 4 * 2560)},
      {"stablelm-2-1.6b", 2 * 100352 * 2048 + 2 * 2048 +
                              24 * (attention(2048, 32, 32, 64) + 3 * 2048 + gated(2048, 5632) + 4 * 2048)},
      // one layer norm a layer, without bias
      {"command-r", 256000LL * 8192 + 8192 + 40 * (attention(8192, 64, 64, 128) + gated(8192, 22528) + 8192)},
      {"smollm3-3b",
       128256 * 2048 + 2048 + 36 * (attention(2048, 16, 4, 128) + gated(2048, 11008) + 2 * 2048)},
      // heads wider than the hidden size; biases of queries, keys and values alone
      {"seed-oss-36b",
       2LL * 155136 * 5120 + 5120 +
           64 * (attention(5120, 80, 8, 128) + 10240 + 2 * 1024 + gated(5120, 27648) + 2 * 5120)},
      {"ernie-4.5-0.3b",
       103424 * 1024 + 1024 + 18 * (attention(1024, 16, 2, 128) + gated(1024, 3072) + 2 * 1024)},
      {"glm-4-9b", 2 * 151552 * 4096 + 4096 +
                       40 * (attention(4096, 32, 2, 128) + 4096 + 2 * 256 + gated(4096, 13696) + 2 * 4096)},
      {"internlm2-7b",
       2 * 92544 * 4096 + 4096 + 32 * (attention(4096, 32, 8, 128) + gated(4096, 14336) + 2 * 4096)},
      // layer norms, a plain MLP without biases
      {"minitron-4b",
       2 * 256000 * 3072 + 2 * 3072 + 32 * (attention(3072, 24, 8, 128) + 2 * 3072 * 9216 + 4 * 3072)},
      // one key and value head, learned positions
      {"starcoderbase-1b", (49152 + 8192) * 2048 + 2 * 2048 +
                               24 * (attention(2048, 16, 1, 128) + 2 * 2048 + 2 * 128 + 2 * 2048 * 8192 +
                                     8192 + 2048 + 4 * 2048)},
      // attention without biases beside an MLP with them, one norm, a bias of the head
      {"gpt-j-6b", 2 * 50400 * 4096 + 50400 + 2 * 4096 +
                       28 * (attention(4096, 16, 16, 256) + 2 * 4096 * 16384 + 16384 + 4096 + 2 * 4096)},
      {"command-r7b", 256000 * 4096 + 4096 + 32 * (attention(4096, 32, 8, 128) + gated(4096, 14336) + 4096)},
  };
  for (const auto& [name, parameters] : models) {
    INFO(name);
    const Workload workload = load(name);
    CHECK(workload.parameters() == parameters);
    // Of images beside the language model.
    const bool alone = std::string(name) != "gemma-3-4b";
    CHECK(workload.ignored_keys.empty() == alone);
    CHECK(workload.notes.empty() == alone);
    if (!alone)
      CHECK_THAT(workload.notes.at(0), Catch::EndsWith("text_config alone: vision_config is left out."));
  }
}

TEST_CASE("families: ALiBi's have no positions, whose biases are not executed") {
  const Known models[] = {
      // tied embeddings with a norm; biases and layer norms everywhere: 176.2, 0.559 billion
      {"bloom-176b", 250880LL * 14336 + 4 * 14336 + 70 * (12LL * 14336 * 14336 + 13 * 14336)},
      {"bloom-560m", 559'214'592},
      // neither biases nor those of the norms: 6.65, 29.96 billion
      {"mpt-7b", 50432LL * 4096 + 4096 + 32 * (12LL * 4096 * 4096 + 2 * 4096)},
      {"mpt-30b", 50432LL * 7168 + 7168 + 48 * (12LL * 7168 * 7168 + 2 * 7168)},
  };
  for (const auto& [name, parameters] : models) {
    INFO(name);
    const Workload workload = load(name);
    CHECK(workload.parameters() == parameters);
    CHECK(workload.ignored_keys.empty());
    CHECK(workload.notes.empty());
    CHECK(workload.transformer->unexecuted.back() == "linear biases for positions (ALiBi)");
    for (const Operator& op : workload.operators)
      if (op.attention) CHECK(op.vector_elements == 0);
  }
  CHECK(load("bloom-176b").parameters() == 176'247'271'424);
  CHECK(load("mpt-7b").parameters() == 6'649'286'656);
  CHECK(load("mpt-30b").parameters() == 29'957'200'896);
  CHECK(load("mpt-30b").default_seq_len == 8192);
}

TEST_CASE("families: fields in objects of a part are read as the configuration's own") {
  const Workload dbrx = load("dbrx");
  // grouped queries, experts of three products and a router, layer norms without biases
  const Count layer = attention(6144, 48, 8, 128) + 16 * 6144 + 16 * gated(6144, 10752) + 2 * 6144;
  CHECK(dbrx.parameters() == 2LL * 100352 * 6144 + 6144 + 40 * layer);
  CHECK(dbrx.parameters() == 131'596'523'520);
  CHECK(dbrx.ignored_keys.empty());
  REQUIRE(dbrx.transformer->moe);
  CHECK(dbrx.transformer->moe->experts == 16);
  CHECK(dbrx.transformer->moe->experts_per_token == 4);
  CHECK(dbrx.transformer->moe->auxiliary_loss == 0.05);
  CHECK(dbrx.transformer->rope_theta == 500000);
  CHECK_THROWS_WITH(parse(R"({"model_type": "dbrx", "attn_config": 3})"),
                    Catch::Contains("attn_config: is no object"));
  CHECK_THROWS_WITH(parse(R"({"model_type": "mpt", "attn_config": {"qk_ln": true}})"),
                    Catch::Contains("qk_ln"));
}

TEST_CASE("families: mixtures of experts have the parameters that their dimensions add up to") {
  const Count gpt_oss_expert = 2880 * 5760 + 5760 + 2880 * 2880 + 2880;
  const Count glm_layer = attention(5120, 96, 8, 128) + (96 + 2 * 8) * 128 + 2 * 128 + 2 * 5120;
  const Count glm_experts = 160 * 5120 + 160 + 161 * gated(5120, 1536);
  const Count deepseek_experts = 256 * 7168 + 256 + 257 * gated(7168, 2048);
  const Count indexer = 1536 * 64 * 128 + 7168 * 128 + 2 * 128 + 7168 * 64;
  const Count llama4_layer = attention(5120, 40, 8, 128) + 2 * 5120;
  const Known models[] = {
      {"olmoe-1b-7b",
       2 * 50304 * 2048 + 2048 +
           16 * (attention(2048, 16, 16, 128) + 4 * 2048 + 64 * 2048 + 64 * gated(2048, 1024))},
      {"granite-3.1-1b-a400m",
       49155 * 1024 + 1024 +
           24 * (attention(1024, 16, 8, 64) + 2 * 1024 + 32 * 1024 + 32 * gated(1024, 512))},
      // biases of queries, keys, values, output, router and experts; a sink a head
      {"gpt-oss-20b", 2 * 201088 * 2880 + 2880 +
                          24 * (attention(2880, 64, 8, 64) + 4096 + 2 * 512 + 2880 + 64 + 2 * 2880 +
                                2880 * 32 + 32 + 32 * gpt_oss_expert)},
      {"phi-3.5-moe", 2 * 32064 * 4096 + 32064 + 2 * 4096 +
                          32 * (attention(4096, 32, 8, 128) + 4096 + 2 * 1024 + 4096 + 4 * 4096 + 16 * 4096 +
                                16 * gated(4096, 6400))},
      {"llama-4-scout-17b-16e",
       2 * 202048LL * 5120 + 5120 + 48 * (llama4_layer + 16 * 5120 + 17 * gated(5120, 8192))},
      // every second layer has experts
      {"llama-4-maverick-17b-128e", 2 * 202048LL * 5120 + 5120 + 24 * (llama4_layer + gated(5120, 16384)) +
                                        24 * (llama4_layer + 128 * 5120 + 129 * gated(5120, 8192))},
      // the first three layers are dense; the module of multi-token prediction is one more layer
      {"glm-4.5", 2 * 151552 * 5120 + 5120 + 3 * (glm_layer + gated(5120, 12288)) +
                      90 * (glm_layer + glm_experts) + 2 * 5120 * 5120 + 3 * 5120},
      {"kimi-k2", 2LL * 163840 * 7168 + 7168 + 61 * (latent(7168, 64) + 2 * 7168) + gated(7168, 18432) +
                      60 * (384 * 7168 + 384 + 385 * gated(7168, 2048))},
      {"deepseek-v3.2", 2LL * 129280 * 7168 + 7168 + 62 * (latent(7168, 128) + indexer + 2 * 7168) +
                            3 * gated(7168, 18432) + 59 * deepseek_experts + 2 * 7168 * 7168 + 3 * 7168},
      {"minimax-m2", 2 * 200064 * 3072 + 3072 +
                         62 * (attention(3072, 48, 8, 128) + 56 * 128 + 2 * 3072 + 256 * 3072 + 256 +
                               256 * gated(3072, 1536))},
  };
  for (const auto& [name, parameters] : models) {
    INFO(name);
    CHECK(load(name).parameters() == parameters);
  }
}

// With what the publishers print: 456B (arXiv 2501.08313), 52B of 12B active (arXiv 2403.19887), 130M.
TEST_CASE("families: hybrids and state spaces have the parameters that their dimensions add up to") {
  const Count lightning = 6144 * 3 * 8192 + 2 * 6144 * 8192 + 8192;
  const Count text_01_experts = 32 * 6144 + 32 * gated(6144, 9216) + 2 * 6144;
  const Count delta =
      2048 * (2 * 2048 + 2 * 4096 + 2 * 32) + (2 * 2048 + 4096) * 4 + 2 * 32 + 128 + 4096 * 2048;
  // queries twice, for the gate
  const Count gate = attention(2048, 16, 2, 256) + 2048 * 16 * 256 + 2 * 256;
  const Count next_experts = 512 * 2048 + 2048 + 513 * gated(2048, 512) + 2 * 2048;
  const Count jamba = 4096 * 16384 + 8192 * 5 + 8192 * (256 + 2 * 16) + (256 + 2 * 16) + 256 * 8192 + 8192 +
                      8192 * 16 + 8192 + 8192 * 4096;
  const Count mamba =
      768 * 3072 + 1536 * 5 + 1536 * (48 + 32) + 48 * 1536 + 1536 + 1536 * 16 + 1536 + 1536 * 768;
  const Count mamba2 = 768 * (2 * 1536 + 2 * 128 + 24) + (1536 + 256) * 5 + 3 * 24 + 1536 + 1536 * 768;
  const Known models[] = {
      {"minimax-text-01",
       2LL * 200064 * 6144 + 6144 + 70 * lightning + 10 * attention(6144, 64, 8, 128) + 80 * text_01_experts},
      {"qwen3-next-80b-a3b", 2 * 151936 * 2048 + 2048 + 36 * delta + 12 * gate + 48 * next_experts},
      {"jamba-v0.1", 2 * 65536 * 4096 + 4096 + 28 * jamba + 4 * attention(4096, 32, 8, 128) +
                         16 * gated(4096, 14336) + 16 * (16 * 4096 + 16 * gated(4096, 14336)) +
                         32 * 2 * 4096},
      {"falcon-mamba-7b", 2 * 65024 * 4096 + 4096 +
                              64LL * (4096 * 16384 + 8192 * 5 + 8192 * (256 + 32) + 256 * 8192 + 8192 +
                                      8192 * 16 + 8192 + 8192 * 4096 + 4096)},
      {"mamba-130m", 50280 * 768 + 768 + 24 * (mamba + 768)},
      {"mamba2-130m", 50288 * 768 + 768 + 24 * (mamba2 + 768)},
  };
  for (const auto& [name, parameters] : models) {
    INFO(name);
    CHECK(load(name).parameters() == parameters);
  }
  CHECK(load("jamba-v0.1").transformer->layer_pattern.substr(0, 24) == "M- ME M- ME *- ME M- ME ");
  CHECK(load("qwen3-next-80b-a3b").transformer->layer_pattern.substr(0, 12) == "ME ME ME AE ");
}

TEST_CASE("families: encoders have the parameters that their dimensions add up to") {
  // Wqkv, Wo, Wi, Wo and two norms without bias a layer but the first; a head of its own, tied to the
  // embedding
  const Count modern = 4 * 768 * 768 + 3 * 768 * 1152 + 2 * 768;
  CHECK(load("modernbert-base").parameters() ==
        50368 * 768 + 768 + 22 * modern - 768 + 768 + 768 * 768 + 768 + 50368);
  const Count bert = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768;
  const Workload roberta = load("roberta-base");
  CHECK(roberta.parameters() == (50265 + 514 + 1) * 768 + 2 * 768 + 12 * bert + 768 * 769 + 2 * 768 + 50265);
  CHECK(roberta.default_seq_len == 512);
  CHECK(load("distilbert-base-uncased").parameters() ==
        (30522 + 512) * 768 + 2 * 768 + 6 * bert + 768 * 769 + 2 * 768 + 30522);
}

double flops_of(const Workload& workload, OperatorKind kind, int seq_len) {
  double sum = 0;
  for (const Operator& op : workload.operators)
    if (op.kind == kind) sum += op.forward_flops_per_row(seq_len) * seq_len;
  return sum;
}

TEST_CASE("families: attention's FLOPs follow windows, chunks and chosen keys, by hand") {
  // Keys that query i of s sees: min(i, w) with a window; its chunk's before it; all others.
  const double s = 16384, w = 4096;
  const double windowed = w - w * w / (2 * s), full = s / 2;
  const double a_key = 2 * 2 * s;  // scores and context, a multiply-add each
  CHECK(flops_of(load("gemma-2-2b"), OperatorKind::attention, 16384) ==
        Approx(a_key * 8 * 256 * 13 * (windowed + full)));
  CHECK(flops_of(load("gemma-3-1b"), OperatorKind::attention, 16384) ==
        Approx(a_key * 4 * 256 * (22 * (512 - 512.0 * 512 / (2 * s)) + 4 * full)));
  CHECK(flops_of(load("gpt-oss-20b"), OperatorKind::attention, 16384) ==
        Approx(a_key * 64 * 64 * 12 * (128 - 128.0 * 128 / (2 * s) + full)));
  CHECK(flops_of(load("llama-4-scout-17b-16e"), OperatorKind::attention, 16384) ==
        Approx(a_key * 40 * 128 * (36 * 8192 / 2.0 + 12 * full)));
  // 20,480 tokens are two chunks and a half: 2 x 8192^2 / 2 + 4096^2 / 2 pairs
  const double pairs = (2 * 8192.0 * 8192 + 4096.0 * 4096) / 2;
  CHECK(flops_of(load("llama-4-scout-17b-16e"), OperatorKind::attention, 20480) ==
        Approx(2 * 2 * 40 * 128 * (36 * pairs + 12 * 20480.0 * 20480 / 2)));
  // ModernBERT: 64 keys to either side, or all
  CHECK(flops_of(load("modernbert-base"), OperatorKind::attention, 8192) ==
        Approx(2 * 2 * 8192 * 768.0 * (14 * 128 + 8 * 8192)));
  // DeepSeek-V3.2: 2048 chosen keys of 192 + 128, by scores of 64 x 128 over all keys before; with the module
  const double chosen = 2048 - 2048.0 * 2048 / (2 * s);
  CHECK(flops_of(load("deepseek-v3.2"), OperatorKind::attention, 16384) ==
        Approx(62 * s * (2 * chosen * 128 * 320 + 2 * full * 64 * 128)));
}

TEST_CASE("families: state spaces' FLOPs, by hand") {
  // heads x (4 x dim x state + chunk x dim), 2 x groups x chunk x state, 2 x kernel a channel
  CHECK(flops_of(load("mamba2-130m"), OperatorKind::scan, 1) ==
        24 * (24 * (4.0 * 64 * 128 + 256 * 64) + 2.0 * 256 * 128 + 2 * 4 * (1536 + 256)));
  CHECK(flops_of(load("mamba-130m"), OperatorKind::scan, 1) == 24 * (6.0 * 1536 * 16 + 2 * 4 * 1536));
  CHECK(flops_of(load("minimax-text-01"), OperatorKind::scan, 1) ==
        70 * (64 * (4.0 * 128 * 128 + 256 * 128) + 2.0 * 64 * 256 * 128));
  // and 32 x 64 x (2 x 128 + 128) of a chunk's triangle, 2 x 32 x 128 x 128 to take out what was known
  CHECK(flops_of(load("qwen3-next-80b-a3b"), OperatorKind::scan, 1) ==
        36 * (32 * (4.0 * 128 * 128 + 64 * 128) + 2.0 * 16 * 64 * 128 + 2 * 4 * 8192 + 32 * 64 * 384.0 +
              2.0 * 32 * 128 * 128));
}

std::string transformer_of(const Workload& workload) {
  proto::Workload message;
  to_proto(workload, &message);
  return message.transformer().ShortDebugString();
}

TEST_CASE("families: a configuration that is written is read as the model that it was written of") {
  std::set<std::string> written;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ORRERY_TEST_DATA) + "/huggingface")) {
    const Workload workload = load_workload(entry.path().string());
    if (!workload.transformer) continue;
    INFO(entry.path().string());
    const std::optional<std::string> config = huggingface_config(*workload.transformer);
    if (!config) continue;
    INFO(*config);
    const Workload again = parse(*config);
    CHECK(transformer_of(again) == transformer_of(workload));
    CHECK(again.ignored_keys.empty());
    const Json given = parse_json(read_file(entry.path()), "config.json");
    const Json wrote = parse_json(*config, "config.json");
    written.insert(wrote.at("model_type").get<std::string>());
    // A class and a type that transformers knows the weights by.
    if (given.value("model_type", "") == wrote.at("model_type").get<std::string>() &&
        given.contains("architectures") &&
        given.at("architectures").front().get<std::string>().find("ForCausalLM") != std::string::npos)
      CHECK(wrote.at("architectures") == given.at("architectures"));
  }
  for (const char* type : {"gpt2", "bert", "gpt_neox", "llama", "mistral", "mixtral", "qwen2", "qwen3",
                           "qwen3_moe", "olmo2", "olmoe", "gemma", "gemma2", "stablelm", "starcoder2"})
    CHECK(written.contains(type));
  Transformer more = *load_workload("llama3-8b").transformer;
  more.unexecuted = {"clip_qkv 8"};
  CHECK_FALSE(huggingface_config(more));
}

TEST_CASE("families: products cost two FLOPs a weight that a token meets") {
  int models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ORRERY_TEST_DATA) + "/huggingface")) {
    const Workload workload = load_workload(entry.path().string());
    if (!workload.transformer) continue;
    ++models;
    INFO(entry.path().string());
    for (const Operator& op : workload.operators) {
      // What reads a share of the tokens: BERT's pooler, and heads of hidden ones.
      if (op.matmuls.empty() || op.matmuls.front().rows_per_row != 1) continue;
      INFO(op.name);
      double weights = 0;
      for (const ParameterTensor& tensor : op.parameters)
        if (tensor.shape.size() == (tensor.expert ? 3U : 2U))
          weights += static_cast<double>(tensor.elements());
      if (op.kind == OperatorKind::expert_linear)
        weights *= static_cast<double>(op.active_experts) / op.experts;
      CHECK(op.forward_flops_per_row(1) == 2 * weights);
    }
  }
  CHECK(models > 60);
}

TEST_CASE(
    "families: every key of every public configuration is read, harmless, left out with a reason, or "
    "reported") {
  const auto& families = internal::huggingface_families();
  for (const auto& [type, family] : families) {
    // Of what no mathematics is executed, as of most graphs, nothing of it is wrongly.
    if (!family.graph.empty() && type != "vit") continue;
    for (const auto* keys : {&family.left_out, &family.harmless})
      for (const auto& [key, why] : *keys) {
        INFO(type << ": " << key);
        CHECK_FALSE(why.empty());
      }
  }
  // What is in none of these, is reported: in each file, a key that no configuration has.
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ORRERY_TEST_DATA) + "/huggingface")) {
    const Json known = parse_json(read_file(entry.path()), "config.json");
    INFO(entry.path().string());
    for (const auto& key : known.items()) CHECK(key.key() != "flux_capacitors");
    Json more = known;
    more["flux_capacitors"] = 2;
    std::vector<std::string> reported;
    try {
      reported = parse(more.dump()).ignored_keys;
    } catch (const UserError& error) {
      reported = {error.what()};  // of what must be understood whole
    }
    CHECK(std::any_of(reported.begin(), reported.end(), [](const std::string& what) {
      return what.find("flux_capacitors") != std::string::npos;
    }));
    // And none of a language model's own is; images beside it are.
    const Workload workload = parse(known.dump());
    const bool has_more = known.contains("text_config") || known.contains("vision_config");
    if (!has_more) CHECK(workload.ignored_keys.empty());
  }
}

TEST_CASE("families: a workload comes back from its file form as it was") {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ORRERY_TEST_DATA) + "/huggingface")) {
    INFO(entry.path().string());
    const Workload workload = load_workload(entry.path().string());
    proto::Workload message, again;
    to_proto(workload, &message);
    const Workload back = workload_from_proto(message, "file", "");
    CHECK(back.layers == workload.layers);
    to_proto(back, &again);
    CHECK(message.SerializeAsString() == again.SerializeAsString());
    CHECK(back.parameters() == workload.parameters());
    CHECK(back.forward_flops_per_sample(4096) == workload.forward_flops_per_sample(4096));
  }
}

TEST_CASE("families: entries of the catalog are their configurations") {
  const std::pair<const char*, const char*> models[] = {
      {"gemma2-2b", "gemma-2-2b"},
      {"phi4", "phi-4"},
      {"olmo2-7b", "olmo-2-7b"},
      {"gpt-oss-20b", "gpt-oss-20b"},
      {"llama4-scout", "llama-4-scout-17b-16e"},
      {"llama4-maverick", "llama-4-maverick-17b-128e"},
      {"glm4-5-air", "glm-4.5-air"},
      {"kimi-k2", "kimi-k2"},
      {"minimax-m2", "minimax-m2"},
      {"qwen3-next-80b-a3b", "qwen3-next-80b-a3b"},
      {"jamba-v0-1", "jamba-v0.1"},
  };
  for (const auto& [entry, file] : models) {
    INFO(entry);
    const Workload catalog = load_workload(entry), configuration = load(file);
    CHECK(catalog.parameters() == configuration.parameters());
    CHECK(catalog.forward_flops_per_sample(16384) == configuration.forward_flops_per_sample(16384));
    CHECK(catalog.transformer->unexecuted == configuration.transformer->unexecuted);
    CHECK(catalog.transformer->attention_scale == Approx(configuration.transformer->attention_scale));
  }
}

TEST_CASE("families: a head of labels is said to be planned as a language model's") {
  const auto with_class = [](const std::string& name) {
    return parse("{\"architectures\": [\"" + name +
                 "\"], \"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
                 "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 100}");
  };
  CHECK(with_class("LlamaForCausalLM").notes.empty());
  const std::vector<std::string> notes = with_class("LlamaForSequenceClassification").notes;
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("LlamaForSequenceClassification is planned with a language model's head over 100") ==
        0);
}

TEST_CASE("families: a model without a head is said to be planned with a language model's") {
  const auto with_class = [](const std::string& name) {
    return parse("{\"architectures\": [\"" + name +
                 "\"], \"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, "
                 "\"vocab_size\": 100}")
        .notes;
  };
  CHECK(with_class("GPT2LMHeadModel").empty());
  CHECK(with_class("GPT2DoubleHeadsModel").empty());
  const std::vector<std::string> notes = with_class("GPT2Model");
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("GPT2Model has no head: it is planned with a language model's over 100 tokens") == 0);
}

TEST_CASE("families: Gemma 3's attention in both directions is planned as that") {
  const auto with = [](const std::string& key) {
    std::string text = read_file(test::file_of("gemma-3-1b"));
    text.insert(text.find('{') + 1, key);
    return parse(text);
  };
  const Workload causal = with(""), both = with("\"use_bidirectional_attention\": true,");
  CHECK_FALSE(causal.transformer->bidirectional);
  CHECK(both.transformer->bidirectional);
  CHECK(both.transformer->sliding_window == 512 / 2 + 1);
  CHECK(both.transformer->unexecuted == causal.transformer->unexecuted);
  CHECK(both.parameters() == causal.parameters());
  CHECK(both.forward_flops_per_sample(2048) > causal.forward_flops_per_sample(2048));
  CHECK(with("\"use_bidirectional_attention\": \"all\",").transformer->bidirectional);
  // Gemma 4's word for images' tokens alone.
  const Workload some = with("\"use_bidirectional_attention\": \"vision\",");
  CHECK_FALSE(some.transformer->bidirectional);
  CHECK(some.transformer->unexecuted.size() == causal.transformer->unexecuted.size() + 1);
}

TEST_CASE("families: squared ReLU stands in MLPs with a gate and without, which unknown types do not say") {
  const auto of = [](const std::string& type) {
    return parse("{\n\"model_type\": \"" + type +
                 "\",\n\"architectures\": [\"NameForCausalLM\"],\n\"hidden_act\": \"relu2\",\n"
                 "\"attention_bias\": false, \"head_dim\": 128, \"hidden_size\": 2560, "
                 "\"intermediate_size\": 18432, \"max_position_embeddings\": 65536, \"mlp_bias\": false, "
                 "\"num_attention_heads\": 20, \"num_hidden_layers\": 36, \"num_key_value_heads\": 4, "
                 "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false, "
                 "\"vocab_size\": 128004}");
  };
  // arcee-ai/AFM-4.5B, published as 4.62 B.
  const Workload arcee = of("arcee");
  CHECK_FALSE(arcee.transformer->gated_ffn);
  CHECK(arcee.parameters() ==
        2 * 128004 * 2560 + 2560 + 36 * (attention(2560, 20, 4, 128) + 2 * Count{2560} * 18432 + 2 * 2560));
  CHECK(arcee.parameters() == 4619184640);
  CHECK(arcee.transformer->unexecuted == std::vector<std::string>{"hidden_act relu2"});
  CHECK_THROWS_WITH(of("brandnew"),
                    Catch::StartsWith("config.json:4: model_type 'brandnew' is not known, and "
                                      "hidden_act: 'relu2', by which some"));
}

TEST_CASE("families: mscale_all_dim scales all of latent attention's scores, as DeepSeek's classes do") {
  const double amplitude = 0.1 * std::log(32.0) + 1;
  const Transformer kimi = *load("kimi-k2").transformer;
  CHECK(kimi.attention_scale == Approx(amplitude * amplitude / std::sqrt(192.0)));
  CHECK(kimi.rotary_scaling.attention_factor == Approx(1));
  CHECK(load("gpt-oss-20b").transformer->attention_scale == 0);
}

constexpr std::string_view kNew =
    "{\n\"model_type\": \"brandnew\",\n\"architectures\": [\"BrandNewForCausalLM\"],\n\"num_hidden_layers\": "
    "2,\n"
    "\"hidden_size\": 64,\n\"num_attention_heads\": 4,\n\"num_key_value_heads\": 2,\n\"intermediate_size\": "
    "128,\n"
    "\"vocab_size\": 100,\n\"hidden_act\": \"silu\",\n\"rms_norm_eps\": 1e-6,\n\"rope_theta\": 1e6,\n"
    "\"max_position_embeddings\": 512";

std::string new_with(const std::string& more) {
  return std::string(kNew) + (more.empty() ? "" : ",\n" + more) + "\n}";
}

TEST_CASE("families: a model_type that is not known is read by its fields, and that is said") {
  const Workload workload = parse(new_with("\"use_qk_norm\": true, \"tie_word_embeddings\": false"));
  CHECK(workload.parameters() ==
        2 * 100 * 64 + 64 + 2 * (attention(64, 4, 2, 16) + 2 * 16 + gated(64, 128) + 2 * 64));
  REQUIRE(workload.notes.size() == 1);
  CHECK_THAT(workload.notes.front(),
             Catch::Contains("'brandnew' is not known") && Catch::Contains("use_qk_norm"));
  CHECK_FALSE(workload.transformer->unexecuted.empty());
  const Workload experts = parse(
      new_with("\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
               "\"layer_types\": [\"sliding_attention\", \"full_attention\"], \"sliding_window\": 128"));
  CHECK(experts.transformer->moe->expert_ffn_hidden == 32);
  CHECK(experts.transformer->layer_window(0) == 128);
  CHECK(experts.transformer->layer_window(1) == 0);
  CHECK(experts.transformer->full_attention_period == 2);
  const Workload first = parse(
      new_with("\"layer_types\": [\"full_attention\", \"sliding_attention\"], \"sliding_window\": 128"));
  CHECK(first.transformer->attention_pattern == "fw");
}

TEST_CASE("families: what cannot be read names the field and the ways on") {
  const auto refused = [](const std::string& text, const std::string& what) {
    CHECK_THROWS_WITH(parse(text), Catch::StartsWith("config.json:") && Catch::Contains(what) &&
                                       Catch::Contains(".onnx") && Catch::Contains("transformer {"));
    CHECK_THROWS_AS(parse(text), UserError);
  };
  refused(new_with("\"flux_capacitors\": 2"),
          "14: model_type 'brandnew' is not known, and flux_capacitors: not understood");
  refused(new_with("\"patch_size\": 16"), "patch_size: reads no tokens");
  refused("{\"model_type\": \"pegasus\", \"d_model\": 512, \"is_encoder_decoder\": true}",
          "is_encoder_decoder: has an encoder and a decoder");
  refused("{\"model_type\": \"swin\", \"hidden_size\": 768, \"image_size\": 224}",
          "image_size: reads no tokens");
  refused("{\"model_type\": \"wavlm\", \"encoder_layers\": 4}", "encoder_layers");
  refused("{\"model_type\": \"brandnew\", \"layer_norm_eps\": 1e-5}", "rms_norm_eps: missing");
}

TEST_CASE("families: facts that a family takes for granted are held to what its file says") {
  const auto phi = [](const std::string& more) {
    return "{\"model_type\": \"phi\", \"num_hidden_layers\": 1, \"hidden_size\": 64, "
           "\"num_attention_heads\": 4, "
           "\"intermediate_size\": 128, \"vocab_size\": 100, " +
           more + "}";
  };
  CHECK_THROWS_WITH(parse(phi("\"qk_layernorm\": true")), Catch::Contains("qk_layernorm: true"));
  const auto llama = [](const std::string& more) {
    return "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
           "\"num_attention_heads\": 4, "
           "\"intermediate_size\": 128, \"vocab_size\": 100, " +
           more + "}";
  };
  CHECK_THROWS_WITH(parse(llama("\"layer_types\": [\"full_attention\"]")), Catch::Contains("layer_types"));
  CHECK_THROWS_WITH(parse(llama("\"layer_types\": [\"sliding_attention\", \"full_attention\"]")),
                    Catch::Contains("sliding_window: missing"));
  CHECK_THROWS_WITH(parse("{\"model_type\": \"mamba2\", \"rms_norm\": false, \"num_hidden_layers\": 1}"),
                    Catch::Contains("rms_norm: false"));
}

TEST_CASE("families: what the executor lacks is said, of Granite, GPT-OSS and Llama 4") {
  const auto says = [](const char* name, const std::string& what) {
    const std::vector<std::string> all = load(name).transformer->unexecuted;
    INFO(name);
    CHECK(std::find(all.begin(), all.end(), what) != all.end());
  };
  says("granite-3.1-8b", "embedding_multiplier 12");
  says("gpt-oss-20b", "swiglu_limit 7");
  says("command-r", "logit_scale 0.0625");
  says("llama-4-scout-17b-16e", "no_rope_layers");
  says("deepseek-v3.2", "sparse attention");
  says("ernie-4.5-0.3b", "rotary positions of neighbouring pairs");
  for (const char* name : {"olmo-2-7b", "gemma-2-2b", "gemma-2b", "gpt-neox-20b"})
    CHECK(load(name).transformer->unexecuted.empty());
  const Transformer gemma = *load("gemma-2-2b").transformer;
  CHECK(gemma.attention_softcap == 50);
  CHECK(gemma.final_softcap == 30);
  CHECK(gemma.embedding_scale == 48);
  CHECK(gemma.attention_scale == 0);  // its heads are query_pre_attn_scalar wide
  CHECK(gemma.norms_offset);
}

}  // namespace
}  // namespace orrery
