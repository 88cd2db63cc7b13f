#include "handover/export.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/json.h"
#include "planner/space/offload.h"
#include "tests/support/jobs.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

// Llama-like, 10 layers: pp 4 cuts it unevenly (3 3 2 2).
// Experts beside tensor ranks.
Plan mixtral_plan(int seq_len) {
  Plan plan{test::make_job("mixtral-8x7b", "dgx-h100", 16, 16, seq_len), {}};
  plan.choices.tp = 2;
  plan.choices.dp = 8;
  plan.choices.ep = 4;
  return plan;
}

Plan llama_plan(int tp, int pp, int dp) {
  Transformer model;
  model.family = "llama";
  model.layers = 10;
  model.hidden = 1024;
  model.heads = 16;
  model.kv_heads = 4;
  model.head_dim = 64;
  model.ffn_hidden = 2816;
  model.vocab = 32000;
  model.max_positions = 4096;
  model.gated_ffn = true;
  model.activation = Activation::silu;
  model.norm = NormKind::rms_norm;
  auto job = std::make_shared<Job>();
  job->workload.name = "llama-test";
  job->workload.transformer = model;
  job->workload.operators = transformer_operators(model);
  job->workload.layers = model.layers;
  job->cluster.name = "test";
  DeviceProfile device;
  device.generation = "hopper";
  job->cluster.profiles = {device};
  NodeType node;
  node.devices = 8;
  node.nic.count = 8;
  node.nic.direct = true;
  node.intra.in_network_reduction = true;
  job->cluster.groups = {{node, std::max(1, tp * pp * dp / 8)}};
  job->training.global_batch = 64;
  job->training.seq_len = 2048;
  job->runtime.bucket_bytes = 100e6;
  job->runtime.clip_gradients = true;
  Plan plan;
  plan.choices.tp = tp;
  plan.choices.pp = pp;
  plan.choices.dp = dp;
  plan.choices.zero = 1;
  plan.choices.sequence_parallel = tp > 1;
  plan.job = job;
  return plan;
}

const std::string& content_of(const std::vector<ExportedFile>& files, const std::string& name) {
  for (const ExportedFile& file : files)
    if (file.name == name) return file.content;
  FAIL("no file " << name);
  return files.front().content;
}

}  // namespace

TEST_CASE("8 bits are not exported to devices without such units") {
  Plan plan = llama_plan(2, 1, 4);
  auto job = std::make_shared<Job>(*plan.job);
  job->cluster.profiles[0].name = "old";
  job->cluster.profiles[0].peak_flops_per_s = {};
  job->cluster.profiles[0].peak_flops_per_s[static_cast<std::size_t>(DType::fp32)] = 1e13;
  job->cluster.profiles[0].peak_flops_per_s[static_cast<std::size_t>(DType::bf16)] = 1e14;
  job->training.precision = DType::fp8;
  plan.job = job;
  for (const ExportTarget target :
       {ExportTarget::megatron, ExportTarget::torchtitan, ExportTarget::deepspeed})
    CHECK_THROWS_WITH(export_plan(plan, target),
                      Catch::StartsWith("`precision` fp8 cannot be exported: old has no fp8 units"));
}

TEST_CASE("what runs on GPUs is handed no plan of other devices") {
  for (const auto& [cluster, device] :
       {std::pair("tpu-v5p-8x8x8", "tpu-v5p"), {"aws-trn2-48xlarge", "trainium2"}}) {
    Plan plan{test::make_job("gpt2", cluster, 8, 8, 1024), {}};
    plan.choices.dp = 8;
    for (const ExportTarget target :
         {ExportTarget::megatron, ExportTarget::torchrun, ExportTarget::kubernetes})
      CHECK_THROWS_WITH(export_plan(plan, target),
                        Catch::Contains(device) && Catch::Contains("chakra and simgrid"));
    CHECK_NOTHROW(export_plan(plan, ExportTarget::simgrid));
  }
}

TEST_CASE("an uneven pipeline reaches Megatron-LM as a layout with every layer in its place") {
  const std::string script = export_plan(llama_plan(2, 4, 4), ExportTarget::megatron).front().content;
  CHECK(script.find("--pipeline-model-parallel-layout 'Et*3|t*3|t*2|t*2L'") != std::string::npos);
  CHECK(script.find("--nnodes=4 --nproc_per_node=8") != std::string::npos);
  CHECK(script.find("--sequence-parallel") != std::string::npos);
  CHECK(script.find("--ddp-bucket-size 25000000") != std::string::npos);  // 100 MB of fp32
  CHECK(script.find("--swiglu") != std::string::npos);
  CHECK(script.find("--num-query-groups 4") != std::string::npos);
  CHECK(script.find("CUDA_DEVICE_MAX_CONNECTIONS=1") != std::string::npos);
}

