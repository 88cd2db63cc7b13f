// The operators of networks on images (ImageOperator of workloads/workload.h) as calls of a Device:
// convolutions, batch normalisation, ReLU, pools, additions, fully connected layers, softmax cross entropy. A
// row is a sample.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "exec/mathematics.h"
#include "exec/running_statistics.h"

namespace orrery::exec {

class ImageLayers final : public Mathematics {
 public:
  // Keeps references. `batch` may be filled in later.
  ImageLayers(const Plan& plan, Parameters& parameters, RunningStatistics& statistics, Device& device,
              Values& values, const BatchMemory& batch);

  void forward(int op, int micro_batch, std::vector<Step>& steps) override;
  void backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps) override;
  std::int64_t elements(int op, Form form) const override;

  // The images of a micro-batch.
  static Key images(int micro_batch) { return {TensorKind::batch, 0, micro_batch, Form::whole}; }

 private:
  const ImageOperator& image(int op_index) const { return *op(op_index).image; }
  WindowSize window(int op_index) const;
  std::size_t bytes(std::int64_t elements_per_row) const;
  Key input_key(int op_index, int micro_batch) const;
  bool has_input_gradient(int op_index) const { return !op(op_index).inputs.empty(); }
  const HeldTensor* bias_of(int op_index) const;
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
  void relu_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void relu_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void pool_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void pool_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void addition_forward(int op_index, int micro_batch, std::vector<Step>& steps);
  void addition_backward(int op_index, int micro_batch, std::vector<Step>& steps);
  void loss_forward(int op_index, int micro_batch, std::vector<Step>& steps);

  std::vector<int> readers_;  // by operator: how many read its output
  RunningStatistics& statistics_;
  std::set<std::pair<int, int>> counted_;  // operators and micro-batches of which something is, and not again
};

}  // namespace orrery::exec
