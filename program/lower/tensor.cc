// Tensor parallelism (Shoeybi et al., arXiv 1909.08053) and sequence parallelism (Korthikanti et al., arXiv
// 2205.05198): what the tensor group says to each other around one operator.
#include <algorithm>

#include "program/lower/forms.h"
#include "program/lower/workbench.h"

namespace orrery::internal {

bool splits_columns(const Operator& op) {
  if (op.kind == OperatorKind::expert_linear) return false;
  return op.split == TensorSplit::column ||
         (op.split == TensorSplit::vocabulary && op.kind == OperatorKind::head);
}

namespace {

// Its output is a partial sum on each tensor rank.
bool output_is_partial(const Operator& op) {
  if (op.kind == OperatorKind::expert_linear) return false;  // experts have groups of their own
  if (sums_rows(op)) return false;                           // split.cc
  return op.split == TensorSplit::row ||
         (op.split == TensorSplit::vocabulary && op.kind == OperatorKind::embedding);
}

// Where an operator's whole rows enter the features' split: f and g of arXiv 1909.08053, figure 3.
bool feeds_columns(const Lowering& lowering, int op) {
  if (lowering.use(op).first_column_consumer < 0) return false;
  return lowering.op(op).split == TensorSplit::replicated || output_is_partial(lowering.op(op)) ||
         sums_rows(lowering.op(op)) || lowering.use(op).returns;
}

Instruction collective(Lowering& lowering, CollectiveKind kind, TensorRef tensor, double bytes) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.stream = Stream::tensor;
  instruction.form = Parallelism::tensor;
  instruction.collective = kind;
  instruction.group = lowering.group(GroupKind::tensor);
  instruction.dtype = lowering.plan().activation_type();
  instruction.bytes = bytes;
  instruction.micro_batch = kOpenMicroBatch;
  instruction.reads.push_back(tensor);
  instruction.writes.push_back(tensor);
  return instruction;
}

// What an all_gather brings to an operator that computes in 8 or 4 bits is cast before it travels
// (Transformer Engine).
Instruction as_gathered(const Lowering& lowering, Instruction&& instruction, int for_op) {
  const DType precision = lowering.plan().job->training.precision;
  const DType type = product_type(lowering.op(for_op).kind, precision);
  if (is_narrow(type)) {
    instruction.bytes *= packed_bytes_of(type) / bytes_of(lowering.plan().activation_type());
    instruction.dtype = type;
  }
  return std::move(instruction);
}

// Where the runtime overlaps them, a product and what it waits for, or what waits for it, are cut into a
// piece for each tensor rank, and travel and compute in turn (Transformer Engine's userbuffers, PyTorch's
// async tensor parallelism): the instruction says beside which operator.
Instruction beside(const Lowering& lowering, Instruction&& instruction, int op, ComputeKind kind) {
  if (lowering.plan().job->runtime.overlap_tensor && lowering.shard().sequence_parallel &&
      lowering.op(op).kind == OperatorKind::linear) {
    instruction.compute = kind;
    instruction.op_begin = op;
    instruction.op_end = op + 1;
  }
  return std::move(instruction);
}

Instruction on_activation(Lowering& lowering, CollectiveKind kind, int op) {
  return collective(lowering, kind, {TensorKind::activation, op, kOpenMicroBatch},
                    lowering.activation_bytes(op));
}

Instruction on_gradient(Lowering& lowering, CollectiveKind kind, int op) {
  return collective(lowering, kind, {TensorKind::activation_gradient, op, kOpenMicroBatch},
                    lowering.activation_bytes(op));
}

template <typename Visit>
void for_each_input_feeding_columns(const Lowering& lowering, int op, Visit visit) {
  if (!splits_columns(lowering.op(op))) return;
  for (const int input : lowering.op(op).inputs) {
    if (feeds_columns(lowering, input)) visit(input);
  }
}

void tensor_before_forward(Lowering& lowering, int op, Communications* out) {
  if (!lowering.shard().sequence_parallel) return;
  for_each_input_feeding_columns(lowering, op, [&](int input) {
    if (lowering.use(input).first_column_consumer == op) {
      out->push_back(beside(
          lowering, as_gathered(lowering, on_activation(lowering, CollectiveKind::all_gather, input), op), op,
          ComputeKind::forward));
    }
  });
}

void tensor_after_forward(Lowering& lowering, int op, Communications* out) {
  if (lowering.shard().tp == 1) return;
  const Operator& self = lowering.op(op);
  if (output_is_partial(self) && lowering.use(op).last_consumer >= 0) {
    out->push_back(beside(lowering,
                          on_activation(lowering,
                                        lowering.shard().sequence_parallel ? CollectiveKind::reduce_scatter
                                                                           : CollectiveKind::all_reduce,
                                        op),
                          op, ComputeKind::forward));
  }
  if (self.kind == OperatorKind::loss_max || self.kind == OperatorKind::loss_sum) {
    const bool maximum = self.kind == OperatorKind::loss_max;
    Instruction instruction =
        collective(lowering, CollectiveKind::all_reduce,
                   {maximum ? TensorKind::loss_max : TensorKind::loss_sum, op, kOpenMicroBatch},
                   lowering.shard().rows * (maximum ? 1 : 2) * bytes_of(DType::fp32));
    instruction.dtype = DType::fp32;
    instruction.reduction = maximum ? Reduction::max : Reduction::sum;
    out->push_back(std::move(instruction));
  }
}

// For weights' gradients, of which frozen weights have none.
bool reads_input_backward(const Lowering& lowering, int input) {
  const OperatorUse& use = lowering.use(input);
  for (int op = use.first_column_consumer; op <= use.last_column_consumer; ++op) {
    const std::vector<int>& inputs = lowering.op(op).inputs;
    const bool reads =
        splits_columns(lowering.op(op)) && std::find(inputs.begin(), inputs.end(), input) != inputs.end();
    if (reads && !lowering.op(op).parameters.empty()) return true;
  }
  return false;
}

void tensor_before_backward(Lowering& lowering, int op, Communications* out) {
  if (!lowering.shard().sequence_parallel) return;
  if (output_is_partial(lowering.op(op)) && lowering.use(op).last_consumer >= 0) {
    out->push_back(beside(lowering,
                          as_gathered(lowering, on_gradient(lowering, CollectiveKind::all_gather, op), op),
                          op, ComputeKind::backward_input));
  }
  for_each_input_feeding_columns(lowering, op, [&](int input) {
    if (lowering.use(input).last_column_consumer == op && reads_input_backward(lowering, input)) {
      out->push_back(as_gathered(lowering, on_activation(lowering, CollectiveKind::all_gather, input), op));
    }
  });
}

void tensor_after_backward(Lowering& lowering, int op, Communications* out) {
  if (lowering.shard().tp == 1 || !lowering.op(op).passes_gradient) return;
  for_each_input_feeding_columns(lowering, op, [&](int input) {
    if (lowering.use(input).first_column_consumer == op) {
      out->push_back(on_gradient(
          lowering,
          lowering.shard().sequence_parallel ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
          input));
    }
  });
}

// Where the runtime overlaps them, a column-split product's backward pass runs beside its communication: the
// input is gathered while its gradient is computed, and that is reduced while the weight's is.
bool overlaps_columns(const Lowering& lowering, int op) {
  if (lowering.shard().tp == 1 || !lowering.plan().job->runtime.overlap_tensor_backward) return false;
  const Operator& self = lowering.op(op);
  // One product whose input no other product shares.
  return self.kind == OperatorKind::linear && splits_columns(self) && self.inputs.size() == 1 &&
         !lowering.use(op).returns && self.passes_gradient && !self.parameters.empty() &&
         feeds_columns(lowering, self.inputs[0]) &&
         lowering.use(self.inputs[0]).first_column_consumer == op &&
         lowering.use(self.inputs[0]).last_column_consumer == op;
}

void overlapped_backward(Lowering& lowering, PassBuilder& pass, int op) {
  const bool sequence = lowering.shard().sequence_parallel;
  const int input = lowering.op(op).inputs[0];
  pass.cut();
  int gathered = -1;
  if (sequence) {
    gathered = pass.add_communication(
        {as_gathered(lowering, on_activation(lowering, CollectiveKind::all_gather, input), op),
         {},
         0,
         {},
         {},
         {}},
        /*after_compute=*/true);
  }
  const int computed = pass.compute_alone(op, ComputeKind::backward_input, -1, /*waits=*/true);
  const int reduced = pass.add_communication(
      {on_gradient(lowering, sequence ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce, input),
       {computed},
       0,
       {},
       {},
       {}},
      /*after_compute=*/false);
  pass.compute_alone(op, ComputeKind::backward_weight, gathered, /*waits=*/false);
  pass.wait_for(reduced);
}

bool overlapped_around(Lowering& lowering, PassBuilder& pass, int op, ComputeKind kind) {
  if (kind != ComputeKind::backward || !overlaps_columns(lowering, op)) return false;
  overlapped_backward(lowering, pass, op);
  return true;
}

}  // namespace

LoweringForm tensor_lowering() {
  LoweringForm form;
  form.id = Parallelism::tensor;
  form.before_forward = tensor_before_forward;
  form.after_forward = tensor_after_forward;
  form.before_backward = tensor_before_backward;
  form.after_backward = tensor_after_backward;
  form.backward_and_around = overlapped_around;
  return form;
}

}  // namespace orrery::internal
