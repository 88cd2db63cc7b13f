// The interpreter's forms of data parallelism without collectives among equals: parameter servers and one
// process that drives all devices (docs/program.md).
#include <span>

#include "base/error.h"
#include "exec/communicators/requests.h"
#include "exec/math/image_layers.h"
#include "exec/run/interpreter.h"
#include "program/placement.h"

namespace orrery::exec {
namespace {

// Messages of a scatter and a gather inside the data group.
constexpr int kScatterTag = 0;
constexpr int kGatherTag = 1;

}  // namespace

bool Interpreter::one_process() const {
  return plan_.choices.sync == Sync::single_process && plan_.choices.dp > 1;
}

MessageSpec Interpreter::slice_message(const Transfer& transfer, float* whole) const {
  const ServerSlice slice =
      server_slice(parameters_.elements(transfer.tensor.index), plan_.choices.servers, transfer.tensor.block);
  return {transfer.peer, whole + slice.begin, static_cast<std::size_t>(slice.elements) * sizeof(float),
          transfer.tag, transfer.send};
}

// Slices of gradients to their servers, which add what they receive to their own in the order of the
// transfers; slices of parameters from them, in place.
void Interpreter::compile_server_exchange(const Instruction& instruction, Compiled& compiled,
                                          std::vector<Values::Id>& uses) {
  struct Part {
    MessageSpec message;
    Values::Id received = -1;  // gradients that are added
  };
  const TensorRef tensor = instruction.transfers.front().tensor;
  const int bucket = tensor.index;
  const bool gradients = tensor.kind == TensorKind::gradients;
  float* whole = gradients ? parameters_.gradients(bucket) : parameters_.weights(bucket);
  std::vector<Part> parts;
  std::size_t moved = 0;
  for (const Transfer& transfer : instruction.transfers) {
    Part& part = parts.emplace_back();
    part.message = slice_message(transfer, whole);
    moved += part.message.bytes / sizeof(float);
    if (!gradients || transfer.send) continue;
    part.received = values_.define({TensorKind::gradients, bucket, transfer.peer, Form::shard},
                                   static_cast<std::int64_t>(part.message.bytes / sizeof(float)));
    uses.push_back(part.received);
  }
  check_elements(instruction, moved);
  const auto own = static_cast<std::size_t>(parameters_.shard_elements(bucket));
  compiled.start = [=, this, &world = world_of(instruction)]() -> std::unique_ptr<Request> {
    std::vector<MessageSpec> messages;
    for (const Part& part : parts) {
      messages.push_back(part.message);
      if (part.received >= 0) messages.back().data = values_.at(part.received);
    }
    return std::make_unique<ThenRequest>(world.exchange(messages), [=, this] {
      for (const Part& part : parts)
        if (part.received >= 0)
          device_.add(parameters_.own_gradients(bucket), values_.floats(part.received), own);
    });
  };
}

// Asynchronous servers' slices into their places; the rank's own as its server has it.
void Interpreter::compile_pull(const Instruction& instruction, Compiled& compiled) {
  const int bucket = instruction.writes.front().index;
  std::vector<MessageSpec> messages;
  std::size_t moved = 0;
  for (const Transfer& transfer : instruction.transfers) {
    messages.push_back(slice_message(transfer, parameters_.weights(bucket)));
    moved += messages.back().bytes / sizeof(float);
  }
  check_elements(instruction, moved);
  compiled.start = [=, this, &instruction, &world = world_of(instruction)] {
    return servers_->pull(instruction, messages.empty() ? nullptr : world.exchange(messages));
  };
}

// Device 0 loads the samples of all, member by member.
void Interpreter::compile_load_for_all(const Instruction& instruction, std::vector<Step>& steps) {
  const auto rows = static_cast<std::size_t>(math_->rows());
  const auto members = static_cast<std::size_t>(plan_.choices.dp);
  const std::size_t samples = members * static_cast<std::size_t>(plan_.choices.micro_batch);
  const auto per_sample = rows / static_cast<std::size_t>(plan_.choices.micro_batch);
  if (images_ != nullptr) {
    // Images have a row a sample.
    const std::size_t load = loads_.size();
    loads_.push_back(
        {instruction.micro_batch * static_cast<std::int64_t>(samples), static_cast<std::int64_t>(samples)});
    steps.push_back([load, this] {
      load_images(load);
      inputs_of_all_.put(pictures_.pictures);
      targets_of_all_.put(pictures_.labels);
    });
    return;
  }
  all_targets_.resize(members * rows);
  all_tokens_.resize(members * rows);
  steps.push_back([=, this, micro_batch = instruction.micro_batch] {
    for (std::size_t i = 0; i < samples; ++i) {
      const std::int64_t sample =
          micro_batch * static_cast<std::int64_t>(samples) + static_cast<std::int64_t>(i);
      load_whole_sample(sample, std::span(all_tokens_).subspan(i * per_sample, per_sample),
                        std::span(all_targets_).subspan(i * per_sample, per_sample));
    }
    inputs_of_all_.put(all_tokens_);
    targets_of_all_.put(all_targets_);
  });
}

void Interpreter::compile_replica_collective(const Instruction& instruction, Compiled& compiled,
                                             std::vector<Values::Id>& uses) {
  Communicator* communicator = communicator_of(instruction);
  const bool root = communicator->rank() == instruction.root;
  const int micro_batch = instruction.micro_batch;
  switch (instruction.collective) {
    case CollectiveKind::scatter: {
      Pictures pictures;
      if (images_ != nullptr) {
        pictures = define_pictures(micro_batch, math_->rows() * picture_elements());
        uses.insert(uses.end(), {pictures.loaded, pictures.held});
      }
      check_elements(instruction,
                     static_cast<std::size_t>(communicator->size()) *
                         static_cast<std::size_t>(math_->rows()) *
                         static_cast<std::size_t>(1 + (images_ == nullptr ? 1 : picture_elements())));
      compiled.start = [=, this] { return scatter_batch(*communicator, root, micro_batch, pictures); };
      return;
    }
    case CollectiveKind::gather:
      compiled.start = [=, this] { return gather_losses(*communicator, root); };
      return;
    case CollectiveKind::broadcast: {
      const int bucket = instruction.writes.front().index;
      const auto elements = static_cast<std::size_t>(parameters_.elements(bucket));
      check_elements(instruction, elements);
      compiled.start = [=, data = parameters_.weights(bucket), from = instruction.root] {
        return communicator->broadcast(data, elements, DType::fp32, from);
      };
      return;
    }
    default:
      break;
  }
  ORRERY_CHECK(instruction.collective == CollectiveKind::reduce, "an unknown collective of one process");
  const int bucket = instruction.writes.front().index;
  const auto elements = static_cast<std::size_t>(parameters_.elements(bucket));
  check_elements(instruction, elements);
  Key key{TensorKind::gradients, bucket, micro_batch, Form::whole};
  const Values::Id from = values_.use(key);
  values_.forget(key);
  key.form = Form::shard;
  const Values::Id sum = values_.define(key, root ? parameters_.elements(bucket) : 1);
  uses.insert(uses.end(), {from, sum});
  const bool first = scattered_.insert(bucket).second;
  compiled.start = [=, this, own = parameters_.own_gradients(bucket),
                    to = instruction.root]() -> std::unique_ptr<Request> {
    auto request =
        communicator->reduce(values_.at(from), values_.at(sum), elements, DType::fp32, Reduction::sum, to);
    if (!root) return request;
    return std::make_unique<ThenRequest>(std::move(request), [=, this] {
      if (first)
        device_.copy(own, values_.at(sum), elements * sizeof(float));
      else
        device_.add(own, values_.floats(sum), elements);
    });
  };
}

// Everyone's tokens or pictures, and targets, from device 0's memory of all.
std::unique_ptr<Request> Interpreter::scatter_batch(Communicator& communicator, bool root, int micro_batch,
                                                    const Pictures& pictures) {
  const auto rows = static_cast<std::size_t>(math_->rows());
  struct Part {
    void* own;
    const OnDevice* all;  // member by member, on device 0
    std::size_t bytes;
  };
  const std::int64_t offset = micro_batch * math_->rows();
  const std::size_t token_bytes = rows * sizeof(std::int32_t);
  const Part targets{batch_.targets + offset, &targets_of_all_, token_bytes};
  Part inputs{batch_.tokens + offset, &inputs_of_all_, token_bytes};
  if (images_ != nullptr) {
    inputs.own = values_.at(pictures.loaded);
    inputs.bytes = static_cast<std::size_t>(pictures.elements) * sizeof(float);
  }
  std::vector<MessageSpec> messages;
  for (const Part& part : {inputs, targets}) {
    if (!root) {
      messages.push_back({0, part.own, part.bytes, kScatterTag, false});
      continue;
    }
    const auto* all = part.all->at<std::byte>();
    device_.copy(part.own, all, part.bytes);
    for (int member = 1; member < communicator.size(); ++member) {
      const std::byte* from = all + static_cast<std::size_t>(member) * part.bytes;
      messages.push_back({member, const_cast<std::byte*>(from), part.bytes, kScatterTag, true});  // NOLINT
    }
  }
  return std::make_unique<ThenRequest>(communicator.exchange(messages), [=, this] {
    if (images_ != nullptr) hold_pictures(pictures);
  });
}

// The sums of the micro-batch's losses, to device 0, which adds them to its own.
std::unique_ptr<Request> Interpreter::gather_losses(Communicator& communicator, bool root) {
  const double nothing = 0;
  const auto members = static_cast<std::size_t>(communicator.size());
  if (gathered_losses_ == nullptr)
    gathered_losses_ = static_cast<float*>(device_.allocate(members * sizeof(float)));
  std::vector<MessageSpec> messages;
  if (!root) {
    double sum = 0;
    device_.copy_to_host(&sum, batch_.loss, sizeof(sum));
    device_.copy_to_device(batch_.loss, &nothing, sizeof(nothing));
    const auto loss = static_cast<float>(sum);
    device_.copy_to_device(gathered_losses_, &loss, sizeof(loss));
    messages = {{0, gathered_losses_, sizeof(float), kGatherTag, true}};
    return communicator.exchange(messages);
  }
  for (int member = 1; member < communicator.size(); ++member)
    messages.push_back({member, gathered_losses_ + member, sizeof(float), kGatherTag, false});
  return std::make_unique<ThenRequest>(communicator.exchange(messages), [this, members] {
    std::vector<float> losses(members);
    device_.copy_to_host(losses.data(), gathered_losses_, members * sizeof(float));
    double sum = 0;
    device_.copy_to_host(&sum, batch_.loss, sizeof(sum));
    for (std::size_t member = 1; member < members; ++member) sum += static_cast<double>(losses[member]);
    device_.copy_to_device(batch_.loss, &sum, sizeof(sum));
  });
}

}  // namespace orrery::exec
