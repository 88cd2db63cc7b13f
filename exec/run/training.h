// A whole run: so many steps of a plan, measured and reported.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "exec/communicators/communicator.h"
#include "exec/data/data.h"
#include "exec/data/picture.h"
#include "exec/device/device.h"
#include "exec/state/learning_rate.h"
#include "exec/state/optimizer_settings.h"
#include "program/plan.h"

namespace orrery::exec {

struct TrainingOptions {
  std::int64_t steps = 10;  // of the whole training: a restart runs what is left of them
  std::string data;  // text, or images (exec/data/image_data.h); empty: kDefaultText, or synthetic images
  LearningRate learning_rate;
  OptimizerSettings optimizer;
  std::optional<double> clip_norm;    // asked for: refused where the plan's runtime does not clip
  std::optional<std::uint64_t> seed;  // instead of the plan's
  std::string vocabulary;             // a tokenizer.json or GPT-2 vocabulary; empty: a token is a byte
  std::string json;                   // file, "-" for stdout, empty for none
  std::string timeline;               // file of a binary proto::Timeline
  std::string trace;                  // file of a Chrome trace
  std::string backend = "auto";       // see exec/engine.h
  std::set<std::string> given;        // of the options that are said below, their keys
  std::string library;                // of the communicator, for the report
  std::string checkpoint_folder;
  std::int64_t checkpoint_every = 0;  // steps; 0: never
  bool restart = false;               // from the newest whole checkpoint in the folder, where there is one
  std::int64_t restart_from = -1;     // from the one after so many steps, and no other; -1: not asked for
  bool skip_not_finite =
      false;  // updates by gradients that are not finite; else a loss that is not ends the run
  // Evaluation on held-out text: after every so many steps (0: after the last alone) and at the end.
  std::string eval_data;
  std::int64_t eval_every = 0;
  std::int64_t eval_batches = 0;  // of the global batch's size, from the beginning; 0: all that the text has
  std::int64_t patience = 0;      // ends after so many evaluations without a new least loss; 0: never
  std::string tensorboard;        // folder of event files; empty: none
  Augmentation augmentation = Augmentation::none;
  std::string log;              // a line of JSON a step (exec/run/progress.h); empty: none
  bool progress = false;        // a line on stderr now and then
  double predicted_step_s = 0;  // for it; 0: unknown
  bool print_batches = false;   // which samples each step trains on, instead of training
  std::string init;             // safetensors to start from; empty: seeded
  std::string save;  // safetensors to write at the end, or the folder of these and config.json; empty: none
  // Asynchronous servers: a worker that says nothing for so long is left behind; 0: all wait for it.
  double silence_s = 0;
  bool pace = false;  // measures the machine's pace (exec/run/probe.h) between steps, for the report
  // Of an error on this rank, while what other ranks read from it or write to it is still there; to end the
  // job. Where it returns, or is not set, the error goes on.
  std::function<void(const std::exception&)> failed;
  // When all is done and ranks are lost: MPI cannot be ended without them. Does not return.
  std::function<void()> done_without_all;
};

// What every rank finds wrong alike: the plan needs another number of ranks, is of a model that the executor
// cannot train, or the data or the options are wrong. Throws UserError.
void check_training(const Plan& plan, const Communicator& world, const TrainingOptions& options);

// Of what check_training() has nothing against. Collective over all ranks. `world` carries what is in the
// device's memory; `control`, over the same ranks, carries clocks and reports from host memory, and is the
// same object where the device's memory is the host's. Rank 0 writes the files and prints. Throws UserError
// and NoAnswer as the parts do.
void train(const Plan& plan, Device& device, Communicator& world, Communicator& control,
           const TrainingOptions& options);

}  // namespace orrery::exec
