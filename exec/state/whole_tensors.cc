#include "exec/state/whole_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "exec/communicators/gather.h"
#include "exec/state/not_finite.h"
#include "exec/state/safetensors.h"
#include "program/tensor_shard.h"

namespace orrery::exec {
namespace {

constexpr const char* kBatchesTracked = ".num_batches_tracked";

// Where a slot of a bucket lies and which of the bucket's elements it holds.
struct Range {
  float* data = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Range range_of(const Parameters& parameters, int bucket, Slot slot) {
  const std::int64_t shard = parameters.shard_begin(bucket);
  const std::int64_t elements = parameters.shard_elements(bucket);
  if (slot != Slot::weight)
    return {parameters.own_state(slot == Slot::first ? 0 : 1, bucket), shard, shard + elements};
  return {parameters.own_master(bucket), shard, shard + elements};
}

// Hugging Face keeps each expert's tensor by itself: "experts.*.w1" is "experts.0.w1", "experts.1.w1", …
std::vector<std::string> stored_names(const ParameterTensor& tensor) {
  const std::size_t star = tensor.name.find('*');
  if (star == std::string::npos) return {tensor.name};
  std::vector<std::string> names;
  for (std::int64_t expert = 0; expert < tensor.shape.front(); ++expert)
    names.push_back(tensor.name.substr(0, star) + std::to_string(expert) + tensor.name.substr(star + 1));
  return names;
}

std::vector<std::int64_t> stored_shape(const ParameterTensor& tensor) {
  const bool stacked = tensor.name.find('*') != std::string::npos;
  return {tensor.shape.begin() + (stacked ? 1 : 0), tensor.shape.end()};
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const SafetensorsModel::Found& found_in(const SafetensorsModel& model, const std::string& name,
                                        const std::vector<std::int64_t>& shape, const Plan& plan) {
  const SafetensorsModel::Found* found = model.find(name);
  if (found == nullptr)
    throw UserError(model.path().string(), 0, "has no tensor '" + name + "'",
                    "the weights of " + plan.job->workload.name + " under their Hugging Face names");
  if (found->tensor.type == StoredType::i64)
    throw UserError(model.path().string(), 0, "tensor '" + name + "' holds whole numbers",
                    "F32, BF16 or F16");
  if (found->tensor.shape != shape)
    throw UserError(model.path().string(), 0,
                    fmt::format("tensor '{}' has shape {}", name, text_of(found->tensor.shape)),
                    text_of(shape));
  return *found;
}

}  // namespace

std::string_view name_of(Slot slot) {
  return slot == Slot::weight ? "weight" : slot == Slot::first ? "first" : "second";
}

int slots_of(Optimizer optimizer) {
  return 1 + optimizer_states(optimizer);
}

Piece piece_of(const Parameters& parameters, const HeldTensor& held) {
  const Parameters::Part part = parameters.answers_for(held);
  if (part.begin == part.end) return {parameters.place(), 0, 0};
  return {parameters.place(), part.begin - held.offset, part.end - held.offset};
}

std::vector<float> piece_values(const Parameters& parameters, Device& device, const HeldTensor& held,
                                const Piece& piece, Slot slot) {
  const Range range = range_of(parameters, held.bucket, slot);
  std::vector<float> values(static_cast<std::size_t>(piece.end - piece.begin));
  ORRERY_CHECK(held.offset + piece.begin >= range.begin && held.offset + piece.end <= range.end,
               "a piece outside of what the rank holds");
  device.copy_to_host(values.data(), range.data + (held.offset + piece.begin - range.begin),
                      values.size() * sizeof(float));
  return values;
}

std::int64_t put_piece(const ParameterTensor& tensor, const Piece& piece, std::span<const float> values,
                       std::span<float> whole) {
  std::int64_t placed = 0;
  for (const Run& run : runs_within(runs_of(tensor, piece.place), piece.begin, piece.end)) {
    std::copy_n(values.begin() + (run.local - piece.begin), run.count, whole.begin() + run.global);
    placed += run.count;
  }
  return placed;
}

void set_from_whole(Parameters& parameters, Device& device, const HeldTensor& held, Slot slot,
                    std::span<const float> whole) {
  std::vector<float> values(static_cast<std::size_t>(held.elements));
  for (const Run& run : runs_of(*held.tensor, parameters.place()))
    std::copy_n(whole.begin() + run.global, run.count, values.begin() + run.local);
  // Where of the range the tensor's elements go; returns how many.
  const auto set = [&](const Range& range, float*& first) -> std::size_t {
    const std::int64_t begin = std::max(range.begin, held.offset);
    const std::int64_t end = std::min(range.end, held.offset + held.elements);
    if (begin >= end) return 0;
    first = range.data + (begin - range.begin);
    const auto count = static_cast<std::size_t>(end - begin);
    device.copy_to_device(first, values.data() + (begin - held.offset), count * sizeof(float));
    return count;
  };
  float* first = nullptr;
  set(range_of(parameters, held.bucket, slot), first);
  if (slot != Slot::weight) return;
  // What the layers read: the whole bucket where it is kept, in the narrow type where there is one.
  if (!parameters.gathers_weights(held.bucket) || parameters.has_master()) {
    const bool shard = parameters.gathers_weights(held.bucket);
    const std::int64_t begin = shard ? parameters.shard_begin(held.bucket) : 0;
    const std::int64_t count =
        shard ? parameters.shard_elements(held.bucket) : parameters.elements(held.bucket);
    const std::size_t elements = set({parameters.weights(held.bucket), begin, begin + count}, first);
    if (bytes_of(parameters.type()) == 2 && elements > 0) device.round_to(parameters.type(), first, elements);
  }
}

std::vector<const ParameterTensor*> tensors_of(const Plan& plan) {
  std::vector<const ParameterTensor*> tensors;
  const auto add = [&](const std::vector<ParameterTensor>& own) {
    for (const ParameterTensor& tensor : own)
      if (tensor.tied_to.empty()) tensors.push_back(&tensor);
  };
  for (const Operator& op : plan.job->workload.operators) {
    add(op.frozen);
    if (op.adapters.empty()) add(op.parameters);
  }
  return tensors;
}

std::vector<const ParameterTensor*> adapters_of(const Plan& plan) {
  std::vector<const ParameterTensor*> tensors;
  for (const Operator& op : plan.job->workload.operators)
    for (const ParameterTensor& tensor : op.parameters)
      if (!op.adapters.empty()) tensors.push_back(&tensor);
  return tensors;
}

void check_weights(const std::string& path, const Plan& plan) {
  const SafetensorsModel model(path);
  for (const ParameterTensor* tensor : tensors_of(plan))
    for (const std::string& name : stored_names(*tensor)) found_in(model, name, stored_shape(*tensor), plan);
}

void load_weights(const std::string& path, const Plan& plan, Parameters& parameters,
                  RunningStatistics& statistics, Device& device) {
  const SafetensorsModel model(path);
  const auto read = [&](const HeldTensor& held) {
    // A tied tensor has its own shape and the name of the other; they are the same.
    std::vector<float> whole;
    ParameterTensor named = *held.tensor;
    named.name = held.name();
    for (const std::string& name : stored_names(named)) {
      const std::vector<float> part = model.read(found_in(model, name, stored_shape(named), plan));
      whole.insert(whole.end(), part.begin(), part.end());
    }
    return whole;
  };
  const std::vector<Operator>& operators = plan.job->workload.operators;
  for (const HeldTensor& held : parameters.frozen().held())
    parameters.frozen().set_from_whole(held, read(held));
  for (const HeldTensor& held : parameters.held()) {
    const Operator& op = operators[static_cast<std::size_t>(held.op)];
    if (op.adapters.empty()) {
      set_from_whole(parameters, device, held, Slot::weight, read(held));
      continue;
    }
    // Adapters begin anew; magnitudes as what they scale.
    if (held.tensor->shape.size() != 1) continue;
    const LowRankAdapter& adapter = op.adapters[static_cast<std::size_t>(held.parameter) / 3];
    const HeldTensor& weight = *parameters.frozen().find(held.op, adapter.weight);
    set_from_whole(parameters, device, held, Slot::weight,
                   output_lengths(op, *weight.tensor, parameters.frozen().as_stored(weight, read(weight))));
  }
  for (const RunningStatistics::Tensor& tensor : statistics.tensors())
    if (model.find(tensor.name) != nullptr)
      statistics.set(tensor, model.read(found_in(model, tensor.name, {tensor.channels}, plan)));
  for (const std::string& norm : statistics.norms())
    if (const auto* found = model.find(norm + kBatchesTracked))
      statistics.set_batches(model.read_count(*found));
}

namespace {

// Before rank 0 opens a file. Collective.
void check_finite(const Parameters& parameters, const RunningStatistics& statistics, Device& device,
                  Communicator& control) {
  const auto check = [&](const std::string& name, const std::vector<float>& values) {
    if (!all_finite(values))
      throw NotFinite(
          fmt::format("weight of {} is {} at the end on rank {}: nothing is saved (expected a "
                      "smaller `learning_rate`, or `on_nan` skip)",
                      name, kNotFinite, control.rank()));
  };
  for (const HeldTensor& held : parameters.held())
    if (const Piece piece = piece_of(parameters, held); piece.begin < piece.end)
      check(held.name(), piece_values(parameters, device, held, piece, Slot::weight));
  for (const RunningStatistics::Tensor& tensor : statistics.tensors())
    if (tensor.written) check(tensor.name, statistics.values(tensor));
  control.barrier();
}

}  // namespace

void save_weights(const std::string& path, const Plan& plan, const Parameters& parameters,
                  const RunningStatistics& statistics, Device& device, Communicator& control) {
  check_finite(parameters, statistics, device, control);
  std::vector<const ParameterTensor*> tensors = adapters_of(plan);
  const bool adapters = !tensors.empty();
  if (!adapters) tensors = tensors_of(plan);
  std::unique_ptr<SafetensorsWriter> writer;
  if (control.rank() == 0) {
    std::vector<SafetensorsWriter::Announced> stored;
    for (const ParameterTensor* tensor : tensors)
      for (const std::string& name : stored_names(*tensor)) stored.push_back({name, stored_shape(*tensor)});
    for (const RunningStatistics::Tensor& tensor : statistics.tensors())
      stored.push_back({tensor.name, {tensor.channels}});
    for (const std::string& norm : statistics.norms())
      stored.push_back({norm + kBatchesTracked, {}, StoredType::i64});
    writer = std::make_unique<SafetensorsWriter>(path, stored);
  }
  // Collective. `values`: those of `piece`, which this rank answers for; nothing where the piece is empty.
  const auto write = [&](const ParameterTensor& tensor, const Piece& piece,
                         const std::vector<float>& values) {
    std::string bytes;
    if (piece.begin < piece.end) {
      bytes.append(reinterpret_cast<const char*>(&piece), sizeof(piece));
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    const std::vector<std::string> all = gather_to_root(control, bytes);
    if (!writer) return;
    std::vector<float> whole(static_cast<std::size_t>(tensor.elements()));
    for (const std::string& part : all) {
      if (part.empty()) continue;
      Piece of;
      std::memcpy(&of, part.data(), sizeof(of));
      std::vector<float> its((part.size() - sizeof(of)) / sizeof(float));
      std::memcpy(its.data(), part.data() + sizeof(of), its.size() * sizeof(float));
      put_piece(tensor, of, its, whole);
    }
    writer->write(whole);
  };
  std::map<const ParameterTensor*, const HeldTensor*> mine;
  for (const HeldTensor& held : parameters.held()) mine[held.tensor] = &held;
  for (const HeldTensor& held : parameters.frozen().held()) mine[held.tensor] = &held;
  for (const ParameterTensor* tensor : tensors) {
    Piece piece;
    std::vector<float> values;
    if (const auto held = mine.find(tensor); held != mine.end() && held->second->frozen) {
      const FrozenWeights::Part part = parameters.frozen().answers_for(*held->second);
      piece = {parameters.place(), part.begin, part.end};
      values = parameters.frozen().values(*held->second, part);
    } else if (held != mine.end()) {
      piece = piece_of(parameters, *held->second);
      if (piece.begin < piece.end)
        values = piece_values(parameters, device, *held->second, piece, Slot::weight);
    }
    write(*tensor, piece, values);
  }
  for (const RunningStatistics::Tensor& statistic : statistics.tensors()) {
    ParameterTensor tensor;
    tensor.shape = {statistic.channels};
    Piece piece;
    std::vector<float> values;
    if (statistic.written) {
      piece = {{}, statistic.begin, statistic.begin + statistic.elements};
      values = statistics.values(statistic);
    }
    write(tensor, piece, values);
  }
  if (!writer) return;
  for (std::size_t i = 0; i < statistics.norms().size(); ++i) writer->write(statistics.batches());
  writer->finish();
  if (adapters && !FileInMaking(path).in_place()) {  // beside a pipe or device belongs nothing
    const std::filesystem::path beside = std::filesystem::path(path).replace_filename("adapter_config.json");
    write_file_atomically(beside.string(), peft_config(plan.job->workload));
  }
}

}  // namespace orrery::exec
