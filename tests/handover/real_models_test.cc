// Models that real parsers of these targets once got wrong, from their own configurations: what must be said
// is said, and what cannot be is noted.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "handover/export.h"
#include "handover/export_common.h"
#include "handover/import.h"
#include "tests/support/jobs.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

Plan plan_of(const std::string& config, int tp = 1, int dp = 8) {
  Plan plan{
      test::make_job(ORRERY_TEST_DATA "/huggingface/" + config + ".json", "dgx-h100", tp * dp, 32, 2048), {}};
  plan.choices.tp = tp;
  plan.choices.dp = dp;
  plan.choices.zero = 1;
  plan.choices.sequence_parallel = tp > 1;
  return plan;
}

std::string script_of(const Plan& plan, ExportTarget target, const std::string& file = "launch.sh") {
  for (const ExportedFile& one : export_plan(plan, target))
    if (one.name == file) return one.content;
  FAIL("no " << file);
  return "";
}

void check_holds(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    INFO(part << "\n" << text);
    CHECK(text.find(part) != std::string::npos);
  }
}

void check_lacks(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    INFO(part << "\n" << text);
    CHECK(text.find(part) == std::string::npos);
  }
}

}  // namespace

TEST_CASE("Megatron-LM gets GPT-NeoX's biases and partial rotation, and a note on its parallel residual") {
  const std::string script = script_of(plan_of("gpt-neox-20b"), ExportTarget::megatron);
  check_holds(script, {"--rotary-percent 0.25", "NOTE: the model has attention beside the MLP"});
  check_lacks(script, {"--disable-bias-linear", "--swiglu"});
}

TEST_CASE("Megatron-LM gets Qwen3's norms of queries and keys") {
  check_holds(script_of(plan_of("qwen3-0.6b"), ExportTarget::megatron),
              {"--qk-layernorm", "--kv-channels 128"});
}

TEST_CASE("Megatron-LM gets the routers of Mixtral and DeepSeek") {
  check_holds(script_of(plan_of("mixtral-8x7b"), ExportTarget::megatron),
              {"--num-experts 8", "--moe-router-topk 2", "--moe-ffn-hidden-size 14336"});
  check_holds(script_of(plan_of("deepseek-v3"), ExportTarget::megatron),
              {"--moe-router-score-function sigmoid", "--moe-router-enable-expert-bias",
               "--moe-router-load-balancing-type none", "--moe-layer-freq '([0]*3+[1]*58)'",
               "--moe-shared-expert-intermediate-size 2048", "--moe-router-topk-scaling-factor 2.5",
               "--moe-router-num-groups 8", "--moe-router-group-topk 4", "--qk-layernorm"});
  check_lacks(script_of(plan_of("deepseek-v3"), ExportTarget::megatron),
              {"n_group", "topk_group", "topk_method", "scoring_func"});
  Plan catalog = plan_of("deepseek-v3");
  catalog.job = test::make_job("deepseek-v3", "dgx-h100", 8, 32, 2048);
  check_holds(
      script_of(catalog, ExportTarget::megatron),
      {"--moe-router-num-groups 8", "--moe-router-group-topk 4", "--moe-router-topk-scaling-factor 2.5"});
  check_holds(script_of(plan_of("glm-4.5"), ExportTarget::nemo, "recipe.yaml"),
              {"moe_router_score_function: \"sigmoid\""});
  Plan lite = plan_of("deepseek-v2-lite");
  check_holds(script_of(lite, ExportTarget::megatron),
              {"--moe-router-pre-softmax", "--rope-type rope", "--no-rope-fusion"});
  // As its own file says, which this one does not.
  const auto job = std::make_shared<Job>(*lite.job);
  RotaryScaling& scaling = job->workload.transformer->rotary_scaling;
  scaling.kind = RopeScaling::yarn;
  scaling.factor = 40;
  scaling.original_positions = 4096;
  lite.job = job;
  const std::string scaled = script_of(lite, ExportTarget::megatron);
  check_holds(scaled, {"--rope-type yarn", "--rotary-scaling-factor 40"});
  check_lacks(scaled, {"--no-rope-fusion"});
  // Its script for Kimi K2 says both as the model's file does: mscale_all_dim is 0 where it is not said.
  const std::string kimi = script_of(plan_of("kimi-k2"), ExportTarget::megatron);
  check_holds(kimi, {"--mscale 1 ", "--mscale-all-dim 1 "});
  check_lacks(kimi, {"a scale of scores"});
}

