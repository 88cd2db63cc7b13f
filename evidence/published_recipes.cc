#include "evidence/published_recipes.h"

#include <array>

namespace orrery::planner {
namespace {

constexpr std::array<Recipe, 3> kRecipes = {{
    // NVIDIA-NeMo/Automodel @ 080dca533b: examples/benchmark/configs/kimi_k2_te_deepep.yaml and
    // nemotron_super_v3_te_deepep.yaml, examples/llm_finetune/qwen/qwen2_5_32b_peft_benchmark.yaml and
    // llama3_1/llama3_1_8b_peft_benchmark.yaml (activation_checkpointing, fake_balanced_gate,
    // match_all_linear, force_hf).
    {.framework = "AutoModel",
     .chunk_a_layer = true,
     .plain_experts = true,
     .checkpoints = true,
     .deals_in_turn = true,
     .adapts_everything = true},
    // NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs: expert_tensor_parallel_size=1, DeepEP and
    // HybridEP. Of its experts the runtime profiles tell (eager_experts, fused_experts, expert_exposed).
    {.framework = "Megatron-Bridge", .chunk_a_layer = true, .whole_experts = true, .once_a_node = true},
    // Megatron-Core 0.12 and earlier: routing weights are applied when tokens return.
    {.framework = "NeMo", .chunk_a_layer = true, .plain_experts = true},
}};

constexpr Recipe kNone;

}  // namespace

const Recipe& recipe_of(std::string_view framework) {
  for (const Recipe& recipe : kRecipes)
    if (framework.find(recipe.framework) != std::string_view::npos) return recipe;
  return kNone;
}

}  // namespace orrery::planner
