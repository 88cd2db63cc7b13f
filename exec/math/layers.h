// A transformer's operators as calls of a Device: each forward and backward becomes a step that knows its
// tensors' places. Models of the GPT-2, Llama and BERT families (norms before or after; learned or rotary
// positions; segments; grouped queries; plain or gated MLP; layer or RMS norm; biases or none; tied or untied
// head).
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "exec/math/mathematics.h"
#include "program/operator_work.h"
#include "program/program.h"

namespace orrery::exec {

class Layers final : public Mathematics {
 public:
  // Keeps references. `batch` may be filled in later.
  Layers(const Plan& plan, const Program& program, Parameters& parameters, Device& device, Values& values,
         const BatchMemory& batch);

  void forward(int op, int micro_batch, std::vector<Step>& steps) override;
  void backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps) override;
  std::int64_t elements(int op, Form form) const override { return rows_of(form) * columns_of(op); }
  Form stream_form() const override { return sequence_parallel_ ? Form::shard : Form::whole; }
  AttentionSize attention_size() const;
  AttentionSize attention_size_of(int op) const;  // with its layer's window
  // While a step runs. `position`: of the context rank whose keys are attended to.
  AttentionDropout attention_dropout(int op, int micro_batch, int position) const;
  std::int64_t rows_of(Form form) const;

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
    std::vector<std::pair<const HeldTensor*, std::int64_t>> biases;   // and the column of the output
    std::vector<std::pair<const HeldTensor*, std::int64_t>> columns;  // likewise, of the weights
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::int64_t stride = 0;  // from one row of the output to the next
  };

  struct Adapter {
    const HeldTensor* a = nullptr;          // rank x in
    const HeldTensor* b = nullptr;          // out x rank
    const HeldTensor* magnitude = nullptr;  // out; DoRA's
    std::int64_t rank = 0, in = 0, out = 0;
    std::int64_t column = 0;  // of the operator's output where its own begins
    std::size_t product = 0;  // that it stands beside (DoRA: alone)
  };
  struct OutputGradient {
    Values::Id value = -1;
    std::int64_t column = 0, stride = 0;
  };

  Linear linear_of(int op) const;
  std::int64_t row_stride(const Operator& op, std::int64_t columns) const;
  std::vector<Adapter> adapters_of(int op, const Linear& linear) const;
  // Where a product's weight is read: quantised ones are turned back for each.
  std::vector<Place> product_weights(const Linear& linear, std::vector<Step>& steps);
  void adapters_forward(int op, int micro_batch, const Linear& linear, const std::vector<Place>& weights,
                        Values::Id x, Values::Id y, std::vector<Step>& steps);
  std::vector<OutputGradient> before_magnitudes(int op, int micro_batch, const Linear& linear,
                                                bool want_weight, Values::Id dy, std::vector<Step>& steps);
  // `dx` below 0: not wanted.
  void adapters_backward(int op, int micro_batch, const Linear& linear,
                         const std::vector<OutputGradient>& outputs, bool want_weight, Values::Id dy,
                         Values::Id dx, std::vector<Step>& steps);
  // For whoever sends it to a stage that has nothing to train.
  void no_input_gradient(int op, int micro_batch, std::vector<Step>& steps);
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
  void rotate(Numbers qkv, bool inverse) const;
  // Norms of each head's queries and keys, in place, behind a qkv product (nothing where the model has none).
  // What they were is kept for backward.
  void query_key_norms_forward(int op, int micro_batch, Values::Id qkv, std::vector<Step>& steps);
  void query_key_norms_backward(int op, int micro_batch, Values::Id dqkv, std::vector<Step>& steps);
  bool feeds_normalised_heads(int op) const;
  bool normalises_heads(int op, const HeldTensor& tensor) const;  // a weight of such a norm
  struct HeadNorm {
    const HeldTensor* weight = nullptr;
    std::int64_t groups = 0;  // of a row, each normalised by itself
    std::int64_t dim = 0;     // of a group
    std::int64_t column = 0;  // of the fused queries, keys and values where they begin
  };
  std::array<HeadNorm, 2> head_norms(int op) const;  // of queries, of keys
  // Between a product's columns (each head's query, key and value side by side) and all queries | all keys |
  // all values.
  void regroup_heads(Numbers interleaved, Numbers grouped, bool back) const;
  // While a step runs: of an operator's rows in this form.
  Dropout dropout_of(double rate, int op, int branch, int micro_batch, Form form) const;
  double embedding_dropout(int op) const;  // of what an operator before the first layer puts out
  double branch_dropout(int residual, std::size_t branch) const;
  // In place: values, or gradients on their way back. Nothing where the rate is 0.
  void drop_out(double rate, int op, int micro_batch, Form form, Values::Id value, std::vector<Step>& steps);
  int find_back(int op, OperatorKind kind) const;
  // Products read the stream without a norm before them (post-norm, OLMo 2): see
  // Mathematics::stream_gradient.
  bool stream_feeds_products(int residual) const;
  // Adds what a residual has kept apart of this operator's gradient, which it returns; and drops out.
  Values::Id whole_gradient(int op, int micro_batch, Form form, std::vector<Step>& steps);
  // A norm's weights as they multiply: their own place, or 1 + them in a value.
  Values::Id offset_weights(const Place& weight, std::int64_t count, std::vector<Step>& steps);
  const float* norm_weights(const Place& weight, Values::Id offset) const {
    return offset < 0 ? at(weight) : values_.floats(offset);
  }
  std::int32_t vocabulary_first(const HeldTensor& table) const;
  std::int32_t vocabulary_count(const HeldTensor& table) const;  // without padding

  void embedding_forward(int op, int micro_batch, std::vector<Step>& steps);
  void embedding_backward(int op, int micro_batch, std::vector<Step>& steps);
  void norm_forward(int op, int micro_batch, std::vector<Step>& steps);
  void norm_backward(int op, int micro_batch, std::vector<Step>& steps);
  // Norms' kernels make the weights' gradients with the input's; those of frozen ones are for nobody.
  Place gradient_of_norm(const HeldTensor& tensor, int micro_batch, std::vector<Step>& steps);
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

  Shard shard_;
  const Transformer& model_;
  RotaryAngles angles_;
  int tp_rank_;
  int cp_;
  int cp_rank_;
  bool sequence_parallel_;
};

}  // namespace orrery::exec