TEST_CASE("fp8 that runs norms or experts' activations again is scaled as Megatron Core allows beside them") {
  const auto narrow = [](const std::string& config, ModuleSet modules, DType precision = DType::fp8) {
    Plan plan = plan_of(config);
    plan.choices.recompute = Recompute::selective;
    plan.choices.recompute_modules = modules;
    const auto job = std::make_shared<Job>(*plan.job);
    job->training.precision = precision;
    plan.job = job;
    return plan;
  };
  const char* note = "NOTE: fp8 by each tensor's own scale";
  for (const char* module : {"layernorm", "moe_act"}) {
    const Plan plan = narrow("mixtral-8x7b", module_bit(module));
    check_holds(script_of(plan, ExportTarget::megatron), {"--fp8-recipe tensorwise", note});
    check_holds(script_of(plan, ExportTarget::nemo), {note});
    check_holds(script_of(plan, ExportTarget::nemo, "recipe.yaml"), {R"(fp8_recipe: "tensorwise")"});
  }
  for (const Plan& plan : {narrow("mixtral-8x7b", module_bit("core_attn")),
                           narrow("mixtral-8x7b", module_bit("moe_act"), DType::bf16)}) {
    check_lacks(script_of(plan, ExportTarget::megatron), {"--fp8-recipe", note});
    check_lacks(script_of(plan, ExportTarget::nemo, "recipe.yaml"), {"fp8_recipe"});
  }
}

TEST_CASE("a layout has the embedding, each layer, the further tokens' modules and the loss") {
  Plan plan = plan_of("deepseek-v3", 1, 8);
  REQUIRE(plan.job->workload.transformer->multi_token_layers == 1);
  plan.choices.pp = 4;
  plan.choices.dp = 2;
  const std::string layout = megatron_layout(plan);
  INFO(layout);
  CHECK(layout.ends_with("mL"));
  const std::string flags =
      "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout '" + layout + "'";
  CHECK(import_megatron(flags, 61, 8).pins.stage_layers == layers_by_part(plan));
  std::map<char, int> count;
  for (std::size_t at = 0; at < layout.size(); ++at) {
    if (std::string_view("EtmL").find(layout[at]) == std::string_view::npos) continue;
    count[layout[at]] +=
        at + 1 < layout.size() && layout[at + 1] == '*' ? std::stoi(layout.substr(at + 2)) : 1;
  }
  CHECK(count == std::map<char, int>{{'E', 1}, {'t', 61}, {'m', 1}, {'L', 1}});
  CHECK(script_of(plan, ExportTarget::megatron).find("--mtp-num-layers 1") != std::string::npos);
}

TEST_CASE(
    "Megatron-LM leaves latent attention's kernel to Transformer Engine, which keeps FlashAttention 2 from "
    "it") {
  for (const char* model : {"deepseek-v3", "deepseek-v2-lite", "kimi-k2"})
    check_holds(script_of(plan_of(model), ExportTarget::megatron), {"--attention-backend auto"});
  check_holds(script_of(plan_of("llama-3-8b"), ExportTarget::megatron), {"--attention-backend flash"});
  Plan unfused = plan_of("deepseek-v3");
  const auto job = std::make_shared<Job>(*unfused.job);
  job->training.fused_attention = false;
  unfused.job = job;
  check_holds(script_of(unfused, ExportTarget::megatron), {"--attention-backend unfused"});
}

