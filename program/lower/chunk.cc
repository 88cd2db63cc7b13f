// One model chunk's passes: operators in order, cut where something communicates and at layer boundaries.
#include <algorithm>

#include "base/error.h"
#include "program/lower/forms.h"
#include "program/lower/workbench.h"
#include "program/schedule.h"

namespace orrery::internal {
namespace {

bool of_loss(OperatorKind kind) {
  return kind == OperatorKind::loss_max || kind == OperatorKind::loss_sum || kind == OperatorKind::loss;
}

void add_once(std::vector<TensorRef>& list, TensorRef tensor) {
  if (std::find(list.begin(), list.end(), tensor) == list.end()) list.push_back(tensor);
}

bool touches(const std::vector<TensorRef>& list, const TensorRef& tensor) {
  return std::find(list.begin(), list.end(), tensor) != list.end();
}

// Names what the operators [begin, end) exchange with the rest of the program.
void name_tensors(const Lowering& lowering, Pattern* pattern) {
  Instruction& instruction = pattern->instruction;
  const int begin = instruction.op_begin;
  const int end = instruction.op_end;
  const bool forward = does_forward(instruction.compute);
  const bool weights = does_weight_gradient(instruction.compute);
  const bool inputs = instruction.compute != ComputeKind::backward_weight;
  for (int i = begin; i < end; ++i) {
    const Operator& op = lowering.op(i);
    for (const int input : op.inputs) {
      if (input >= begin) continue;
      add_once(instruction.reads, {TensorKind::activation, input, kOpenMicroBatch});
      if (!forward && inputs) {
        add_once(instruction.writes, {TensorKind::activation_gradient, input, kOpenMicroBatch});
      }
    }
    if (op.kind == OperatorKind::embedding || op.kind == OperatorKind::loss_sum ||
        op.kind == OperatorKind::loss) {
      add_once(instruction.reads, {TensorKind::batch, 0, kOpenMicroBatch});
    }
    const int consumer = lowering.use(i).last_consumer;
    // A layer's output is not forgotten: recomputation makes only what stays inside.
    const bool kept = instruction.compute == ComputeKind::recompute && consumer >= end &&
                      lowering.op(consumer).layer != op.layer;
    if (consumer >= end && !kept) {
      add_once(forward ? instruction.writes : instruction.reads,
               {forward ? TensorKind::activation : TensorKind::activation_gradient, i, kOpenMicroBatch});
    }
    for (const int bucket : lowering.bucket_of[static_cast<std::size_t>(i)]) {
      if (bucket < 0) continue;
      if (weights) {
        const bool open = reduces_every_micro_batch(lowering, bucket);
        add_once(instruction.writes, {TensorKind::gradients, bucket, open ? kOpenMicroBatch : -1});
      }
      if (!forward && (!inputs || op.kind == OperatorKind::embedding)) continue;  // its values are not read
      if (std::find(pattern->needs.begin(), pattern->needs.end(), bucket) == pattern->needs.end()) {
        pattern->needs.push_back(bucket);
        instruction.reads.push_back({TensorKind::parameters, bucket, -1});
      }
    }
    for (const int bucket : lowering.frozen_bucket_of[static_cast<std::size_t>(i)]) {
      if (!forward && (!inputs || !op.passes_gradient)) continue;
      if (std::find(pattern->needs.begin(), pattern->needs.end(), bucket) != pattern->needs.end()) continue;
      pattern->needs.push_back(bucket);
      instruction.reads.push_back({TensorKind::parameters, bucket, -1});
    }
    if (!forward) continue;
    if (op.kind == OperatorKind::loss_max)
      instruction.writes.push_back({TensorKind::loss_max, i, kOpenMicroBatch});
    if (op.kind == OperatorKind::loss_sum)
      instruction.writes.push_back({TensorKind::loss_sum, i, kOpenMicroBatch});
    if (op.kind == OperatorKind::loss) instruction.writes.push_back({TensorKind::loss, i, kOpenMicroBatch});
  }
}

// The parts of the loss hand their statistics from one to the next by name.
void name_loss_statistics(const Lowering& lowering, Pattern* pattern) {
  Instruction& instruction = pattern->instruction;
  if (!does_forward(instruction.compute)) return;
  for (int i = instruction.op_begin; i < instruction.op_end; ++i) {
    const OperatorKind kind = lowering.op(i).kind;
    if (kind != OperatorKind::loss_sum && kind != OperatorKind::loss) continue;
    for (int earlier = instruction.op_begin - 1; earlier >= 0 && of_loss(lowering.op(earlier).kind);
         --earlier) {
      const bool maximum = lowering.op(earlier).kind == OperatorKind::loss_max;
      add_once(instruction.reads,
               {maximum ? TensorKind::loss_max : TensorKind::loss_sum, earlier, kOpenMicroBatch});
    }
  }
}

void communicate_all(PassBuilder& pass, Communications* communications) {
  for (Instruction& instruction : *communications) pass.communicate(std::move(instruction));
  communications->clear();
}

// By bucket: the last of the pass's patterns that adds to its gradients, or -1.
std::vector<int> last_to_add(const Lowering& lowering, const Pass& pass) {
  std::vector<int> last(lowering.program.buckets.size(), -1);
  for (std::size_t i = 0; i < pass.patterns.size(); ++i) {
    for (const TensorRef& tensor : pass.patterns[i].instruction.writes) {
      if (tensor.kind == TensorKind::gradients)
        last[static_cast<std::size_t>(tensor.index)] = static_cast<int>(i);
    }
  }
  return last;
}

}  // namespace

void PassBuilder::compute(int op, ComputeKind kind) {
  const bool forward = does_forward(kind);
  if (open_ && (kind != kind_ || (forward ? op != end_ : op != begin_ - 1))) close();
  if (!open_) {
    open_ = true;
    kind_ = kind;
    begin_ = op;
    end_ = op + 1;
    return;
  }
  (forward ? end_ : begin_) = forward ? op + 1 : op;
}

void PassBuilder::cut() {
  close();
}

int PassBuilder::add(Pattern&& pattern) {
  pass_.patterns.push_back(std::move(pattern));
  return static_cast<int>(pass_.patterns.size()) - 1;
}

Pattern PassBuilder::computation(int begin, int end, ComputeKind kind) const {
  Pattern pattern;
  Instruction& instruction = pattern.instruction;
  instruction.op = Op::compute;
  instruction.stream = Stream::compute;
  instruction.compute = kind;
  instruction.op_begin = begin;
  instruction.op_end = end;
  instruction.micro_batch = kOpenMicroBatch;
  instruction.dtype = lowering_.plan().activation_type();
  for (int i = begin; i < end; ++i) {
    const OperatorWork work =
        operator_work(lowering_.op(i), kind, lowering_.shard(), lowering_.plan().job->runtime);
    instruction.flops += work.flops;
    instruction.bytes += work.bytes;
  }
  name_tensors(lowering_, &pattern);
  name_loss_statistics(lowering_, &pattern);
  return pattern;
}

void PassBuilder::close() {
  if (!open_) return;
  open_ = false;
  add_computation(computation(begin_, end_, kind_), /*waits=*/true);
}

int PassBuilder::compute_block(int op, ComputeKind kind, int block, int after) {
  close();
  Pattern pattern = computation(op, op + 1, kind);
  Instruction& instruction = pattern.instruction;
  const int blocks = lowering_.choices().cp;
  instruction.block = block;
  instruction.flops /= blocks;
  instruction.bytes /= blocks;
  if (block > 0) instruction.reads.push_back({TensorKind::key_value, op, kOpenMicroBatch, block});
  if (!does_forward(kind)) {
    instruction.writes.push_back({TensorKind::key_value_gradient, op, kOpenMicroBatch, block});
  }
  if (after >= 0) pattern.after.push_back(after);
  // What stands before the whole operator is waited for once.
  return add_computation(std::move(pattern), /*waits=*/true);
}

int PassBuilder::compute_alone(int op, ComputeKind kind, int after, bool waits) {
  close();
  Pattern pattern = computation(op, op + 1, kind);
  if (kind == ComputeKind::backward_input) {
    // A product's input gradient does not read its input.
    std::erase_if(pattern.instruction.reads,
                  [](const TensorRef& tensor) { return tensor.kind == TensorKind::activation; });
  }
  if (after >= 0) pattern.after.push_back(after);
  return add_computation(std::move(pattern), waits);
}

int PassBuilder::add_computation(Pattern&& pattern, bool waits) {
  if (waits) {
    pattern.after.insert(pattern.after.end(), pending_.begin(), pending_.end());
    pending_.clear();
  }
  pattern.at_entry = last_compute_ < 0;
  last_compute_ = add(std::move(pattern));
  return last_compute_;
}

int PassBuilder::add_communication(Pattern&& pattern, bool after_compute) {
  close();
  if (after_compute && last_compute_ >= 0) pattern.after.push_back(last_compute_);
  pattern.at_entry = after_compute && last_compute_ < 0;
  if (after_compute) pattern.after.insert(pattern.after.end(), pending_.begin(), pending_.end());
  return add(std::move(pattern));
}

void PassBuilder::communicate(Instruction&& instruction) {
  // The loss's operators do nothing going back; they wait for nothing and hold nothing up.
  bool idle = open_ && !does_forward(kind_);
  for (int i = begin_; idle && i < end_; ++i) idle = of_loss(lowering_.op(i).kind);
  if (!idle) close();
  Pattern pattern;
  pattern.instruction = std::move(instruction);
  if (last_compute_ >= 0) {
    pattern.after.push_back(last_compute_);
  } else {
    pattern.at_entry = true;
  }
  for (const int other : pending_) {
    const auto& written = pass_.patterns[static_cast<std::size_t>(other)].instruction.writes;
    const auto& uses = pattern.instruction;
    const bool follows = std::any_of(written.begin(), written.end(), [&](const TensorRef& tensor) {
      return touches(uses.reads, tensor) || touches(uses.writes, tensor);
    });
    if (follows) pattern.after.push_back(other);
  }
  pending_.push_back(add(std::move(pattern)));
}

Pass PassBuilder::finish() {
  close();
  if (last_compute_ >= 0) pass_.exit.push_back(last_compute_);
  pass_.exit.insert(pass_.exit.end(), pending_.begin(), pending_.end());
  pending_.clear();
  last_compute_ = -1;
  return std::move(pass_);
}

namespace {

// What all forms say to each other around an operator: before it in their order, behind it the other way.
void communicate_before(Lowering& lowering, PassBuilder& pass, int op,
                        LoweringForm::Around LoweringForm::*say) {
  Communications communications;
  for (const LoweringForm& form : lowering_forms())
    if (form.*say != nullptr) (form.*say)(lowering, op, &communications);
  communicate_all(pass, &communications);
}

void communicate_behind(Lowering& lowering, PassBuilder& pass, int op,
                        LoweringForm::Around LoweringForm::*say) {
  Communications communications;
  const std::span<const LoweringForm> forms = lowering_forms();
  for (auto form = forms.rbegin(); form != forms.rend(); ++form)
    if ((*form).*say != nullptr) ((*form).*say)(lowering, op, &communications);
  communicate_all(pass, &communications);
}

// By the form that runs the operator in its own way, where there is one.
bool run_by_form(Lowering& lowering, PassBuilder& pass, int op, ComputeKind kind,
                 LoweringForm::Run LoweringForm::*run) {
  const std::span<const LoweringForm> forms = lowering_forms();
  return std::any_of(forms.begin(), forms.end(), [&](const LoweringForm& form) {
    return form.*run != nullptr && (form.*run)(lowering, pass, op, kind);
  });
}

void run_operator(Lowering& lowering, PassBuilder& pass, int op, ComputeKind kind) {
  const auto run = does_forward(kind) ? &LoweringForm::forward : &LoweringForm::backward;
  if (!run_by_form(lowering, pass, op, kind, run)) pass.compute(op, kind);
}

}  // namespace

void build_forward(Lowering& lowering, PassBuilder& pass, LayerRange operators, ComputeKind kind) {
  for (int i = operators.begin; i < operators.end; ++i) {
    if (i > operators.begin && lowering.op(i).layer != lowering.op(i - 1).layer) pass.cut();
    communicate_before(lowering, pass, i, &LoweringForm::before_forward);
    run_operator(lowering, pass, i, kind);
    communicate_behind(lowering, pass, i, &LoweringForm::after_forward);
  }
}

namespace {

bool any_works_backward(const Lowering& lowering, int begin, int end) {
  for (int i = begin; i < end; ++i)
    if (works_backward(lowering.op(i))) return true;
  return false;
}

void build_backward(Lowering& lowering, PassBuilder& pass, const Chunk& chunk, ComputeKind kind) {
  int end_of_layer = chunk.operators.end;  // of the layer that is being run through, from its end
  std::vector<RunAgain> again;             // of that layer
  for (int i = chunk.operators.end - 1; i >= chunk.operators.begin; --i) {
    const int layer = lowering.op(i).layer;
    const bool enters_layer = i == chunk.operators.end - 1 || lowering.op(i + 1).layer != layer;
    if (enters_layer) {
      pass.cut();
      end_of_layer = i + 1;
      int begin = i;
      while (begin > chunk.operators.begin && lowering.op(begin - 1).layer == layer) --begin;
      if (recomputes_layer(lowering, chunk.index, layer) &&
          any_works_backward(lowering, begin, end_of_layer)) {
        build_forward(lowering, pass, {begin, end_of_layer}, ComputeKind::recompute);
        pass.cut();
      }
      again = runs_again(lowering, {begin, end_of_layer});
    }
    // Before the first operator that is trained nothing goes back. (Pipelines send a gradient to a stage that
    // has no use for it, as Megatron's schedules do; it is the first operator's.)
    if (!works_backward(lowering.op(i)) && i > chunk.operators.begin) continue;
    if (!works_backward(lowering.op(i))) {
      pass.cut();
      pass.compute(i, kind);
      continue;
    }
    for (const RunAgain& run : again) {
      if (run.due != i) continue;
      pass.cut();
      build_forward(lowering, pass, run.operators, ComputeKind::recompute);
      pass.cut();
    }
    if (run_by_form(lowering, pass, i, kind, &LoweringForm::backward_and_around)) continue;
    communicate_before(lowering, pass, i, &LoweringForm::before_backward);
    run_operator(lowering, pass, i, kind);
    communicate_behind(lowering, pass, i, &LoweringForm::after_backward);
  }
}

// What is left of the backward pass where the schedule splits it: weights' gradients, which wait for no one.
void build_backward_weight(const Lowering& lowering, PassBuilder& pass, const Chunk& chunk) {
  for (int i = chunk.operators.end - 1; i >= chunk.operators.begin; --i) {
    if (i + 1 < chunk.operators.end && lowering.op(i + 1).layer != lowering.op(i).layer) pass.cut();
    pass.compute(i, ComputeKind::backward_weight);
  }
}

}  // namespace

Chunk build_chunk(Lowering& lowering, int index) {
  const Choices& choices = lowering.choices();
  const int stage = lowering.program.at.pp;
  const auto backward_pass = [&](const Chunk& of, ComputeKind kind) {
    PassBuilder pass(lowering);
    build_backward(lowering, pass, of, kind);
    return pass.finish();
  };
  Chunk chunk;
  chunk.index = index;
  chunk.operators = operators_of(lowering.plan(), stage, index);
  chunk.first = holds_first_part(choices, stage, index);
  chunk.last = holds_last_part(choices, stage, index);
  PassBuilder forward(lowering);
  build_forward(lowering, forward, chunk.operators, ComputeKind::forward);
  chunk.forward = forward.finish();
  if (!always_splits_backward(choices.schedule)) chunk.backward = backward_pass(chunk, ComputeKind::backward);
  if (splits_backward(choices.schedule)) {
    chunk.backward_input = backward_pass(chunk, ComputeKind::backward_input);
    PassBuilder weight(lowering);
    build_backward_weight(lowering, weight, chunk);
    chunk.backward_weight = weight.finish();
  }
  return chunk;
}

void mark_completions(Lowering& lowering) {
  // A tensor that two chunks share has its place in one bucket: going back, the first of them is the last.
  std::vector<bool> elsewhere(lowering.program.buckets.size(), false);
  for (Chunk& chunk : lowering.chunks) {
    std::vector<bool> added = elsewhere;
    for (Pass* pass : {&chunk.backward, &chunk.backward_weight}) {
      const std::vector<int> last = last_to_add(lowering, *pass);
      for (std::size_t bucket = 0; bucket < last.size(); ++bucket) {
        if (last[bucket] < 0 || elsewhere[bucket]) continue;
        pass->patterns[static_cast<std::size_t>(last[bucket])].completes.push_back(static_cast<int>(bucket));
        added[bucket] = true;
      }
    }
    elsewhere = std::move(added);
  }
}

}  // namespace orrery::internal
