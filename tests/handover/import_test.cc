#include "handover/import.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "base/error.h"
#include "handover/export.h"
#include "planner/space/pin_options.h"
#include "planner/space/space.h"
#include "tests/support/jobs.h"

namespace orrery::planner {
namespace {

using test::make_job;

Plan interesting_plan() {
  Plan plan{make_job("gpt2", "dgx-a100", 16, 64, 1024), {}};
  plan.choices.tp = 4;
  plan.choices.pp = 2;
  plan.choices.dp = 2;
  plan.choices.micro_batch = 4;
  plan.choices.schedule = Schedule::interleaved;
  plan.choices.interleave = 2;
  plan.choices.zero = 1;
  plan.choices.recompute = Recompute::full;
  plan.choices.recompute_layers = 6;
  plan.choices.sequence_parallel = true;
  plan.choices.bucket_bytes = 64e6;
  check_plan(plan);
  return plan;
}

std::string content(const std::vector<ExportedFile>& files, const std::string& name) {
  for (const ExportedFile& file : files)
    if (file.name == name) return file.content;
  return "";
}

TEST_CASE("what DeepSpeed keeps in the host's memory goes out and comes back") {
  for (const Offload offload : {Offload::none, Offload::optimizer, Offload::all}) {
    Plan plan{make_job("gpt2", "dgx-a100", 8, 64, 1024), {}};
    plan.choices.dp = 8;
    plan.choices.zero = 3;
    auto job = std::make_shared<Job>(*plan.job);
    set_offload(offload, job.get());
    plan.job = job;
    const Imported read =
        import_deepspeed(content(export_plan(plan, ExportTarget::deepspeed), "ds_config.json"), "ds.json");
    CHECK(read.offload.value_or(Offload::none) == offload);
    const std::string script = content(export_plan(plan, ExportTarget::megatron), "launch.sh");
    CHECK((script.find("hosts' memory") != std::string::npos) == (offload != Offload::none));
  }
  const Imported drives = import_deepspeed(
      R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}})", "ds.json");
  CHECK_FALSE(drives.offload);
  CHECK(drives.ignored ==
        std::vector<std::string>{"zero_optimization.offload_optimizer: nothing is predicted of drives"});
}

TEST_CASE("tensor traffic going back overlaps where a file says so, or cuts products into pieces") {
  const auto backward = [](bool before, const ImportedRuntime& said) {
    RuntimeProfile runtime;
    runtime.overlap_tensor = true;
    runtime.overlap_tensor_backward = before;
    apply(said, &runtime);
    return runtime.overlap_tensor_backward;
  };
  ImportedRuntime pieces, off, both;
  pieces.overlap_tensor = both.overlap_tensor = true;
  off.overlap_tensor_backward = both.overlap_tensor_backward = false;
  CHECK((backward(true, {}) && !backward(false, {})));
  CHECK((backward(false, pieces) && !backward(true, off) && !backward(true, both)));
}

TEST_CASE("what a file says of its software is set over the runtime profile, and nothing else is") {
  RuntimeProfile runtime = catalog_runtime("megatron-core");
  const RuntimeProfile before = runtime;
  apply({}, &runtime);
  CHECK(runtime.overlap_param_gather == before.overlap_param_gather);
  const Imported read = import_megatron(
      "--bf16 --grad-reduce-in-bf16 --clip-grad 0 --use-precision-aware-optimizer --exp-avg-dtype bf16 "
      "--exp-avg-sq-dtype fp8 --tp-comm-overlap --recompute-granularity selective --recompute-modules "
      "layernorm "
      "shared_experts mlp --cpu-offloading-num-layers 4 --no-gradient-accumulation-fusion",
      12);
  apply(read.runtime, &runtime);
  CHECK_FALSE(runtime.overlap_param_gather);  // off unless asked for
  CHECK_FALSE(runtime.fp32_gradients);
  CHECK_FALSE(runtime.clip_gradients);
  CHECK_FALSE(runtime.fused_gradient_accumulation);
  CHECK(runtime.overlap_tensor);
  CHECK(runtime.moment_bytes == 1.5);
  CHECK(runtime.selective_modules.empty());
  CHECK(read.pins.recompute == Recompute::selective);
  CHECK(read.pins.recompute_modules == modules_from_names("layernorm,mlp"));
  CHECK(runtime.host_activation_layers == 4);
  CHECK(runtime.matmul_efficiency == before.matmul_efficiency);
  CHECK(read.ignored ==
        std::vector<std::string>{
            "--recompute-modules: changes time or memory, and is not planned (shared_experts)"});
}