TEST_CASE("Megatron-LM gets GPT-OSS's biases, sinks, bounds and its own router") {
  for (const Plan& plan :
       {plan_of("gpt-oss-20b"),
        Plan{test::make_job("gpt-oss-20b", "dgx-h100", 8, 32, 2048), plan_of("gpt2").choices}}) {
    const std::string script = script_of(plan, ExportTarget::megatron);
    check_holds(script, {"--softmax-type learnable", "--attention-backend fused", "--quick-geglu",
                         "--glu-linear-offset 1.0", "--activation-func-clamp-value 7",
                         "--moe-router-load-balancing-type aux_loss", "--no-bias-dropout-fusion"});
    check_lacks(script,
                {"sigmoid", "expert-bias", "--swiglu", "--disable-bias-linear", "left out here", "mscale"});
    check_lacks(script_of(plan, ExportTarget::nemo, "recipe.yaml"), {"sigmoid", "expert_bias"});
    CHECK_THROWS_AS(script_of(plan, ExportTarget::torchtitan), UserError);
  }
  Plan split = plan_of("gpt-oss-20b", 2, 4);
  split.choices.etp = 2;
  CHECK_THROWS_WITH(script_of(split, ExportTarget::megatron), Catch::Contains("experts with biases"));
}

TEST_CASE("Megatron-LM gets norms by one more than their weights and squared activations") {
  const std::string gemma = script_of(plan_of("gemma-2b"), ExportTarget::megatron);
  check_holds(gemma, {"--apply-layernorm-1p"});
  check_lacks(gemma, {"norms by one more"});
  const std::string minitron = script_of(plan_of("minitron-4b"), ExportTarget::megatron);
  check_holds(minitron, {"--squared-relu", "--apply-layernorm-1p"});
  check_lacks(minitron, {"relu2", "norms by one more", "MLP is by"});
}

TEST_CASE("how a checkpoint keeps its weights changes no loss") {
  for (const char* model : {"phi-3-mini-4k", "internlm2-7b", "starcoderbase-1b"})
    check_lacks(script_of(plan_of(model), ExportTarget::megatron), {"in one tensor"});
  check_holds(script_of(plan_of("phi-3-mini-4k"), ExportTarget::deepspeed), {"in one tensor each"});
}

TEST_CASE("Megatron-LM's pretrain_gpt.py is given decoders of one kind of layer, and nothing else") {
  for (const char* model : {"jamba-v0.1", "nemotron-h-8b", "qwen3-next-80b-a3b", "mamba2-130m"})
    CHECK_THROWS_WITH(script_of(plan_of(model), ExportTarget::megatron),
                      Catch::Contains("builds no layers of several kinds"));
  CHECK_THROWS_WITH(script_of(plan_of("bert-large-uncased"), ExportTarget::megatron),
                    Catch::Contains("builds no encoder"));
}

TEST_CASE("shares that are not equal become equal ones, or are refused") {
  Plan plan{test::make_job("llama3-8b", "dgx-h100", 8, 64, 2048), {}};
  plan.choices.dp = 8;
  plan.choices.replica_batches = {12, 12, 12, 12, 4, 4, 4, 4};
  for (const auto& [target, file, said] :
       {std::tuple{ExportTarget::deepspeed, "ds_config.json", "\"gradient_accumulation_steps\": 8"},
        {ExportTarget::horovod, "launch.sh", "backward_passes_per_step=8"},
        {ExportTarget::tensorflow, "launch.sh", "gradient_accumulation_steps=8"},
        {ExportTarget::torchrun, "train.py", "each of micro-batches: 8"},
        {ExportTarget::torchtune, "config.yaml", "gradient_accumulation_steps: 8"},
        {ExportTarget::megatron, "launch.sh", "--global-batch-size 64"}}) {
    check_holds(script_of(plan, target, file), {said});
    check_holds(script_of(plan, target), {"8 micro-batches of 1 sample, and the slowest sets the pace"});
  }
  plan.choices.replica_batches = {12, 12, 12, 12, 4, 4, 4, 8};  // 68 samples
  const auto job = std::make_shared<Job>(*plan.job);
  job->training.global_batch = 68;
  plan.job = job;
  for (const ExportTarget target :
       {ExportTarget::deepspeed, ExportTarget::horovod, ExportTarget::tensorflow, ExportTarget::torchrun,
        ExportTarget::torchtune, ExportTarget::megatron, ExportTarget::torchtitan, ExportTarget::nemo})
    CHECK_THROWS_WITH(script_of(plan, target), Catch::Contains("68 samples are no multiple of 8 replicas"));
}

