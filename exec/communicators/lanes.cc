#include "exec/communicators/lanes.h"

#include <set>

namespace orrery::exec {

bool communicates(const Instruction& instruction) {
  return instruction.op == Op::collective || instruction.op == Op::exchange;
}

int lane_of(const Instruction& instruction, const Transfer& transfer) {
  if (instruction.form != Parallelism::pipeline) return -1;
  return transfer.tensor.kind == TensorKind::activation ? 0 : 1;
}

std::vector<Lane> lanes_of(const Program& program) {
  std::set<Lane> lanes;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op != Op::exchange) continue;
    for (const Transfer& transfer : instruction.transfers) {
      const int lane = lane_of(instruction, transfer);
      if (lane < 0) continue;
      lanes.insert(
          {transfer.send ? program.rank : transfer.peer, transfer.send ? transfer.peer : program.rank, lane});
    }
  }
  return {lanes.begin(), lanes.end()};
}

}  // namespace orrery::exec
