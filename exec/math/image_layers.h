// The operators of networks on images (ImageOperator of workloads/workload.h) as calls of a Device:
// convolutions, batch normalisation, ReLU, pools, additions, fully connected layers, softmax cross entropy;
// and of sequences of patches (image_layers_sequence.cc). A row is a sample.
//
// Tensor ranks share a micro-batch's samples (Form::shard). Operators that are split compute all of them,
// with this rank's part of the weights: by column from all features (Form::whole, gathered) to own ones
// (Form::features), by row from own features to a part of the sum of all (Form::whole, to be reduced);
// docs/program.md, "Models that are no transformers".
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "exec/math/mathematics.h"
#include "exec/state/running_statistics.h"
#include "program/operator_shard.h"

namespace orrery::exec {

class ImageLayers final : public Mathematics {
 public:
  // Keeps references. `batch` may be filled in later.
  ImageLayers(const Plan& plan, const Program& program, Parameters& parameters, RunningStatistics& statistics,
              Device& device, Values& values, const BatchMemory& batch);

  void forward(int op, int micro_batch, std::vector<Step>& steps) override;
  void backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps) override;
  std::int64_t elements(int op, Form form) const override;
  Form stream_form() const override { return ranks_ > 1 ? Form::shard : Form::whole; }
  Form form_sent(int op) const override;

  std::int64_t picture_rows() const override { return picture_rows_; }
  std::int64_t rows_of_features(int op_index) const override {
    return op(op_index).image->sequence ? op(op_index).image->output.height : 1;
  }

  // The images of a micro-batch.
  static Key images(int micro_batch) { return {TensorKind::batch, 0, micro_batch, Form::whole}; }

 private:
  bool is_split(int op_index) const { return ranks_ > 1 && op(op_index).split != TensorSplit::replicated; }
  Form form_written(int op_index) const;
  Form form_read(int op_index) const;
  std::int64_t rows_of(int op_index) const {
    return static_cast<std::int64_t>(local_rows(op(op_index), shard_));
  }
  ImageOperator image(int op_index) const;
  WindowSize window(int op_index) const;
  std::int64_t of_rows(int op_index, std::int64_t elements_per_row) const {
    return rows_of(op_index) * elements_per_row;
  }
  Key input_key(int op_index, int micro_batch) const;
  std::int64_t input_begin(int op_index) const;
  bool has_input_gradient(int op_index) const { return !op(op_index).inputs.empty(); }
  Key output_key(int op_index, int micro_batch) const {
    return activation(op_index, micro_batch, form_written(op_index));
  }
  Key output_gradient(int op_index, int micro_batch) const {
    return gradient(op_index, micro_batch, form_written(op_index));
  }
  // While a step runs: of the output's rows and columns on this rank. A rate of 0: none.
  Dropout dropout_of(int op_index, int micro_batch) const;
  const HeldTensor* bias_of(int op_index) const;
  bool adds_bias(int op_index) const;
  // Where an operator's backward pass writes its input's gradient: into it where it is the first, else into a
  // value of its own, which `add_gradient` adds.
  struct InputGradient {
    Values::Id written = -1;
    Values::Id sum = -1;  // -1: nothing to add to
    std::size_t elements = 0;
  };
  InputGradient input_gradient(int op_index, int micro_batch);
  void add_gradient(const InputGradient& gradient) const;

  void convolution_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void convolution_backward(int op_index, int micro_batch, bool input, bool weight, std::vector<Step>& steps);
  void linear_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void linear_backward(int op_index, int micro_batch, bool input, bool weight, std::vector<Step>& steps);
  void batch_norm_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void batch_norm_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void activation_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void activation_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void pool_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void pool_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void addition_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void addition_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void loss_forward(int op_index, int micro_batch, std::vector<Step>& steps);

  // Of sequences.
  void sequence_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void sequence_backward(int op_index, int micro_batch, bool input, bool weight, std::vector<Step>& steps);
  // Weights that follow each other in memory are one product; outputs stand side by side.
  struct TokenProduct {
    const HeldTensor* weight = nullptr;  // the first's
    std::int64_t out = 0, column = 0;
  };
  std::vector<TokenProduct> token_products(int op_index) const;
  std::vector<std::pair<const HeldTensor*, std::int64_t>> token_biases(int op_index) const;
  // Where the tokens stand that an operator's product reads.
  struct TokenRows {
    std::int64_t rows = 0, in = 0, out = 0, stride = 0;  // stride: from one to the next, of the input
    std::int64_t elements = 0;                           // of the whole input
  };
  TokenRows token_rows(int op_index) const;
  AttentionSize attention_size(int op_index) const;
  void token_linear_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void token_linear_backward(int op_index, int micro_batch, bool input, bool weight,
                             std::vector<Step>& steps);
  void attention_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void attention_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void norm_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void norm_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void tokens_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void tokens_backward(int op_index, int micro_batch, std::vector<Step>& steps);

  Shard shard_;
  int ranks_ = 1;  // tensor ranks
  int rank_ = 0;   // this one's place among them
  std::int64_t picture_rows_;
  std::vector<int> readers_;  // by operator: how many read its output
  RunningStatistics& statistics_;
  std::set<std::pair<int, int>> counted_;  // operators and micro-batches of which something is, and not again
};

}  // namespace orrery::exec
