// What Megatron-LM prints of its arguments, as the plan that was run.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>

#include "base/file.h"
#include "measurements/kinds.h"
#include "topologies/readers/catalog.h"

using namespace orrery;
using namespace orrery::measurements;

namespace {

// As core 0.20 prints them, two nodes.
std::map<std::string, std::string> arguments_of_core() {
  return {{"add_bias_linear", "False"},
          {"attention_backend", "AttnBackend.flash"},
          {"bf16", "True"},
          {"clip_grad", "1.0"},
          {"context_parallel_size", "1"},
          {"cp_comm_type", "['p2p']"},
          {"data_parallel_sharding_strategy", "optim_grads_params"},
          {"expert_model_parallel_size", "1"},
          {"expert_tensor_parallel_size", "4"},
          {"ffn_hidden_size", "13824"},
          {"fp16", "False"},
          {"global_batch_size", "64"},
          {"grad_reduce_in_bf16", "False"},
          {"gtp_weight_remat_size", "1"},
          {"hidden_size", "5120"},
          {"kv_channels", "128"},
          {"make_vocab_size_divisible_by", "128"},
          {"micro_batch_size", "1"},
          {"moe_layer_freq", "1"},
          {"moe_router_topk", "2"},
          {"moe_token_dispatcher_type", "allgather"},
          {"normalization", "RMSNorm"},
          {"num_attention_heads", "40"},
          {"num_distributed_optimizer_instances", "1"},
          {"num_experts", "None"},
          {"num_layers", "40"},
          {"optimizer", "adam"},
          {"overlap_grad_reduce", "True"},
          {"overlap_param_gather", "True"},
          {"padded_vocab_size", "None"},
          {"pipeline_model_parallel_layout", "None"},
          {"pipeline_model_parallel_size", "1"},
          {"position_embedding_type", "rope"},
          {"recompute_granularity", "None"},
          {"recompute_method", "None"},
          {"recompute_modules", "None"},
          {"recompute_num_layers", "None"},
          {"seq_length", "4096"},
          {"sequence_parallel", "True"},
          {"swiglu", "True"},
          {"tensor_model_parallel_size", "4"},
          {"transformer_impl", "transformer_engine"},
          {"untie_embeddings_and_output_weights", "True"},
          {"use_distributed_optimizer", "True"},
          {"use_megatron_fsdp", "False"},
          {"use_torch_fsdp2", "False"},
          {"virtual_pipeline_model_parallel_size", "None"},
          {"vocab_size", "32000"},
          {"window_attn_skip_freq", "None"},
          {"window_size", "None"},
          {"world_size", "16"}};
}

Measurements read_with(const std::map<std::string, std::string>& others, const std::string& behind = "") {
  std::map<std::string, std::string> all = arguments_of_core();
  for (const auto& [name, value] : others) all[name] = value;
  std::string text = "------------------------ arguments ------------------------\n";
  for (const auto& [name, value] : all)
    text += fmt::format("  {} {} {}\n", name, std::string(48 - std::min<std::size_t>(45, name.size()), '.'),
                        value);
  text += behind;
  for (int i = 1; i <= 4; ++i)
    text += fmt::format(" iteration {}/ 50 | elapsed time per iteration (ms): {} | global batch size: 64 |\n",
                        i, i == 1 ? 30000 : 5000 + i);
  Measurements found;
  read(Source("a.log", text), {load_cluster("dgx-h100"), ""}, &found);
  return found;
}

Plan plan_with(const std::map<std::string, std::string>& others, const std::string& behind = "") {
  const Measurements found = read_with(others, behind);
  for (const Ignored& one : found.ignored) UNSCOPED_INFO(one.why);
  REQUIRE(found.steps.size() == 1);
  CHECK(found.steps[0].whole);
  return found.steps[0].row.plan;
}

std::string why_not(const std::map<std::string, std::string>& others) {
  const Measurements found = read_with(others);
  CHECK(found.steps.empty());
  return found.ignored.empty() ? "" : found.ignored.front().why;
}

}  // namespace

TEST_CASE("Megatron's default of data_parallel_sharding_strategy says something of its FSDP alone") {
  CHECK(plan_with({}).choices.zero == 1);
  CHECK(plan_with({{"use_distributed_optimizer", "False"}}).choices.zero == 0);
  const std::map<std::string, std::string> fsdp = {{"use_megatron_fsdp", "True"},
                                                   {"tensor_model_parallel_size", "1"}};
  const auto zero = [&](const std::string& strategy) {
    auto with = fsdp;
    with["data_parallel_sharding_strategy"] = strategy;
    return plan_with(with).choices.zero;
  };
  CHECK(zero("optim_grads_params") == 3);
  CHECK(zero("optim_grads") == 2);
  CHECK(zero("optim") == 1);
  CHECK(zero("no_shard") == 0);
  auto hybrid = fsdp;
  hybrid["num_distributed_optimizer_instances"] = "2";
  CHECK(plan_with(hybrid).choices.shard_group == 8);
  hybrid["outer_dp_sharding_strategy"] = "optim";
  CHECK_THAT(why_not(hybrid), Catch::Contains("outer_dp_sharding_strategy optim"));
}

