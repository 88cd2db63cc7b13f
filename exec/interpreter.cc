#include "exec/interpreter.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "exec/algorithms.h"
#include "exec/clock.h"
#include "exec/image_layers.h"

namespace orrery::exec {
namespace {

// Asking a network for news costs tens of microseconds, as much as a small operator.
constexpr double kPollEvery_s = 1e-4;

bool communicates(const Instruction& instruction) {
  return instruction.op == Op::collective || instruction.op == Op::exchange;
}

// Of a pipeline's messages, by their direction; -1 for other exchanges.
int lane_of(Stream stream) {
  switch (stream) {
    case Stream::pipeline_forward:
    case Stream::pipeline_forward_receive:
      return 0;
    case Stream::pipeline_backward:
    case Stream::pipeline_backward_receive:
      return 1;
    default:
      return -1;
  }
}

std::vector<Lane> lanes_of(const Program& program) {
  std::set<Lane> lanes;
  for (const Instruction& instruction : program.instructions) {
    const int lane = lane_of(instruction.stream);
    if (instruction.op != Op::exchange || lane < 0) continue;
    for (const Transfer& transfer : instruction.transfers)
      lanes.insert(
          {transfer.send ? program.rank : transfer.peer, transfer.send ? transfer.peer : program.rank, lane});
  }
  return {lanes.begin(), lanes.end()};
}

std::int64_t first_sample_of(const Plan& plan, int replica) {
  std::int64_t first = 0;
  for (int earlier = 0; earlier < replica; ++earlier)
    first += plan.micro_batches_of(earlier) * plan.choices.micro_batch;
  return first;
}

}  // namespace

Interpreter::Interpreter(const Plan& plan, const Program& program, Device& device, Communicator& world,
                         const TextData* text, const ImageData* images)
    : plan_(plan),
      program_(program),
      device_(device),
      world_(world),
      text_(text),
      images_(images),
      parameters_(plan, program, device),
      statistics_(plan, program, device),
      micro_batches_(plan.micro_batches_of(program.at.dp)),
      first_sample_(first_sample_of(plan, program.at.dp)),
      inputs_of_all_(device),
      targets_of_all_(device),
      type_(plan.activation_type()) {
  device.set_product_type(plan.job->training.precision);
  if (type_ == DType::fp16) {
    scaler_.emplace();
    overflow_ = static_cast<float*>(device.allocate(sizeof(float)));
  }
  if (plan.choices.grad_compression != Compression::none) compressor_.emplace(plan, parameters_, device);
  if (plan.choices.asynchronous())
    servers_.emplace(
        plan, program, parameters_, device, world,
        [this](const Instruction& instruction) -> Communicator& { return world_of(instruction); });
  make_mathematics();
  make_communicators();
  const auto tokens = static_cast<std::size_t>(micro_batches_ * math_->rows()) * sizeof(std::int32_t);
  batch_.tokens = static_cast<std::int32_t*>(device.allocate(tokens));
  batch_.targets = static_cast<std::int32_t*>(device.allocate(tokens));
  batch_.loss = static_cast<double*>(device.allocate(sizeof(double)));
  compile();
  arena_ = device.allocate(values_.plan());
  values_.bind(arena_);
  done_.resize(program.instructions.size());
  intervals_.resize(program.instructions.size());
}

void Interpreter::make_mathematics() {
  if (!plan_.job->workload.transformer) {
    ORRERY_CHECK(images_ != nullptr, "a network on images without images");
    math_ = std::make_unique<ImageLayers>(plan_, parameters_, statistics_, device_, values_, batch_);
    return;
  }
  ORRERY_CHECK(text_ != nullptr, "a language model without text");
  auto layers = std::make_unique<Layers>(plan_, program_, parameters_, device_, values_, batch_);
  if (plan_.choices.cp > 1) ring_.emplace(plan_, program_, *layers, device_, values_);
  if (plan_.job->workload.transformer->moe)
    experts_.emplace(plan_, program_, *layers, parameters_, device_, values_);
  math_ = std::move(layers);
}

Interpreter::~Interpreter() {
  for (void* data : {static_cast<void*>(batch_.tokens), static_cast<void*>(batch_.targets),
                     static_cast<void*>(batch_.loss), arena_, static_cast<void*>(scratch_),
                     static_cast<void*>(norm_), static_cast<void*>(overflow_)})
    device_.release(data);
}

std::vector<LeftOut> Interpreter::left_out() const {
  return compressor_ ? compressor_->left_out() : std::vector<LeftOut>{};
}

void Interpreter::check_bytes(const Instruction& instruction, double bytes, double expected) const {
  ORRERY_CHECK(std::abs(bytes - expected) < 0.5,
               label_of(program_, static_cast<std::size_t>(&instruction - program_.instructions.data())) +
                   " moves " + std::to_string(bytes) + " bytes; the Program says " +
                   std::to_string(expected));
}

void Interpreter::check_elements(const Instruction& instruction, std::size_t elements) const {
  check_bytes(instruction, static_cast<double>(elements) * bytes_of(instruction.dtype), instruction.bytes);
}

void Interpreter::make_communicators() {
  // One for each stream that uses a group, so that streams never wait for each other inside MPI. Made in an
  // order that all ranks agree on: whichever group is first of all is first for each of its members.
  struct Wanted {
    GroupKind kind;
    Stream stream;
    int group;
  };
  std::vector<Wanted> wanted;
  for (const Instruction& instruction : program_.instructions) {
    if (instruction.op != Op::collective) continue;
    const GroupKind kind = program_.groups[static_cast<std::size_t>(instruction.group)].kind;
    const bool known = std::any_of(wanted.begin(), wanted.end(), [&](const Wanted& w) {
      return w.group == instruction.group && w.stream == instruction.stream;
    });
    if (!known) wanted.push_back({kind, instruction.stream, instruction.group});
  }
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return std::make_pair(a.kind, a.stream) < std::make_pair(b.kind, b.stream);
  });
  const AlgorithmChooser chooser(plan_);
  for (const Wanted& w : wanted) {
    const std::vector<std::int32_t>& ranks = program_.groups[static_cast<std::size_t>(w.group)].ranks;
    auto communicator = world_.split({ranks.begin(), ranks.end()},
                                     static_cast<int>(w.kind) * kStreamCount + static_cast<int>(w.stream));
    communicator->set_algorithms(chooser.for_group(ranks, communicator->library()));
    communicators_[{w.group, w.stream}] = std::move(communicator);
  }
  world_.open_lanes(lanes_of(program_));
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
  const bool forward = kind == ComputeKind::forward || kind == ComputeKind::recompute;
  const int count = instruction.op_end - instruction.op_begin;
  for (int i = 0; i < count; ++i, values_.advance()) {
    const int op = forward ? instruction.op_begin + i : instruction.op_end - 1 - i;
    if (instruction.block >= 0 && forward)
      ring_->forward(op, micro_batch, instruction.block, compiled.steps);
    else if (instruction.block >= 0)
      ring_->backward(op, micro_batch, instruction.block, compiled.steps);
    else if (experts_ && experts_->computes(op) && forward)
      experts_->forward(op, micro_batch, compiled.steps);
    else if (experts_ && experts_->computes(op))
      experts_->backward(op, micro_batch, kind != ComputeKind::backward_weight,
                         kind != ComputeKind::backward_input, compiled.steps);
    else if (forward)
      math_->forward(op, micro_batch, compiled.steps);
    else
      math_->backward(op, micro_batch, kind != ComputeKind::backward_weight,
                      kind != ComputeKind::backward_input, compiled.steps);
    if (bytes_of(type_) == 2) round_results(instruction, op, compiled.steps);
    compiled.operators.resize(compiled.steps.size(), op);
  }
  compiled.repeats = device_.records() && repeats(instruction);
}