TEST_CASE("settings without what they say something of are listed") {
  for (const auto& [flags, name] :
       {std::pair{"--recompute-modules mlp --recompute-granularity full", "--recompute-modules"},
        {"--recompute-modules=mlp", "--recompute-modules"},
        {"--exp-avg-dtype bf16", "--exp-avg-dtype"},
        {"--optimizer-offload-fraction 0.5", "--optimizer-offload-fraction"},
        {"--torch-fsdp2-no-reshard-after-forward", "--torch-fsdp2-no-reshard-after-forward"},
        {"--data-parallel-sharding-strategy optim", "--data-parallel-sharding-strategy"},
        {"--account-for-loss-in-pipeline-split", "--account-for"},
        {"--recompute-granularity full --recompute-num-layers 4", "--recompute-num-layers"},
        {"--optimizer muon", "--optimizer: muon"}}) {
    const Imported read = import_megatron(flags, 12);
    INFO(flags);
    REQUIRE(read.ignored.size() == 1);
    CHECK(read.ignored.front().starts_with(name));
    CHECK(read.pins.recompute_modules.value_or(0) == 0);
    CHECK_FALSE(read.runtime.moment_bytes);
  }
  CHECK(import_megatron("--recompute-modules=mlp --recompute-granularity selective", 12)
            .pins.recompute_modules == module_bit("mlp"));
}

TEST_CASE("the ring between context ranks is what is planned, and any other exchange is said to be ignored") {
  for (const char* ring : {"--cp-comm-type p2p", "--cp-comm-type=p2p", "--cp-comm-type p2p p2p"})
    CHECK(import_megatron(std::string("--context-parallel-size 2 ") + ring + " --bf16", 12).ignored.empty());
  for (const char* other : {"--cp-comm-type a2a", "--cp-comm-type p2p a2a"}) {
    const Imported read = import_megatron(std::string(other) + " --context-parallel-size 2", 12);
    REQUIRE(read.ignored.size() == 1);
    CHECK_THAT(read.ignored.front(), Catch::StartsWith("--cp-comm-type: changes time or memory"));
    CHECK(read.pins.cp == 2);
  }
}

TEST_CASE("what DeepSpeed's caller fills in is said to be") {
  const Imported read = import_deepspeed(
      R"({"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2,
          "zero_quantized_gradients": true, "reduce_bucket_size": "auto"}, "fp16": {"loss_scale": 0}})",
      "ds.json");
  CHECK(read.pins.zero == 2);
  CHECK_FALSE(read.global_batch);
  CHECK(read.ignored ==
        std::vector<std::string>{
            "train_batch_size: whoever starts it fills it in", "bf16.enabled: whoever starts it fills it in",
            "zero_optimization.reduce_bucket_size: whoever starts it fills it in",
            "zero_optimization.zero_quantized_gradients: changes time or memory, and is not planned "
            "(gradients travel in 4 bits (qgZ))",
            "fp16.loss_scale: changes no time and no memory of a step"});
}

TEST_CASE("what is exported for Megatron-LM is read back as the same plan") {
  const Plan plan = interesting_plan();
  const std::string script = content(export_plan(plan, ExportTarget::megatron), "launch.sh");
  const auto begin = script.find("pretrain_gpt.py");
  REQUIRE(begin != std::string::npos);
  const Imported read = import_megatron(script.substr(begin + 15), plan.job->workload.layers);
  CHECK(read.pins.tp == 4);
  CHECK(read.pins.pp == 2);
  CHECK(read.pins.cp == 1);
  CHECK(read.pins.micro_batch == 4);
  CHECK(read.pins.schedule == Schedule::interleaved);
  CHECK(read.pins.interleave == 2);
  CHECK(read.pins.zero == 1);
  CHECK(read.pins.recompute == Recompute::full);
  CHECK(read.pins.recompute_layers == 6);
  CHECK(read.pins.sequence_parallel == true);
  CHECK(read.pins.overlap_grad_reduce == true);
  CHECK(read.pins.bucket_bytes == Approx(64e6));
  CHECK(read.global_batch == 64);
  CHECK(read.seq_len == 1024);
  CHECK(read.precision == DType::bf16);
  CHECK_FALSE(read.ignored.empty());
}

