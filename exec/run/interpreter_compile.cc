// The interpreter before its first step: every instruction becomes calls with fixed places in memory.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "exec/communicators/lanes.h"
#include "exec/communicators/requests.h"
#include "exec/run/interpreter.h"

namespace orrery::exec {

void Interpreter::check_bytes(const Instruction& instruction, double bytes, double expected) const {
  ORRERY_CHECK(std::abs(bytes - expected) < 0.5,
               label_of(program_, static_cast<std::size_t>(&instruction - program_.instructions.data())) +
                   " moves " + std::to_string(bytes) + " bytes; the Program says " +
                   std::to_string(expected));
}

void Interpreter::check_elements(const Instruction& instruction, std::size_t elements) const {
  check_bytes(instruction, static_cast<double>(elements) * bytes_of(instruction.dtype), instruction.bytes);
}

void Interpreter::compile() {
  const std::size_t count = program_.instructions.size();
  compiled_.resize(count);
  std::vector<int> begins(count);
  std::vector<std::vector<Values::Id>> uses(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Instruction& instruction = program_.instructions[i];
    Compiled& compiled = compiled_[i];
    begins[i] = values_.position();
    switch (instruction.op) {
      case Op::compute:
        compile_compute(instruction, compiled);
        break;
      case Op::pack:
      case Op::unpack:
        compile_conversion(instruction, compiled.steps);
        break;
      case Op::load:
        compile_load(instruction, compiled.steps);
        break;
      case Op::collective:
        compile_collective(instruction, compiled, uses[i]);
        break;
      case Op::exchange:
        compile_exchange(instruction, compiled, uses[i]);
        break;
      default:
        throw InternalError("the executor does not know the instruction " +
                            std::string(name_of(instruction.op)));
    }
    values_.advance();
  }
  extend_lifetimes(begins, uses);
  begins_ = std::move(begins);
}

// Communication holds its buffers until something waits for it: the first computation that names it, or a
// later communication on its stream that is waited for, or the end of the step.
void Interpreter::extend_lifetimes(const std::vector<int>& begins,
                                   const std::vector<std::vector<Values::Id>>& uses) {
  const std::size_t count = program_.instructions.size();
  std::vector<std::int64_t> before(count, -1);  // on the same stream
  std::array<std::int64_t, kStreamCount> last;
  last.fill(-1);
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t& previous = last[static_cast<std::size_t>(program_.instructions[i].stream)];
    before[i] = std::exchange(previous, static_cast<std::int64_t>(i));
  }
  std::vector<int> ended(count, values_.position());
  std::vector<char> known(count);
  std::vector<std::uint32_t> todo;
  for (std::size_t i = 0; i < count; ++i) {
    if (communicates(program_.instructions[i])) continue;
    todo.assign(program_.instructions[i].after.begin(), program_.instructions[i].after.end());
    while (!todo.empty()) {
      const std::uint32_t at = todo.back();
      todo.pop_back();
      if (known[at] != 0 || !communicates(program_.instructions[at])) continue;
      known[at] = 1;
      ended[at] = begins[i];
      todo.insert(todo.end(), program_.instructions[at].after.begin(), program_.instructions[at].after.end());
      if (before[at] >= 0) todo.push_back(static_cast<std::uint32_t>(before[at]));
    }
  }
  for (std::size_t i = 0; i < count; ++i)
    for (const Values::Id id : uses[i]) values_.keep_until(id, ended[i]);
}

void Interpreter::compile_compute(const Instruction& instruction, Compiled& compiled) {
  const int micro_batch = instruction.micro_batch;
  const ComputeKind kind = instruction.compute;
  if (kind == ComputeKind::optimizer) {
    compiled.steps.push_back([this, begin = instruction.op_begin, end = instruction.op_end] {
      if (servers_)
        servers_->apply_own(begin);
      else
        optimizer(begin, end);
    });
    compiled.operators.push_back(-1);
    return;
  }
  const bool forward = does_forward(kind);
  const int count = instruction.op_end - instruction.op_begin;
  for (int i = 0; i < count; ++i, values_.advance()) {
    const int op = forward ? instruction.op_begin + i : instruction.op_end - 1 - i;
    if (FormMathematics* form = form_computing(op); form != nullptr && forward)
      form->forward(instruction, op, compiled.steps);
    else if (form != nullptr)
      form->backward(instruction, op, compiled.steps);
    else if (forward)
      math_->forward(op, micro_batch, compiled.steps);
    else
      math_->backward(op, micro_batch, wants_input_gradient(instruction), wants_weight_gradient(instruction),
                      compiled.steps);
    if (bytes_of(type_) == 2) round_results(instruction, op, compiled.steps);
    compiled.operators.resize(compiled.steps.size(), op);
  }
  compiled.repeats = device_.records() && repeats(instruction);
}

