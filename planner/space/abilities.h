// What a job's runtime can be asked to do, beside what a plan asks of it.
#pragma once

#include <optional>
#include <string>

#include "planner/space/pins.h"
#include "program/plan.h"

namespace orrery::planner {

// Why the runtime cannot run such a plan of the workload, for people: "megatron-core has no zero-bubble
// schedule"; nothing where it can, or where its profile does not say what it can.
std::optional<std::string> why_cannot_run(const RuntimeProfile& runtime, const Workload& workload,
                                          const Choices& choices);

// Whether the runtime splits sequences wherever the workload has tensor ranks.
bool splits_all_sequences(const RuntimeProfile& runtime, const Workload& workload);
// Lets it keep them whole.
void let_keep_sequences_whole(Abilities& can);

// Whether the runtime reduces gradients behind all backward passes wherever it has a pipeline.
bool reduces_behind_pipelines(const RuntimeProfile& runtime);
// Lets it reduce beside them.
void let_reduce_beside_pipelines(Abilities& can);

// Whether kernels are compiled under a schedule that the runtime runs without its compiler alone.
bool is_compiled_in_vain(const RuntimeProfile& runtime, Schedule schedule);

// Whether replicas or context ranks hold all states each where there are other ranks, too.
bool keeps_whole_states_beside_others(const Choices& choices);

// The runtime with what the user's pins ask for added to its abilities (all of them where the pins say
// `any_runtime`): whoever pins a thing is answered about it.
RuntimeProfile able(const RuntimeProfile& runtime, const Pins& pins);

}  // namespace orrery::planner