TEST_CASE("what is exported for DeepSpeed is read back as the same plan") {
  Plan plan{make_job("gpt2", "dgx-a100", 8, 64, 1024), {}};
  plan.choices.dp = 4;
  plan.choices.cp = 2;
  plan.choices.micro_batch = 2;
  plan.choices.zero = 3;
  plan.choices.shard_group = 2;
  plan.choices.bucket_bytes = 64e6;
  check_plan(plan);
  const Imported read = import_deepspeed(
      content(export_plan(plan, ExportTarget::deepspeed), "ds_config.json"), "ds_config.json");
  CHECK(read.pins.cp == 2);
  CHECK(read.pins.dp == 4);
  CHECK(read.pins.micro_batch == 2);
  CHECK(read.pins.zero == 3);
  CHECK(read.pins.shard_group == 2);
  CHECK(read.pins.overlap_grad_reduce == true);
  CHECK(read.pins.bucket_bytes == Approx(64e6));
  CHECK(read.global_batch == 64);
  CHECK(read.precision == DType::bf16);
}

TEST_CASE("what each replica takes of a DeepSpeed JSON is the batch of all replicas") {
  const auto settled = [](const std::string& more, planner::Pins said, int devices = 16) {
    Imported read = import_deepspeed(R"({"train_micro_batch_size_per_gpu": 2)" + more + "}", "ds.json");
    Pins pins = merged(said, read.pins);
    const std::string assumed = settle_batch(&read, &pins, devices);
    return std::tuple(read.global_batch.value_or(0), pins, assumed);
  };
  const std::string steps = R"(, "gradient_accumulation_steps": 8)";
  const auto [alone, pins, assumed] = settled(steps, {});
  CHECK(alone == 2 * 8 * 16);
  CHECK(pins.dp == 16);
  CHECK((pins.tp == 1 && pins.pp == 1 && pins.cp == 1));
  CHECK(assumed == "`tp` 1, `pp` 1, `cp` 1, which the settings do not say, so 16 replicas");
  Pins said;
  said.pp = 4;
  CHECK(std::get<0>(settled(steps + R"(, "tensor_parallel": {"autotp_size": 2})", said)) == 2 * 8 * 2);
  said.dp = 4;
  CHECK(std::get<0>(settled(steps, said)) == 2 * 8 * 4);
  CHECK(std::get<2>(settled(steps, said)).empty());
  said.micro_batch = 1;  // what is said beside it wins
  CHECK(std::get<0>(settled(steps, said)) == 8 * 4);
  CHECK(std::get<0>(settled("", {})) == 2 * 16);  // once, unless said
  CHECK(std::get<0>(settled(R"(, "gradient_accumulation_steps": "auto")", {})) == 0);
  CHECK(std::get<0>(settled(R"(, "train_batch_size": 96)", {})) == 96);
  Pins odd;
  odd.tp = 3;
  CHECK_THROWS_WITH(settled(steps, odd), Catch::StartsWith("tensor, pipeline and context ranks of 3 in all"));
  CHECK_THROWS_AS(settled(R"(, "gradient_accumulation_steps": 16000000)", {}, 1 << 19), UserError);
  const Imported none = import_deepspeed(R"({"gradient_accumulation_steps": 8})", "ds.json");
  CHECK_FALSE(none.accumulation);
  CHECK(none.ignored == std::vector<std::string>{"gradient_accumulation_steps: says nothing of the batch "
                                                 "without train_micro_batch_size_per_gpu"});
}

