// Between a plan's pieces of parameters and whole tensors as files hold them: what checkpoints, safetensors
// and a change of plan go through.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "exec/state/parameters.h"
#include "exec/state/running_statistics.h"
#include "program/plan.h"
#include "program/tensor_shard.h"

namespace orrery::exec {

// What is kept of each parameter: its weight, and the optimizer's moments (momentum has the first, Adam
// both).
enum class Slot { weight, first, second };
constexpr Slot kSlots[] = {Slot::weight, Slot::first, Slot::second};
std::string_view name_of(Slot slot);
int slots_of(Optimizer optimizer);  // how many of kSlots there are

// One piece of a tensor as a rank holds it: elements [begin, end) of the part that the rank at `place` has.
struct Piece {
  ShardPlace place;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The piece that this rank answers for alone; empty (begin == end) where another does.
Piece piece_of(const Parameters& parameters, const HeldTensor& held);
// Its values.
std::vector<float> piece_values(const Parameters& parameters, Device& device, const HeldTensor& held,
                                const Piece& piece, Slot slot);
// Puts a piece's values where they stand in the whole tensor; returns how many elements that were (padding
// has no place).
std::int64_t put_piece(const ParameterTensor& tensor, const Piece& piece, std::span<const float> values,
                       std::span<float> whole);
// Sets what this rank holds of a tensor from the whole of it.
void set_from_whole(Parameters& parameters, Device& device, const HeldTensor& held, Slot slot,
                    std::span<const float> whole);

// The model's own tensors in the order of its operators (tied ones once), and those of adapters beside them.
std::vector<const ParameterTensor*> tensors_of(const Plan& plan);
std::vector<const ParameterTensor*> adapters_of(const Plan& plan);

// Throws UserError where a Hugging Face model's files are not sound, or a tensor is missing or has another
// shape.
void check_weights(const std::string& path, const Plan& plan);
// Starts from its weights, and from its running statistics where it has them. Every rank reads for itself.
// Throws as check_weights does.
void load_weights(const std::string& path, const Plan& plan, Parameters& parameters,
                  RunningStatistics& statistics, Device& device);
// Writes the model's weights under their Hugging Face names (of adapters these alone, under PEFT's, with an
// adapter_config.json beside the file), tensor by tensor through rank 0; then running statistics under
// torchvision's. Collective. Throws NotFinite (exec/state/not_finite.h) where any of it is no number.
void save_weights(const std::string& path, const Plan& plan, const Parameters& parameters,
                  const RunningStatistics& statistics, Device& device, Communicator& control);

}  // namespace orrery::exec