FormMathematics* Interpreter::form_computing(int op) const {
  for (const auto& form : forms_)
    if (form->computes(op)) return form.get();
  return nullptr;
}

std::function<std::unique_ptr<Request>()> Interpreter::start_of_form(const Instruction& instruction,
                                                                     Communicator& communicator,
                                                                     std::vector<Values::Id>& uses) {
  const auto form = form_of_.find(instruction.form);
  return form == form_of_.end() ? nullptr : form->second->communicate(instruction, communicator, uses);
}

// Not where the host decides in each step anew: where tokens go, or how the loss is scaled.
bool Interpreter::repeats(const Instruction& instruction) const {
  if (!std::all_of(forms_.begin(), forms_.end(), [](const auto& form) { return form->repeats(); }))
    return false;
  const std::vector<Operator>& operators = plan_.job->workload.operators;
  for (int op = instruction.op_begin; scaler_ && op < instruction.op_end; ++op)
    if (operators[static_cast<std::size_t>(op)].kind == OperatorKind::loss) return false;
  return true;
}

void Interpreter::compile_exchange(const Instruction& instruction, Compiled& compiled,
                                   std::vector<Values::Id>& uses) {
  compiled.start = start_of_form(instruction, world_of(instruction), uses);
  if (compiled.start) return;
  if (instruction.form == Parallelism::server) {
    // Asynchronous servers answer each worker by itself.
    if (servers_ && instruction.reads.front().kind == TensorKind::parameters)
      compile_pull(instruction, compiled);
    else
      compile_server_exchange(instruction, compiled, uses);
    return;
  }
  struct Part {
    Values::Id value = -1;
    Values::Id added = -1;  // to it, before it is sent
    bool back = false;      // a gradient
    std::size_t elements = 0;
    MessageSpec message;
  };
  std::vector<Part> parts;
  for (const Transfer& transfer : instruction.transfers) {
    const Form form = math_->form_sent(transfer.tensor.index);
    const std::int64_t elements = math_->elements(transfer.tensor.index, form);
    check_bytes(instruction, static_cast<double>(elements) * bytes_of(instruction.dtype), transfer.bytes);
    const Key key{transfer.tensor.kind, transfer.tensor.index, transfer.tensor.micro_batch, form};
    Part part;
    part.back = key.kind == TensorKind::activation_gradient;
    const Key stream = math_->stream_gradient(transfer.tensor.index, transfer.tensor.micro_batch);
    if (transfer.send && key.kind == TensorKind::activation_gradient && values_.has(stream)) {
      part.value = values_.change(key);
      part.added = values_.use(stream);
      uses.push_back(part.added);
      values_.forget(stream);
    } else {
      part.value = transfer.send ? values_.use(key) : values_.define(key, elements);
    }
    part.elements = static_cast<std::size_t>(elements);
    part.message = {transfer.peer,
                    nullptr,
                    part.elements * static_cast<std::size_t>(bytes_of(values_.type(part.value))),
                    transfer.tag,
                    transfer.send,
                    lane_of(instruction, transfer)};
    uses.push_back(part.value);
    parts.push_back(part);
  }
  compiled.start = [this, parts, &world = world_of(instruction)] {
    std::vector<MessageSpec> messages;
    for (const Part& part : parts) {
      if (evaluating_ && part.back) continue;
      if (part.added >= 0)
        device_.add(values_.numbers(part.value), values_.numbers(part.added), part.elements);
      messages.push_back(part.message);
      messages.back().data = values_.at(part.value);
    }
    return world.exchange(messages);
  };
}