TEST_CASE("Adam decays no weights and AdamW a hundredth, also where a target would do otherwise") {
  Plan plan = llama_plan(1, 1, 8);
  const auto written = [&](Optimizer optimizer, ExportTarget target, const char* file) {
    auto job = std::make_shared<Job>(*plan.job);
    job->training.optimizer = optimizer;
    plan.job = job;
    return content_of(export_plan(plan, target), file);
  };
  for (const auto& [target, file, none] :
       {std::tuple{ExportTarget::megatron, "launch.sh", "--weight-decay 0 "},
        {ExportTarget::nemo, "recipe.yaml", "weight_decay: 0.0"},
        {ExportTarget::torchtitan, "train.toml", "weight_decay = 0.0\n"}}) {
    CHECK_THAT(written(Optimizer::adam, target, file), Catch::Contains(none));
    CHECK_THAT(written(Optimizer::adamw, target, file), !Catch::Contains(none));
  }
  CHECK_THAT(written(Optimizer::adamw, ExportTarget::torchtitan, "train.toml"),
             Catch::Contains("weight_decay = 0.01"));
  CHECK_THAT(written(Optimizer::adamw, ExportTarget::deepspeed, "ds_config.json"),
             Catch::Contains("\"weight_decay\": 0.01"));
  CHECK_THAT(written(Optimizer::adam, ExportTarget::deepspeed, "ds_config.json"),
             !Catch::Contains("weight_decay"));
}

TEST_CASE("the head of a script counts micro-batches and says how experts lie") {
  Plan plan = mixtral_plan(4096);
  plan.choices.sequence_parallel = true;
  plan.choices.micro_batch = 2;
  CHECK_THAT(
      export_plan(plan, ExportTarget::megatron).front().content,
      Catch::Contains("= tp 2 x pp 1 x dp 8 x cp 1, ep 4; 1 micro-batch of 2 samples; global batch 16, "
                      "sequences of 4096 tokens; "));
}

TEST_CASE("experts' traffic that runs beside another micro-batch has hardware queues to run in") {
  Plan plan = mixtral_plan(4096);
  plan.choices.pp = 2;
  plan.choices.dp = 4;
  plan.choices.schedule = Schedule::interleaved;
  plan.choices.interleave = 2;
  plan.choices.sequence_parallel = true;
  const auto queues = [&](bool overlap) {
    plan.choices.overlap_experts = overlap;
    return export_plan(plan, ExportTarget::megatron).front().content;
  };
  CHECK_THAT(queues(false), Catch::Contains("CUDA_DEVICE_MAX_CONNECTIONS=1\n"));
  CHECK_THAT(queues(true), Catch::Contains("CUDA_DEVICE_MAX_CONNECTIONS=32 "));
}

TEST_CASE("tensor ranks' communication beside their products reaches whoever can run it so") {
  Plan plan = llama_plan(2, 1, 4);
  const auto with = [&](bool overlap, bool compiled) {
    auto job = std::make_shared<Job>(*plan.job);
    job->runtime.overlap_tensor = overlap;
    job->runtime.fused_elementwise = compiled;
    plan.job = job;
  };
  constexpr const char* kAsync = "enable_async_tensor_parallel = true";
  with(true, true);
  CHECK_THAT(export_plan(plan, ExportTarget::megatron).front().content, Catch::Contains("--tp-comm-overlap"));
  CHECK_THAT(content_of(export_plan(plan, ExportTarget::torchtitan), "train.toml"), Catch::Contains(kAsync));
  with(false, true);
  CHECK_THAT(export_plan(plan, ExportTarget::megatron).front().content,
             !Catch::Contains("--tp-comm-overlap"));
  CHECK_THAT(content_of(export_plan(plan, ExportTarget::torchtitan), "train.toml"), !Catch::Contains(kAsync));
  with(true, false);  // it is the compiler that does it
  CHECK_THAT(content_of(export_plan(plan, ExportTarget::torchtitan), "train.toml"), !Catch::Contains(kAsync));
}

