// What a model begins with, by a plan's seed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "exec/state/held_tensor.h"
#include "program/plan.h"
#include "program/tensor_shard.h"

namespace orrery::exec {

// `at`: in the tensor as it is held, of the first value.
using TakePiece = std::function<void(std::int64_t at, std::span<const float> values)>;

// What the rank at `place` holds from `begin` to `end` of a tensor, piece by piece, every element from its
// tensor's name and its place in the whole tensor: all plans start from the same model. Nothing where it
// begins at zero. Drawn on `threads`; `take` is called by this one.
void draw_initial(const Plan& plan, const HeldTensor& held, const ShardPlace& place, std::int64_t begin,
                  std::int64_t end, int threads, const TakePiece& take);
// Of all of the tensor; zeros where it begins at zero.
std::vector<float> initial_whole(const Plan& plan, const HeldTensor& held);

}  // namespace orrery::exec
