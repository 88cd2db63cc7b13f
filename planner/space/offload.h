// What of a job's state waits in the hosts' memory between its uses: a setting of the software, like those of
// its runtime profile (proto/runtime_profile.proto: host_states, host_parameters, host_gradients).
// cost/host_cost.h has what it costs.
#pragma once

#include <cstdint>
#include <string_view>

#include "program/plan.h"

namespace orrery::planner {

// none: everything on the devices. optimizer: the optimizer's states and the gradients that it reads, updated
// by the hosts' processors (DeepSpeed's offload_optimizer). all: the weights too, which devices bring in
// layer by layer (offload_param, FSDP's CPUOffload).
enum class Offload : std::uint8_t { none, optimizer, all };

std::string_view name_of(Offload);                 // "none" "optimizer" "all"
Offload offload_from_name(std::string_view name);  // throws UserError
Offload offload_of(const RuntimeProfile& runtime);

// Sets the job's runtime so, with this share of the optimizer's states. Throws UserError on processors, whose
// memory is the hosts' already, and NoAnswer where even states sharded over all devices are more than the
// hosts' memory.
void set_offload(Offload offload, Job* job, double share_of_states = 1);

}  // namespace orrery::planner