TEST_CASE("what a target cannot express stands as a note") {
  Plan plan = llama_plan(1, 1, 8);
  plan.choices.sync = Sync::parameter_server;
  plan.choices.grad_compression = Compression::topk;
  for (ExportTarget target :
       {ExportTarget::megatron, ExportTarget::deepspeed, ExportTarget::torchtitan, ExportTarget::horovod}) {
    const std::string script = export_plan(plan, target).front().content;
    CHECK(script.find("# NOTE: ") != std::string::npos);
    CHECK(script.find("parameter-server") != std::string::npos);
    CHECK(script.find("topk") != std::string::npos);
  }
}

TEST_CASE("DeepSpeed's JSON holds its batch identity and counts buckets in elements") {
  Plan plan = llama_plan(1, 1, 8);
  plan.choices.zero = 3;
  plan.choices.micro_batch = 2;
  const auto files = export_plan(plan, ExportTarget::deepspeed);
  const Json config = parse_json(content_of(files, "ds_config.json"), "ds_config.json");
  CHECK(config["train_batch_size"] == 64);
  CHECK(config["train_micro_batch_size_per_gpu"].get<int>() *
            config["gradient_accumulation_steps"].get<int>() * 8 ==
        64);
  CHECK(config["zero_optimization"]["stage"] == 3);
  CHECK(config["zero_optimization"]["reduce_bucket_size"] == 25000000);
  CHECK(config["bf16"]["enabled"] == true);
}

TEST_CASE("DeepSpeed's pipelines come with the module that its JSON cannot carry") {
  const auto files = export_plan(llama_plan(1, 2, 4), ExportTarget::deepspeed);
  CHECK(content_of(files, "pipeline.py").find("topology=PipeDataParallelTopology(num_pp=2, num_dp=4)") !=
        std::string::npos);
  CHECK(content_of(files, "launch.sh").find("never read by the engine") != std::string::npos);
  const Json config = parse_json(content_of(files, "ds_config.json"), "ds_config.json");
  CHECK(config["train_batch_size"] == 64);  // the topology says which ranks are replicas
}

TEST_CASE("DeepSpeed's pipelines get the plan's own ranks and cut, or are refused") {
  Plan plan = llama_plan(2, 4, 2);
  plan.choices.recompute = Recompute::full;
  plan.choices.recompute_layers = 1;
  const auto files = export_plan(plan, ExportTarget::deepspeed);
  const std::string& module = content_of(files, "pipeline.py");
  for (const char* part : {"topology=PipeModelDataParallelTopology(num_pp=4, num_mp=2, num_dp=2)",
                           "FIRST = [0, 3, 6, 8, 10]", "AGAIN = 1\n", "activation_checkpoint_interval=1"}) {
    INFO(module);
    CHECK(module.find(part) != std::string::npos);
  }
  const Json config = parse_json(content_of(files, "ds_config.json"), "ds_config.json");
  CHECK_FALSE(config.contains("tensor_parallel"));
  CHECK(content_of(files, "launch.sh").find("NOTE: AutoTP does not run in a pipeline") != std::string::npos);
  // Chunks, which it has not, lie together.
  plan.choices.schedule = Schedule::interleaved;
  plan.choices.interleave = 2;
  plan.choices.stage_layers = {2, 1, 1, 1, 2, 1, 1, 1};
  CHECK_THAT(content_of(export_plan(plan, ExportTarget::deepspeed), "pipeline.py"),
             Catch::Contains("FIRST = [0, 4, 6, 8, 10]"));
  Plan context = llama_plan(1, 2, 2);
  context.choices.cp = 2;
  CHECK_THROWS_WITH(export_plan(context, ExportTarget::deepspeed),
                    Catch::StartsWith("`cp` 2 with `pp` 2 cannot be exported to deepspeed"));
}

