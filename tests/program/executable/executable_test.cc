// What the executor can train, as the planner asks before it proposes a plan for this machine.
#include "program/executable/executable.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "tests/support/jobs.h"

namespace orrery::test {
namespace {

std::string refusal_of(const std::string& workload, int seq_len, DType precision = DType::fp32,
                       const Choices& choices = {}, const char* cluster = "localhost") {
  const auto job = make_job(workload, cluster, 1, 8, seq_len, "orrery");
  job->training.precision = precision;
  return why_not_executable(Plan{job, choices}).value_or("");
}

}  // namespace

TEST_CASE("models that have mathematics here are not refused, and others are, in one line that names them") {
  for (const char* known : {"gpt2", "llama3-8b", "mixtral-8x7b", "bert-base"})
    CHECK(refusal_of(known, 128) == "");
  const std::string refusal = refusal_of("deepseek-v3", 128);
  CHECK(refusal.find("deepseek-v3") != std::string::npos);
  CHECK(refusal.find('\n') == std::string::npos);
  CHECK(refusal.find("expected") != std::string::npos);
  CHECK(refusal_of("nemotron-h-8b", 128).find("state-space layers") != std::string::npos);
  for (const char* network : {"resnet50", "vgg16", "resnet20", "mlp-300-100"})
    CHECK(refusal_of(network, 0) == "");
  for (const char* recommender : {"dlrm", "dlrm-sparse", "dlrm-terabyte"})
    CHECK(refusal_of(recommender, 0).find("emb_l.0") != std::string::npos);
  for (const char* file : {"convnext-tiny-224", "efficientnet-b0", "deberta-v3-base", "dit-xl-2-256",
                           "stable-diffusion-v1-5-unet", "llava-1.5-7b", "qwen2-vl-7b"}) {
    const std::string why = refusal_of(std::string(ORRERY_TEST_DATA) + "/huggingface/" + file + ".json", 0);
    INFO(file << ": " << why);
    CHECK(why.find("there is no mathematics for its operator") != std::string::npos);
    CHECK(why.find('\n') == std::string::npos);
  }
}

TEST_CASE(
    "of the public configurations those that have mathematics are executed, the others refused in one line") {
  const std::set<std::string> executed = {
      "bert-base-uncased", "bert-large-uncased", "falcon3-10b",   "gemma-2-2b",
      "gemma-2b",          "gpt-neox-20b",       "gpt2",          "llama-2-7b",
      "llama-3-8b",        "llama-3.1-405b",     "llama-3.2-1b",  "mistral-7b-v0.1",
      "mixtral-8x7b",      "olmo-2-7b",          "olmoe-1b-7b",   "opt-125m",
      "qwen2-7b",          "qwen3-0.6b",         "qwen3-30b-a3b", "seed-oss-36b",
      "stablelm-2-1.6b",   "stablelm-3b-4e1t",   "starcoder2-3b", "vit-base-patch16-224"};
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ORRERY_TEST_DATA) + "/huggingface")) {
    const std::string name = entry.path().stem().string();
    const Workload workload = load_workload(entry.path().string());
    const int seq_len = workload.transformer ? 128 : 0;
    const std::string why = refusal_of(entry.path().string(), seq_len);
    INFO(name << ": " << why);
    CHECK(why.empty() == executed.contains(name));
    CHECK(why.find('\n') == std::string::npos);
    if (!why.empty()) {
      CHECK(why.starts_with("cannot execute "));
      CHECK(why.find("(expected ") != std::string::npos);
    }
    ++files;
  }
  CHECK(files > 80);
}

TEST_CASE("a vision transformer that classifies is executed, but for keys that are not") {
  const std::string vit = std::string(ORRERY_TEST_DATA) + "/huggingface/vit-base-patch16-224.json";
  CHECK(refusal_of(vit, 0) == "");
  auto job = make_job(vit, "localhost", 1, 8, 0, "orrery");
  job->workload.ignored_keys = {"hidden_dropout_prob"};
  CHECK(why_not_executable(Plan{job, {}}).value_or("").find("'hidden_dropout_prob', which is not executed") !=
        std::string::npos);
}

TEST_CASE("how many tokens a model has is the data's matter") {
  auto job = make_job("gpt2", "localhost", 1, 8, 128, "orrery");
  job->workload.transformer->vocab = 65;
  CHECK(why_not_executable(Plan{job, {}}).value_or("") == "");
}