TEST_CASE("each importer names the software that its settings are for") {
  CHECK(import_megatron("", 12).software == "megatron-core");
  CHECK(import_deepspeed("{}", "ds.json").software == "deepspeed");
  CHECK(import_torchtitan("", "train.toml", 12).software == "torchtitan");
  CHECK(import_nemo("model:\n  tensor_model_parallel_size: 2\n", "nemo.yaml", 12).software == "nemo");
  for (const std::string& name :
       {import_megatron("", 12).software, import_deepspeed("{}", "ds.json").software})
    CHECK(catalog_runtime(name).name == name);
}

TEST_CASE("dimensions of another model are told apart from the workload's") {
  const Transformer& model = *make_job("llama3-8b", "dgx-h100", 8, 8, 2048)->workload.transformer;
  CHECK(
      other_dimensions(import_megatron("--num-layers 32 --hidden-size=4096 --num-query-groups 8 "
                                       "--ffn-hidden-size 14336 --num-attention-heads 32 --vocab-size 128256",
                                       32),
                       model)
          .empty());
  CHECK(other_dimensions(import_megatron("--num-layers 80 --hidden-size=8192 --ffn-hidden-size many", 32),
                         model) ==
        std::vector<std::string>{"--num-layers 80 (it has 32)", "--hidden-size 8192 (it has 4096)"});
}

TEST_CASE("Megatron-LM's flags by hand") {
  const Imported read = import_megatron(
      "--tensor-model-parallel-size=8 --pipeline-model-parallel-size 4 \\\n --pipeline-model-parallel-layout "
      "'Ett|(ttt|)*2t*4L' --use-tp-pp-dp-mapping --use-megatron-fsdp --data-parallel-sharding-strategy "
      "optim_grads --recompute-granularity selective --log-throughput --lr 1e-4 --data-path a b",
      12);
  CHECK(read.pins.tp == 8);
  CHECK(read.pins.stage_layers == std::vector<int>{2, 3, 3, 4});
  CHECK(read.pins.interleave == 1);
  CHECK(read.pins.zero == 2);
  CHECK(read.pins.recompute == Recompute::selective);
  CHECK((*read.pins.order)[3] == Dimension::pp);
  CHECK(read.pins.overlap_grad_reduce == false);
  CHECK(read.ignored == std::vector<std::string>{"--log-throughput: changes no time and no memory of a step",
                                                 "--lr: changes no time and no memory of a step",
                                                 "--data-path: changes no time and no memory of a step"});
  CHECK(import_megatron("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 "
                        "--decoder-last-pipeline-num-layers 2",
                        12)
            .pins.stage_layers == std::vector<int>{2, 4, 4, 2});
  CHECK(import_megatron("", 12).pins.tp == 1);
}

TEST_CASE("experts are shared as Megatron-LM and DeepSpeed share them, and the plan is admitted") {
  const std::string flags = "--tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer ";
  CHECK_FALSE(import_megatron(flags, 32).pins.etp);
  CHECK(import_megatron(flags + "--num-experts 8", 32).pins.etp == 2);  // as all else is split
  CHECK(import_megatron(flags + "--expert-model-parallel-size 4", 32).pins.etp == 2);
  CHECK(import_megatron(flags + "--num-experts 8 --expert-tensor-parallel-size 1", 32).pins.etp == 1);

  Plan plan{make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048), {}};
  plan.choices.tp = plan.choices.etp = 2;
  plan.choices.dp = 8;
  plan.choices.ep = 4;
  plan.choices.sequence_parallel = true;
  check_plan(plan);
  const std::string script = content(export_plan(plan, ExportTarget::megatron), "launch.sh");
  const Imported read = import_megatron(script.substr(script.find("pretrain_gpt.py") + 15), 32);
  CHECK(read.pins.ep == 4);
  CHECK(read.pins.etp == 2);
  CHECK_FALSE(enumerate(plan.job, read.pins).empty());
  Plan whole = plan;
  whole.choices.etp = 1;
  const Imported deepspeed = import_deepspeed(
      content(export_plan(whole, ExportTarget::deepspeed), "ds_config.json"), "ds_config.json");
  CHECK(deepspeed.pins.ep == 4);
  CHECK(deepspeed.pins.etp.value_or(1) == 1);
  CHECK_THAT(content(export_plan(plan, ExportTarget::torchtitan), "train.toml"),
             Catch::Contains("expert_tensor_parallel_degree = 2"));
  plan.choices.tp = 4;
  plan.choices.dp = 4;
  check_plan(plan);
  // It asserts that they are 1 or all.
  CHECK_THROWS_WITH(export_plan(plan, ExportTarget::torchtitan), Catch::StartsWith("`etp` 2 of `tp` 4"));
}

