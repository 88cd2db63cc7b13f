// Runs a Program in real time: the same instructions that the simulator gives virtual time.
//
// Computation runs in issue order on the device. Communication is started as soon as its stream and its
// dependencies allow, never waited for before a computation that names it needs it, and progressed between
// operators.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/communicators/narrow_communicator.h"
#include "exec/data/data.h"
#include "exec/data/image_data.h"
#include "exec/data/images_ahead.h"
#include "exec/device/device.h"
#include "exec/device/on_device.h"
#include "exec/math/forms.h"
#include "exec/math/layers.h"
#include "exec/math/values.h"
#include "exec/run/asynchronous_servers.h"
#include "exec/run/recorder.h"
#include "exec/state/compression.h"
#include "exec/state/loss_scaler.h"
#include "exec/state/parameters.h"
#include "exec/state/running_statistics.h"
#include "program/plan.h"
#include "program/program.h"

namespace orrery::exec {

class Interpreter {
 public:
  // Collective over all ranks (communicators are made). Keeps references to everything. Throws UserError for
  // what the executor cannot do, NoAnswer when memory runs out.
  Interpreter(const Plan& plan, const Program& program, Device& device, Communicator& world,
              const TextData& text)
      : Interpreter(plan, program, device, world, &text, nullptr) {}
  Interpreter(const Plan& plan, const Program& program, Device& device, Communicator& world,
              const ImageData& images)
      : Interpreter(plan, program, device, world, nullptr, &images) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // One training step; `step` counts from 0. Returns when everything of the step has ended on this rank.
  void run_step(std::int64_t step);

  // The forward passes of one batch of held-out text, with the weights as they are: nothing is updated, sent
  // back or counted. The sum of its losses, as loss_sum() of a step. Not with asynchronous servers, one
  // process for all devices, or networks on images (whose norms would want their running statistics).
  double evaluate(const TextData& held_out, std::int64_t batch);

  // From the next step on, images are made while the step before is computed, up to `end_step`: on a thread,
  // which takes a core. Language models' batches cost nothing; which one comes next servers do not know.
  void load_ahead(std::int64_t end_step);

  // With asynchronous servers, instead: one batch, of one replica; `batch` counts them over all steps.
  void run_batch(std::int64_t batch);
  AsynchronousServers& servers() { return *servers_; }
  std::vector<RoutedRows> routed() const;  // of the form that has experts

  // Of the last step: the sum of the losses of the rows whose loss this rank computed (0 on other stages).
  double loss_sum() const { return loss_sum_; }
  // Of the last step, by instruction.
  const std::vector<Interval>& intervals() const { return recorder_.intervals(); }
  std::size_t arena_bytes() const { return arena_bytes_; }  // of a step's values
  // Off: instructions are not timed, to see what that costs (bench/recording.cc).
  void record(bool on) { recorder_.turn(on); }
  int rank() const { return program_.rank; }
  double sum_of_squares(const float* data, std::size_t count) const {
    return device_.sum_of_squares(data, count);
  }
  const Parameters& parameters() const { return parameters_; }

  // Called after each operator of a computation with the seconds that it took (calibration; devices whose
  // calls are immediate).
  using OperatorObserver = std::function<void(int op, ComputeKind kind, int micro_batch, double seconds)>;
  void observe_operators(OperatorObserver observer) { observer_ = std::move(observer); }
  Parameters& parameters() { return parameters_; }
  RunningStatistics& statistics() { return statistics_; }

  // What the optimizer counts beside its tensors: checkpoints keep it.
  std::int64_t updates() const { return updates_; }  // steps whose gradients were applied
  LossScaler scaler() const { return scaler_.value_or(LossScaler()); }
  void set_optimizer(const OptimizerSettings& settings) {
    parameters_.set_optimizer(settings);
    clip_norm_ = settings.clip_norm;
  }
  // Gradients that are not finite on any rank are not applied, and the step does not count as an update (fp16
  // does so by itself). Not with asynchronous servers.
  void skip_what_is_not_finite();
  // What compressed gradients have left out so far, by bucket; checkpoints keep it, too.
  std::vector<LeftOut> left_out() const;
  void resume(std::int64_t updates, const LossScaler& scaler) {
    updates_ = updates;
    if (scaler_) scaler_ = scaler;
  }

