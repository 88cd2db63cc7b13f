// Expert parallelism (GShard, arXiv 2006.16668): tokens travel to the ranks that hold their experts and back.
// Where tensor ranks share an expert (Megatron-Core's expert tensor parallelism), its products are split as
// those of a dense MLP are, and so is what the ranks say to each other.
#include "program/lower/forms.h"
#include "program/lower/workbench.h"

namespace orrery::internal {
namespace {

// `bytes` as Instruction says. `tensor` is one thing before it and another after it.
Instruction collective(Lowering& lowering, CollectiveKind kind, GroupKind group, const TensorRef& tensor,
                       double bytes) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::expert;
  instruction.form = Parallelism::expert;
  instruction.collective = kind;
  instruction.group = lowering.group(group);
  instruction.dtype = lowering.plan().activation_type();
  instruction.bytes = bytes;
  instruction.micro_batch = kOpenMicroBatch;
  instruction.reads.push_back(tensor);
  instruction.writes.push_back(tensor);
  return instruction;
}

bool feeds_combine(const Lowering& lowering, int op) {
  const int consumer = lowering.use(op).last_consumer;
  return lowering.op(op).kind == OperatorKind::expert_linear && consumer >= 0 &&
         lowering.op(consumer).kind == OperatorKind::combine;
}

// Everyone's tokens to everyone's experts, and what the ranks that share these bring together. Bytes are
// those of one rank's own tokens.
void to_experts(Lowering& lowering, const TensorRef& tensor, double own_bytes, Communications* out) {
  const Choices& choices = lowering.choices();
  if (choices.ep > 1)
    out->push_back(collective(lowering, CollectiveKind::all_to_all, GroupKind::expert, tensor, own_bytes));
  if (gathered_ranks(lowering.shard()) > 1)
    out->push_back(collective(lowering, CollectiveKind::all_gather, GroupKind::expert_tensor, tensor,
                              own_bytes * choices.etp));
}

// The sum of what the ranks that share an expert have, to each its own tokens, and back to where these came
// from.
void from_experts(Lowering& lowering, const TensorRef& tensor, double own_bytes, Communications* out) {
  const Choices& choices = lowering.choices();
  const double gathered = gathered_ranks(lowering.shard());
  if (choices.etp > 1)
    out->push_back(collective(lowering,
                              gathered > 1 ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                              GroupKind::expert_tensor, tensor, own_bytes * gathered));
  if (choices.ep > 1)
    out->push_back(collective(lowering, CollectiveKind::all_to_all, GroupKind::expert, tensor, own_bytes));
}

void expert_after_forward(Lowering& lowering, int op, Communications* out) {
  const TensorRef tensor{TensorKind::activation, op, kOpenMicroBatch};
  const double bytes = output_bytes(lowering.op(op), lowering.shard());
  if (lowering.op(op).kind == OperatorKind::dispatch) to_experts(lowering, tensor, bytes, out);
  if (feeds_combine(lowering, op))
    from_experts(lowering, tensor, bytes / gathered_ranks(lowering.shard()), out);
}

void expert_before_backward(Lowering& lowering, int op, Communications* out) {
  const TensorRef tensor{TensorKind::activation_gradient, op, kOpenMicroBatch};
  const double bytes = output_bytes(lowering.op(op), lowering.shard());
  if (feeds_combine(lowering, op))
    to_experts(lowering, tensor, bytes / gathered_ranks(lowering.shard()), out);
  if (lowering.op(op).kind == OperatorKind::dispatch) from_experts(lowering, tensor, bytes, out);
}

}  // namespace

LoweringForm expert_lowering() {
  LoweringForm form;
  form.id = Parallelism::expert;
  form.after_forward = expert_after_forward;
  form.before_backward = expert_before_backward;
  return form;
}

}  // namespace orrery::internal