TEST_CASE("adapters are executed, and what of them is not says so") {
  const auto refusal = [](const FineTuning& tuning, int tp, int zero) {
    auto job = make_job("gpt2", "localhost", tp, 8, 128, "orrery");
    fine_tune(job->workload, tuning);
    Plan plan{job, {}};
    plan.choices.tp = tp;
    plan.choices.zero = zero;
    return why_not_executable(plan).value_or("");
  };
  FineTuning tuning;
  tuning.rank = 4;
  CHECK(refusal(tuning, 2, 3) == "");
  tuning.base = BaseType::nf4;
  CHECK(refusal(tuning, 2, 2) == "");
  CHECK(refusal(tuning, 1, 3).find("`quantize_base`") != std::string::npos);
  tuning.dora = true;
  CHECK(refusal(tuning, 1, 0) == "");
  CHECK(refusal(tuning, 2, 0).find("`dora`") != std::string::npos);
}

TEST_CASE(
    "frozen weights beside experts, experts with biases and heads of some tokens are planned, not executed") {
  const auto refusal = [](auto change) {
    auto job = make_job("mixtral-8x7b", "localhost", 1, 8, 128, "orrery");
    change(*job->workload.transformer);
    return why_not_executable(Plan{job, {}}).value_or("");
  };
  CHECK(refusal([](Transformer&) {}) == "");
  CHECK(refusal([](Transformer& t) { t.fine_tuning.rank = 4; }).find("not trained") != std::string::npos);
  const std::pair<bool Transformer::*, const char*> parts[] = {
      {&Transformer::no_input_norms, "without norms"},
      {&Transformer::embedding_norm, "norms"},
      {&Transformer::first_norm_absent, "norms"},
      {&Transformer::unbiased_norm, "norms"},
      {&Transformer::attention_gate, "gate or sinks"},
      {&Transformer::attention_sinks, "gate or sinks"},
      {&Transformer::qk_norm_absent_weights, "without weights"},
  };
  for (const auto& [part, what] : parts) {
    const auto field = part;
    INFO(what);
    CHECK(refusal([field](Transformer& t) { t.*field = t.qk_norm = true; }).find(what) != std::string::npos);
  }
  CHECK(refusal([](Transformer& t) { t.branch_norms = t.linear_bias = true; }).find("has biases") !=
        std::string::npos);
  CHECK(refusal([](Transformer& t) { t.parallel_residual = t.single_norm = true; }).find("one norm") !=
        std::string::npos);
  CHECK(refusal([](Transformer& t) { t.moe->expert_bias = true; }).find("biases") != std::string::npos);
  CHECK(refusal([](Transformer& t) { t.unexecuted = {"jitter 0.1"}; }).find("jitter 0.1") !=
        std::string::npos);
  CHECK(refusal([](Transformer& t) {
          t.attention_pattern = std::string(static_cast<std::size_t>(t.layers), 'c');
        }).find("chunks") != std::string::npos);
  CHECK(refusal([](Transformer& t) { t.masked_share = 0.1; }).find("share") != std::string::npos);
}

TEST_CASE("arithmetic and forms that the executor does not have are refused") {
  for (const DType type : {DType::fp32, DType::tf32, DType::bf16, DType::fp16})
    CHECK(refusal_of("gpt2", 128, type) == "");
  CHECK(refusal_of("gpt2", 128, DType::fp8) != "");
  Choices one_process;
  one_process.sync = Sync::single_process;
  CHECK(refusal_of("gpt2", 128, DType::fp32, one_process) == "");
  CHECK(refusal_of("gpt2", 128, DType::fp16, one_process) != "");
  Choices asynchronous;
  asynchronous.sync = Sync::async_parameter_server;
  asynchronous.dp = asynchronous.servers = 2;
  CHECK(refusal_of("gpt2", 128, DType::fp32, asynchronous) == "");
  CHECK(refusal_of("gpt2", 128, DType::fp32, asynchronous, "dgx-a100") == "");
}

TEST_CASE("a sequence beyond the positions that a model has learnt is refused") {
  CHECK(refusal_of("gpt2", 1024) == "");
  CHECK(refusal_of("gpt2", 1025).find("1024") != std::string::npos);
}

}  // namespace orrery::test