TEST_CASE("torchtune reads each model's checkpoint as that model's, and refuses adapters over tensor ranks") {
  const auto config = [](const Plan& plan) {
    return script_of(plan, ExportTarget::torchtune, "config.yaml");
  };
  check_holds(config(plan_of("qwen3-0.6b")),
              {"model_type: \"QWEN3\"", "qwen3.qwen3_tokenizer", "merges_file: \"checkpoint/merges.txt\""});
  const auto changed = [](const std::string& name, const auto& change) {
    Plan plan = plan_of(name);
    const auto job = std::make_shared<Job>(*plan.job);
    change(*job->workload.transformer);
    plan.job = job;
    return plan;
  };
  const std::string llama = config(changed("llama-3.2-1b", [](Transformer& m) {
    m.rotary_scaling = {.kind = RopeScaling::llama3, .factor = 32, .original_positions = 8192};
  }));
  check_holds(llama, {"model_type: \"LLAMA3_2\"", "models.llama3_2.llama3_2\"", "llama3.llama3_tokenizer",
                      "scale_factor: 32"});
  check_lacks(llama, {"tie_word_embeddings"});  // its builder ties
  check_holds(config(plan_of("llama-3-8b")), {"model_type: \"LLAMA3\"", "models.llama3.llama3\""});
  check_holds(config(plan_of("llama-2-7b")), {"llama2.llama2_tokenizer"});
  // Other decoders with tied ends rotate halves, as Hugging Face's do.
  check_holds(config(changed("llama-2-7b", [](Transformer& m) { m.tied_embeddings = true; })),
              {"model_type: \"QWEN2\"", "models.qwen2.qwen2\""});

  Plan adapters = plan_of("llama-3-8b", 2, 4);
  const auto tuned = std::make_shared<Job>(*adapters.job);
  fine_tune(tuned->workload, {.rank = 16});
  adapters.job = tuned;
  CHECK_THROWS_WITH(config(adapters), Catch::Contains("no tensor parallelism"));
  adapters.choices.tp = 1;
  adapters.choices.dp = 8;
  CHECK_NOTHROW(config(adapters));
  // Of LoRA's two matrices on all seven products of 32 layers (PEFT counts as many).
  check_holds(script_of(adapters, ExportTarget::torchtune), {"41943040 of them trained"});
}

TEST_CASE("Megatron-LM adds gradients up within products as the plan's runtime does") {
  Plan plan = plan_of("llama-3-8b");
  const auto job = std::make_shared<Job>(*plan.job);
  plan.job = job;
  const std::string flag = "  --no-gradient-accumulation-fusion",
                    note = "NOTE: products add weight gradients up";
  plan.choices.zero = 1;
  check_lacks(script_of(plan, ExportTarget::megatron), {flag, note});
  plan.choices.zero = 3;
  check_lacks(script_of(plan, ExportTarget::megatron), {flag});
  check_holds(script_of(plan, ExportTarget::megatron), {note});
  job->runtime.fused_gradient_accumulation = false;
  const std::string apart = script_of(plan, ExportTarget::megatron);
  check_holds(apart, {flag});
  check_lacks(apart, {note});
}

