// A model's operators as calls of a Device: what all kinds of models share. Each forward and backward becomes
// steps that know their tensors' places.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "exec/device/device.h"
#include "exec/math/values.h"
#include "exec/state/parameters.h"
#include "program/plan.h"

namespace orrery::exec {

using Step = std::function<void()>;

// What a step's micro-batches are trained on, on the device, and where losses are summed up. Images stand in
// values of their own (TensorKind::batch).
struct BatchMemory {
  std::int32_t* tokens = nullptr;   // micro_batches x rows
  std::int32_t* targets = nullptr;  // micro_batches x rows
  double* loss = nullptr;           // sum over rows
  // Of dropouts, where there are any: micro_batches x rows (of images: all samples of each micro-batch).
  std::uint64_t* row_keys = nullptr;
};

class Mathematics {
 public:
  virtual ~Mathematics() = default;
  Mathematics(const Mathematics&) = delete;
  Mathematics& operator=(const Mathematics&) = delete;

  virtual void forward(int op, int micro_batch, std::vector<Step>& steps) = 0;
  // The gradients of the inputs, of the weights, or both.
  virtual void backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps) = 0;
  // Elements of an operator's output (or its gradient) on this rank.
  virtual std::int64_t elements(int op, Form form) const = 0;
  // The form in which the residual stream and the norms hold their rows.
  virtual Form stream_form() const { return Form::whole; }
  // In which an operator's output goes from one stage to another.
  virtual Form form_sent(int) const { return stream_form(); }

  // Multiplies the gradient of the loss (fp16's loss scaling).
  void set_loss_factor(float factor) { loss_factor_ = factor; }
  float loss_factor() const { return loss_factor_; }
  std::int64_t rows() const { return rows_; }  // of a micro-batch
  // Of the images of one: its own, or those of all tensor ranks where a split operator reads them.
  virtual std::int64_t picture_rows() const { return rows_; }
  // Rows of features that a sample has of an operator's output: tokens of a sequence.
  virtual std::int64_t rows_of_features(int) const { return 1; }

  // What a residual operator adds to the gradient of the stream. Where products read that themselves
  // (post-norm, OLMo 2), their gradients are summed over tensor ranks, and this one, whole everywhere, is
  // not: it is kept apart until they are.
  Key stream_gradient(int op, int micro_batch) const {
    return {TensorKind::activation_gradient, op, micro_batch, stream_form(), kStreamShare};
  }

  // Where a tensor's weights or gradients stand when a step runs: in the rank's own buckets, or in a value
  // that only this pass has (ZeRO).
  struct Place {
    float* fixed = nullptr;
    Values::Id value = -1;
    std::int64_t offset = 0;
    std::int64_t elements = 0;
    bool first = false;  // gradients: nothing was added to it yet in this step (or micro-batch)
  };
  Place weight_of(const HeldTensor& tensor);
  Place weight_or_none(const HeldTensor* tensor) { return tensor != nullptr ? weight_of(*tensor) : Place{}; }
  // Nowhere where it is not trained.
  Place gradient_of(const HeldTensor& tensor, int micro_batch, std::vector<Step>& steps);
  float* at(const Place& place) const {
    return place.value < 0 ? place.fixed : values_.floats(place.value) + place.offset;
  }
  // For a step that adds to it; null where it is not trained.
  float* ready_to_add(const Place& place) const;

 protected:
  // Keeps references. `batch` may be filled in later.
  Mathematics(const Plan& plan, Parameters& parameters, Device& device, Values& values,
              const BatchMemory& batch, std::int64_t rows);

  const Operator& op(int index) const {
    return plan_.job->workload.operators[static_cast<std::size_t>(index)];
  }
  int input(int op_index, std::size_t which = 0) const { return op(op_index).inputs.at(which); }
  Key activation(int op_index, int micro_batch, Form form) const {
    return {TensorKind::activation, op_index, micro_batch, form};
  }
  Key gradient(int op_index, int micro_batch, Form form) const {
    return {TensorKind::activation_gradient, op_index, micro_batch, form};
  }

  const Plan& plan_;
  Parameters& parameters_;
  Device& device_;
  Values& values_;
  const BatchMemory& batch_;
  std::int64_t rows_;
  float loss_scale_;  // the loss is the mean over all predictions of the global batch
  float loss_factor_ = 1;

 private:
  std::set<std::tuple<int, int, int>> contributed_;  // (operator, parameter, micro-batch or -1)
};

}  // namespace orrery::exec
