#include "exec/math/forms.h"

#include <mutex>

#include "base/append_only.h"
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

constexpr std::size_t kMostForms = 64;

AppendOnly<ExecutedForm, kMostForms>& registry() {
  static AppendOnly<ExecutedForm, kMostForms> all = {{Parallelism::context, make_ring},
                                                     {Parallelism::expert, make_experts}};
  return all;
}

}  // namespace

std::span<const ExecutedForm> executed_forms() {
  return registry().items();
}

void register_executed(const ExecutedForm& form) {
  static std::mutex adding;
  const std::lock_guard lock(adding);
  registry().append(form);
}

}  // namespace orrery::exec
