#include "workloads/fine_tuning.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "proto/workload.pb.h"
#include "workloads/readers/catalog.h"
#include "workloads/workload.h"

namespace orrery {
namespace {

Workload tuned(const char* model, const FineTuning& tuning) {
  Workload workload = load_workload(model);
  fine_tune(workload, tuning);
  return workload;
}

FineTuning adapters(int rank, std::uint8_t targets) {
  FineTuning tuning;
  tuning.rank = rank;
  tuning.targets = targets;
  return tuning;
}

std::int64_t trained(const Workload& workload) {
  std::int64_t sum = 0;
  for (const Operator& op : workload.operators)
    for (const ParameterTensor& tensor : op.parameters) sum += tensor.tied_to.empty() ? tensor.elements() : 0;
  return sum;
}

const Operator& named(const Workload& workload, std::string_view name) {
  return *std::find_if(workload.operators.begin(), workload.operators.end(),
                       [&](const Operator& op) { return op.name == name; });
}

TEST_CASE("adapters are the parameters that the papers count") {
  // LLaMA 7B, rank 8 on queries and values: 4,194,304 (Hu et al. by PEFT's count); all linear layers of rank
  // 16 on Llama 3 8B: 41,943,040 (PEFT's print_trainable_parameters).
  CHECK(trained(tuned("llama2-7b", adapters(8, kQuery | kValue))) == 4'194'304);
  CHECK(trained(tuned("llama3-8b", adapters(16, kAllProjections))) == 41'943'040);
  FineTuning dora = adapters(16, kOutput);
  dora.dora = true;
  CHECK(trained(tuned("llama3-8b", dora)) == 32 * (16 * 2 * 4096 + 4096));
}

TEST_CASE("a fused projection has one adapter, and a tied head is frozen with its embedding") {
  const Workload gpt2 = tuned("gpt2", adapters(4, kQuery));
  const Operator& qkv = named(gpt2, "h.0.qkv");
  REQUIRE(qkv.adapters.size() == 1);
  CHECK(qkv.adapters.front().in == 768);
  CHECK(qkv.adapters.front().out == 3 * 768);
  FineTuning late;
  late.frozen_layers = 6;
  const Workload half = tuned("gpt2", late);
  CHECK(named(half, "head").parameters.empty());
  CHECK(named(half, "h.5.qkv").parameters.empty());
  CHECK(named(half, "h.6.qkv").frozen.empty());
  CHECK(half.parameters() == load_workload("gpt2").parameters());
}

TEST_CASE("gradients stop where nothing before is trained, and frozen products keep no input") {
  FineTuning tuning = adapters(8, kQuery | kValue);
  tuning.frozen_layers = 2;
  const Workload model = tuned("llama3-8b", tuning);
  CHECK_FALSE(works_backward(named(model, "h.1.mlp_down")));
  CHECK_FALSE(works_backward(named(model, "h.2.norm1")));
  CHECK_FALSE(named(model, "h.2.qkv").passes_gradient);
  CHECK(works_backward(named(model, "h.2.qkv")));
  CHECK(named(model, "h.2.qkv").keeps_input);
  CHECK(named(model, "h.3.norm1").passes_gradient);
  CHECK_FALSE(named(model, "h.3.mlp_up").keeps_input);
  // A step of everything is three forwards; with adapters alone about two, and less with layers frozen.
  const double forward = load_workload("llama3-8b").forward_flops_per_sample(2048);
  const double all = tuned("llama3-8b", adapters(8, kQuery | kValue)).training_flops_per_sample(2048);
  CHECK(all > 2 * forward);
  CHECK(all < 2.15 * forward);
  CHECK(model.training_flops_per_sample(2048) < all);
  CHECK(load_workload("llama3-8b").training_flops_per_sample(2048) == 3 * forward);
}

TEST_CASE("bytes of quantised weights are QLoRA's") {
  CHECK(base_bytes(BaseType::nf4, DType::bf16) * 8 == 4.5);
  CHECK(base_bytes(BaseType::nf4_dq, DType::bf16) * 8 == Approx(4.127).epsilon(1e-4));  // section 3
  CHECK(base_bytes(BaseType::none, DType::bf16) == 2);
}

TEST_CASE("targets go by their names here, in PEFT and in Megatron") {
  CHECK(projections_from("q,v") == projections_from("q_proj v_proj"));
  CHECK(projections_from("linear_qkv,linear_proj,linear_fc1,linear_fc2") == kAllProjections);
  CHECK(names_of_projections(projections_from("all-linear")) == "q,k,v,o,gate,up,down");
  CHECK_THROWS_WITH(projections_from("q,x"), Catch::Contains("`lora_targets` x is unknown"));
  CHECK_THROWS_AS(projections_from(","), UserError);
  CHECK_THROWS_AS(base_type_from_name("fp4"), UserError);
}

TEST_CASE("what does not go together is refused") {
  FineTuning quantised;
  quantised.base = BaseType::nf4;
  CHECK_THROWS_WITH(tuned("gpt2", quantised), Catch::Contains("without `lora_rank`"));
  CHECK_THROWS_WITH(tuned("resnet50", adapters(8, kQuery)), Catch::Contains("is a graph of operators"));
  FineTuning all = adapters(8, kQuery);
  all.frozen_layers = 12;
  CHECK_THROWS_WITH(tuned("gpt2", all), Catch::Contains("nothing is left to train"));
  all.frozen_layers = 13;
  CHECK_THROWS_WITH(tuned("gpt2", all), Catch::Contains("more than the 12 layers"));
}

TEST_CASE("a file carries what is trained") {
  FineTuning tuning = adapters(16, kQuery | kDown);
  tuning.alpha = 32;
  tuning.dora = true;
  tuning.base = BaseType::nf4_dq;
  tuning.frozen_layers = 3;
  const Workload model = tuned("llama3-8b", tuning);
  proto::Workload message;
  to_proto(model, &message);
  const Workload read = workload_from_proto(message, "model.textproto", "");
  CHECK(read.transformer->fine_tuning == tuning);
  CHECK(trained(read) == trained(model));
  message.mutable_transformer()->mutable_fine_tuning()->set_base("nf5");
  CHECK_THROWS_AS(workload_from_proto(message, "model.textproto", ""), UserError);
}

}  // namespace
}  // namespace orrery