// What readers that take rows apart have left in the shard's gradient stays in it.
std::function<std::unique_ptr<Request>()> Interpreter::reduce_rows(const Key& whole, const Key& shard,
                                                                   Communicator& ranks, Reduction op,
                                                                   std::vector<Values::Id>& uses) {
  const std::int64_t elements = math_->elements(shard.index, Form::shard);
  const auto part = static_cast<std::size_t>(elements);
  const bool adds = shard.kind == TensorKind::activation_gradient && values_.has(shard);
  const Values::Id from = values_.use(whole);
  const Values::Id sum = adds ? values_.change(shard) : Values::Id{-1};
  const Values::Id to =
      adds ? values_.define_unnamed(values_.type(sum), elements) : values_.define(shard, elements);
  uses.insert(uses.end(), {from, to});
  if (adds) uses.push_back(sum);
  return [=, this, &ranks]() -> std::unique_ptr<Request> {
    auto reduced = ranks.reduce_scatter(values_.at(from), values_.at(to), part, values_.type(from), op);
    if (!adds) return reduced;
    return std::make_unique<ThenRequest>(
        std::move(reduced), [=, this] { device_.add(values_.numbers(sum), values_.numbers(to), part); });
  };
}

void Interpreter::compile_collective(const Instruction& instruction, Compiled& compiled,
                                     std::vector<Values::Id>& uses) {
  ORRERY_CHECK(!instruction.writes.empty(), "a collective without a tensor");
  const TensorRef tensor = instruction.writes.front();
  if (one_process()) {
    compile_replica_collective(instruction, compiled, uses);
    return;
  }
  if (tensor.kind == TensorKind::compressed) {
    compile_compressed(instruction, compiled, uses);
    return;
  }
  Communicator* communicator = communicator_of(instruction);
  compiled.start = start_of_form(instruction, *communicator, uses);
  if (compiled.start) return;
  const Reduction op = instruction.reduction;
  const auto in_place = [&](const Key& key, std::int64_t elements) {
    check_elements(instruction, static_cast<std::size_t>(elements));
    const Values::Id value = values_.change(key);
    uses.push_back(value);
    compiled.start = [=, this] {
      return communicator->all_reduce(values_.at(value), values_.at(value),
                                      static_cast<std::size_t>(elements), values_.type(value), op);
    };
  };
  switch (tensor.kind) {
    case TensorKind::activation:
    case TensorKind::activation_gradient:
      break;
    case TensorKind::loss_max:
    case TensorKind::loss_sum:
      in_place({tensor.kind, tensor.index, tensor.micro_batch, Form::whole},
               math_->rows() * (tensor.kind == TensorKind::loss_max ? 1 : 2));
      return;
    default:
      compile_bucket_collective(instruction, compiled, uses);
      return;
  }
  const Key whole{tensor.kind, tensor.index, tensor.micro_batch, Form::whole};
  Key shard = whole;
  shard.form = Form::shard;
  const std::int64_t elements = math_->elements(tensor.index, Form::whole);
  const std::int64_t part = math_->elements(tensor.index, Form::shard);
  const bool of_features = instruction.collective == CollectiveKind::all_to_all;
  check_elements(instruction, static_cast<std::size_t>(of_features ? part : elements));
  switch (instruction.collective) {
    case CollectiveKind::all_reduce:
      in_place(whole, elements);
      return;
    case CollectiveKind::all_gather: {
      // A gradient of which a residual has kept a share apart (Mathematics::stream_gradient).
      const Key stream = math_->stream_gradient(tensor.index, tensor.micro_batch);
      const bool adds = tensor.kind == TensorKind::activation_gradient && values_.has(stream);
      const Values::Id from = adds ? values_.change(shard) : values_.use(shard);
      const Values::Id share = adds ? values_.use(stream) : from;
      if (adds) values_.forget(stream);
      const Values::Id to = values_.define(whole, elements);
      uses.insert(uses.end(), {from, share, to});
      compiled.start = [=, this] {
        if (adds) device_.add(values_.numbers(from), values_.numbers(share), static_cast<std::size_t>(part));
        return communicator->all_gather(values_.at(from), values_.at(to), static_cast<std::size_t>(part),
                                        values_.type(from));
      };
      return;
    }
    case CollectiveKind::reduce_scatter:
      compiled.start = reduce_rows(whole, shard, *communicator, op, uses);
      return;
    case CollectiveKind::all_to_all:
      compiled.start = exchange_features(tensor, *communicator, uses);
      return;
    default:
      throw InternalError("the executor does not " + std::string(name_of(instruction.collective)) +
                          " activations");
  }
}

}  // namespace orrery::exec
