// Evaluation: the instructions of a training step that its loss depends on, and no others.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "exec/run/interpreter.h"

namespace orrery::exec {
namespace {

using Name = std::tuple<TensorKind, std::int32_t, std::int32_t, std::int32_t>;

Name name_of(const TensorRef& tensor) {
  return {tensor.kind, tensor.index, tensor.micro_batch, tensor.block};
}

}  // namespace

// All forward passes and loads; of what is communicated what something later among them reads. Every member
// of a group sees the same: the passes of one stage are alike. Of exchanges between stages both ends leave
// out the gradients (compile_exchange).
std::vector<char> Interpreter::forward_instructions() const {
  const std::vector<Instruction>& all = program_.instructions;
  std::vector<char> kept(all.size(), 0);
  std::set<Name> wanted;
  for (std::size_t i = all.size(); i-- > 0;) {
    const Instruction& instruction = all[i];
    switch (instruction.op) {
      case Op::compute:
        kept[i] = instruction.compute == ComputeKind::forward ? 1 : 0;
        break;
      case Op::load:
        kept[i] = 1;
        break;
      case Op::exchange:
      case Op::collective:
        kept[i] = instruction.form == Parallelism::pipeline ||
                          std::any_of(instruction.writes.begin(), instruction.writes.end(),
                                      [&](const TensorRef& t) { return wanted.count(name_of(t)) > 0; })
                      ? 1
                      : 0;
        if (instruction.form == Parallelism::server) kept[i] = 0;
        break;
      default:
        break;  // gradients that travel compressed
    }
    if (kept[i] == 0) continue;
    for (const TensorRef& tensor : instruction.reads) wanted.insert(name_of(tensor));
  }
  return kept;
}

double Interpreter::evaluate(const TextData& held_out, std::int64_t batch) {
  ORRERY_CHECK(text_ != nullptr && !servers_ && !one_process(), "an evaluation of what has none");
  if (forward_.empty()) forward_ = forward_instructions();
  const TextData* trained_on = std::exchange(text_, &held_out);
  evaluating_ = true;
  recorder_.turn(false);
  run_step(batch);
  recorder_.turn(true);
  evaluating_ = false;
  text_ = trained_on;
  return loss_sum_;
}

}  // namespace orrery::exec
