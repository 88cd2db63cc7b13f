#include "exec/math/forms.h"

#include "exec/math/experts.h"
#include "exec/math/ring_attention.h"

namespace orrery::exec {
namespace {

std::unique_ptr<FormMathematics> make_ring(const FormParts& parts) {
  if (parts.plan.choices.cp == 1) return nullptr;
  return std::make_unique<RingAttention>(parts);
}

// Experts that nobody shares have mathematics of their own, too.
std::unique_ptr<FormMathematics> make_experts(const FormParts& parts) {
  if (!parts.plan.job->workload.transformer->moe) return nullptr;
  return std::make_unique<Experts>(parts);
}

std::deque<ExecutedForm>& registry() {
  static std::deque<ExecutedForm> all = {{Parallelism::context, make_ring},
                                         {Parallelism::expert, make_experts}};
  return all;
}

}  // namespace

const std::deque<ExecutedForm>& executed_forms() {
  return registry();
}

void register_executed(const ExecutedForm& form) {
  registry().push_back(form);
}

}  // namespace orrery::exec
