// Expert parallelism (GShard, arXiv 2006.16668): tokens travel to the ranks that hold their experts and back.
#include "program/internal/lowering.h"

namespace orrery::internal {
namespace {

// Everyone's tokens to everyone's experts: `op`'s output (or its gradient) changes from one order to the
// other.
Instruction all_to_all(Lowering& lowering, TensorKind kind, int op) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::expert;
  instruction.collective = CollectiveKind::all_to_all;
  instruction.group = lowering.group(GroupKind::expert);
  instruction.dtype = lowering.plan().activation_type();
  instruction.bytes = output_bytes(lowering.op(op), lowering.shard());
  instruction.micro_batch = kOpenMicroBatch;
  const TensorRef tensor{kind, op, kOpenMicroBatch};
  instruction.reads.push_back(tensor);
  instruction.writes.push_back(tensor);
  return instruction;
}

bool feeds_combine(const Lowering& lowering, int op) {
  const int consumer = lowering.use(op).last_consumer;
  return lowering.op(op).kind == OperatorKind::expert_linear && consumer >= 0 &&
         lowering.op(consumer).kind == OperatorKind::combine;
}

}  // namespace

void expert_after_forward(Lowering& lowering, int op, Communications* out) {
  if (lowering.choices().ep == 1) return;
  if (lowering.op(op).kind == OperatorKind::dispatch || feeds_combine(lowering, op)) {
    out->push_back(all_to_all(lowering, TensorKind::activation, op));
  }
}

void expert_before_backward(Lowering& lowering, int op, Communications* out) {
  if (lowering.choices().ep == 1) return;
  if (lowering.op(op).kind == OperatorKind::dispatch || feeds_combine(lowering, op)) {
    out->push_back(all_to_all(lowering, TensorKind::activation_gradient, op));
  }
}

}  // namespace orrery::internal