TEST_CASE("recomputation of some layers stands in one note, with what another number of them costs") {
  Plan plan = plan_of("llama-3-8b");
  plan.choices.zero = 3;
  plan.choices.recompute = Recompute::full;
  plan.choices.recompute_layers = 1;
  check_holds(script_of(plan, ExportTarget::torchtune),
              {"NOTE: all layers are recomputed; the plan's first 1 of each stage only: 32% more "
               "computation, less memory"});
  check_holds(script_of(plan, ExportTarget::deepspeed),
              {"checkpoint on each of the first 1 layers in the model"});
  plan.choices.zero = 0;
  check_holds(script_of(plan, ExportTarget::horovod),
              {"torch.utils.checkpoint around each of the first 1 layers)"});
  check_holds(script_of(plan, ExportTarget::tensorflow),
              {"tf.recompute_grad around each of the first 1 layers"});
  for (const ExportTarget target : {ExportTarget::deepspeed, ExportTarget::horovod, ExportTarget::tensorflow})
    check_lacks(script_of(plan, target), {"NOTE: of the first"});
}

TEST_CASE("torchrun's program names the PyTorch that has what it calls") {
  const auto head = [](bool grouped, bool fused, bool compiled, int zero) {
    Plan plan = plan_of(grouped ? "llama-3-8b" : "llama-2-7b");
    const auto job = std::make_shared<Job>(*plan.job);
    job->training.fused_attention = fused;
    job->runtime.fused_elementwise = compiled;
    plan.job = job;
    plan.choices.zero = zero;
    const std::string script = script_of(plan, ExportTarget::torchrun);
    const auto at = script.find("for PyTorch ") + 12;
    return script.substr(at, script.find(' ', at) - at);
  };
  CHECK(head(false, false, false, 0) == "1.13");
  CHECK(head(false, true, false, 0) == "2.0");
  CHECK(head(false, true, true, 0) == "2.2");
  CHECK(head(true, true, false, 0) == "2.6");
  CHECK(head(false, false, false, 3) == "2.6");
}

TEST_CASE("torchtune's tensor ranks split the sequence, which a plan that does not is told") {
  Plan plan = plan_of("qwen3-0.6b", 2, 8);
  const std::vector<std::string> note = {"NOTE: torchtune's tensor parallelism always splits the sequence"};
  check_lacks(script_of(plan, ExportTarget::torchtune), {"split the sequence", "splits the sequence"});
  plan.choices.sequence_parallel = false;
  check_holds(script_of(plan, ExportTarget::torchtune), note);
}

TEST_CASE("one hardware queue is asked for by Megatron Core without FSDP alone") {
  Plan plan = plan_of("llama-3-8b", 2, 4);
  const auto asks = [&](ExportTarget target) {
    return script_of(plan, target).find("CUDA_DEVICE_MAX_CONNECTIONS") != std::string::npos;
  };
  CHECK(asks(ExportTarget::megatron));
  CHECK(asks(ExportTarget::nemo));
  for (const ExportTarget target :
       {ExportTarget::torchtitan, ExportTarget::deepspeed, ExportTarget::torchtune, ExportTarget::horovod})
    CHECK_FALSE(asks(target));
  plan.choices.zero = 3;
  CHECK_FALSE(asks(ExportTarget::megatron));
  CHECK_FALSE(asks(ExportTarget::nemo));
}

TEST_CASE("DeepSpeed's pipelines are refused with sharded gradients, which its engine refuses") {
  Plan plan = plan_of("llama-3-8b");
  plan.choices.pp = 2;
  plan.choices.dp = 4;
  CHECK_NOTHROW(script_of(plan, ExportTarget::deepspeed));
  for (const int zero : {2, 3}) {
    plan.choices.zero = zero;
    CHECK_THROWS_WITH(script_of(plan, ExportTarget::deepspeed), Catch::Contains("takes no stage above 1"));
  }
}

TEST_CASE("train.py is not written for sequences longer than its learned positions") {
  const auto plan = [](int seq_len) {
    Plan longer = plan_of("gpt2");
    const auto job = std::make_shared<Job>(*longer.job);
    job->training.seq_len = seq_len;
    longer.job = job;
    return longer;
  };
  CHECK_NOTHROW(script_of(plan(1024), ExportTarget::torchrun));
  CHECK_THROWS_WITH(script_of(plan(4096), ExportTarget::torchrun),
                    Catch::Contains("learned positions for 1024"));
}