TEST_CASE("experts beside tensor ranks go to DeepSpeed as its AutoEP takes them, or are refused") {
  Plan plan = mixtral_plan(2048);
  plan.choices.zero = 2;
  const Json config =
      parse_json(content_of(export_plan(plan, ExportTarget::deepspeed), "ds_config.json"), "ds_config.json");
  CHECK(config.at("expert_parallel") == Json{{"enabled", true}, {"autoep_size", 4}});
  CHECK(config.at("tensor_parallel").at("autotp_size") == 2);
  CHECK(config.at("tensor_parallel").at("tp_overlap_comm") == true);
  const auto refused = [&](const char* says, const auto& change) {
    Plan other = plan;
    change(other);
    CHECK_THROWS_WITH(export_plan(other, ExportTarget::deepspeed), Catch::StartsWith(says));
    other.choices.tp = other.choices.etp = 1;
    other.choices.dp = 16 / other.choices.pp / other.choices.cp;
    CHECK_NOTHROW(export_plan(other, ExportTarget::deepspeed));
  };
  refused("`etp` 2 cannot be exported to deepspeed: its AutoEP splits no expert",
          [](Plan& p) { p.choices.etp = 2; });
  refused("`ep` 4 with `tp` 2 and `pp` 2 cannot be exported to deepspeed",
          [](Plan& p) { p.choices.pp = 2, p.choices.dp = 4, p.choices.zero = 1; });
  refused("`ep` 4 with `tp` 2 and `cp` 2 cannot be exported to deepspeed",
          [](Plan& p) { p.choices.cp = 2, p.choices.dp = 4; });
  refused("`ep` 4 with `tp` 2 and `zero` 3 cannot be exported to deepspeed",
          [](Plan& p) { p.choices.zero = 3; });
  refused("`ep` 4 with `tp` 2 and `offload` optimizer cannot be exported to deepspeed", [](Plan& p) {
    auto job = std::make_shared<Job>(*p.job);
    planner::set_offload(planner::Offload::optimizer, job.get());
    p.job = job;
  });
}