TEST_CASE("torchtitan splits experts over all tensor ranks where there are no expert ranks") {
  const std::string tensor = "[parallelism]\ntensor_parallel_degree = 4\n";
  const auto read = [&](const std::string& more, bool experts = true) {
    return import_torchtitan(tensor + more, "train.toml", 32, 8, experts);
  };
  CHECK(read("").pins.etp == 4);
  CHECK(read("").pins.ep == 1);
  const Imported told = read("expert_parallel_degree = 1\nexpert_tensor_parallel_degree = 1\n");
  CHECK(told.pins.etp == 4);
  CHECK_THAT(told.ignored,
             Catch::VectorContains(std::string(
                 "parallelism.expert_tensor_parallel_degree: says something of expert ranks; without them "
                 "experts are split as the rest is")));
  CHECK(read("expert_parallel_degree = 4\n").pins.etp == 1);
  const Imported dense = read("expert_parallel_degree = 4\n", false);
  CHECK_FALSE(dense.pins.ep);
  CHECK_FALSE(dense.pins.etp);
  CHECK_THAT(dense.ignored, Catch::VectorContains(
                                std::string("parallelism.expert_parallel_degree: the model has no experts")));
  Plan plan{make_job("mixtral-8x7b", "dgx-h100", 16, 16, 2048), {}};
  plan.choices.tp = 2;
  plan.choices.dp = 8;
  plan.choices.zero = 3;
  plan.choices.sequence_parallel = true;
  const auto note = Catch::Contains("NOTE: torchtitan splits each expert over the 2 tensor ranks");
  CHECK_THAT(content(export_plan(plan, ExportTarget::torchtitan), "launch.sh"), note);
  for (const auto& [ep, etp] : {std::pair{1, 2}, {2, 1}}) {
    plan.choices.ep = ep;
    plan.choices.etp = etp;
    const std::string script = content(export_plan(plan, ExportTarget::torchtitan), "launch.sh");
    CHECK_THAT(script, !note);
    const Imported back =
        import_torchtitan(content(export_plan(plan, ExportTarget::torchtitan), "train.toml"), "t", 32, 16);
    CHECK(back.pins.ep == ep);
    CHECK(back.pins.etp == etp);
  }
}

TEST_CASE("sequence parallelism of one tensor rank is what the system makes of it") {
  // As examples/llama/train_llama3_8b_h100_fp8.sh has them.
  const Imported read =
      import_megatron("--tensor-model-parallel-size 1 --context-parallel-size 2 --sequence-parallel", 32);
  CHECK(read.pins.sequence_parallel == false);
  CHECK(read.ignored == std::vector<std::string>{
                            "--sequence-parallel: Megatron-LM turns it off where there is one tensor rank"});
  CHECK(import_megatron("--sequence-parallel --tensor-model-parallel-size 2", 32).pins.sequence_parallel ==
        true);
  const Imported old =
      import_nemo("model: {tensor_model_parallel_size: 1, sequence_parallel: true}\n", "old.yaml", 32, 8);
  CHECK(old.pins.sequence_parallel == false);
  CHECK(old.ignored == std::vector<std::string>{
                           "model.sequence_parallel: NeMo turns it off where there is one tensor rank"});
  CHECK_THROWS_WITH(import_nemo("trainer:\n  strategy:\n    sequence_parallel: true\n", "recipe.yaml", 32, 8),
                    Catch::StartsWith("recipe.yaml: trainer.strategy.sequence_parallel is true"));
}