TEST_CASE("Megatron-LM drops out what the model does, not what it does by itself") {
  check_holds(script_of(plan_of("llama-3-8b"), ExportTarget::megatron),
              {"--attention-dropout 0", "--hidden-dropout 0"});
  check_holds(script_of(plan_of("gpt2"), ExportTarget::megatron),
              {"--attention-dropout 0.1", "--hidden-dropout 0.1"});
}

TEST_CASE("what Megatron-LM's flags cannot say of an MLP or a vocabulary is noted") {
  check_holds(script_of(plan_of("opt-125m"), ExportTarget::megatron), {"NOTE: the model's MLP is by relu"});
  check_holds(script_of(plan_of("gemma-2b"), ExportTarget::megatron), {"NOTE: the model's MLP is by gelu"});
  check_holds(script_of(plan_of("gpt2", 2, 4), ExportTarget::megatron), {"vocabulary of 50257 up to 50432"});
  check_lacks(script_of(plan_of("llama-3-8b"), ExportTarget::megatron), {"vocabulary of"});
}

TEST_CASE("torchtitan trains the plan's model in the family that it is of") {
  const auto family = [](const std::string& config) {
    Plan plan = plan_of(config);
    plan.choices.zero = 3;
    return script_of(plan, ExportTarget::torchtitan, "flavor.py");
  };
  check_holds(family("llama-3-8b"), {"models.llama3", "dim=4096, n_layers=32"});
  check_holds(family("qwen3-0.6b"), {"models.qwen3", "qk_norm=True"});
  check_holds(family("mixtral-8x7b"), {"models.qwen3", "moe_enabled=True"});
  check_holds(family("deepseek-v2-lite"), {"models.deepseek_v3", "q_lora_rank=0"});
  CHECK_THROWS_AS(family("gpt-neox-20b"), UserError);
}

