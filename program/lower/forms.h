// What forms of parallelism put into a Program, inside layers: what stands before and behind an operator, and
// who runs it in another way than in one piece. What pipelines, data parallelism and recomputation do stands
// around layers (pipeline.cc, data.cc, recompute.cc).
#pragma once

#include <span>

#include "program/lower/workbench.h"

namespace orrery::internal {

struct LoweringForm {
  // Appends what is communicated; each says for itself whether the plan makes use of it.
  using Around = void (*)(Lowering& lowering, int op, Communications* out);
  // Whether it has run the operator.
  using Run = bool (*)(Lowering& lowering, PassBuilder& pass, int op, ComputeKind kind);

  Parallelism id = Parallelism::none;
  Around before_forward = nullptr;
  Around after_forward = nullptr;
  Around before_backward = nullptr;
  Around after_backward = nullptr;
  Run forward = nullptr;  // and recomputation
  Run backward = nullptr;
  Run backward_and_around = nullptr;  // with all that is communicated before and behind it
};

// In the order in which they communicate before an operator; behind it the other way round.
std::span<const LoweringForm> lowering_forms();
// See register_form in program/forms.h.
void register_lowering(const LoweringForm& form);

LoweringForm tensor_lowering();   // tensor.cc
LoweringForm expert_lowering();   // expert.cc
LoweringForm split_lowering();    // split.cc
LoweringForm context_lowering();  // context.cc

}  // namespace orrery::internal
