// Files of torchtitan's and NeMo's as people write them.
#include <catch2/catch.hpp>
#include <string>

#include "base/error.h"
#include "handover/import.h"

using namespace orrery;
using namespace orrery::planner;

namespace {

bool holds(const Imported& read, const std::string& part) {
  for (const std::string& one : read.ignored)
    if (one.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("torchtitan's settings: what changes time or memory is read, the rest is listed with reasons") {
  const Imported read = import_torchtitan(R"(
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 2
seq_len = 8192
enable_cpu_offload = true
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
enable_async_tensor_parallel = true
mystery = 7
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
[compile]
enable = true
)",
                                          "train.toml", 32, 64);
  CHECK(read.pins.tp == 4);
  CHECK(read.pins.dp == 16);
  CHECK(read.pins.shard_group == 8);
  CHECK(read.pins.zero == 3);
  CHECK(read.pins.sequence_parallel == true);
  CHECK(read.pins.micro_batch == 2);
  CHECK(read.global_batch == 32);
  CHECK(read.seq_len == 8192);
  CHECK(read.precision == DType::fp8);
  CHECK(read.optimizer == Optimizer::adamw);
  CHECK(read.pins.recompute == Recompute::full);
  CHECK(read.pins.recompute_layers == 16);
  CHECK(read.offload == Offload::all);
  CHECK(read.runtime.overlap_tensor == true);
  CHECK(read.runtime.fused_elementwise == true);
  CHECK(holds(read, "optimizer.lr: changes no time and no memory"));
  CHECK(holds(read, "parallelism.mystery: not known here"));
  CHECK_FALSE(holds(read, "tensor_parallel_degree"));

  const Imported stages = import_torchtitan(
      "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"Interleaved1F1B\"\n"
      "pipeline_parallel_microbatch_size = 1\nmodule_fqns_per_model_part = [[\"tok_embeddings\", "
      "\"layers.0\"], "
      "[\"layers.1\"], [\"layers.2\", \"layers.3\"], [\"layers.4\", \"norm\", \"output\"]]\n"
      "[training]\nlocal_batch_size = 8\n",
      "train.toml", 5, 4);
  CHECK(stages.pins.stage_layers == std::vector<int>{1, 1, 2, 1});
  CHECK(stages.pins.interleave == 2);
  CHECK(stages.pins.schedule == Schedule::interleaved);
  CHECK(stages.pins.micro_batch == 1);
  CHECK(stages.pins.zero == 2);  // not resharded between micro-batches
  CHECK(stages.global_batch == 16);
}

TEST_CASE("torchtitan's stages are cut as it cuts them: embedding and head count as layers") {
  const auto stages = [](const std::string& more, int layers) {
    return *import_torchtitan("[parallelism]\npipeline_parallel_degree = 4\n" + more, "train.toml", layers,
                              16)
                .pins.stage_layers;
  };
  // 32 + 1 + 1 layers over 4: 9 9 8 8, of which the ends lose one each.
  CHECK(stages("", 32) == std::vector<int>{8, 9, 8, 7});
  CHECK(
      stages("pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 2\n",
             32) == std::vector<int>{9, 9, 8, 6});
  CHECK(stages("pipeline_parallel_schedule = \"Interleaved1F1B\"\n", 30) ==
        std::vector<int>{3, 4, 4, 4, 4, 4, 4, 3});
  CHECK_THROWS_WITH(stages("pipeline_parallel_first_stage_less_layers = 9\n", 10),
                    Catch::Contains("less_layers"));
}

TEST_CASE("NeMo's recipes, its first release's files and Megatron Bridge's say the same in three ways") {
  const Imported recipe = import_nemo(R"(
_partial_: true
_target_: nemo.collections.llm.api.finetune
data: {_target_: nemo.collections.llm.gpt.data.mock.MockDataModule, global_batch_size: 64, micro_batch_size: 2, seq_length: 4096}
model:
  _target_: nemo.collections.llm.gpt.model.llama.LlamaModel
  config: {num_layers: 32, recompute_granularity: full, recompute_method: block, recompute_num_layers: 3, seq_length: 4096}
optim:
  config: {optimizer: adam, lr: 0.0001, use_distributed_optimizer: true}
peft: {_target_: nemo.collections.llm.peft.lora.LoRA, dim: 16, alpha: 32, target_modules: [linear_qkv, linear_proj]}
trainer:
  num_nodes: 2
  plugins: {precision: bf16-mixed, grad_reduce_in_fp32: false}
  strategy:
    tensor_model_parallel_size: 2
    pipeline_model_parallel_size: 4
    virtual_pipeline_model_parallel_size: 2
    sequence_parallel: true
    ddp: {overlap_grad_reduce: true, bucket_size: 40000000}
)",
                                      "recipe.yaml", 32, 16);
  const Imported old = import_nemo(R"(
trainer: {precision: bf16, num_nodes: 2, gradient_clip_val: 1.0}
model:
  micro_batch_size: 2
  global_batch_size: 64
  encoder_seq_length: 4096
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 2
  sequence_parallel: true
  num_layers: 32
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 3
  cpu_offloading: true
  optim: {name: distributed_fused_adam, lr: 2e-4}
  peft: {peft_scheme: lora, lora_tuning: {adapter_dim: 16, alpha: 32, target_modules: [attention]}}
)",
                                   "old.yaml", 32, 16);
  const Imported bridge = import_nemo(R"(
model: {_target_: megatron.bridge.models.llama.Llama3ModelProvider8B, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 4,
        virtual_pipeline_model_parallel_size: 2, sequence_parallel: true, recompute_granularity: full,
        recompute_method: block, recompute_num_layers: 3}
train: {micro_batch_size: 2, global_batch_size: 64}
dataset: {sequence_length: 4096}
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true}
optimizer: {optimizer: adam}
mixed_precision: bf16_mixed
peft: {_target_: megatron.bridge.peft.lora.LoRA, dim: 16, alpha: 32, target_modules: [linear_qkv, linear_proj]}
)",
                                      "bridge.yaml", 32, 16);
  for (const Imported& read : {recipe, old, bridge}) {
    CHECK(read.pins.tp == 2);
    CHECK(read.pins.pp == 4);
    CHECK(read.pins.interleave == 2);
    CHECK(read.pins.schedule == Schedule::interleaved);
    CHECK(read.pins.sequence_parallel == true);
    CHECK(read.pins.micro_batch == 2);
    CHECK(read.pins.zero == 1);
    CHECK(read.pins.recompute == Recompute::full);
    CHECK(read.pins.recompute_layers == 6);  // 3 of each chunk
    CHECK(read.pins.overlap_grad_reduce == true);
    CHECK(read.global_batch == 64);
    CHECK(read.seq_len == 4096);
    CHECK(read.precision == DType::bf16);
    CHECK(read.optimizer == Optimizer::adam);
    REQUIRE(read.tuning);
    CHECK(read.tuning->rank == 16);
    CHECK(read.tuning->alpha == 32);
    CHECK(read.tuning->targets == (kQuery | kKey | kValue | kOutput));
  }
  CHECK(recipe.pins.bucket_bytes == Approx(80e6));  // of two bytes each
  CHECK(holds(recipe, "model.config.num_layers: the workload says what the model is"));
  CHECK(holds(old, "model.cpu_offloading: says not of how many layers"));
  CHECK(holds(bridge, "model._target_"));
}

