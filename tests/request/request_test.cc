#include "request/request.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "request/vary.h"

namespace orrery {
namespace {

Request gpt2() {
  Request request;
  request.workload = "gpt2";
  request.cluster = "dgx-a100";
  request.gpus = 8;
  return request;
}

TEST_CASE("what is left open follows from the workload and the cluster") {
  Question question = question_of(gpt2());
  CHECK(question.job->training.global_batch == 8);
  CHECK(question.default_batch);
  CHECK(question.job->training.seq_len == 1024);
  CHECK(question.job->training.precision == DType::bf16);
  CHECK(question.job->runtime.name == "typical");
  CHECK(question.pins == planner::Pins{});
  Request images = gpt2();
  images.workload = "resnet50";
  CHECK(question_of(images).job->training.global_batch == 8 * 32);
  CHECK(question_of(images).job->training.optimizer == Optimizer::momentum);
  // No sequences to speak of, and layer norms: trained as language models are.
  Request towers = gpt2();
  towers.workload = std::string(ORRERY_TEST_DATA) + "/huggingface/vit-base-patch16-224.json";
  CHECK(question_of(towers).job->training.optimizer == Optimizer::adam);
  // What trains them splits the batch alone; tables of recommenders are shared.
  for (const char* graph : {"vit-base-patch16-224", "t5-small", "whisper-tiny", "clip-vit-base-patch32"}) {
    towers.workload = std::string(ORRERY_TEST_DATA) + "/huggingface/" + graph + ".json";
    CHECK(question_of(towers).job->runtime.name == "typical-data-parallel");
  }
  towers.workload = "dlrm";
  CHECK(question_of(towers).job->runtime.name == "typical");
  Request tpus = gpt2();
  tpus.cluster = "tpu-v5p-8x8x8";
  CHECK(question_of(tpus).job->runtime.name == "jax");
  images.seq_len = 128;
  CHECK_THROWS_WITH(question_of(images), Catch::Contains("`seq_len` does not apply to resnet50"));
}

TEST_CASE("the default batch is of whole pinned micro-batches") {
  Request request = gpt2();
  request.gpus = 3;
  request.pins.micro_batch = 2;
  CHECK(question_of(request).job->training.global_batch == 6);
  request.workload = "resnet50";
  request.pins.micro_batch = 5;
  CHECK(question_of(request).job->training.global_batch == 3 * 35);
  request = gpt2();
  request.pins.schedule = Schedule::dualpipe_v;
  CHECK(question_of(request).job->training.global_batch == 16);
}

TEST_CASE("a pinned schedule that a runtime does not compile is planned without its compiler") {
  Request request = gpt2();
  request.runtime = "torchtitan";
  CHECK(question_of(request).job->runtime.fused_elementwise);
  request.pins.schedule = Schedule::zero_bubble;
  const Question question = question_of(request);
  CHECK_FALSE(question.job->runtime.fused_elementwise);
  CHECK_THAT(question.assumed.at(0), Catch::Contains("`schedule` zero-bubble without its compiler"));
  request.runtime = "megatron-core";
  CHECK(question_of(request).job->runtime.fused_elementwise);
}

TEST_CASE("options that change nothing of a workload are refused") {
  Request towers = gpt2();
  towers.workload = std::string(ORRERY_TEST_DATA) + "/huggingface/vit-base-patch16-224.json";
  towers.fused_attention = false;
  CHECK_THROWS_WITH(question_of(towers), Catch::StartsWith("`attention` does not apply to vit"));
  towers.fused_attention.reset();
  towers.lora_rank = 8;
  CHECK_THROWS_WITH(question_of(towers), Catch::Contains("`lora_rank` 8: adapters are planned for stacks"));
  Request request = gpt2();
  set(request, "lora-targets", "q_proj");
  CHECK_THROWS_WITH(question_of(request), Catch::Contains("`lora_targets` without `lora_rank`"));
}

TEST_CASE("tensor overlap is the runtime's until it is said, over what is imported") {
  Request request = gpt2();
  CHECK(question_of(request).job->runtime.overlap_tensor);  // typical
  set(request, "overlap-tensor", "off");
  CHECK_FALSE(question_of(request).job->runtime.overlap_tensor);
  request.from_megatron = "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap";
  CHECK_FALSE(question_of(request).job->runtime.overlap_tensor);
  request.overlap_tensor.reset();
  CHECK(question_of(request).job->runtime.overlap_tensor);
  Request other = gpt2();
  other.runtime = "deepspeed";
  set(other, "overlap-tensor", "on");
  CHECK_THROWS_WITH(question_of(other), Catch::Contains("`overlap_tensor` on, but deepspeed has no such"));
  CHECK_THROWS_WITH(set(other, "overlap-tensor", "maybe"), Catch::Contains("expected one of on, off"));
}

TEST_CASE("a misspelt setting that would be planned is refused, by its line where it has one") {
  Request request = gpt2();
  request.from_megatron = "--tensor-model-paralel-size 2 --lr 1";
  CHECK_THROWS_WITH(question_of(request),
                    Catch::Contains("`from_megatron`: --tensor-model-paralel-size is not known here") &&
                        Catch::Contains("did you mean --tensor-model-parallel-size?"));
  request.from_megatron = "--foo 2 --log-intervall 3 --tensor-model-parallel-size 2";  // of no plan
  const Question read = question_of(request);
  CHECK(read.ignored.size() == 2);
  CHECK(read.settings_read == 1);
  CHECK_FALSE(is_harmless(read.ignored.front()));
  CHECK(is_harmless("--lr: changes no time and no memory of a step"));
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const auto file = [&](const char* name, const char* text) {
    write_file_atomically(folder / name, text);
    return (folder / name).string();
  };
  Request json = gpt2();
  json.from_deepspeed =
      file("misspelt.json", "{\n \"zero_optimization\": {\n  \"overlap_com\": true\n }\n}\n");
  CHECK_THROWS_WITH(question_of(json), Catch::Contains("misspelt.json:3: zero_optimization.overlap_com") &&
                                           Catch::Contains("did you mean zero_optimization.overlap_comm?"));
  Request toml = gpt2();
  toml.from_torchtitan = file("misspelt.toml", "[parallelism]\ntensor_paralel_degree = 2\n");
  CHECK_THROWS_WITH(question_of(toml), Catch::Contains("misspelt.toml:2: parallelism.tensor_paralel_degree"));
}

TEST_CASE("what a DeepSpeed file says of its reduction holds where its engine asks") {
  const auto folder = std::filesystem::temp_directory_path();
  Request request = gpt2();
  request.from_deepspeed = (folder / "overlapped.json").string();
  write_file_atomically(
      request.from_deepspeed,
      R"({"zero_optimization": {"stage": 1, "overlap_comm": true}, "train_batch_size": 64})");
  CHECK(question_of(request).pins.overlap_grad_reduce == true);
  request.pins.pp = 4;
  CHECK_FALSE(question_of(request).pins.overlap_grad_reduce);
  request.pins.overlap_grad_reduce = true;
  CHECK(question_of(request).pins.overlap_grad_reduce == true);
}

TEST_CASE("products that a file cuts into pieces are whole again, going back, too, where an option says so") {
  Request request = gpt2();
  request.from_torchtitan = (std::filesystem::temp_directory_path() / "async.toml").string();
  write_file_atomically(request.from_torchtitan,
                        "[parallelism]\ntensor_parallel_degree = 2\nenable_async_tensor_parallel = true\n");
  CHECK(question_of(request).job->runtime.overlap_tensor_backward);
  set(request, "overlap-tensor", "off");
  const RuntimeProfile whole = question_of(request).job->runtime;
  CHECK_FALSE((whole.overlap_tensor || whole.overlap_tensor_backward));
}

TEST_CASE("imports fill what is not said") {
  Request request = gpt2();
  request.from_megatron = "--tensor-model-parallel-size 2 --global-batch-size 64 --lr 1";
  request.pins.pp = 4;
  const Question question = question_of(request);
  CHECK(question.pins.tp == 2);
  CHECK(question.pins.pp == 4);
  CHECK(question.job->training.global_batch == 64);
  CHECK_FALSE(question.default_batch);
  CHECK(question.ignored == std::vector<std::string>{"--lr: changes no time and no memory of a step"});
  request.from_deepspeed = "ds.json";
  CHECK_THROWS_AS(question_of(request), UserError);
}

TEST_CASE("settings of a system are predicted with its software unless another is named") {
  Request request = gpt2();
  request.from_megatron = "--num-layers 48";
  const Question question = question_of(request);
  CHECK(question.job->runtime.name == "megatron-core");
  CHECK(question.assumed ==
        std::vector<std::string>{
            "`runtime` megatron-core, which `from_megatron` is for",
            "the model is gpt2, where `from_megatron` says another: --num-layers 48 (it has 12)"});
  request.from_megatron = "--num-layers 12";
  request.runtime = "nemo";
  CHECK(question_of(request).job->runtime.name == "nemo");
  CHECK(question_of(request).assumed.empty());
  request.runtime.clear();
  request.cluster = "localhost";
  request.gpus = 2;
  CHECK(question_of(request).job->runtime.name == "orrery");  // no software of GPUs
}

TEST_CASE("a NeMo file's dimensions of the model are held against the workload") {
  const auto assumed = [](const std::string& yaml) {
    const std::string file =
        (std::filesystem::temp_directory_path() / "orrery-dimensions-nemo.yaml").string();
    write_file_atomically(file, yaml);
    Request request = gpt2();
    request.from_nemo = file;
    return question_of(request).assumed;
  };
  const std::string software = "`runtime` nemo, which `from_nemo` is for";
  // A recipe of NeMo 2, NeMo 1's file, Megatron Bridge's.
  CHECK(assumed("trainer: {strategy: {tensor_model_parallel_size: 1}}\n"
                "model: {config: {num_layers: 48, hidden_size: 1600, num_attention_heads: 12}}\n") ==
        std::vector<std::string>{software,
                                 "the model is gpt2, where `from_nemo` says another: model.config.num_layers "
                                 "48 (it has 12), model.config.hidden_size 1600 (it has 768)"});
  CHECK(
      assumed(
          "model: {micro_batch_size: 1, num_layers: 12, ffn_hidden_size: 4096, num_query_groups: null}\n") ==
      std::vector<std::string>{
          software,
          "the model is gpt2, where `from_nemo` says another: model.ffn_hidden_size 4096 (it has 3072)"});
  CHECK(assumed("train: {micro_batch_size: 1}\nmodel: {num_layers: 12, vocab_size: 32000}\n") ==
        std::vector<std::string>{
            software,
            "the model is gpt2, where `from_nemo` says another: model.vocab_size 32000 (it has 50257)"});
  CHECK(assumed("model: {num_layers: 12, hidden_size: \"${model.width}\", micro_batch_size: 1}\n") ==
        std::vector<std::string>{software});
}

TEST_CASE("a DeepSpeed JSON that says what a replica takes has the batch of all its replicas") {
  const std::string file = (std::filesystem::temp_directory_path() / "orrery-accumulating-ds.json").string();
  write_file_atomically(
      file,
      R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 16, "bf16": {"enabled": true},
                "zero_optimization": {"stage": 3}})");
  Request request = gpt2();
  request.from_deepspeed = file;
  const Question question = question_of(request);
  CHECK(question.job->training.global_batch == 16 * 8);
  CHECK_FALSE(question.default_batch);
  CHECK(question.pins.dp == 8);
  CHECK(question.assumed.size() == 2);
  request.pins.tp = 2;
  CHECK(question_of(request).job->training.global_batch == 16 * 4);
  request.global_batch = 32;
  CHECK(question_of(request).job->training.global_batch == 32);
  CHECK_FALSE(question_of(request).pins.dp);
  std::filesystem::remove(file);
}

TEST_CASE("lengths that are cut are counted") {
  const std::string file = (std::filesystem::temp_directory_path() / "orrery-long-lengths.txt").string();
  write_file_atomically(file, "100\n2000\n300\n5000\n512\n");
  Request request = gpt2();
  request.lengths = file;
  request.seq_len = 512;
  CHECK(question_of(request).assumed ==
        std::vector<std::string>{"2 of 5 `lengths` are cut to `seq_len` 512"});
  request.seq_len = 8192;
  CHECK(question_of(request).assumed.empty());
  std::filesystem::remove(file);
}

TEST_CASE("fine-tuning is said beside the workload") {
  Request request = gpt2();
  set(request, "lora-rank", "8");
  set(request, "lora-targets", "q_proj,v_proj");
  set(request, "quantize-base", "nf4");
  set(request, "freeze", "2");
  const FineTuning tuning = question_of(request).job->workload.transformer->fine_tuning;
  CHECK(tuning.rank == 8);
  CHECK(tuning.targets == (kQuery | kValue));
  CHECK(tuning.base == BaseType::nf4);
  CHECK(tuning.frozen_layers == 2);
  request.lora_targets.reset();
  request.lora_rank = 0;
  CHECK_THROWS_WITH(question_of(request), Catch::Contains("`quantize_base` without `lora_rank`"));
  CHECK_THROWS_WITH(set(request, "quantize-base", "fp4"), Catch::Contains("expected one of none, int8, nf4"));
}

TEST_CASE("a configuration with quantised weights wants adapters, and is named where there are none") {
  std::string text = read_file(ORRERY_TEST_DATA "/huggingface/llama-3.2-1b.json");
  text.insert(text.find('{') + 1, R"("quantization_config": {"load_in_4bit": true},)");
  const std::string file = (std::filesystem::temp_directory_path() / "orrery-quantised-config.json").string();
  write_file_atomically(file, text);
  Request request = gpt2();
  request.workload = file;
  CHECK_THROWS_WITH(question_of(request),
                    Catch::Contains(file + " keeps its weights in 4 bits (quantization_config)"));
  request.lora_rank = 8;
  CHECK(question_of(request).job->workload.transformer->fine_tuning.base == BaseType::nf4);
  std::filesystem::remove(file);
}

TEST_CASE("an option is set from its text by any spelling of its name") {
  Request request = gpt2();
  set(request, "micro-batch", "4");
  set(request, "--recompute", "full:3");
  set(request, "sample_bytes", "1K");
  set(request, "objective", "cost");
  CHECK(request.pins.micro_batch == 4);
  CHECK(request.pins.recompute_layers == 3);
  CHECK(request.sample_bytes == 1024);
  CHECK(request.search.objective == planner::Objective::cost);
  CHECK_THROWS_WITH(set(request, "micro-bach", "4"), Catch::Contains("micro_batch"));
  CHECK_THROWS_WITH(set(request, "precision", "int8"), Catch::Contains("expected one of fp32, tf32"));
}

TEST_CASE("keys are told apart, and all but what is told can be varied") {
  Request request;
  std::set<std::string> keys;
  for (const Setting& setting : request_options(request)) {
    CHECK(keys.insert(setting.option.key).second);
    CHECK(setting.option.varied == (setting.option.key != "top"));
  }
}

TEST_CASE("what is varied is a key and its values") {
  const planner::whatif::Varied nodes = parse_varied("nodes=64, 128,256");
  CHECK(nodes.key == "nodes");
  CHECK(nodes.values == std::vector<std::string>{"64", "128", "256"});
  CHECK(parse_varied("--tp=8").key == "tp");
  CHECK(parse_varied("micro_batch=1").key == "micro-batch");
  CHECK(parse_varied("order=tp,cp,ep,dp,pp;tp,cp,ep,pp,dp").values ==
        std::vector<std::string>{"tp,cp,ep,dp,pp", "tp,cp,ep,pp,dp"});
  CHECK(parse_varied("workload=a=b.json").values == std::vector<std::string>{"a=b.json"});
  for (const char* bad : {"", "nodes", "=1", "nodes=", "nodes=1,,2", "nodes=1,", "nodes=1,1", "--=1"})
    CHECK_THROWS_AS(parse_varied(bad), UserError);
}

TEST_CASE("a combination takes the place of what the request says") {
  using planner::whatif::Varied;
  Request request = gpt2();
  request.pins.tp = 1;
  const std::vector<Varied> varied = {{"tp", {"2", "4"}}, {"network", {"2"}}};
  check_varied(varied);
  const Points all = points_of(request, varied);
  REQUIRE(all.points.size() == 2);
  CHECK(all.points[0].pins.tp == 2);
  CHECK(all.points[1].pins.tp == 4);
  CHECK_FALSE(all.shared_batch);
  const auto port = [](const Job& job) { return job.cluster.groups[0].node.nic.bandwidth_bytes_per_s; };
  CHECK(port(*all.points[0].job) == 2 * port(*question_of(request).job));
  CHECK(points_of(request, {{"gpus", {"4", "8"}}}).shared_batch);
  CHECK_THROWS_WITH(points_of(request, {{"tp", {"two"}}}), Catch::Contains("`vary` tp=two: `tp` two"));
  CHECK_THROWS_WITH(points_of(request, {{"nodes", {"1"}}}), Catch::Contains("`nodes` with `gpus`"));
  CHECK_THROWS_WITH(check_varied({{"network", {"0"}}}), Catch::Contains("out of range"));
  CHECK_THROWS_WITH(check_varied({{"price", {"0"}}}), Catch::Contains("no price is known"));
  CHECK_THROWS_WITH(check_varied({{"price", {"2EUR"}}}), Catch::Contains("is no number"));
  CHECK_THROWS_WITH(check_varied({{"micro-bach", {"1"}}}), Catch::Contains("micro-batch"));
}

}  // namespace
}  // namespace orrery
