// Context parallelism: ring attention (Liu et al., arXiv 2310.01889) over sequences dealt out in 2 x cp
// parts, rank p taking parts p and 2 cp - 1 - p, so that under a causal mask every block is the same work.
#include "program/lower/forms.h"
#include "program/lower/workbench.h"

namespace orrery::internal {
namespace {

// Which of a micro-batch's rings around one attention operator: numbers their messages.
enum class Ring { forward = 0, recompute = 1, backward = 2, gradient = 3 };
constexpr int kRings = 4;

class RingAttention {
 public:
  RingAttention(Lowering& lowering, PassBuilder& pass, int op)
      : lowering_(lowering), pass_(pass), op_(op), cp_(lowering.choices().cp) {
    const Group& group = lowering.group_at(lowering.group(GroupKind::context));
    const auto size = group.ranks.size();
    for (std::size_t i = 0; i < size; ++i) {
      if (group.ranks[i] != lowering.program.rank) continue;
      next_ = group.ranks[(i + 1) % size];
      previous_ = group.ranks[(i + size - 1) % size];
    }
    const AttentionShape& shape = *lowering.op(op).attention;
    const double features = static_cast<double>(shape.kv_heads) * (shape.qk_head_dim + shape.v_head_dim);
    bytes_ =
        lowering.shard().rows * features / lowering.shard().tp * bytes_of(lowering.plan().activation_type());
  }

  // While block i is computed, its keys and values move on: after cp - 1 steps every rank has seen all.
  void forward(ComputeKind kind) {
    pass_.cut();
    int arrived = -1;
    for (int block = 0; block < cp_; ++block) {
      const int needed = arrived;
      if (block + 1 < cp_) {
        arrived = send_keys(kind == ComputeKind::recompute ? Ring::recompute : Ring::forward, block, arrived);
      }
      pass_.compute_block(op_, kind, block, needed);
    }
  }

  // The blocks go round once more. The gradient of a block's keys and values follows it: each rank adds its
  // share to what came from the rank before and passes it on, and after cp steps it is at home.
  void backward(ComputeKind kind) {
    pass_.cut();
    int arrived = -1;
    int gradient = -1;
    for (int block = 0; block < cp_; ++block) {
      const int needed = arrived;
      if (block + 1 < cp_) arrived = send_keys(Ring::backward, block, arrived);
      const int computed = pass_.compute_block(op_, kind, block, needed);
      gradient = send_gradient(block, computed, gradient);
    }
    pass_.wait_for(gradient);
  }

 private:
  TensorRef keys(int block) const { return {TensorKind::key_value, op_, kOpenMicroBatch, block}; }
  TensorRef share(int block) const { return {TensorKind::key_value_gradient, op_, kOpenMicroBatch, block}; }
  TensorRef passed_on(int block) const { return share(cp_ + block); }

  Pattern exchange(Ring ring, int block, TensorKind kind) const {
    Pattern pattern;
    Instruction& instruction = pattern.instruction;
    instruction.op = Op::exchange;
    instruction.stream = Stream::context;
    instruction.form = Parallelism::context;
    instruction.micro_batch = kOpenMicroBatch;
    instruction.block = block;
    instruction.dtype = lowering_.plan().activation_type();
    instruction.bytes = bytes_;
    const int tag = (op_ * kRings + static_cast<int>(ring)) * cp_ + block;
    const TensorRef tensor{kind, op_, kOpenMicroBatch, -1};
    instruction.transfers = {{next_, bytes_, tag, true, tensor}, {previous_, bytes_, tag, false, tensor}};
    pattern.tag_stride = lowering_.op_count() * kRings * cp_;
    return pattern;
  }

  int send_keys(Ring ring, int block, int arrived) {
    Pattern pattern = exchange(ring, block, TensorKind::key_value);
    if (block == 0) {
      for (const int input : lowering_.op(op_).inputs) {
        pattern.instruction.reads.push_back({TensorKind::activation, input, kOpenMicroBatch});
      }
    } else {
      pattern.instruction.reads.push_back(keys(block));
    }
    pattern.instruction.writes.push_back(keys(block + 1));
    if (arrived >= 0) {
      pattern.after.push_back(arrived);
      return pass_.add_communication(std::move(pattern), /*after_compute=*/false);
    }
    return pass_.add_communication(std::move(pattern), /*after_compute=*/true);
  }

  int send_gradient(int block, int computed, int before) {
    Pattern pattern = exchange(Ring::gradient, block, TensorKind::key_value_gradient);
    pattern.instruction.reads.push_back(share(block));
    if (before >= 0) {
      pattern.instruction.reads.push_back(passed_on(block));
      pattern.after.push_back(before);
    }
    pattern.after.push_back(computed);
    pattern.instruction.writes.push_back(passed_on(block + 1));
    return pass_.add_communication(std::move(pattern), /*after_compute=*/false);
  }

  Lowering& lowering_;
  PassBuilder& pass_;
  int op_;
  int cp_;
  std::int32_t next_ = -1;
  std::int32_t previous_ = -1;
  double bytes_ = 0;
};

bool is_ring(const Lowering& lowering, int op) {
  return lowering.choices().cp > 1 && lowering.op(op).kind == OperatorKind::attention;
}

bool ring_forward(Lowering& lowering, PassBuilder& pass, int op, ComputeKind kind) {
  if (!is_ring(lowering, op)) return false;
  RingAttention(lowering, pass, op).forward(kind);
  return true;
}

bool ring_backward(Lowering& lowering, PassBuilder& pass, int op, ComputeKind kind) {
  if (!is_ring(lowering, op)) return false;
  RingAttention(lowering, pass, op).backward(kind);
  return true;
}

}  // namespace

LoweringForm context_lowering() {
  LoweringForm form;
  form.id = Parallelism::context;
  form.forward = ring_forward;
  form.backward = ring_backward;
  return form;
}

}  // namespace orrery::internal
