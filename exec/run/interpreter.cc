#include "exec/run/interpreter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "exec/communicators/algorithms.h"
#include "exec/communicators/clock.h"
#include "exec/communicators/lanes.h"
#include "exec/math/image_layers.h"

namespace orrery::exec {
namespace {

// Asking a network for news costs tens of microseconds, as much as a small operator.
constexpr double kPollEvery_s = 1e-4;

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
      values_(device.held_as(plan.activation_type())),
      micro_batches_(plan.micro_batches_of(program.at.dp)),
      first_sample_(first_sample_of(plan, program.at.dp)),
      inputs_of_all_(device),
      targets_of_all_(device),
      type_(plan.activation_type()),
      recorder_(device, program.instructions.size()) {
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
  if (plan.job->workload.drops_out())
    batch_.row_keys = static_cast<std::uint64_t*>(
        device.allocate(static_cast<std::size_t>(micro_batches_ * keyed_rows()) * sizeof(std::uint64_t)));
  compile();
  arena_bytes_ = values_.plan();
  arena_ = device.allocate(arena_bytes_);
  values_.bind(arena_);
  done_.resize(program.instructions.size());
}

void Interpreter::make_mathematics() {
  if (!plan_.job->workload.transformer) {
    ORRERY_CHECK(images_ != nullptr, "a network on images without images");
    math_ =
        std::make_unique<ImageLayers>(plan_, program_, parameters_, statistics_, device_, values_, batch_);
    return;
  }
  ORRERY_CHECK(text_ != nullptr, "a language model without text");
  auto layers = std::make_unique<Layers>(plan_, program_, parameters_, device_, values_, batch_);
  for (const ExecutedForm& form : executed_forms()) {
    auto own = form.make({plan_, program_, *layers, parameters_, device_, values_});
    if (own == nullptr) continue;
    form_of_[form.id] = own.get();
    forms_.push_back(std::move(own));
  }
  math_ = std::move(layers);
}

Interpreter::~Interpreter() {
  for (void* data : {static_cast<void*>(batch_.tokens), static_cast<void*>(batch_.targets),
                     static_cast<void*>(batch_.loss), static_cast<void*>(batch_.row_keys), arena_,
                     static_cast<void*>(scratch_), static_cast<void*>(norm_), static_cast<void*>(overflow_)})
    device_.release(data);
}

std::vector<LeftOut> Interpreter::left_out() const {
  return compressor_ ? compressor_->left_out() : std::vector<LeftOut>{};
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

bool Interpreter::progress() {
  bool ended = servers_ && servers_->progress();
  for (Queue& queue : queues_) {
    while (!queue.waiting.empty()) {
      const std::uint32_t head = queue.waiting.front();
      if (queue.running == nullptr) {
        const std::vector<std::uint32_t>& after = program_.instructions[head].after;
        if (!std::all_of(after.begin(), after.end(), [&](std::uint32_t i) { return done_[i] != 0; })) break;
        recorder_.communication_begins(head);
        queue.running = compiled_[head].start();
      }
      if (!queue.running->test()) break;
      recorder_.communication_ends(head);
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
  load_row_keys();
  const double zero = 0;
  device_.copy_to_device(batch_.loss, &zero, sizeof(zero));
  double polled_s = 0;
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (evaluating_ && forward_[i] == 0) {
      // What it waits for uses memory that others are given from here on.
      if (!communicates(instruction)) {
        for (const std::uint32_t other : instruction.after) wait_for(other);
        values_.expire(i + 1 < begins_.size() ? begins_[i + 1] : values_.position());
      }
      done_[i] = 1;
      continue;
    }
    if (communicates(instruction)) {
      queues_[static_cast<std::size_t>(instruction.stream)].waiting.push_back(static_cast<std::uint32_t>(i));
      progress();
      continue;
    }
    for (const std::uint32_t other : instruction.after) wait_for(other);
    recorder_.computation_begins(i);
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
    recorder_.computation_ends();
    done_[i] = 1;
    values_.expire(i + 1 < begins_.size() ? begins_[i + 1] : values_.position());
  }
  if (servers_) servers_->ask();  // what is next is known by the time that the parameters are here
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) wait_for(static_cast<std::uint32_t>(i));
  values_.expire(values_.position() + 1);
  if (!evaluating_) statistics_.set_batches(statistics_.batches() + micro_batches_);
  device_.copy_to_host(&loss_sum_, batch_.loss, sizeof(loss_sum_));
  recorder_.step_ends();
  // Every tensor rank computes the same loss, but where they share samples.
  if (program_.at.tp != 0 && images_ == nullptr) loss_sum_ = 0;
}

std::vector<RoutedRows> Interpreter::routed() const {
  for (const auto& form : forms_)
    if (std::vector<RoutedRows> rows = form->routed(); !rows.empty()) return rows;
  return {};
}

}  // namespace orrery::exec