 private:
  struct Compiled {
    std::vector<Step> steps;                          // computation, loading
    std::vector<int> operators;                       // that the steps belong to; -1: none
    std::function<std::unique_ptr<Request>()> start;  // communication
    bool repeats = false;                             // each step asks the device for the same
    bool ran = false;
    std::optional<Recording> recording;
  };
  // A part of a bucket that is gathered with others into one buffer.
  struct Slice {
    float* data = nullptr;
    std::int64_t elements = 0;
  };

  Interpreter(const Plan& plan, const Program& program, Device& device, Communicator& world,
              const TextData* text, const ImageData* images);
  void make_mathematics();
  void make_communicators();
  void compile();
  void compile_compute(const Instruction& instruction, Compiled& compiled);
  void run_observed(const Instruction& instruction, const Compiled& compiled);
  bool repeats(const Instruction& instruction) const;
  FormMathematics* form_computing(int op) const;  // null: the layers compute it
  // By the instruction's form; nothing where its tensors travel like any other.
  std::function<std::unique_ptr<Request>()> start_of_form(const Instruction& instruction,
                                                          Communicator& communicator,
                                                          std::vector<Values::Id>& uses);
  void run_recorded(Compiled& compiled);
  void compile_load(const Instruction& instruction, std::vector<Step>& steps);
  void compile_load_images(const Instruction& instruction, std::vector<Step>& steps);
  // As they are loaded, and as the device holds activations: the same where that is in fp32.
  struct Pictures {
    Values::Id loaded = -1, held = -1;
    std::int64_t elements = 0;
  };
  Pictures define_pictures(int micro_batch, std::int64_t elements);
  void hold_pictures(const Pictures& pictures);
  SampleRange samples_of(std::size_t load) const;
  void load_images(std::size_t load);
  void compile_collective(const Instruction& instruction, Compiled& compiled, std::vector<Values::Id>& uses);
  void compile_bucket_collective(const Instruction& instruction, Compiled& compiled,
                                 std::vector<Values::Id>& uses);
  void compile_bucket(const Instruction& instruction, int bucket, Compiled& compiled,
                      std::vector<Values::Id>& uses);
  void compile_exchange(const Instruction& instruction, Compiled& compiled, std::vector<Values::Id>& uses);
  // What is simulated is what is executed: what the Program names is what moves.
  void check_bytes(const Instruction& instruction, double bytes, double expected) const;
  void check_elements(const Instruction& instruction, std::size_t elements) const;
  // For an instruction's group, what is fp32 narrowed on the way where it says so; the world likewise, for
  // tensors that are not held in the type that travels.
  Communicator* communicator_of(const Instruction& instruction);
  std::function<std::unique_ptr<Request>()> reduce_rows(const Key& whole, const Key& shard,
                                                        Communicator& ranks, Reduction op,
                                                        std::vector<Values::Id>& uses);
  std::function<std::unique_ptr<Request>()> exchange_features(const TensorRef& tensor, Communicator& ranks,
                                                              std::vector<Values::Id>& uses);
  Communicator& world_of(const Instruction& instruction);
  Communicator* narrowed(Communicator& communicator, DType type);
  void round_results(const Instruction& instruction, int op, std::vector<Step>& steps);
  void round(const Key& key, std::vector<Step>& steps);
  // Scales the loss to what fp16 holds; false where this step's gradients overflow and are left out.
  bool gradients_are_finite();
  // The keys of this step's rows, by which dropouts draw; of an evaluation keys that leave nothing out.
  void load_row_keys();
  std::int64_t keyed_rows() const;  // of a micro-batch
  void load_whole_sample(std::int64_t sample, std::span<std::int32_t> tokens,
                         std::span<std::int32_t> targets) const;
  void load_sample(std::int64_t sample, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const;
  // Compressed gradients.
  void compile_conversion(const Instruction& instruction, std::vector<Step>& steps);
  void compile_compressed(const Instruction& instruction, Compiled& compiled, std::vector<Values::Id>& uses);
  // Parameter servers; one process that drives all devices.
  bool one_process() const;
  // Of the server's slice of a bucket whose elements begin at `whole`.
  MessageSpec slice_message(const Transfer& transfer, float* whole) const;
  void compile_server_exchange(const Instruction& instruction, Compiled& compiled,
                               std::vector<Values::Id>& uses);
  void compile_pull(const Instruction& instruction, Compiled& compiled);
  void compile_load_for_all(const Instruction& instruction, std::vector<Step>& steps);
  void compile_replica_collective(const Instruction& instruction, Compiled& compiled,
                                  std::vector<Values::Id>& uses);
  std::unique_ptr<Request> scatter_batch(Communicator& communicator, bool root, int micro_batch,
                                         const Pictures& pictures);
  std::int64_t picture_elements() const;  // of a sample; 0: of a language model
  std::unique_ptr<Request> gather_losses(Communicator& communicator, bool root);
  void extend_lifetimes(const std::vector<int>& begins, const std::vector<std::vector<Values::Id>>& uses);
  void optimizer(int begin, int end);
  std::vector<Slice> replicated_slices() const;
  double owned_gradient_squares() const;

  // Which instructions the loss depends on.
  std::vector<char> forward_instructions() const;

  bool progress();  // true when something ended
  void wait_for(std::uint32_t instruction);

  const Plan& plan_;
  const Program& program_;
  Device& device_;
  Communicator& world_;
  const TextData* text_;     // of a language model, or
  const ImageData* images_;  // of a network on images
  Parameters parameters_;
  RunningStatistics statistics_;
  Values values_;
  BatchMemory batch_;
  std::unique_ptr<Mathematics> math_;
  std::int64_t micro_batches_;
  std::int64_t first_sample_;  // of the global batch, of this replica
  // Of forms of parallelism that compute in their own way; what they communicate is asked of them by form.
  std::vector<std::unique_ptr<FormMathematics>> forms_;
  std::map<Parallelism, FormMathematics*> form_of_;
  std::optional<Compressor> compressor_;  // where gradients travel compressed
  std::optional<AsynchronousServers> servers_;
  std::vector<Compiled> compiled_;
  std::vector<int> begins_;  // by instruction: where it begins in the walk through the step's values
  std::map<std::pair<int, Stream>, std::unique_ptr<Communicator>> communicators_;  // by group and stream
  std::map<Communicator*, std::unique_ptr<Communicator>> narrowed_;
  std::size_t arena_bytes_ = 0;
  void* arena_ = nullptr;
  std::set<int> scattered_;    // buckets whose shard of gradients has been set (ZeRO 2 and 3)
  float* scratch_ = nullptr;   // replicated gradients, side by side
  float* norm_ = nullptr;      // squared norm of the gradient
  float* overflow_ = nullptr;  // fp16: whether a gradient of anybody's overflowed
  // One process: everyone's samples of a micro-batch on device 0, and their losses as they come to it.
  std::vector<std::int32_t> all_tokens_, all_targets_;
  OnDevice inputs_of_all_, targets_of_all_;
  // Of a network on images: what each step loads (without one process, from first_sample_ on), and what was
  // loaded last.
  std::vector<SampleRange> loads_;
  ImageBatch pictures_;
  std::optional<ImagesAhead> ahead_;
  float* gathered_losses_ = nullptr;

  OperatorObserver observer_;

  DType type_;  // of activations
  std::optional<LossScaler> scaler_;
  double clip_norm_ = OptimizerSettings().clip_norm;
  bool skips_ = false;        // gradients that are not finite
  std::int64_t updates_ = 0;  // steps whose gradients were applied
  StepRecorder recorder_;

  // Of the step under way.
  std::int64_t step_ = 0;
  std::vector<char> forward_;  // instructions that an evaluation runs; empty: not asked for yet
  bool evaluating_ = false;
  double loss_sum_ = 0;
  std::vector<char> done_;
  struct Queue {
    std::deque<std::uint32_t> waiting;
    std::unique_ptr<Request> running;  // of the first
  };
  std::array<Queue, kStreamCount> queues_;
};

}  // namespace orrery::exec
