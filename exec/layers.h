// A transformer's operators as calls of a Device: each forward and backward becomes a step that knows its
// tensors' places. Models of the GPT-2, Llama and BERT families (norms before or after; learned or rotary
// positions; segments; grouped queries; plain or gated MLP; layer or RMS norm; biases or none; tied or untied
// head).
#pragma once

#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "exec/device.h"
#include "exec/parameters.h"
#include "exec/values.h"
#include "program/plan.h"

namespace orrery::exec {

using Step = std::function<void()>;

// The tokens and targets of a step's micro-batches, on the device, and where losses are summed up.
struct BatchMemory {
  std::int32_t* tokens = nullptr;   // micro_batches x rows
  std::int32_t* targets = nullptr;  // micro_batches x rows
  double* loss = nullptr;           // sum over rows
};

class Layers {
 public:
  // Keeps references. `batch` may be filled in later.
  Layers(const Plan& plan, const Program& program, Parameters& parameters, Device& device, Values& values,
         const BatchMemory& batch);

  void forward(int op, int micro_batch, std::vector<Step>& steps);
  // The gradients of the inputs, of the weights, or both.
  void backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps);

  // Multiplies the gradient of the loss (fp16's loss scaling).
  void set_loss_factor(float factor) { loss_factor_ = factor; }
  float loss_factor() const { return loss_factor_; }

  std::int64_t rows() const { return rows_; }
  // Elements of an operator's output (or its gradient) on this rank.
  std::int64_t elements(int op, Form form) const { return rows_of(form) * columns_of(op); }
  AttentionSize attention_size() const;
  // The form in which the residual stream and the norms hold their rows.
  Key stream_gradient(int op, int micro_batch) const {
    return {TensorKind::activation_gradient, op, micro_batch, stream_form(), kStreamShare};
  }
  Form stream_form() const { return sequence_parallel_ ? Form::shard : Form::whole; }
  std::int64_t rows_of(Form form) const { return form == Form::shard ? rows_ / tp_ : rows_; }

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
  Place gradient_of(const HeldTensor& tensor, int micro_batch, std::vector<Step>& steps);
  float* at(const Place& place) const {
    return place.value < 0 ? place.fixed : values_.floats(place.value) + place.offset;
  }
  // For a step that adds to it.
  float* ready_to_add(const Place& place) const;

 private:
  // One product of a linear operator: several tensors that stand side by side in memory count as one.
  struct Product {
    const HeldTensor* weight = nullptr;
    std::vector<const HeldTensor*> tensors;
    bool out_by_in = false;  // as torch.nn.Linear stores it; else in x out, as GPT-2 does
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::int64_t column = 0;  // of the output where it begins
  };
  struct Linear {
    std::vector<Product> products;
    std::vector<std::pair<const HeldTensor*, std::int64_t>> biases;  // and the column of the output
    std::int64_t in = 0;
    std::int64_t out = 0;
  };

  const Operator& op(int index) const;
  Linear linear_of(int op) const;
  bool gated(int op) const;
  std::int64_t columns_of(int op) const;
  Form output_form(int op) const;
  // Runs of rows whose positions follow each other: sequences, or a context rank's parts of them.
  struct Run {
    std::int64_t row = 0;
    std::int64_t rows = 0;
    int position = 0;
    int seq = 0;  // rows of one sequence
  };
  std::vector<Run> runs() const;
  // Rows of one segment (token type) that follow each other: a sample's first half is segment 0, its second
  // half segment 1.
  struct SegmentRun {
    std::int64_t row = 0;
    std::int64_t rows = 0;
    int segment = 0;
  };
  std::vector<SegmentRun> segment_runs() const;
  void rotate(float* qkv, bool inverse) const;
  int input(int op, std::size_t which = 0) const;
  int find_back(int op, OperatorKind kind) const;
  Key activation(int op, int micro_batch, Form form) const {
    return {TensorKind::activation, op, micro_batch, form};
  }
  Key gradient(int op, int micro_batch, Form form) const {
    return {TensorKind::activation_gradient, op, micro_batch, form};
  }
  // What a residual operator adds to the gradient of the stream. Where that is a norm's output (post-norm),
  // the norm's other readers' gradients are summed over tensor ranks, and this one, whole everywhere, is not:
  // it is kept apart until they are.
  bool stream_is_norm(int residual) const;
  std::int32_t vocabulary_first(const HeldTensor& table) const;
  std::int32_t vocabulary_count(const HeldTensor& table) const;  // without padding

  void embedding_forward(int op, int micro_batch, std::vector<Step>& steps);
  void embedding_backward(int op, int micro_batch, std::vector<Step>& steps);
  void norm_forward(int op, int micro_batch, std::vector<Step>& steps);
  void norm_backward(int op, int micro_batch, std::vector<Step>& steps);
  void linear_forward(int op, int micro_batch, std::vector<Step>& steps);
  void linear_backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps);
  void attention_forward(int op, int micro_batch, std::vector<Step>& steps);
  void attention_backward(int op, int micro_batch, std::vector<Step>& steps);
  void activation_forward(int op, int micro_batch, std::vector<Step>& steps);
  void activation_backward(int op, int micro_batch, std::vector<Step>& steps);
  const HeldTensor* bias_of_branch(int residual, std::size_t branch) const;
  void residual_forward(int op, int micro_batch, std::vector<Step>& steps);
  void residual_backward(int op, int micro_batch, std::vector<Step>& steps);
  void loss_forward(int op, int micro_batch, std::vector<Step>& steps);

  const Plan& plan_;
  const Transformer& model_;
  Parameters& parameters_;
  Device& device_;
  Values& values_;
  const BatchMemory& batch_;
  std::set<std::tuple<int, int, int>> contributed_;  // (operator, parameter, micro-batch or -1)
  int tp_;
  int tp_rank_;
  int cp_;
  int cp_rank_;
  bool sequence_parallel_;
  std::int64_t rows_;  // of a micro-batch
  float loss_scale_;
  float loss_factor_ = 1;
};

}  // namespace orrery::exec