TEST_CASE("what Megatron recomputes is read by method, layers and modules") {
  const auto block = [](const std::string& layers, std::map<std::string, std::string> others = {}) {
    others["recompute_granularity"] = "full";
    others["recompute_method"] = "block";
    others["recompute_num_layers"] = layers;
    return plan_with(others).choices;
  };
  CHECK(block("10").recompute == Recompute::full);
  CHECK(block("10").recompute_layers == 10);
  CHECK(block("40").recompute_layers == 0);  // all there are
  // Of each model chunk.
  CHECK(block("3", {{"pipeline_model_parallel_size", "2"}, {"virtual_pipeline_model_parallel_size", "4"}})
            .recompute_layers == 12);
  CHECK(
      plan_with(
          {{"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "1"}})
          .choices.recompute_layers == 0);
  const auto modules = [](const std::string& list) {
    return plan_with({{"recompute_granularity", "selective"}, {"recompute_modules", list}})
        .choices.recompute_modules;
  };
  CHECK(modules("['mlp']") == module_bit("mlp"));
  CHECK(modules("['core_attn', 'layernorm']") == (module_bit("core_attn") | module_bit("layernorm")));
  CHECK(modules("None") == 0);
  CHECK_THAT(why_not({{"recompute_granularity", "selective"}, {"recompute_modules", "['shared_experts']"}}),
             Catch::Contains("recompute_modules shared_experts"));
}

TEST_CASE("stages and the sequence's split are as Megatron's arguments have them") {
  CHECK(plan_with({}).choices.sequence_parallel);
  CHECK(!plan_with({{"sequence_parallel", "False"}}).choices.sequence_parallel);
  const auto stages = [](std::map<std::string, std::string> others) {
    others["pipeline_model_parallel_size"] = "4";
    return plan_with(others).choices.stage_layers;
  };
  CHECK(stages({}).empty());
  CHECK(stages({{"pipeline_model_parallel_layout", "Et*13|(t*9|)*2t*9L"}}) == std::vector<int>{13, 9, 9, 9});
  CHECK(stages({{"decoder_first_pipeline_num_layers", "7"}, {"decoder_last_pipeline_num_layers", "9"}}) ==
        std::vector<int>{7, 12, 12, 9});
  CHECK(stages({{"num_layers", "38"},
                {"account_for_embedding_in_pipeline_split", "True"},
                {"account_for_loss_in_pipeline_split", "True"}}) == std::vector<int>{9, 10, 10, 9});
  CHECK(stages({{"decoder_first_pipeline_num_layers", "4"}, {"virtual_pipeline_model_parallel_size", "2"}}) ==
        std::vector<int>{2, 6, 6, 6, 2, 6, 6, 6});
  for (const char* layout : {"Et*13|x", "E(t|*2", "Et*40L", "t*99999|t|t|t", "t|t|t|t)"})
    CHECK_THAT(why_not({{"pipeline_model_parallel_size", "4"}, {"pipeline_model_parallel_layout", layout}}),
               Catch::Contains("pipeline_model_parallel_layout"));
  CHECK(plan_with({{"use_tp_pp_dp_mapping", "True"}}).choices.order[3] == Dimension::pp);
  // 64 sequences on two replicas are 32 micro-batches; on eight chunks of three layers something is wrong.
  CHECK_THAT(why_not({{"pipeline_model_parallel_size", "4"}, {"virtual_pipeline_model_parallel_size", "16"}}),
             Catch::Contains("model chunks"));
}

TEST_CASE("the vocabulary is the filled-up one, whether Megatron prints it, prints None or says its size") {
  const auto vocabulary = [](const std::map<std::string, std::string>& others,
                             const std::string& behind = "") {
    return plan_with(others, behind).job->workload.transformer->vocab;
  };
  CHECK(vocabulary({{"vocab_size", "256001"}}) == 256512);
  CHECK(vocabulary({{"vocab_size", "None"}},
                   " > padded vocab (size: 50257) with 431 dummy tokens (new size: 50688)\n") == 50688);
  CHECK(vocabulary({{"padded_vocab_size", "51200"}}) == 51200);
}

TEST_CASE("experts, latent attention and windows are read, and what no plan says is named") {
  const std::map<std::string, std::string> experts = {{"num_experts", "8"},
                                                      {"expert_model_parallel_size", "8"},
                                                      {"moe_ffn_hidden_size", "1408"},
                                                      {"expert_tensor_parallel_size", "1"},
                                                      {"moe_shared_expert_intermediate_size", "2816"},
                                                      {"moe_token_dispatcher_type", "alltoall"},
                                                      {"ffn_hidden_size", "4096"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    auto others = experts;
    others[name] = value;
    return others;
  };
  const Plan plan = plan_with(experts);
  CHECK(plan.choices.ep == 8);
  CHECK(plan.choices.etp == 1);
  const Transformer& model = *plan.job->workload.transformer;
  REQUIRE(model.moe);
  CHECK(model.moe->experts == 8);
  CHECK(model.moe->experts_per_token == 2);
  CHECK(model.moe->expert_ffn_hidden == 1408);
  CHECK(model.moe->shared_ffn_hidden == 2816);
  CHECK(plan_with(with("moe_expert_capacity_factor", "1.5")).choices.capacity_factor == 1.5);
  const auto moe = [&](const std::string& layers) {
    auto others = with("moe_layer_freq", layers);
    others["num_layers"] = "4";
    return *plan_with(others).job->workload.transformer->moe;
  };
  CHECK(moe("[0, 1, 1, 1]").first_dense_layers == 1);
  CHECK(moe("[0, 1, 0, 1]").layer_period == 2);
  CHECK(moe("[0, 1, 0, 1]").layer_offset == 1);
  CHECK(moe("2").layer_offset == 0);
  CHECK_THAT(why_not(with("moe_layer_freq", "[0, 1, 1, 1]")), Catch::Contains("moe_layer_freq"));  // of 40
  auto mixed = with("moe_layer_freq", "[1, 1, 0, 1]");
  mixed["num_layers"] = "4";
  CHECK_THAT(why_not(mixed), Catch::Contains("moe_layer_freq"));
  CHECK_THAT(why_not(with("moe_token_dispatcher_type", "allgather")), Catch::Contains("allgather"));

  const Plan latent = plan_with({{"multi_latent_attention", "True"},
                                 {"q_lora_rank", "None"},
                                 {"kv_lora_rank", "512"},
                                 {"qk_head_dim", "128"},
                                 {"qk_pos_emb_head_dim", "64"},
                                 {"v_head_dim", "128"},
                                 {"qk_layernorm", "True"}});
  REQUIRE(latent.job->workload.transformer->mla);
  CHECK(latent.job->workload.transformer->mla->kv_lora_rank == 512);
  CHECK(latent.job->workload.transformer->head_dim == 192);
  const Plan windows = plan_with({{"window_size", "(1024, 0)"}, {"window_attn_skip_freq", "4"}});
  CHECK(windows.job->workload.transformer->sliding_window == 1024);
  CHECK(windows.job->workload.transformer->full_attention_period == 4);

  CHECK_THAT(why_not({{"optimizer", "muon"}}), Catch::Contains("optimizer muon"));
  CHECK_THAT(why_not({{"hybrid_layer_pattern", "M*M*"}}), Catch::Contains("hybrid_layer_pattern M*M*"));
  CHECK_THAT(why_not({{"tensor_model_parallel_size", "2"}, {"gtp_weight_remat_size", "2"}}),
             Catch::Contains("gtp_weight_remat_size 2"));
  CHECK_THAT(why_not({{"context_parallel_size", "2"}, {"cp_comm_type", "['a2a']"}}),
             Catch::Contains("cp_comm_type a2a"));
}

TEST_CASE("two runs of Megatron-Core in a file are two plans") {
  Measurements found;
  const std::string text = read_file(std::string(ORRERY_TEST_DATA) + "/measurements/megatron-core.log");
  read(Source("a.log", text), {load_cluster("dgx-h100"), ""}, &found);
  for (const Ignored& one : found.ignored) UNSCOPED_INFO(one.why);
  REQUIRE(found.steps.size() == 2);
  const Plan &experts = found.steps[0].row.plan, &dense = found.steps[1].row.plan;
  CHECK(experts.job->workload.transformer->moe->first_dense_layers == 1);
  CHECK(experts.choices.stage_layers == std::vector<int>{15, 15});
  CHECK(experts.choices.recompute_modules == (module_bit("mla_up_proj") | module_bit("layernorm")));
  CHECK(!dense.job->workload.transformer->moe);
  CHECK(dense.choices.stage_layers == std::vector<int>{4, 8, 8, 10});
  CHECK(dense.choices.recompute_layers == 3);
}

TEST_CASE("what Megatron-Core overlaps, reduces and leaves to the host is the log's") {
  const Plan usual = plan_with({});
  CHECK(usual.choices.overlap_grad_reduce);
  CHECK(usual.job->runtime.fp32_gradients);
  const Plan other = plan_with({{"overlap_grad_reduce", "False"},
                                {"overlap_param_gather", "False"},
                                {"grad_reduce_in_bf16", "True"},
                                {"ddp_bucket_size", "1000000"},
                                {"tp_comm_overlap", "True"},
                                {"optimizer_cpu_offload", "True"},
                                {"optimizer_offload_fraction", "0.5"}});
  CHECK(!other.choices.overlap_grad_reduce);
  CHECK(other.choices.bucket_bytes == 2e6);
  CHECK(!other.job->runtime.fp32_gradients);
  CHECK(!other.job->runtime.overlap_param_gather);
  CHECK(other.job->runtime.overlap_tensor);
  CHECK(other.job->runtime.host_states == 0.5);
  CHECK(!plan_with({{"attention_backend", "AttnBackend.unfused"}}).job->training.fused_attention);
}
