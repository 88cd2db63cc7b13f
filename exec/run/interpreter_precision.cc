// The interpreter's mixed precision. Activations of a narrow type, and their gradients, are rounded to it
// where they are made, and travel in it. A device that holds them in it (Device::held_as) rounds what it
// writes; what it holds in fp32 words is rounded here, behind the operator that makes it.
#include <cmath>

#include "exec/run/interpreter.h"

namespace orrery::exec {

Communicator* Interpreter::narrowed(Communicator& communicator, DType type) {
  if (bytes_of(type) != 2) return &communicator;
  auto& view = narrowed_[&communicator];
  if (view == nullptr) view = make_narrow_communicator(communicator, device_, type);
  return view.get();
}

Communicator* Interpreter::communicator_of(const Instruction& instruction) {
  return narrowed(*communicators_.at({instruction.group, instruction.stream}), instruction.dtype);
}

Communicator& Interpreter::world_of(const Instruction& instruction) {
  const bool held = !instruction.transfers.empty() &&
                    values_.type_of(instruction.transfers.front().tensor.kind) == instruction.dtype;
  if (held) return world_;
  return *narrowed(world_, instruction.dtype);
}

void Interpreter::round(const Key& key, std::vector<Step>& steps) {
  const Values::Id id = values_.use(key);
  if (values_.type(id) == type_) return;
  steps.push_back(
      [=, this] { device_.round_to(type_, values_.floats(id), values_.bytes(id) / sizeof(float)); });
}

void Interpreter::round_results(const Instruction& instruction, int op, std::vector<Step>& steps) {
  const Operator& self = plan_.job->workload.operators[static_cast<std::size_t>(op)];
  const int micro_batch = instruction.micro_batch;
  const bool forward = does_forward(instruction.compute);
  for (const Form form : {Form::whole, Form::shard, Form::features}) {
    if (forward) {
      const Key key{TensorKind::activation, op, micro_batch, form};
      if (values_.defined_here(key) || (instruction.block > 0 && values_.has(key))) round(key, steps);
      if (self.kind != OperatorKind::loss) continue;
      const Key logits{TensorKind::activation_gradient, self.inputs.front(), micro_batch, form};
      if (values_.has(logits)) round(logits, steps);
      continue;
    }
    // A residual hands its gradient on as it is, but for dropouts; weights' gradients are kept in fp32.
    const bool handed_on = self.kind == OperatorKind::residual && batch_.row_keys == nullptr;
    if (instruction.compute == ComputeKind::backward_weight || handed_on) continue;
    for (const int input : self.inputs) {
      const Key key{TensorKind::activation_gradient, input, micro_batch, form};
      if (values_.has(key)) round(key, steps);
    }
  }
}

void Interpreter::skip_what_is_not_finite() {
  skips_ = true;
  if (overflow_ == nullptr) overflow_ = static_cast<float*>(device_.allocate(sizeof(float)));
}

// All ranks must come to the same answer: one of them may hold the only gradient that overflowed.
bool Interpreter::gradients_are_finite() {
  const float overflow = std::isfinite(owned_gradient_squares()) ? 0.0F : 1.0F;
  device_.copy_to_device(overflow_, &overflow, sizeof(overflow));
  auto agreed = world_.all_reduce(overflow_, overflow_, 1, DType::fp32, Reduction::max);
  while (!agreed->test())
    if (!progress()) world_.idle();
  float any = 0;
  device_.copy_to_host(&any, overflow_, sizeof(any));
  return any == 0;
}

}  // namespace orrery::exec