TEST_CASE("torchtitan gets every layer in exactly one part, and a zero-bubble schedule as a complete CSV") {
  Plan plan = llama_plan(2, 4, 4);
  plan.choices.schedule = Schedule::zero_bubble;
  const auto files = export_plan(plan, ExportTarget::torchtitan);
  const std::string& toml = content_of(files, "train.toml");
  for (int layer = 0; layer < 10; ++layer) {
    const std::string name = "\"layers." + std::to_string(layer) + "\"";
    const auto at = toml.find(name);
    REQUIRE(at != std::string::npos);
    CHECK(toml.find(name, at + 1) == std::string::npos);
  }
  const std::string& csv = content_of(files, "schedule.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 4);
  const auto count = [&](char letter) { return std::count(csv.begin(), csv.end(), letter); };
  CHECK(count('F') == 4 * plan.micro_batches());
  CHECK(count('I') == 4 * plan.micro_batches());
  CHECK(count('W') == 4 * plan.micro_batches());
}

TEST_CASE("torchtitan's compiler is off under schedules that split backward passes, and a NOTE says so") {
  Plan plan = llama_plan(2, 2, 4);
  for (const auto& [schedule, compiled] : {std::pair(Schedule::one_f_one_b, true),
                                           {Schedule::zero_bubble, false},
                                           {Schedule::dualpipe_v, false}}) {
    plan.choices.schedule = schedule;
    plan.choices.interleave = schedule == Schedule::dualpipe_v ? 2 : 1;
    CAPTURE(name_of(schedule));
    const auto files = export_plan(plan, ExportTarget::torchtitan);
    const std::string& toml = content_of(files, "train.toml");
    CHECK(toml.find(compiled ? "[compile]\nenable = true" : "[compile]\nenable = false") !=
          std::string::npos);
    CHECK((content_of(files, "launch.sh").find("# NOTE: PyTorch splits no backward pass") ==
           std::string::npos) == compiled);
  }
}

TEST_CASE("chunks in a V go to torchtitan, whose schedule is one of those, and to nobody else") {
  Plan plan = llama_plan(2, 2, 4);
  plan.choices.schedule = Schedule::dualpipe_v;
  plan.choices.interleave = 2;
  const std::string toml = content_of(export_plan(plan, ExportTarget::torchtitan), "train.toml");
  CHECK(toml.find("pipeline_parallel_schedule = \"DualPipeV\"") != std::string::npos);
  CHECK(toml.find("pipeline_parallel_expert_parallel_overlap = false") != std::string::npos);
  // Parts in the model's order: torchtitan gives the first and the last to one rank.
  CHECK(toml.find("[\"tok_embeddings\", \"layers.0\"") < toml.find("\"norm\", \"output\"]"));
  for (const ExportTarget target : {ExportTarget::megatron, ExportTarget::nemo, ExportTarget::deepspeed}) {
    CAPTURE(static_cast<int>(target));
    CHECK_THROWS_WITH(
        export_plan(plan, target),
        Catch::Contains("`schedule` dualpipe-v cannot be exported to") && Catch::Contains("in a V"));
  }
}

TEST_CASE("torchtitan gets the plan's own model, or is refused") {
  Plan plan = llama_plan(2, 1, 4);
  const auto files = export_plan(plan, ExportTarget::torchtitan);
  CHECK(content_of(files, "train.toml").find("name = \"llama3\"\nflavor = \"orrery\"") != std::string::npos);
  CHECK(content_of(files, "train.toml").find("custom_import = \"flavor\"") != std::string::npos);
  const std::string& flavor = content_of(files, "flavor.py");
  CHECK(flavor.find("dim=1024, n_layers=10, n_heads=16, n_kv_heads=4, vocab_size=32000") !=
        std::string::npos);
  // As torchtitan works the MLP's width out: 2816.
  CHECK(flavor.find("ffn_dim_multiplier=2816.5 / 2730") != std::string::npos);
  CHECK(static_cast<int>(2816.5 / 2730 * static_cast<int>(2 * 4 * 1024 / 3)) == 2816);

  const auto job = std::make_shared<Job>(*plan.job);
  plan.job = job;
  Transformer& model = *job->workload.transformer;
  model.qk_norm = true;
  CHECK(content_of(export_plan(plan, ExportTarget::torchtitan), "flavor.py").find("Qwen3ModelArgs") !=
        std::string::npos);
  plan.choices.pp = 2;
  plan.choices.dp = 2;
  CHECK_THROWS_WITH(export_plan(plan, ExportTarget::torchtitan), Catch::Contains("has no pipeline"));
  plan.choices.pp = 1;
  plan.choices.dp = 4;
  model.qkv_bias = true;
  CHECK_THROWS_WITH(export_plan(plan, ExportTarget::torchtitan),
                    Catch::Contains("none of its models has biases"));
}

TEST_CASE("DeepSpeed works its batch out where it counts other ranks than the plan's replicas") {
  const auto files = export_plan(llama_plan(2, 1, 4), ExportTarget::deepspeed);
  const Json config = parse_json(content_of(files, "ds_config.json"), "ds_config.json");
  CHECK(!config.contains("train_batch_size"));
  CHECK(config["train_micro_batch_size_per_gpu"] == 1);
  CHECK(config["gradient_accumulation_steps"] == 16);
  CHECK(content_of(files, "launch.sh").find("# NOTE: train_batch_size") != std::string::npos);
}

TEST_CASE("Horovod gets its fusion threshold and how often to accumulate") {
  Plan plan = llama_plan(1, 1, 8);
  plan.choices.micro_batch = 4;
  plan.choices.bucket_bytes = 64 << 20;
  const auto files = export_plan(plan, ExportTarget::horovod);
  CHECK(content_of(files, "horovod.yaml").find("fusion_threshold_mb: 64") != std::string::npos);
  CHECK(content_of(files, "launch.sh").find("backward_passes_per_step=2") != std::string::npos);
  CHECK(content_of(files, "launch.sh").find("horovodrun -np 8") != std::string::npos);
}

TEST_CASE("export: parts of a model that no flag says are noted") {
  Plan plan = llama_plan(1, 1, 8);
  auto job = std::make_shared<Job>(*plan.job);
  plan.job = job;
  Transformer& model = *job->workload.transformer;
  const auto script = [&] { return content_of(export_plan(plan, ExportTarget::megatron), "launch.sh"); };
  CHECK(script().find("NOTE: the model") == std::string::npos);
  model.branch_norms = model.qk_norm = true;
  model.sliding_window = 512;
  model.full_attention_period = 2;
  model.rotary_fraction = 0.5;
  model.unexecuted = {"attn_logit_softcapping 50"};
  model.moe = MixtureOfExperts{8, 2, 64};
  model.moe->layer_period = 2;
  model.moe->layer_offset = 1;
  const std::string text = script();
  for (const char* part :
       {"NOTE: the model has norms of what attention and MLP put out", "attn_logit_softcapping 50",
        "--window-size '(512,0)'", "--window-attn-skip-freq 2", "--qk-layernorm", "--rotary-percent 0.5",
        "--moe-layer-freq '[0,1,0,1,0,1,0,1,0,1]'"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("Megatron-LM's GELU is its tanh form beside biases alone, and exact where it is told") {
  Plan plan = llama_plan(1, 1, 8);
  auto job = std::make_shared<Job>(*plan.job);
  plan.job = job;
  Transformer& model = *job->workload.transformer;
  model.gated_ffn = false;
  const auto script = [&](bool biased, Activation activation) {
    model.qkv_bias = model.linear_bias = biased;
    model.activation = activation;
    return content_of(export_plan(plan, ExportTarget::megatron), "launch.sh");
  };
  const std::string flag = "--no-bias-gelu-fusion", note = "the model's MLP is by ";
  for (const bool biased : {false, true})
    for (const Activation activation : {Activation::gelu, Activation::gelu_erf}) {
      const std::string text = script(biased, activation);
      INFO(text);
      const bool exact = activation == Activation::gelu_erf;
      CHECK((text.find("  " + flag) != std::string::npos) == (biased && exact));
      CHECK((text.find(note) != std::string::npos) == (!biased && !exact));
    }
  CHECK_THAT(script(false, Activation::gelu),
             Catch::Contains(note + "gelu's tanh form, which no flag says; this runs exact GELU"));
  CHECK_THAT(script(false, Activation::relu), Catch::Contains("this runs exact GELU"));
  CHECK_THAT(script(true, Activation::relu), Catch::Contains("this runs GELU's tanh form"));
}

TEST_CASE("torchtitan runs every N-th layer again where those are as many as the plan's") {
  Plan plan = llama_plan(1, 1, 8);
  plan.choices.recompute = Recompute::full;
  const auto files = [&](int layers) {
    plan.choices.recompute_layers = layers;
    return export_plan(plan, ExportTarget::torchtitan);
  };
  // 10 layers: the third, the sixth and the ninth.
  CHECK_THAT(content_of(files(3), "train.toml"),
             Catch::Contains("mode = \"selective\"\nselective_ac_option = \"3\""));
  CHECK(content_of(files(3), "launch.sh").find("layers of each stage again") == std::string::npos);
  CHECK_THAT(content_of(files(4), "train.toml"), Catch::Contains("mode = \"full\""));
  // Six more forward passes of ten layers, beside three passes' worth of each and four of the four.
  CHECK_THAT(content_of(files(4), "launch.sh"),
             Catch::Contains("NOTE: the plan runs 4 layers of each stage again, which is no whole share of "
                             "them; this all: 18% more computation, less memory"));
  plan = llama_plan(1, 4, 2);  // 3, 3, 2 and 2 layers
  plan.choices.recompute = Recompute::full;
  CHECK_THAT(content_of(files(1), "train.toml"), Catch::Contains("selective_ac_option = \"2\""));
}

TEST_CASE("images have no sequence and no attention to tell of") {
  const Plan plan{test::make_job("resnet50", "dgx-a100", 8, 256, 0), {}};
  Plan over = plan;
  over.choices.dp = 8;
  over.choices.micro_batch = 32;
  auto job = std::make_shared<Job>(*over.job);
  job->training.fused_attention = false;
  over.job = job;
  for (const ExportTarget target : {ExportTarget::horovod, ExportTarget::tensorflow, ExportTarget::deepspeed})
    for (const ExportedFile& file : export_plan(over, target)) {
      INFO(file.content);
      CHECK(file.content.find("sequence 0") == std::string::npos);
      CHECK(file.content.find("attention") == std::string::npos);
      CHECK(file.content.find("SEQ_LEN") == std::string::npos);
    }
}

TEST_CASE("layers that are run again are told to Megatron Core by chunks of a stage") {
  Plan plan = llama_plan(1, 2, 4);
  plan.choices.schedule = Schedule::interleaved;
  plan.choices.interleave = 2;
  plan.choices.recompute = Recompute::full;
  const auto script = [&](int layers) {
    plan.choices.recompute_layers = layers;
    return content_of(export_plan(plan, ExportTarget::megatron), "launch.sh");
  };
  const std::string whole = script(4), rounded = script(3);
  CHECK(whole.find("--recompute-num-layers 2 ") != std::string::npos);
  CHECK(whole.find("of each of its 2 chunks") == std::string::npos);
  CHECK(rounded.find("--recompute-num-layers 2 ") != std::string::npos);
  CHECK(
      rounded.find("NOTE: the plan runs 3 layers of each stage again; this 4, 2 of each of its 2 chunks: 6% "
                   "more computation, less memory") != std::string::npos);
  CHECK(content_of(export_plan(plan, ExportTarget::nemo), "recipe.yaml").find("recompute_num_layers: 2") !=
        std::string::npos);
}

TEST_CASE("an unknown target is refused with the known ones") {
  CHECK_THROWS_AS(export_target_from_name("mesh-tensorflow"), UserError);
  CHECK(export_target_from_name("megatron") == ExportTarget::megatron);
}
