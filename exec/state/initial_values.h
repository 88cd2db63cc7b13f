// What a model begins with, by a plan's seed.
#pragma once

#include <string_view>
#include <vector>

#include "exec/state/held_tensor.h"
#include "program/plan.h"
#include "program/tensor_shard.h"

namespace orrery::exec {

// The part of a tensor that the rank at `place` holds, every element from its tensor's name and its place in
// the whole tensor: all plans start from the same model. Empty where it begins at zero.
std::vector<float> initial_values(const Plan& plan, const HeldTensor& held, const ShardPlace& place);
// Of all of the tensor; zeros where it begins at zero.
std::vector<float> initial_whole(const Plan& plan, const HeldTensor& held);

// FNV-1a, 64 bits: the random stream of a tensor.
std::uint64_t hash_of(std::string_view name);

}  // namespace orrery::exec
