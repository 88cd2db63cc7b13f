// Which instructions move data between ranks, and which messages of theirs follow each other.
#pragma once

#include <vector>

#include "exec/communicators/communicator.h"
#include "program/program.h"

namespace orrery::exec {

bool communicates(const Instruction& instruction);

// Of a pipeline's messages, by their direction: 0 activations, 1 their gradients. -1 for other exchanges.
int lane_of(const Instruction& instruction, const Transfer& transfer);

// Those of a rank's pipeline, in increasing order.
std::vector<Lane> lanes_of(const Program& program);

}  // namespace orrery::exec
