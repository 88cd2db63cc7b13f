#include "program/lower/forms.h"

namespace orrery::internal {
namespace {

std::deque<LoweringForm>& registry() {
  static std::deque<LoweringForm> all = {tensor_lowering(), expert_lowering(), split_lowering(),
                                         context_lowering()};
  return all;
}

}  // namespace

const std::deque<LoweringForm>& lowering_forms() {
  return registry();
}

void register_lowering(const LoweringForm& form) {
  registry().push_back(form);
}

}  // namespace orrery::internal