// Not where the host decides in each step anew: where tokens go, or how the loss is scaled.
bool Interpreter::repeats(const Instruction& instruction) const {
  if (experts_) return false;
  const std::vector<Operator>& operators = plan_.job->workload.operators;
  for (int op = instruction.op_begin; scaler_ && op < instruction.op_end; ++op)
    if (operators[static_cast<std::size_t>(op)].kind == OperatorKind::loss) return false;
  return true;
}

// The first time call by call: libraries choose and load what they need. Then it is recorded.
void Interpreter::run_recorded(Compiled& compiled) {
  if (!compiled.recording) {
    device_.begin_recording();
    for (const Step& run : compiled.steps) run();
    compiled.recording = device_.end_recording();
  }
  device_.replay(*compiled.recording);
}

void Interpreter::run_observed(const Instruction& instruction, const Compiled& compiled) {
  double begin = steady_seconds();
  for (std::size_t i = 0; i < compiled.steps.size(); ++i) {
    compiled.steps[i]();
    if (i + 1 < compiled.steps.size() && compiled.operators[i + 1] == compiled.operators[i]) continue;
    const double end = steady_seconds();
    observer_(compiled.operators[i], instruction.compute, instruction.micro_batch, end - begin);
    begin = end;
  }
}

void Interpreter::compile_exchange(const Instruction& instruction, Compiled& compiled,
                                   std::vector<Values::Id>& uses) {
  if (instruction.stream == Stream::context) {
    compiled.start = ring_->exchange(instruction, world_of(instruction), uses);
    return;
  }
  if (instruction.stream == Stream::data_receive) {
    compile_pull(instruction, compiled);
    return;
  }
  if (instruction.stream == Stream::data) {
    compile_server_exchange(instruction, compiled, uses);
    return;
  }
  struct Part {
    Values::Id value = -1;
    Values::Id added = -1;  // to it, before it is sent
    MessageSpec message;
  };
  std::vector<Part> parts;
  const Form form = math_->stream_form();
  for (const Transfer& transfer : instruction.transfers) {
    const std::size_t bytes =
        static_cast<std::size_t>(math_->elements(transfer.tensor.index, form)) * sizeof(float);
    check_bytes(instruction, static_cast<double>(bytes) / sizeof(float) * bytes_of(instruction.dtype),
                transfer.bytes);
    const Key key{transfer.tensor.kind, transfer.tensor.index, transfer.tensor.micro_batch, form};
    Part part;
    const Key stream = math_->stream_gradient(transfer.tensor.index, transfer.tensor.micro_batch);
    if (transfer.send && key.kind == TensorKind::activation_gradient && values_.has(stream)) {
      part.value = values_.change(key);
      part.added = values_.use(stream);
      uses.push_back(part.added);
      values_.forget(stream);
    } else {
      part.value = transfer.send ? values_.use(key) : values_.define(key, bytes);
    }
    part.message = {transfer.peer, nullptr, bytes, transfer.tag, transfer.send, lane_of(instruction.stream)};
    uses.push_back(part.value);
    parts.push_back(part);
  }
  compiled.start = [this, parts, &world = world_of(instruction)] {
    std::vector<MessageSpec> messages;
    for (const Part& part : parts) {
      if (part.added >= 0)
        device_.add(values_.floats(part.value), values_.floats(part.added),
                    part.message.bytes / sizeof(float));
      messages.push_back(part.message);
      messages.back().data = values_.at(part.value);
    }
    return world.exchange(messages);
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
  if (instruction.stream == Stream::expert) {
    compiled.start = experts_->all_to_all(instruction, *communicator, uses);
    return;
  }
  const Reduction op = instruction.reduction;
  const auto in_place = [&](const Key& key, std::int64_t elements) {
    check_elements(instruction, static_cast<std::size_t>(elements));
    const Values::Id value = values_.change(key);
    uses.push_back(value);
    compiled.start = [=, this] {
      return communicator->all_reduce(values_.at(value), values_.at(value),
                                      static_cast<std::size_t>(elements), DType::fp32, op);
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
  check_elements(instruction, static_cast<std::size_t>(elements));
  switch (instruction.collective) {
    case CollectiveKind::all_reduce:
      in_place(whole, elements);
      return;
    case CollectiveKind::all_gather: {
      const Values::Id from = values_.use(shard);
      const Values::Id to = values_.define(whole, static_cast<std::size_t>(elements) * sizeof(float));
      uses.insert(uses.end(), {from, to});
      compiled.start = [=, this] {
        return communicator->all_gather(values_.at(from), values_.at(to), static_cast<std::size_t>(part),
                                        DType::fp32);
      };
      return;
    }
    case CollectiveKind::reduce_scatter: {
      const Values::Id from = values_.use(whole);
      const Values::Id to = values_.define(shard, static_cast<std::size_t>(part) * sizeof(float));
      uses.insert(uses.end(), {from, to});
      compiled.start = [=, this] {
        return communicator->reduce_scatter(values_.at(from), values_.at(to), static_cast<std::size_t>(part),
                                            DType::fp32, op);
      };
      return;
    }
    default:
      throw InternalError("the executor does not " + std::string(name_of(instruction.collective)) +
                          " activations");
  }
}

bool Interpreter::progress() {
  bool ended = servers_ && servers_->progress();
  for (Queue& queue : queues_) {
    while (!queue.waiting.empty()) {
      const std::uint32_t head = queue.waiting.front();
      if (queue.running == nullptr) {
        const std::vector<std::uint32_t>& after = program_.instructions[head].after;
        if (!std::all_of(after.begin(), after.end(), [&](std::uint32_t i) { return done_[i] != 0; })) break;
        intervals_[head].start_s = steady_seconds();
        queue.running = compiled_[head].start();
      }
      if (!queue.running->test()) break;
      intervals_[head].end_s = steady_seconds();
      queue.running.reset();
      queue.waiting.pop_front();
      done_[head] = 1;
      ended = true;
    }
  }
  return ended;
}

void Interpreter::wait_for(std::uint32_t instruction) {
  while (done_[instruction] == 0)
    if (!progress()) world_.idle();
}

void Interpreter::run_batch(std::int64_t batch) {
  const int replicas = plan_.choices.dp;
  first_sample_ = first_sample_of(plan_, static_cast<int>(batch % replicas));
  run_step(batch / replicas);
}

void Interpreter::run_step(std::int64_t step) {
  step_ = step;
  values_.begin_step();
  if (scaler_) math_->set_loss_factor(scaler_->scale());
  std::fill(done_.begin(), done_.end(), 0);
  const double zero = 0;
  device_.copy_to_device(batch_.loss, &zero, sizeof(zero));
  std::vector<std::pair<Mark, Mark>> marks(program_.instructions.size());
  double polled_s = 0;
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (communicates(instruction)) {
      queues_[static_cast<std::size_t>(instruction.stream)].waiting.push_back(static_cast<std::uint32_t>(i));
      progress();
      continue;
    }
    for (const std::uint32_t other : instruction.after) wait_for(other);
    marks[i].first = device_.mark();
    if (observer_ && instruction.op == Op::compute) {
      run_observed(instruction, compiled_[i]);
    } else if (compiled_[i].repeats && std::exchange(compiled_[i].ran, true)) {
      run_recorded(compiled_[i]);
    } else {
      for (const Step& run : compiled_[i].steps) {
        run();
        if (steady_seconds() - polled_s < kPollEvery_s) continue;
        progress();
        polled_s = steady_seconds();
      }
    }
    marks[i].second = device_.mark();
    done_[i] = 1;
    values_.expire(i + 1 < begins_.size() ? begins_[i + 1] : values_.position());
  }
  if (servers_) servers_->ask();  // what is next is known by the time that the parameters are here
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) wait_for(static_cast<std::uint32_t>(i));
  values_.expire(values_.position() + 1);
  statistics_.set_batches(statistics_.batches() + micro_batches_);
  device_.copy_to_host(&loss_sum_, batch_.loss, sizeof(loss_sum_));
  for (std::size_t i = 0; i < program_.instructions.size(); ++i)
    if (!communicates(program_.instructions[i]))
      intervals_[i] = {device_.seconds_of(marks[i].first), device_.seconds_of(marks[i].second)};
  device_.release_marks();
  if (program_.at.tp != 0) loss_sum_ = 0;  // every tensor rank computes the same loss
}

}  // namespace orrery::exec
