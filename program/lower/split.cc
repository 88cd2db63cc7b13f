// Per-layer tensor splits of models that are no transformers (Krizhevsky, arXiv 1404.5997): tensor ranks hold
// samples of their own; around a split operator all of them compute all samples with a part of its weights.
// Gathering samples before it, and summing partial outputs behind a row split, is what sequence parallelism
// does with a sequence's rows (tensor.cc). Here: the features of a column split go back to their
// samples where a reader wants them whole.
#include "program/lower/forms.h"
#include "program/lower/workbench.h"

namespace orrery::internal {
namespace {

// Operators whose features go back together, after the last of them: tables that stand side by side, whether
// all of them are split or not; any other operator by itself.
LayerRange sent_with(const Lowering& lowering, int op) {
  LayerRange range{op, op + 1};
  if (lowering.op(op).kind != OperatorKind::embedding) return range;
  const auto is_table = [&](int i) {
    return i >= 0 && i < lowering.op_count() && lowering.op(i).kind == OperatorKind::embedding &&
           lowering.op(i).layer == lowering.op(op).layer;
  };
  while (is_table(range.begin - 1)) --range.begin;
  while (is_table(range.end)) ++range.end;
  return range;
}

void all_to_all(Lowering& lowering, TensorKind kind, int op, Communications* out) {
  if (lowering.shard().tp == 1 || lowering.plan().job->workload.transformer) return;
  const LayerRange range = sent_with(lowering, op);
  if (op != range.end - 1) return;
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::tensor;
  instruction.form = Parallelism::tensor;
  instruction.collective = CollectiveKind::all_to_all;
  instruction.group = lowering.group(GroupKind::tensor);
  instruction.dtype = lowering.plan().activation_type();
  instruction.micro_batch = kOpenMicroBatch;
  for (int i = range.begin; i < range.end; ++i) {
    if (!lowering.use(i).returns || lowering.use(i).last_consumer < 0) continue;
    instruction.bytes += output_bytes(lowering.op(i), lowering.shard());
    const TensorRef tensor{kind, i, kOpenMicroBatch};
    instruction.reads.push_back(tensor);
    instruction.writes.push_back(tensor);
  }
  if (!instruction.reads.empty()) out->push_back(std::move(instruction));
}

void split_after_forward(Lowering& lowering, int op, Communications* out) {
  all_to_all(lowering, TensorKind::activation, op, out);
}

void split_before_backward(Lowering& lowering, int op, Communications* out) {
  all_to_all(lowering, TensorKind::activation_gradient, op, out);
}

}  // namespace

LoweringForm split_lowering() {
  LoweringForm form;
  form.id = Parallelism::tensor;
  form.after_forward = split_after_forward;
  form.before_backward = split_before_backward;
  return form;
}

}  // namespace orrery::internal