TEST_CASE("torchtitan gets replicas where it has them, and shards beside every other form") {
  const auto written = [](const std::string& config, const Choices& choices,
                          const std::string& file = "train.toml", int seq_len = 2048) {
    Plan plan{
        test::make_job(ORRERY_TEST_DATA "/huggingface/" + config + ".json", "dgx-h100", 16, 32, seq_len),
        choices};
    plan.choices.dp = 16 / choices.tp / choices.pp / choices.cp;
    return script_of(plan, ExportTarget::torchtitan, file);
  };
  Choices plain;
  plain.zero = 0;
  check_holds(written("llama-3-8b", plain), {"replicate_degree = 16", "shard_degree = 1"});
  check_lacks(written("llama-3-8b", plain, "launch.sh"), {"stands in"});
  for (const auto& [tp, pp, cp] : {std::tuple{2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
    Choices choices = plain;
    choices.tp = tp;
    choices.pp = pp;
    choices.cp = cp;
    choices.sequence_parallel = tp > 1;
    check_holds(written("llama-3-8b", choices),
                {"replicate_degree = 1\n", "shard_degree = 8", "reshard_after_forward = \"never\""});
    check_holds(written("llama-3-8b", choices, "launch.sh"),
                {"NOTE: torchtitan keeps whole states on replicas (DDP)", "dp_replicate=1, dp_shard=8"});
  }
  // Experts are spread over ranks that share states.
  Choices experts = plain;
  experts.tp = experts.pp = 2;
  experts.ep = 8;
  experts.sequence_parallel = true;
  check_holds(written("deepseek-v2-lite", experts), {"replicate_degree = 1\n", "shard_degree = 4"});
  experts.pp = 1;
  experts.zero = 3;
  experts.shard_group = 2;
  CHECK_THROWS_WITH(written("deepseek-v2-lite", experts), Catch::StartsWith("`ep` 8: torchtitan spreads"));
  experts.tp = 16;
  experts.ep = 16;
  experts.shard_group = 0;
  CHECK_THROWS_WITH(written("deepseek-v2-lite", experts), Catch::StartsWith("`ep` 16 of tensor ranks alone"));
  // Mixed precision is FSDP's.
  Choices tensor = plain;
  tensor.tp = 16;
  tensor.sequence_parallel = true;
  check_holds(written("llama-3-8b", tensor, "launch.sh"), {"it trains in fp32 unless"});
  check_lacks(written("llama-3-8b", plain, "launch.sh"), {"fp32 unless"});
  CHECK_THROWS_WITH(written("llama-3-8b", tensor, "launch.sh", 2000), Catch::StartsWith("`seq_len` 2000"));
}

TEST_CASE("torchtitan gets the routers of DeepSeek, and Megatron Core Llama 4's sigmoid") {
  const auto of = [](const std::string& name, ExportTarget target, const std::string& file,
                     int seq_len = 8192) {
    Plan plan{test::make_job(name, "dgx-h100", 8, 32, seq_len), {}};
    plan.choices.dp = 8;
    plan.choices.zero = 3;
    return script_of(plan, target, file);
  };
  const auto titan = ExportTarget::torchtitan;
  check_holds(of("deepseek-v3", titan, "flavor.py"),
              {"score_func=\"sigmoid\"", "route_scale=2.5, num_expert_groups=8, num_limited_groups=4"});
  const std::vector<std::string> parts = {"scoring_func", "routed_scaling", "n_group", "topk_",
                                          "scale of scores"};
  check_lacks(of("deepseek-v3", titan, "launch.sh"), parts);
  const std::string kimi = ORRERY_TEST_DATA "/huggingface/kimi-k2.json";
  check_holds(of(kimi, titan, "flavor.py"),
              {"rope_factor=", "original_seq_len=4096, mscale=1, beta_fast=1, beta_slow=1"});
  check_lacks(of(kimi, titan, "launch.sh"), {"scale of scores", "in longer sequences than"});
  check_holds(of(kimi, titan, "launch.sh", 4096), {"in longer sequences than 4096 alone"});
  // DeepSeek-V2's groups are chosen by their best one, which stays a note; its file says no mscale.
  check_holds(of(ORRERY_TEST_DATA "/huggingface/deepseek-v2-lite.json", titan, "flavor.py"),
              {"score_func=\"softmax\"", "score_before_experts=False)"});
  check_holds(of("llama4-scout", ExportTarget::megatron, "launch.sh"),
              {"--moe-router-score-function sigmoid"});
  check_lacks(of("llama4-scout", ExportTarget::megatron, "launch.sh"),
              {"scoring_func", "--moe-router-enable-expert-bias"});
  check_holds(of("llama4-scout", ExportTarget::nemo, "recipe.yaml"),
              {"moe_router_score_function: \"sigmoid\""});
}

TEST_CASE("torchtitan's float8 goes by the names that its converters are registered under") {
  const auto toml = [](const std::string& config, int cp = 1) {
    Plan plan = plan_of(config);
    plan.choices.zero = 3;
    plan.choices.cp = cp;
    plan.choices.dp = 8 / cp;
    const auto job = std::make_shared<Job>(*plan.job);
    job->training.precision = DType::fp8;
    plan.job = job;
    return script_of(plan, ExportTarget::torchtitan, "train.toml");
  };
  const std::string dense = toml("llama-3-8b");
  check_holds(dense, {"converters = [\"quantize.linear.float8\"]\n", "filter_fqns = [\"output\"]"});
  check_lacks(dense, {"grouped_mm"});
  const std::string experts = toml("mixtral-8x7b");
  check_holds(experts, {"converters = [\"quantize.linear.float8\", \"quantize.grouped_mm.float8\"]\n",
                        "[quantize.grouped_mm.float8]\nfqns = [\"experts\"]"});
  // Its float8 experts assert that there are no context ranks.
  check_lacks(toml("mixtral-8x7b", 2), {"grouped_mm"});
  for (const char* name : {"float8", "quantize.linear.float8", "quantize.grouped_mm.float8", "mx"})
    CHECK(import_torchtitan(std::string("[model]\nconverters = [\"") + name + "\"]\n", "train.toml", 32, 8)
              .precision == DType::fp8);
}

TEST_CASE("torchtitan compiles where the plan's runtime does, and not unless told") {
  Plan plan = plan_of("llama-3-8b");
  plan.choices.zero = 3;
  const auto job = std::make_shared<Job>(*plan.job);
  plan.job = job;
  for (const bool compiled : {true, false}) {
    job->runtime.fused_elementwise = compiled;
    const std::string toml = script_of(plan, ExportTarget::torchtitan, "train.toml");
    check_holds(toml, {compiled ? "[compile]\nenable = true" : "[compile]\nenable = false"});
    CHECK(import_torchtitan(toml, "train.toml", 32, 8).runtime.fused_elementwise == compiled);
  }
  CHECK(import_torchtitan("[training]\nseq_len = 2048\n", "train.toml", 32, 8).runtime.fused_elementwise ==
        false);
}

TEST_CASE("DeepSpeed's own check of its batch holds under every form") {
  struct Form {
    int tp, pp, dp, cp;
  };
  for (const Form& form :
       {Form{1, 1, 16, 1}, Form{8, 1, 2, 1}, Form{1, 4, 4, 1}, Form{2, 2, 4, 1}, Form{1, 1, 8, 2}}) {
    Plan plan{test::make_job("llama3-8b", "dgx-h100", 16, 64, 2048, "deepspeed"), {}};
    plan.choices.tp = form.tp;
    plan.choices.pp = form.pp;
    plan.choices.dp = form.dp;
    plan.choices.cp = form.cp;
    plan.choices.micro_batch = 2;
    plan.choices.zero = 1;
    const Json config =
        parse_json(script_of(plan, ExportTarget::deepspeed, "ds_config.json"), "ds_config.json");
    // runtime/config.py, _batch_assertion: ranks but for those that share a sequence; in a pipeline those
    // that its topology calls replicas.
    const int sharers =
        config.contains("sequence_parallel_size") ? config["sequence_parallel_size"].get<int>() : 1;
    const int counted = form.pp > 1 ? form.dp : 16 / sharers;
    if (config.contains("train_batch_size"))
      CHECK(config["train_batch_size"] == config["train_micro_batch_size_per_gpu"].get<int>() *
                                              config["gradient_accumulation_steps"].get<int>() * counted);
    CHECK(config["gradient_accumulation_steps"] == 64 / form.dp / 2);
  }
}

TEST_CASE("scripts say which lines their logs begin with") {
  Plan plan = plan_of("llama-3-8b", 2, 8);
  const auto log = [&](ExportTarget target) {
    const std::string text = script_of(plan, target);
    const std::regex line("# LOG: [^\n]*\n");
    std::string lines;
    for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) lines += at->str();
    return lines;
  };
  CHECK(log(ExportTarget::megatron) ==
        "# LOG: using world size: 16, data-parallel size: 8, context-parallel size: 1, hierarchical "
        "context-parallel "
        "sizes: None, tensor-model-parallel size: 2, pipeline-model-parallel size: 1\n");
  CHECK(log(ExportTarget::nemo) ==
        "# LOG: Rank 0 has tensor model parallel group: [0, 1]\n# LOG: Rank 0 has pipeline model parallel "
        "rank 0\n");
  CHECK(log(ExportTarget::torchtitan) ==
        "# LOG: Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=2, ep=1, "
        "etp=1\n"
        "# LOG: Trainer is initialized with local batch size 1, global batch size 32, gradient accumulation "
        "steps 4, "
        "sequence length 2048, total steps …\n");
  CHECK(log(ExportTarget::deepspeed) ==
        "# LOG: gradient_accumulation_steps .. 4\n# LOG: train_micro_batch_size_per_gpu  1\n");
  plan = plan_of("llama-3-8b", 1, 8);
  CHECK(log(ExportTarget::torchrun) ==
        "# LOG: device mesh with parallelism: pp=1, dp_replicate=8, dp_shard=1, cp=1, tp=1\n"
        "# LOG: Trainer is initialized with local batch size 1, global batch size 32, gradient accumulation "
        "steps 4, "
        "sequence length 2048\n# LOG: 8030261248 parameters\n");
}
