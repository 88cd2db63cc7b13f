#include "exec/communicators/lanes.h"

#include <set>

namespace orrery::exec {

bool communicates(const Instruction& instruction) {
  return instruction.op == Op::collective || instruction.op == Op::exchange;
}

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

}  // namespace orrery::exec
