#include "program/program.h"

#include <fmt/format.h>

#include <array>

#include "base/enum_names.h"
#include "base/error.h"
#include "proto/program.pb.h"

namespace orrery {
namespace {

constexpr std::array<std::string_view, kStreamCount> kStreams = {
    "compute", "tensor", "data",    "pipeline_forward",         "pipeline_backward",         "expert",
    "context", "input",  "storage", "pipeline_forward_receive", "pipeline_backward_receive", "data_receive"};
constexpr std::array<std::string_view, 8> kOps = {"compute", "collective", "exchange", "pack",
                                                  "unpack",  "copy",       "load",     "save"};
constexpr std::array<std::string_view, 6> kComputes = {"forward",  "backward_input", "backward_weight",
                                                       "backward", "recompute",      "optimizer"};
constexpr std::array<std::string_view, 8> kCollectives = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter"};
constexpr std::array<std::string_view, 2> kReductions = {"sum", "max"};
constexpr std::array<std::string_view, 11> kGroups = {"tensor",   "data",      "shard",        "replicate",
                                                      "pipeline", "embedding", "expert",       "expert_data",
                                                      "context",  "world",     "expert_tensor"};
constexpr std::array<std::string_view, 17> kTensors = {"parameters",
                                                       "gradients",
                                                       "optimizer_state",
                                                       "activation",
                                                       "activation_gradient",
                                                       "saved",
                                                       "batch",
                                                       "loss_max",
                                                       "loss_sum",
                                                       "loss",
                                                       "gradient_norm",
                                                       "tied_gradient",
                                                       "replicated_gradient",
                                                       "key_value",
                                                       "key_value_gradient",
                                                       "compressed",
                                                       "next_batch"};

}  // namespace

std::string_view name_of(Stream value) {
  return name_in(kStreams, value);
}
std::string_view name_of(Op value) {
  return name_in(kOps, value);
}
std::string_view name_of(ComputeKind value) {
  return name_in(kComputes, value);
}
std::string_view name_of(CollectiveKind value) {
  return name_in(kCollectives, value);
}
std::string_view name_of(GroupKind value) {
  return name_in(kGroups, value);
}
std::string_view name_of(TensorKind value) {
  return name_in(kTensors, value);
}
std::string_view name_of(Reduction value) {
  return name_in(kReductions, value);
}

std::string_view kind_of(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::compute:
      switch (instruction.compute) {
        case ComputeKind::forward:
          return "forward";
        case ComputeKind::backward:
        case ComputeKind::backward_input:
        case ComputeKind::backward_weight:
          return "backward";
        case ComputeKind::recompute:
          return "recompute";
        case ComputeKind::optimizer:
          return "optimizer";
      }
      break;
    case Op::load:
      return "input";
    case Op::pack:
    case Op::unpack:
    case Op::copy:
    case Op::save:
      return "other";
    case Op::collective:
    case Op::exchange:
      break;
  }
  switch (instruction.stream) {
    case Stream::tensor:
      return "tensor_comm";
    case Stream::data:
    case Stream::data_receive:
      return "data_comm";
    case Stream::pipeline_forward:
    case Stream::pipeline_backward:
    case Stream::pipeline_forward_receive:
    case Stream::pipeline_backward_receive:
      return "pipeline_comm";
    case Stream::expert:
      return "expert_comm";
    case Stream::context:
      return "context_comm";
    case Stream::input:
      return "input";
    case Stream::compute:
    case Stream::storage:
      break;
  }
  return "other";
}

namespace {

std::string label_of(const TensorRef& tensor) {
  switch (tensor.kind) {
    case TensorKind::parameters:
    case TensorKind::gradients:
    case TensorKind::optimizer_state:
    case TensorKind::compressed:
      return fmt::format("{} of bucket {}", name_of(tensor.kind), tensor.index);
    case TensorKind::batch:
    case TensorKind::next_batch:
    case TensorKind::loss:
    case TensorKind::gradient_norm:
    case TensorKind::replicated_gradient:
      return std::string(name_of(tensor.kind));
    default:
      return fmt::format("{} of operator {}", name_of(tensor.kind), tensor.index);
  }
}

}  // namespace

std::size_t instruction_count(const Program& program) {
  std::size_t count = program.instructions.size();
  for (const Service& service : program.services) count += service.instructions.size();
  return count;
}

const Instruction& instruction_at(const Program& program, std::size_t index) {
  if (index < program.instructions.size()) return program.instructions[index];
  index -= program.instructions.size();
  for (const Service& service : program.services) {
    if (index < service.instructions.size()) return service.instructions[index];
    index -= service.instructions.size();
  }
  throw InternalError("an instruction beyond the program's last");
}

