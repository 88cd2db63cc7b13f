// What tests of single lowerings ask of Programs.
#pragma once

#include <functional>

#include "program/lower/lowering.h"
#include "program/operator_work.h"
#include "tests/support/small_plans.h"

namespace orrery::test {

inline void verify(const Plan& plan) {
  check_plan(plan);
  verify_programs(lower_all(plan));
}

inline double sum(const Program& program, const std::function<bool(const Instruction&)>& wanted) {
  double bytes = 0;
  for (const Instruction& instruction : program.instructions) {
    if (wanted(instruction)) bytes += instruction.bytes;
  }
  return bytes;
}

inline double collective_bytes(const Program& program, Stream stream, CollectiveKind kind) {
  return sum(program, [&](const Instruction& instruction) {
    return instruction.op == Op::collective && instruction.stream == stream && instruction.collective == kind;
  });
}

inline int count(const Program& program, const std::function<bool(const Instruction&)>& wanted) {
  int found = 0;
  for (const Instruction& instruction : program.instructions) found += wanted(instruction) ? 1 : 0;
  return found;
}

inline double flops_of(const Program& program, const std::function<bool(ComputeKind)>& wanted) {
  double flops = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op == Op::compute && wanted(instruction.compute)) flops += instruction.flops;
  }
  return flops;
}

// Parameters of one rank, padding included.
inline double parameters(const Program& program) {
  double elements = 0;
  for (const Bucket& bucket : program.buckets) elements += static_cast<double>(bucket.elements);
  return elements;
}

// What must be equal on ranks of one class: everything but who the peers are.
inline bool equal_up_to_peers(const Program& a, const Program& b) {
  if (a.instructions.size() != b.instructions.size() || a.groups.size() != b.groups.size() ||
      a.buckets.size() != b.buckets.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.groups.size(); ++i) {
    if (a.groups[i].kind != b.groups[i].kind || a.groups[i].ranks.size() != b.groups[i].ranks.size())
      return false;
  }
  for (std::size_t i = 0; i < a.instructions.size(); ++i) {
    const Instruction& x = a.instructions[i];
    const Instruction& y = b.instructions[i];
    if (x.op != y.op || x.stream != y.stream || x.after != y.after || x.compute != y.compute ||
        x.op_begin != y.op_begin || x.op_end != y.op_end || x.micro_batch != y.micro_batch ||
        x.block != y.block || x.flops != y.flops || x.bytes != y.bytes || x.collective != y.collective ||
        x.group != y.group || x.dtype != y.dtype || x.sequence != y.sequence ||
        x.transfers.size() != y.transfers.size() || x.reads != y.reads || x.writes != y.writes) {
      return false;
    }
    for (std::size_t t = 0; t < x.transfers.size(); ++t) {
      if (x.transfers[t].tag != y.transfers[t].tag || x.transfers[t].bytes != y.transfers[t].bytes ||
          x.transfers[t].send != y.transfers[t].send) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace orrery::test
