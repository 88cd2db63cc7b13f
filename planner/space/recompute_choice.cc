#include "planner/space/recompute_choice.h"

#include "program/operator_work.h"

namespace orrery::planner {

std::vector<ModuleSet> searched_modules(const Job& job) {
  Choices unasked;
  unasked.recompute = Recompute::selective;
  const ModuleSet own = modules_run_again(unasked, job.runtime);
  ModuleSet known = 0;
  if (job.runtime.abilities)
    for (const std::string& name : job.runtime.abilities->recompute_modules) known |= module_bit(name);
  std::vector<ModuleSet> found;
  if (known == 0) {
    if (modules_of(job.workload, module_bit("core_attn")) != 0) found.push_back(0);
    return found;
  }
  // A fused core keeps next to nothing for itself. Transformer Engine's norms are part of the product behind
  // them, and not run again by themselves, but for those in front of experts and of latent attention.
  if (job.training.fused_attention) known &= ~module_bit("core_attn");
  const auto& model = job.workload.transformer;
  if (!model || !(model->moe || model->mla)) known &= ~module_bit("layernorm");
  known = modules_of(job.workload, known);
  ModuleSet set = 0;
  const auto climb = [&](ModuleSet more) {
    more &= known;
    if (more == 0) return;
    set |= more;
    found.push_back(set == own ? 0 : set);
  };
  climb(module_bit("core_attn"));
  climb(module_bit("layernorm") | module_bit("moe_act"));
  climb(module_bit("mla_up_proj"));
  climb(module_bit("mlp"));
  if ((known & module_bit("moe")) != 0) set &= ~module_bit("moe_act");  // which is part of it
  climb(module_bit("moe"));
  return found;
}

}  // namespace orrery::planner
