// Checkpoints: a training run on disk, from which it goes on under the same plan or another.
//
//   FOLDER/step-00000010/          after ten steps; the name appears when everything in it is written and on
//   disk
//     rank-00000.bin, …            what each rank answers for: weights and optimizer state, piece after piece
//     manifest.json                which piece of which tensor lies where, and each file's size and check sum
//
// Data needs no state of its own: a sample is drawn by (seed, step, index).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "exec/state/compression.h"
#include "exec/state/loss_scaler.h"
#include "exec/state/parameters.h"
#include "exec/state/running_statistics.h"
#include "program/plan.h"

namespace orrery::exec {

// What is counted beside the tensors.
struct TrainingCounts {
  std::int64_t steps = 0;
  std::int64_t updates = 0;  // steps whose gradients were applied: all, but for fp16's overflows
  LossScaler scaler;
};

// The tensors, in the device's memory.
struct KeptState {
  Parameters& parameters;
  RunningStatistics& statistics;
  std::vector<LeftOut> left_out;  // of compressed gradients, so far
};

// What is trained on.
struct DataMark {
  std::string name;        // empty: synthetic data
  std::uint64_t size = 0;  // bytes of a file, entries of a folder
  std::string check_sum;   // of a file's first and last MiB, or of a folder's names
};
DataMark mark_of(const std::string& path);

// Before anything is trained for it: makes `folder` and writes into it; the ranks must then see it.
// Collective. Throws UserError.
void check_place_for_checkpoints(const std::string& folder, Communicator& control);

// Writes the state after `counts.steps` steps, and what it was trained on (`data`, known to rank 0), and
// takes older checkpoints than the one before it away. Collective over `control`; every rank must see
// `folder`. Throws UserError where it cannot be written, and NotFinite (exec/state/not_finite.h) where any of
// it is no number.
void save_checkpoint(const std::string& folder, const TrainingCounts& counts, const Plan& plan,
                     const KeptState& state, const DataMark& data, Device& device, Communicator& control);

struct CheckpointFound {
  std::string path;
  std::int64_t steps = 0;
};

// The newest checkpoint in `folder` whose manifest and files are as they were written, by their check sums: a
// damaged one is named on stderr and passed over. What an interrupted run left behind does not count. The
// same on all ranks: rank 0 looks. Collective. Throws UserError where there are some and all are damaged.
std::optional<CheckpointFound> newest_checkpoint(const std::string& folder, Communicator& control);

// The one after so many steps. Collective. Throws UserError where there is none, or it is damaged.
std::optional<CheckpointFound> checkpoint_after(const std::string& folder, std::int64_t steps,
                                                Communicator& control);

// Sets weights, optimizer state and running statistics from a checkpoint of any plan of the same model, and
// what was left out where the plan that wrote it has the same buckets on the same ranks (else it stays as it
// is). Another optimizer, or another seed (of which the order of data follows), is an error. Throws UserError
// naming what does not fit or is damaged.
TrainingCounts load_checkpoint(const CheckpointFound& found, const Plan& plan, const KeptState& state,
                               Device& device, int rank);

// Training on other data, or in batches or sequences of another size, goes on with other samples: what
// differs from what the checkpoint was trained on, in words; empty where all is alike, or where it is older
// than its saying so.
std::string differs(const CheckpointFound& found, const Plan& plan, const DataMark& data);

}  // namespace orrery::exec