TEST_CASE("foreign files that are none are refused in one line with their name") {
  const auto message = [](const auto& call) {
    try {
      call();
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* toml :
       {"a = ", "[parallelism]\ntensor_parallel_degree = \"two\"",
        "[parallelism]\ntensor_parallel_degree = 0", "[parallelism]\ndata_parallel_shard_degree = 0",
        "[parallelism]\nfsdp_reshard_after_forward = \"maybe\"",
        "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"Round\"",
        "[parallelism]\npipeline_parallel_degree = 2\nmodule_fqns_per_model_part = [[\"layers.0\"]]",
        "[activation_checkpoint]\nmode = \"some\"", "[training]\nmixed_precision_param = \"fp4\""}) {
    const std::string text = message([&] { import_torchtitan(toml, "t.toml", 12, 8); });
    INFO(toml);
    CHECK_THAT(text, Catch::Contains("t.toml"));
    CHECK(text.find('\n') == std::string::npos);
  }
  for (const char* yaml :
       {"a: [", "- 1", "a: 1", "model: {tensor_model_parallel_size: two}",
        "model: {tensor_model_parallel_size: 0}", "trainer: {precision: some}\nmodel: {micro_batch_size: 1}",
        "model: {peft: {peft_scheme: ia3}, micro_batch_size: 1}",
        "model: {activations_checkpoint_granularity: some}", "a: &a [*a]"}) {
    const std::string text = message([&] { import_nemo(yaml, "n.yaml", 12, 8); });
    INFO(yaml);
    CHECK_THAT(text, Catch::Contains("n.yaml"));
    CHECK(text.find('\n') == std::string::npos);
  }
}