TEST_CASE("malformed settings are refused in one line") {
  const auto message = [](const auto& call) {
    try {
      call();
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* flags : {"--tensor-model-parallel-size", "--tensor-model-parallel-size eight",
                            "--micro-batch-size 0", "--bf16 'open", "--pipeline-model-parallel-layout '(t|'",
                            "--pipeline-model-parallel-layout t*99999999999", "--recompute-granularity some",
                            "--use-megatron-fsdp --data-parallel-sharding-strategy x",
                            "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout 't|t'"}) {
    const std::string text = message([&] { import_megatron(flags, 12); });
    INFO(flags);
    CHECK_THAT(text, Catch::Contains("`from_megatron`"));
    CHECK(text.find('\n') == std::string::npos);
  }
  for (const char* json : {"{", "[]", R"({"zero_optimization": {"stage": 4}})", R"({"zero_optimization": 1})",
                           R"({"train_batch_size": "many"})", R"({"train_micro_batch_size_per_gpu": 1.5})",
                           R"({"bf16": true})", R"({"sequence_parallel_size": -1})",
                           R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4,
                               "gradient_accumulation_steps": 2})"}) {
    const std::string text = message([&] { import_deepspeed(json, "ds.json"); });
    INFO(json);
    CHECK_THAT(text, Catch::Contains("ds.json"));
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("PEFT's adapter_config.json, as it is saved beside adapters, reads back") {
  Workload model = load_workload("llama2-7b");
  FineTuning tuning;
  tuning.rank = 8;
  tuning.alpha = 16;
  tuning.targets = kQuery | kDown;
  tuning.dora = true;
  tuning.frozen_layers = 3;
  fine_tune(model, tuning);
  std::vector<std::string> ignored;
  CHECK(import_peft(peft_config(model), "adapter_config.json", model.layers, {}, &ignored) == tuning);
  CHECK(ignored.empty());
}

TEST_CASE("PEFT's adapter_config.json says rank, targets and layers") {
  std::vector<std::string> ignored;
  const FineTuning read = import_peft(
      R"({"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "down_proj", "lm_head"],
          "use_dora": true, "layers_to_transform": [2, 3], "rank_pattern": {"q_proj": 4}, "bias": "none",
          "modules_to_save": null})",
      "adapter_config.json", 4, {}, &ignored);
  CHECK(read.rank == 16);
  CHECK(read.alpha == 32);
  CHECK(read.targets == (kQuery | kDown));
  CHECK(read.dora);
  CHECK(read.frozen_layers == 2);
  REQUIRE(ignored.size() == 2);
  CHECK(ignored[0].starts_with("target_modules: lm_head: "));
  CHECK(ignored[1].starts_with("rank_pattern: all adapters are planned with the one rank"));
  ignored.clear();
  import_peft(R"({"peft_type": "LORA", "modules_to_save": ["lm_head", "embed_tokens"], "bias": "all",
                  "alpha_pattern": {"q_proj": 4}, "init_lora_weights": true, "mystery": 1})",
              "adapter_config.json", 4, {}, &ignored);
  std::sort(ignored.begin(), ignored.end());
  REQUIRE(ignored.size() == 4);
  CHECK(ignored[0].starts_with("alpha_pattern: changes no time"));
  CHECK(ignored[1].starts_with("bias: "));
  CHECK(ignored[2].starts_with(R"(modules_to_save ["lm_head","embed_tokens"]: trained whole)"));
  CHECK(ignored[3] == "mystery: not known here");
  const auto reads = [&](const std::string& more) {
    return import_peft(R"({"peft_type": "LORA", )" + more + "}", "a.json", 4, {}, &ignored);
  };
  CHECK(reads(R"("target_modules": "all-linear")").targets == kAllProjections);
  CHECK(reads(R"("bias": "none")").targets == (kQuery | kValue));
  for (const char* wrong :
       {R"("r": 0)", R"("r": 1.5)", R"("r": "8")", R"("lora_alpha": -1)", R"("use_dora": 1)",
        R"("target_modules": "q_.*")", R"("target_modules": [1])", R"("target_modules": ["lm_head"])",
        R"("layers_to_transform": [0, 2])", R"("layers_to_transform": [0, 1, 2, 3, 4])"})
    CHECK_THROWS_AS(reads(wrong), UserError);
  CHECK_THROWS_AS(import_peft(R"({"peft_type": "IA3"})", "a.json", 4, {}, &ignored), UserError);
  CHECK_THROWS_AS(import_peft("[]", "a.json", 4, {}, &ignored), UserError);
}

}  // namespace
}  // namespace orrery::planner
