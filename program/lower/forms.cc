#include "program/lower/forms.h"

#include <mutex>

#include "base/append_only.h"

namespace orrery::internal {
namespace {

constexpr std::size_t kMostForms = 64;

AppendOnly<LoweringForm, kMostForms>& registry() {
  static AppendOnly<LoweringForm, kMostForms> all = {tensor_lowering(), expert_lowering(), split_lowering(),
                                                     context_lowering()};
  return all;
}

}  // namespace

std::span<const LoweringForm> lowering_forms() {
  return registry().items();
}

void register_lowering(const LoweringForm& form) {
  static std::mutex adding;
  const std::lock_guard lock(adding);
  registry().append(form);
}

}  // namespace orrery::internal
