// One rank's parameters, gradients and optimizer state, in the flat buckets of its Program.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/device/device.h"
#include "exec/state/frozen_weights.h"
#include "exec/state/held_tensor.h"
#include "exec/state/initial_values.h"
#include "exec/state/optimizer_settings.h"
#include "program/plan.h"
#include "program/program.h"
#include "program/tensor_shard.h"

namespace orrery::exec {

class Parameters {
 public:
  // Allocates, and initialises from the plan's seed: every element from its tensor's name and its place in
  // the whole tensor, so that all plans start from the same model.
  Parameters(const Plan& plan, const Program& program, Device& device);
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  // Follows ties: the head's weight is the embedding's where both are on this rank. Null where there is none.
  const HeldTensor* find(int op, int parameter) const;
  const std::vector<HeldTensor>& held() const { return held_; }  // of what is trained
  // What is not trained: beside adapters, or in frozen layers.
  const FrozenWeights& frozen() const { return *frozen_; }
  FrozenWeights& frozen() { return *frozen_; }
  // The operator's own weights and biases, trained or not, in the order of the model; null behind the last.
  const HeldTensor* own(int op, int index) const;

  int buckets() const { return static_cast<int>(weights_.size()); }
  std::int64_t elements(int bucket) const { return program_->buckets[bucket].elements; }
  // The elements of the bucket that this rank updates: all, its shard under ZeRO, a server's slice (nothing
  // on workers that do not serve).
  std::int64_t shard_begin(int bucket) const { return shards_[bucket].first; }
  std::int64_t shard_elements(int bucket) const { return shards_[bucket].second; }
  // The elements that a reduce-scatter over the bucket's group leaves here, whoever updates them.
  std::int64_t part_begin(int bucket) const { return parts_[bucket].first; }
  std::int64_t part_elements(int bucket) const { return parts_[bucket].second; }
  bool sharded(int bucket) const { return shard_elements(bucket) < elements(bucket); }
  bool reduced(int bucket) const { return program_->buckets[bucket].group >= 0; }  // over several ranks
  // ZeRO 3: only the shard of the weights is kept here; they are gathered elsewhere when needed.
  bool gathers_weights(int bucket) const { return gathers_weights_[bucket] != 0; }
  // ZeRO 2 and 3: only the shard of the gradients is kept here; a micro-batch's are elsewhere.
  bool scatters_gradients(int bucket) const { return scatters_gradients_[bucket] != 0; }
  // The whole bucket; only where it is kept whole.
  float* weights(int bucket) const { return weights_[bucket]; }
  float* gradients(int bucket) const { return gradients_[bucket]; }
  // The rank's own elements [shard_begin, shard_begin + shard_elements) of it.
  float* own_weights(int bucket) const {
    return weights_[bucket] + (gathers_weights(bucket) ? 0 : shard_begin(bucket));
  }
  float* own_gradients(int bucket) const {
    return gradients_[bucket] + (scatters_gradients(bucket) ? 0 : shard_begin(bucket));
  }

  // Of the gradients, what a reduce-scatter leaves here: under ZeRO own_gradients.
  float* own_part(int bucket) const {
    return gradients_[bucket] + (scatters_gradients(bucket) ? 0 : part_begin(bucket));
  }

  // In mixed precision the rank's own elements in full precision, on an asynchronous server its own copy of
  // them; else own_weights.
  float* own_master(int bucket) const {
    return master_.empty() ? own_weights(bucket) : master_[static_cast<std::size_t>(bucket)];
  }
  // Optimizer state of the same elements: momentum's or Adam's first moment (0), Adam's second (1); null
  // where the optimizer has none.
  float* own_state(int which, int bucket) const { return which == 0 ? first_[bucket] : second_[bucket]; }

  // The part of a tensor that this rank alone answers for, as elements of its bucket: sharded, the shard's
  // (or the server's slice); else all of it on the first replica and nothing on the others. What tensor ranks
  // hold alike is the first one's, what two stages share the first stage's.
  struct Part {
    std::int64_t begin = 0;
    std::int64_t end = 0;  // begin where there is nothing
  };
  Part answers_for(const HeldTensor& tensor) const;
  // What the rank keeps of a tensor's weights, whoever answers for it, as elements of its bucket: all of it,
  // or of gathered weights the shard's. `kept_weights` are those elements.
  Part kept_part(const HeldTensor& tensor) const;
  float* kept_weights(const HeldTensor& tensor) const;

  // Updates this rank's part of the buckets [begin, end). `step` counts from 1; `scale` multiplies gradients.
  void update(int begin, int end, std::int64_t step, float scale);
  // The same for one bucket and somebody's gradients of that part, and in the master alone; `publish` sets
  // what the layers read from that.
  void update_bucket(int bucket, float* gradient, std::int64_t step, float scale);
  void publish(int bucket);
  // The other way: the master of this rank's part is what stands in the weights.
  void take_weights(int bucket);

  // Of the steps to come.
  void set_optimizer(const OptimizerSettings& settings) { settings_ = settings; }
  double learning_rate() const { return rate_; }
  void set_learning_rate(double rate) { rate_ = rate; }  // of the steps to come
  const ShardPlace& place() const { return place_; }
  bool has_master() const { return !master_.empty(); }
  DType type() const { return type_; }  // of the values that the weights have

 private:
  void make_master();
  void initialise(const Plan& plan, const HeldTensor& tensor);
  void begin_magnitudes(const Plan& plan, const HeldTensor& tensor);
  void begin_with(const HeldTensor& tensor, const std::vector<float>& values);
  // Elements of this rank's part of a bucket.
  struct Decaying {
    std::int64_t begin = 0, end = 0;
    bool decays = true;
  };
  std::vector<Decaying> decaying(int bucket) const;
  AdamConstants adam_constants(bool decays) const;
  Part owned_part(const HeldTensor& tensor) const;  // of the shard
  bool answers(const Plan& plan, int bucket) const;

  const Program* program_;
  Device* device_;
  Optimizer optimizer_;
  ShardPlace place_;
  bool experts_by_rows_ = false;  // tensor ranks that do not share experts have rows of their own
  bool shares_samples_ = false;   // tensor ranks: what they hold whole is in the bucket's group, too
  double rate_;
  OptimizerSettings settings_;
  std::vector<HeldTensor> held_;
  std::optional<FrozenWeights> frozen_;
  const std::vector<Operator>* operators_ = nullptr;
  std::map<std::pair<int, int>, std::size_t> by_operator_;            // also aliases
  std::vector<char> gathers_weights_, scatters_gradients_, answers_;  // by bucket
  std::vector<float*> weights_, gradients_, first_, second_;
  std::vector<float*> master_;  // by bucket; empty without mixed precision
  DType type_;                  // of the values that the weights have
  std::vector<std::pair<std::int64_t, std::int64_t>> shards_, parts_;
};

// The executor's learning rate where the plan says none.
double default_learning_rate(Optimizer optimizer);

}  // namespace orrery::exec
