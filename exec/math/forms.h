// Forms of parallelism that compute something of a layer in their own way, or say something to each other
// that is more than any tensor on its way (docs/program.md). What a form means for a plan is in
// program/forms.h, what it puts into a Program in program/lower/forms.h.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/math/layers.h"
#include "exec/math/routing.h"
#include "exec/state/parameters.h"
#include "program/program.h"

namespace orrery::exec {

class FormMathematics {
 public:
  using Start = std::function<std::unique_ptr<Request>()>;

  virtual ~FormMathematics() = default;
  FormMathematics() = default;
  FormMathematics(const FormMathematics&) = delete;
  FormMathematics& operator=(const FormMathematics&) = delete;

  // Of these operators it makes the steps, in the layers' stead. The instruction says which gradients are
  // wanted, and of which micro-batch and block.
  virtual bool computes(int op) const = 0;
  virtual void forward(const Instruction& instruction, int op, std::vector<Step>& steps) = 0;
  virtual void backward(const Instruction& instruction, int op, std::vector<Step>& steps) = 0;
  // Starts an instruction of the form; nothing where its tensors travel like any other. An exchange gets the
  // world's communicator. `uses` gets the values that it holds.
  virtual Start communicate(const Instruction& instruction, Communicator& communicator,
                            std::vector<Values::Id>& uses) = 0;
  // What routers gave this rank's experts, in the order of the Program's dispatches, the first 65,536 of
  // them; of a form without experts, and where none travel, none.
  virtual std::vector<RoutedRows> routed() const { return {}; }
  // Whether each step asks the device for the same, so that it may be recorded.
  virtual bool repeats() const { return true; }
};

// Kept references.
struct FormParts {
  const Plan& plan;
  const Program& program;
  Layers& layers;
  Parameters& parameters;
  Device& device;
  Values& values;
};

struct ExecutedForm {
  Parallelism id = Parallelism::none;
  // Nothing where the plan has no need of it.
  std::unique_ptr<FormMathematics> (*make)(const FormParts& parts) = nullptr;
};

std::span<const ExecutedForm> executed_forms();
// See register_form in program/forms.h.
void register_executed(const ExecutedForm& form);

inline bool wants_input_gradient(const Instruction& instruction) {
  return instruction.compute != ComputeKind::backward_weight;
}
inline bool wants_weight_gradient(const Instruction& instruction) {
  return instruction.compute != ComputeKind::backward_input;
}

}  // namespace orrery::exec