std::vector<Program> service_programs(const Program& program) {
  std::vector<Program> programs;
  for (const Service& service : program.services) {
    Program& one = programs.emplace_back();
    one.rank = program.rank;
    one.at = program.at;
    one.buckets = program.buckets;
    one.instructions = service.instructions;
  }
  return programs;
}

std::string label_of(const Program& program, std::size_t index) {
  const Instruction& instruction = instruction_at(program, index);
  std::string label;
  switch (instruction.op) {
    case Op::compute:
      if (instruction.compute == ComputeKind::optimizer) {
        label = fmt::format("optimizer buckets {}-{}", instruction.op_begin, instruction.op_end - 1);
      } else {
        label = fmt::format("{} operators {}-{}", name_of(instruction.compute), instruction.op_begin,
                            instruction.op_end - 1);
      }
      break;
    case Op::collective:
      label = std::string(name_of(instruction.collective));
      if (!instruction.writes.empty()) label += " " + label_of(instruction.writes.front());
      break;
    case Op::exchange: {
      for (const Transfer& transfer : instruction.transfers) {
        if (!label.empty()) label += ", ";
        label += fmt::format("{} {} {}", transfer.send ? "send to" : "receive from", transfer.peer,
                             label_of(transfer.tensor));
      }
      if (label.empty() && !instruction.writes.empty()) label = label_of(instruction.writes.front());
      break;
    }
    default:
      label = std::string(name_of(instruction.op));
      if (!instruction.writes.empty()) label += " " + label_of(instruction.writes.front());
      break;
  }
  if (instruction.micro_batch >= 0) label += fmt::format(" mb{}", instruction.micro_batch);
  if (instruction.block >= 0) label += fmt::format(" block {}", instruction.block);
  return label;
}

namespace {

void write_tensor(const TensorRef& tensor, proto::ProgramTensor* message) {
  message->set_kind(std::string(name_of(tensor.kind)));
  message->set_index(tensor.index);
  message->set_micro_batch(tensor.micro_batch);
  message->set_block(tensor.block);
}

void write_instruction(const Instruction& instruction, proto::ProgramInstruction* message) {
  message->set_op(std::string(name_of(instruction.op)));
  message->set_stream(std::string(name_of(instruction.stream)));
  for (const std::uint32_t index : instruction.after) message->add_after(index);
  if (instruction.op == Op::compute) {
    message->set_compute(std::string(name_of(instruction.compute)));
    message->set_op_begin(instruction.op_begin);
    message->set_op_end(instruction.op_end);
  }
  message->set_micro_batch(instruction.micro_batch);
  message->set_block(instruction.block);
  message->set_flops(instruction.flops);
  message->set_bytes(instruction.bytes);
  message->set_group(instruction.group);
  if (instruction.op == Op::collective) {
    message->set_collective(std::string(name_of(instruction.collective)));
    message->set_root(instruction.root);
    message->set_reduction(std::string(name_of(instruction.reduction)));
    message->set_sequence(instruction.sequence);
  }
  message->set_dtype(std::string(name_of(instruction.dtype)));
  for (const double bytes : instruction.per_peer_bytes) message->add_per_peer_bytes(bytes);
  for (const Transfer& transfer : instruction.transfers) {
    auto* out = message->add_transfers();
    out->set_peer(transfer.peer);
    out->set_bytes(transfer.bytes);
    out->set_tag(transfer.tag);
    out->set_send(transfer.send);
    write_tensor(transfer.tensor, out->mutable_tensor());
  }
  message->set_lead(instruction.lead);
  for (const TensorRef& tensor : instruction.reads) write_tensor(tensor, message->add_reads());
  for (const TensorRef& tensor : instruction.writes) write_tensor(tensor, message->add_writes());
}

}  // namespace

void to_proto(const Program& program, proto::Program* message) {
  message->Clear();
  message->set_rank(program.rank);
  for (const Group& group : program.groups) {
    auto* out = message->add_groups();
    out->set_kind(std::string(name_of(group.kind)));
    out->mutable_ranks()->Add(group.ranks.begin(), group.ranks.end());
  }
  for (const Bucket& bucket : program.buckets) {
    auto* out = message->add_buckets();
    out->set_elements(bucket.elements);
    out->set_group(bucket.group);
    out->set_chunk(bucket.chunk);
    for (const BucketParameter& parameter : bucket.parameters) {
      auto* slice = out->add_parameters();
      slice->set_op(parameter.op);
      slice->set_parameter(parameter.parameter);
      slice->set_offset(parameter.offset);
      slice->set_elements(parameter.elements);
    }
  }
  for (const Instruction& instruction : program.instructions) {
    write_instruction(instruction, message->add_instructions());
  }
  for (const Service& service : program.services) {
    auto* out = message->add_services();
    out->set_worker(service.worker);
    for (const Instruction& instruction : service.instructions)
      write_instruction(instruction, out->add_instructions());
  }
}

}  // namespace orrery
