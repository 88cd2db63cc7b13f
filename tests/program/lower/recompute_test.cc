// Recomputation: what is run once more.
#include <catch2/catch.hpp>

#include "tests/program/lower/lowered.h"
#include "tests/support/jobs.h"

using namespace orrery;
using orrery::test::flops_of;
using orrery::test::small_plan;
using orrery::test::verify;

TEST_CASE("recomputation runs what was forgotten once more") {
  const auto recomputed = [](Recompute recompute, int layers) {
    Choices choices;
    choices.recompute = recompute;
    choices.recompute_layers = layers;
    const Plan plan = small_plan(choices, 2);
    verify(plan);
    return lower(plan, 0);
  };
  const auto forward = [](ComputeKind kind) { return kind == ComputeKind::forward; };
  const auto again = [](ComputeKind kind) { return kind == ComputeKind::recompute; };
  const Program none = recomputed(Recompute::none, 0);
  CHECK(flops_of(none, again) == 0);
  const Program full = recomputed(Recompute::full, 0);
  double layers = 0;
  for (const Instruction& instruction : full.instructions) {
    const bool layer = instruction.op_begin > 0 && instruction.op_end <= 41;
    if (instruction.op == Op::compute && instruction.compute == ComputeKind::forward && layer) {
      layers += instruction.flops;
    }
  }
  CHECK(flops_of(full, again) == Approx(layers));
  CHECK(flops_of(full, again) < flops_of(full, forward));
  CHECK(flops_of(recomputed(Recompute::full, 1), again) == Approx(layers / 4));
  CHECK(flops_of(recomputed(Recompute::selective, 0), again) > 0);
  CHECK(flops_of(recomputed(Recompute::selective, 0), again) < layers / 4);
}

namespace {

// What is run again of one layer of a catalog's model, and before whose backward pass: "norm1 | qkv".
std::vector<std::string> run_again(const char* model, const char* modules, int layer, Choices choices = {}) {
  choices.recompute = Recompute::selective;
  choices.recompute_modules = modules_from_names(modules);
  const Plan plan{orrery::test::make_job(model, "dgx-h100", choices.world(), 8, 2048), choices};
  const auto& operators = plan.job->workload.operators;
  const auto name = [&](int op) {
    const std::string& whole = operators[static_cast<std::size_t>(op)].name;
    return whole.substr(whole.rfind('.') + 1);
  };
  const Program program = lower(plan, 0);
  std::vector<std::string> found;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& one = program.instructions[i];
    if (one.op != Op::compute || one.micro_batch != 0 || one.compute != ComputeKind::recompute ||
        operators[static_cast<std::size_t>(one.op_begin)].layer != layer)
      continue;
    std::string text;
    for (int op = one.op_begin; op < one.op_end; ++op) text += name(op) + " ";
    for (std::size_t next = i + 1; next < program.instructions.size(); ++next) {
      const Instruction& other = program.instructions[next];
      if (other.op != Op::compute || does_forward(other.compute)) continue;
      found.push_back(text + "| " + name(other.op_end - 1));
      break;
    }
  }
  return found;
}

}  // namespace

TEST_CASE("each module is run again before the backward pass of the last operator that needs it") {
  using Runs = std::vector<std::string>;
  CHECK(run_again("llama3-8b", "core_attn", 3) == Runs{"attention | attention"});
  CHECK(run_again("llama3-8b", "layernorm", 3) == Runs{"norm2 | mlp_up", "norm1 | qkv"});
  CHECK(run_again("llama3-8b", "mlp_act", 3) == Runs{"activation | mlp_down"});
  CHECK(run_again("llama3-8b", "mlp", 3) == Runs{"mlp_up activation mlp_down | residual2"});
  // What is run again reads what is run again, once.
  CHECK(run_again("llama3-8b", "layernorm,mlp", 3) ==
        Runs{"norm2 mlp_up activation mlp_down | residual2", "norm1 | qkv"});
  CHECK(run_again("llama3-8b", "moe", 3).empty());
  // DeepSeek-V3's first three layers are dense; its experts read the norm as its shared one does.
  CHECK(run_again("deepseek-v3", "mla_up_proj", 5) == Runs{"qkv | attention"});
  CHECK(run_again("deepseek-v3", "layernorm,mla_up_proj", 5) ==
        Runs{"norm2 | shared_up", "latent_norm qkv | attention", "norm1 | qkv_down"});
  CHECK(run_again("deepseek-v3", "moe_act", 5) == Runs{"activation | experts_down"});
  CHECK(run_again("deepseek-v3", "moe_act", 1).empty());
  CHECK(run_again("deepseek-v3", "mlp", 5).empty());
  CHECK(run_again("deepseek-v3", "mlp", 1).size() == 1);
}

TEST_CASE("what is run again of MLPs and experts says again what they say to other ranks") {
  const auto sent = [](const char* model, const char* modules, Choices choices, Stream stream) {
    choices.recompute = *modules == 0 ? Recompute::none : Recompute::selective;
    if (*modules != 0) choices.recompute_modules = modules_from_names(modules);
    const Plan plan{orrery::test::make_job(model, "dgx-h100", 8, 8, 2048), choices};
    verify(plan);
    return orrery::test::sum(lower(plan, 0), [&](const Instruction& one) { return one.stream == stream; });
  };
  Choices split;
  split.tp = 8;
  split.sequence_parallel = true;
  const double none = sent("llama3-8b", "", split, Stream::tensor);
  CHECK(sent("llama3-8b", "layernorm,mlp_act", split, Stream::tensor) == none);
  // An MLP's input is gathered and its output scattered: 2 of a layer's 10.
  CHECK(sent("llama3-8b", "mlp", split, Stream::tensor) / none == Approx(1.2).epsilon(0.02));
  Choices spread;
  spread.dp = 8;
  spread.ep = 8;
  const double traffic = sent("mixtral-8x7b", "", spread, Stream::expert);
  CHECK(sent("mixtral-8x7b", "layernorm,moe_act", spread, Stream::expert) == traffic);
  CHECK(sent("mixtral-8x7b", "moe", spread, Stream::expert) == Approx(1.5 * traffic));
}
