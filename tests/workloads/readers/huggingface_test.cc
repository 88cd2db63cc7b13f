#include "workloads/readers/huggingface.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/file.h"
#include "tests/workloads/readers/huggingface_files.h"
#include "workloads/readers/catalog.h"

namespace orrery {
namespace {

using test::load;

Workload parse_config(std::string_view text) {
  return workload_from_huggingface(text, "config.json");
}

constexpr std::string_view kLlama =
    "{\n\"model_type\": \"llama\",\n\"num_hidden_layers\": 2,\n\"hidden_size\": 64,\n"
    "\"num_attention_heads\": 4,\n\"intermediate_size\": 128,\n\"vocab_size\": 100";

std::string llama_with(const std::string& more) {
  return std::string(kLlama) + ",\n" + more + "\n}";
}

TEST_CASE("huggingface: Python's Infinity and NaN are read where nothing is made of them, and refused else") {
  CHECK(parse_config(llama_with("\"time_step_limit\": [0.0, Infinity], \"x\": [-Infinity, NaN]"))
            .transformer->layers == 2);
  CHECK_THROWS_WITH(parse_config(llama_with("\"rope_theta\": Infinity")),
                    Catch::StartsWith("config.json:8: rope_theta: \"Infinity\""));
}

TEST_CASE("huggingface: a key that is given twice in an object is refused at its second line") {
  CHECK_THROWS_WITH(parse_config(llama_with("\"num_hidden_layers\": 4")),
                    Catch::StartsWith("config.json:8: num_hidden_layers: is given twice"));
  // In objects of their own, in texts and as a value it is not.
  CHECK_NOTHROW(
      parse_config(llama_with("\"a\": {\"b\": 1}, \"c\": [{\"b\": \"b\"}, {\"b\": \"\\\"b\\\":\"}]")));
}

TEST_CASE("huggingface: settings that contradict each other are refused at their lines") {
  const auto refused = [](const std::string& more, const char* says) {
    CHECK_THROWS_WITH(parse_config(llama_with(more)), Catch::Contains(says));
  };
  refused(R"("rope_scaling": {"rope_type": "nonsense"})",
          "config.json:8: rope_scaling: the rope_type 'nonsense'");
  const auto longrope = [](const std::string& lists) {
    return R"("rope_scaling": {"rope_type": "longrope", )" + lists + "}";
  };
  const std::string eight = R"("long_factor": [1, 1, 1, 1, 1, 1, 1, 1])";
  CHECK_NOTHROW(parse_config(llama_with(longrope(eight + R"(, "short_factor": [1, 1, 1, 1, 1, 1, 1, 2])"))));
  refused(longrope(eight), "rope_scaling: 'longrope' without short_factor");
  refused(longrope(eight + R"(, "short_factor": [1])"), "short_factor has 1 numbers (expected 8");
  refused(longrope(eight + R"(, "short_factor": 1)"), "short_factor has 0 numbers (expected 8");
  refused(R"("rope_scaling": {"rope_type": "llama3"})", "'llama3' without factor");
  refused(R"("rope_scaling": {"rope_type": "llama3", "factor": 8})", "'llama3' without low_freq_factor");
  refused(R"("rope_scaling": {"type": "linear"})", "'linear' without factor");
  const std::string experts = R"("num_local_experts": 64, "num_experts_per_tok": 6, )";
  refused(experts + R"("n_group": 7, "topk_group": 2)", "n_group: 7 groups of 64 experts");
  refused(experts + R"("n_group": 8, "topk_group": 9)", "topk_group: 9 of 8 groups");
  CHECK_NOTHROW(parse_config(llama_with(experts + R"("n_group": 8, "topk_group": 4)")));
  refused(R"("layer_types": ["full_attention", "mamba"])", "has an unknown kind 'mamba'");
  refused(R"("num_local_experts": 64)", "64 experts, and nothing says how many take a token");
  refused(R"("num_local_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 2)",
          "first_k_dense_replace: 2 of 2 layers have no experts");
}

TEST_CASE("huggingface: what relative positions of BERT's kind add is said not to be counted") {
  const std::string bert =
      "{\"model_type\": \"bert\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4, "
      "\"intermediate_size\": 128, \"vocab_size\": 100, \"max_position_embeddings\": 128";
  CHECK(parse_config(bert + "}").notes.empty());
  for (const auto& [kind, products] :
       {std::pair{"relative_key", "a product"}, {"relative_key_query", "two products"}}) {
    const Workload read = parse_config(bert + ", \"position_embedding_type\": \"" + kind + "\"}");
    REQUIRE(read.notes.size() == 1);
    CHECK(read.notes.front().find("of 8160 parameters in all") != std::string::npos);  // 2 x 255 x 16
    CHECK(read.notes.front().find(products) != std::string::npos);
  }
}

TEST_CASE("huggingface: that a model_type is not known comes before what it lacks") {
  CHECK_THROWS_WITH(
      parse_config("{\n\"n_layer\": 2,\n\"model_type\": \"blossom\"\n}"),
      Catch::StartsWith("config.json:3: model_type 'blossom' is not known, and rms_norm_eps: missing"));
}

// arXiv 2504.03624 and 2604.12374 print 8.1 and 120.6 billion, the latter without multi-token prediction.
TEST_CASE("huggingface: hybrids of state-space layers have the published number of parameters to 0.5%") {
  CHECK(static_cast<double>(load("nemotron-h-8b").parameters()) == Approx(8.1e9).epsilon(0.005));
  Workload super = load("nemotron-3-super-120b-a12b");
  CHECK(super.transformer->multi_token_layers == 1);
  double trunk = 0;
  for (const Operator& op : super.operators)
    if (!op.name.starts_with("mtp.")) trunk += static_cast<double>(op.parameter_count());
  CHECK(trunk == Approx(120.6e9).epsilon(0.005));
  CHECK(super.ignored_keys.empty());
}

TEST_CASE("huggingface: weights in 4 or 8 bits are frozen ones, other formats are ignored aloud") {
  const auto quantised = [](const std::string& how) {
    return parse_config(llama_with("\"quantization_config\": {" + how + "}"));
  };
  const Workload four = quantised(R"("load_in_4bit": true, "bnb_4bit_use_double_quant": true)");
  CHECK(four.transformer->fine_tuning.base == BaseType::nf4_dq);
  CHECK(four.ignored_keys.empty());
  CHECK(quantised(R"("load_in_8bit": true)").transformer->fine_tuning.base == BaseType::int8);
  for (const char* method : {"gptq", "awq"}) {
    const std::string of = fmt::format(R"("quant_method": "{}", "bits": )", method);
    CHECK(quantised(of + "4").transformer->fine_tuning.base == BaseType::nf4);
    CHECK(quantised(of + "8").transformer->fine_tuning.base == BaseType::int8);
    CHECK_THROWS_WITH(quantised(of + "3"), Catch::Contains("bits 3"));
  }
  CHECK(quantised(R"("quant_method": "hqq")").ignored_keys ==
        std::vector<std::string>{"quantization_config"});
  CHECK(quantised(R"("quant_method": "fp8")").ignored_keys.empty());
  CHECK_THROWS_AS(parse_config(llama_with("\"quantization_config\": 4")), UserError);
}

TEST_CASE("huggingface: a hybrid's pattern must have a letter a layer, of the known kinds") {
  const std::string text =
      "{\n\"model_type\": \"nemotron_h\",\n\"num_hidden_layers\": 3,\n\"hidden_size\": 64,\n"
      "\"num_attention_heads\": 8,\n\"vocab_size\": 100,\n\"hybrid_override_pattern\": \"";
  CHECK(parse_config(text + "M*-\"}").transformer->layer_pattern == "M*-");
  CHECK_THROWS_WITH(parse_config(text + "M*\"}"), Catch::Contains("2 letters for 3 layers"));
  CHECK_THROWS_WITH(parse_config(text + "M*x\"}"), Catch::Contains("'x' is no kind of layer"));
  CHECK_THROWS_WITH(parse_config(text + "M*E\"}"), Catch::Contains("n_routed_experts"));
  CHECK_THROWS_WITH(parse_config(text + "\"}"), Catch::Contains("hybrid_override_pattern"));
  CHECK(parse_config("{\"model_type\": \"nemotron_h\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
                     "\"num_attention_heads\": 8, \"vocab_size\": 100, \"layers_block_type\": [\"mamba\", "
                     "\"attention\"]}")
            .transformer->layer_pattern == "M*");
}

TEST_CASE("huggingface: published models have the published number of parameters, exactly") {
  const std::pair<const char*, std::int64_t> models[] = {
      {"gpt2", 124'439'808},
      {"llama-2-7b", 6'738'415'616},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3.1-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400},
      {"mistral-7b-v0.1", 7'241'732'096},
      {"falcon3-10b", 10'305'653'760},  // "10.3B"
      {"mixtral-8x7b", 46'702'792'704},
      {"gpt-neox-20b", 20'554'567'680},
      {"bert-base-uncased", 109'514'298},
      {"bert-large-uncased", 335'174'458},
      {"qwen2-7b", 7'615'616'512},
      {"qwen3-0.6b", 596'049'920},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"deepseek-v2-lite", 15'706'484'224},
      {"opt-125m", 125'239'296},
      {"falcon-7b", 6'921'720'704},
      {"phi-2", 2'779'683'840},
      {"gemma-2b", 2'506'172'416},
      {"nemotron-3-nano-30b-a3b", 31'577'940'288},
  };
  for (const auto& [name, parameters] : models) {
    INFO(name);
    const Workload workload = load(name);
    CHECK(workload.parameters() == parameters);
    CHECK(workload.name == name);
    // Every key of a real configuration is done, harmless, or said not to be executed.
    CHECK(workload.ignored_keys.empty());
    const bool own_routing = std::string(name) == "nemotron-3-nano-30b-a3b";
    if (std::string(name) == "gemma-2b") continue;  // huggingface_families_test.cc
    CHECK(workload.transformer->unexecuted ==
          (own_routing ? std::vector<std::string>{"routed_scaling_factor 2.5"} : std::vector<std::string>{}));
  }
}

TEST_CASE("huggingface: DeepSeek-V3 is 671B, and 11.5B more with its multi-token prediction module") {
  const Workload with = load("deepseek-v3");
  CHECK(with.parameters() == Approx(671.03e9 + 11.5e9).epsilon(0.001));
  CHECK(load_workload("deepseek-v3").parameters() == 671'026'419'200);  // 671,026,404,352 and 58 x 256 biases
}

TEST_CASE("huggingface: BERT's heads follow the class") {
  std::string text = read_file(std::string(ORRERY_TEST_DATA) + "/huggingface/bert-base-uncased.json");
  const auto with_class = [&](const std::string& name) {
    std::string copy = text;
    copy.replace(copy.find("BertForMaskedLM"), std::string("BertForMaskedLM").size(), name);
    return parse_config(copy).parameters();
  };
  CHECK(with_class("BertModel") == 109'482'240);
  CHECK(with_class("BertForPreTraining") == 110'106'428);
}

TEST_CASE("huggingface: a multimodal configuration is planned by its text_config, the rest reported") {
  const Workload workload = load("multimodal-llama-3-8b");
  CHECK(workload.parameters() == 8'030'261'248);
  CHECK(workload.ignored_keys == std::vector<std::string>{"image_token_index", "projector_hidden_act",
                                                          "vision_config", "vision_feature_layer"});
}

TEST_CASE("huggingface: null and absent keys fall back as the class does") {
  CHECK(parse_config(llama_with("\"head_dim\": null")).transformer->head_dim == 16);
  CHECK(parse_config(llama_with("\"num_key_value_heads\": null")).transformer->kv_heads == 4);
  CHECK(parse_config(llama_with("\"head_dim\": 32")).transformer->head_dim == 32);
  CHECK(parse_config(llama_with("\"rope_parameters\": {\"rope_theta\": 7}")).transformer->rope_theta == 7);
  CHECK(parse_config(llama_with("\"new_key\": [1]")).ignored_keys == std::vector<std::string>{"new_key"});
}

TEST_CASE("huggingface: errors name the file, the line and the key") {
  const auto refused = [](const std::string& text, const std::string& what) {
    CHECK_THROWS_WITH(parse_config(text), Catch::StartsWith("config.json:") && Catch::Contains(what));
    CHECK_THROWS_AS(parse_config(text), UserError);
  };
  refused("{", "not valid JSON");
  refused("[]", "JSON object");
  refused("{\"model_type\": \"mamba\"}", "num_hidden_layers: missing");
  refused("{\"model_type\": \"rwkv\"}", "'rwkv' is not known");
  refused("{\"hidden_size\": 4}", "model_type: missing");
  refused("{\"model_type\": \"llama\"}", "num_hidden_layers: missing");
  refused(llama_with("\"num_key_value_heads\": 3"), "8: num_key_value_heads: 3 does not divide");
  refused(llama_with("\"head_dim\": -1"), "8: head_dim: -1");
  refused(llama_with("\"hidden_act\": \"cubic\""), "8: hidden_act: 'cubic'");
  refused(llama_with("\"rope_theta\": \"x\""), "8: rope_theta");
  refused(llama_with("\"max_position_embeddings\": 1e400"), "");
  refused(llama_with("\"attention_bias\": 3"), "8: attention_bias: 3");
  refused("{\"model_type\": \"gpt2\", \"n_layer\": 1.5, \"n_embd\": 8, \"n_head\": 2}", "n_layer: 1.5");
  refused("{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 9, \"n_head\": 2}",
          "n_head: 2 does not divide");
  refused(std::string(100'000, '['), "");
}

TEST_CASE("huggingface: what changes the mathematics and is not computed is said, key by key") {
  const auto unexecuted = [](const std::string& more) {
    return parse_config(llama_with(more)).transformer->unexecuted;
  };
  using Texts = std::vector<std::string>;
  CHECK(unexecuted("\"hidden_act\": \"silu\"").empty());
  CHECK(unexecuted("\"scale_attn_by_inverse_layer_idx\": true") ==
        Texts{"scale_attn_by_inverse_layer_idx true"});
  CHECK(unexecuted("\"scale_attn_weights\": false") == Texts{"scale_attn_weights false"});
  CHECK(unexecuted("\"position_embedding_type\": \"relative_key\"") ==
        Texts{"position_embedding_type relative_key"});
  CHECK(unexecuted("\"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\"") ==
        Texts{"routed_scaling_factor 2.5", "scoring_func sigmoid"});
  CHECK(unexecuted("\"n_group\": 8, \"topk_group\": 4, \"topk_method\": \"noaux_tc\"") ==
        Texts{"n_group 8", "topk_group 4", "topk_method noaux_tc"});
  CHECK(unexecuted(
            "\"n_group\": 1, \"topk_group\": 1, \"topk_method\": \"greedy\", \"routed_scaling_factor\": 1.0")
            .empty());
  CHECK(unexecuted("\"router_jitter_noise\": 0.01") == Texts{"router_jitter_noise 0.01"});
  const std::string eight = "[1, 1, 1, 1, 1, 1, 1, 1]";
  CHECK(unexecuted("\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": " + eight +
                   ", \"long_factor\": " + eight + "}") == Texts{"rope_scaling of the kind 'longrope'"});
  CHECK(parse_config(llama_with("\"attention_dropout\": 0.2")).transformer->dropouts ==
        Dropouts{0, 0.2, 0, 0});
  CHECK(parse_config(llama_with("\"hidden_act\": \"gelu\"")).transformer->activation == Activation::gelu_erf);
  CHECK(parse_config(llama_with("\"hidden_act\": \"gelu_new\"")).transformer->activation == Activation::gelu);
  CHECK_THROWS_AS(parse_config(llama_with("\"rope_scaling\": {\"type\": \"linear\", \"factor\": -2}")),
                  UserError);
  CHECK_THROWS_AS(parse_config(llama_with("\"rope_scaling\": 3")), UserError);
}

}  // namespace
}  // namespace orrery
