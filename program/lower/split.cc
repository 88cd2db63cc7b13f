// Per-layer tensor splits of models that are no transformers (Krizhevsky, arXiv 1404.5997): tensor ranks hold
// samples of their own; around a split operator all of them compute all samples with a part of its weights.
// Gathering samples before it, and summing partial outputs behind a row split, is what sequence parallelism
// does with a sequence's rows (tensor.cc). Here: the features of a column split go back to their
// samples where a reader wants them whole.
#include "program/lower/forms.h"
#include "program/lower/workbench.h"

namespace orrery::internal {

bool sums_rows(const Operator& op) {
  return op.kind == OperatorKind::embedding && op.split == TensorSplit::row;
}

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

// Tables that stand side by side, in one: of those split by column or dealt out, looked-up rows go to their
// samples (and their gradients back); of those split by row, parts of them are summed (their gradients go to
// everyone).
void together(Lowering& lowering, TensorKind kind, CollectiveKind collective, int op, Communications* out) {
  if (lowering.shard().tp == 1 || lowering.plan().job->workload.transformer) return;
  const LayerRange range = sent_with(lowering, op);
  if (op != range.end - 1) return;
  const bool whole = collective == CollectiveKind::all_to_all;
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::tensor;
  instruction.form = Parallelism::tensor;
  instruction.collective = collective;
  instruction.group = lowering.group(GroupKind::tensor);
  instruction.dtype = lowering.plan().activation_type();
  instruction.micro_batch = kOpenMicroBatch;
  for (int i = range.begin; i < range.end; ++i) {
    const bool said = whole ? lowering.use(i).returns : sums_rows(lowering.op(i));
    if (!said || lowering.use(i).last_consumer < 0) continue;
    instruction.bytes +=
        whole ? output_bytes(lowering.op(i), lowering.shard()) : lowering.activation_bytes(i);
    const TensorRef tensor{kind, i, kOpenMicroBatch};
    instruction.reads.push_back(tensor);
    instruction.writes.push_back(tensor);
  }
  if (!instruction.reads.empty()) out->push_back(std::move(instruction));
}

void split_after_forward(Lowering& lowering, int op, Communications* out) {
  together(lowering, TensorKind::activation, CollectiveKind::all_to_all, op, out);
  together(lowering, TensorKind::activation, CollectiveKind::reduce_scatter, op, out);
}

void split_before_backward(Lowering& lowering, int op, Communications* out) {
  together(lowering, TensorKind::activation_gradient, CollectiveKind::all_to_all, op, out);
  together(lowering, TensorKind::activation_gradient, CollectiveKind::all_gather, op, out);
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
