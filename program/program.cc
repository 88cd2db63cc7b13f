#include "program/program.h"

#include <fmt/format.h>

#include <array>

#include "base/enum_names.h"
#include "base/error.h"
#include "program/forms.h"

namespace orrery {
namespace {

constexpr std::array<std::string_view, kStreamCount> kStreams = {"compute",
                                                                 "tensor",
                                                                 "data",
                                                                 "pipeline_forward",
                                                                 "pipeline_backward",
                                                                 "expert",
                                                                 "context",
                                                                 "input",
                                                                 "storage",
                                                                 "pipeline_forward_receive",
                                                                 "pipeline_backward_receive",
                                                                 "data_receive",
                                                                 "pipeline_return_forward",
                                                                 "pipeline_return_backward",
                                                                 "pipeline_return_forward_receive",
                                                                 "pipeline_return_backward_receive"};
constexpr std::array<std::string_view, 6> kOps = {"compute", "collective", "exchange",
                                                  "pack",    "unpack",     "load"};
constexpr std::array<std::string_view, 6> kComputes = {"forward",  "backward_input", "backward_weight",
                                                       "backward", "recompute",      "optimizer"};
constexpr std::array<std::string_view, 8> kCollectives = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter"};
constexpr std::array<std::string_view, 2> kReductions = {"sum", "max"};
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
  return group_rule(value).name;
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
      return "other";
    case Op::collective:
    case Op::exchange:
      break;
  }
  return form_of(instruction.form).kind;
}

std::string_view spoken_part(std::string_view part) {
  if (part == "recompute") return "recomputation";
  if (part == "tensor_comm") return "tensor-parallel communication";
  if (part == "data_comm") return "gradient and parameter communication";
  if (part == "pipeline_comm") return "pipeline transfers";
  if (part == "expert_comm") return "expert all-to-all";
  if (part == "context_comm") return "context-parallel communication";
  if (part == "bubble") return "pipeline bubble";
  if (part == "other") return "other work";
  return part;
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

}  // namespace orrery
