// Layer graphs of networks on images, operator by operator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

// An image (or a vector, of size 1) and the operator that makes it.
struct GraphTensor {
  int op = -1;  // -1: the input
  std::int64_t channels = 0;
  std::int64_t size = 1;  // of a side
  std::int64_t elements() const { return channels * size * size; }
};

class GraphBuilder {
 public:
  int add(OperatorKind kind, std::string name, const std::vector<int>& inputs, std::int64_t out,
          double vector_elements);
  void parameter(std::string name, std::vector<std::int64_t> shape);  // of the operator added last
  void product(const MatmulShape& shape);

  // Padding on all sides is (kernel - 1) / 2 unless given: an odd kernel's output then has size / stride
  // pixels a side, rounded up.
  GraphTensor conv(const std::string& name, const GraphTensor& in, std::int64_t out, int kernel, int stride,
                   bool bias, std::optional<int> padding = {});
  GraphTensor batch_norm(const std::string& name, GraphTensor in);
  // Of an activation or a pool just made.
  void drop_out(const GraphTensor& of, double rate) {
    operators_[static_cast<std::size_t>(of.op)].image->dropout = rate;
  }
  GraphTensor relu(const std::string& name, GraphTensor in);
  GraphTensor max_pool(const std::string& name, const GraphTensor& in, int kernel, int stride,
                       std::optional<int> padding = {});
  GraphTensor average_pool(const std::string& name, const GraphTensor& in);  // of all pixels
  GraphTensor addition(const std::string& name, GraphTensor a, const GraphTensor& b);
  GraphTensor linear(const std::string& name, const GraphTensor& in, std::int64_t out);
  GraphTensor embedding(const std::string& name, std::int64_t rows, std::int64_t width);
  void sparse_gradient();  // of the table added last: of the rows that were looked up, one a sample
  void loss(const GraphTensor& in);

  // What follows has no mathematics (Operator::image): networks that use it are planned, not executed, and
  // finish() says so of all their operators.
  // Each of `groups` of channels by itself; without a class of padding, such as patches, `padding` is 0.
  GraphTensor grouped_conv(const std::string& name, const GraphTensor& in, std::int64_t out, int kernel,
                           int stride, std::int64_t groups, bool bias, std::optional<int> padding = {});
  // A product that every pixel (or token: a sequence is an image of `size` x `size` of them) goes through.
  GraphTensor pointwise(const std::string& name, const GraphTensor& in, std::int64_t out, bool bias);
  GraphTensor norm(const std::string& name, GraphTensor in);    // of layers or groups: scale and shift
  GraphTensor smooth(const std::string& name, GraphTensor in);  // GELU, SiLU, sigmoid: the input is kept
  GraphTensor gated(const std::string& name, GraphTensor in);   // half of the channels times the other's
  GraphTensor scaled(const std::string& name, GraphTensor in, const GraphTensor& by);  // channel by channel
  GraphTensor trained_scale(const std::string& name, GraphTensor in);
  GraphTensor response_norm(const std::string& name, GraphTensor in);  // arXiv 2301.00808, section 3.1
  GraphTensor upsampled(const std::string& name, GraphTensor in);      // twice as many pixels a side
  GraphTensor joined(const std::string& name, GraphTensor a, const GraphTensor& b);  // channels
  // Scaled products of queries with `tokens` keys and values that one operator makes; fused.
  GraphTensor attention(const std::string& name, const GraphTensor& queries, const GraphTensor& keys_values,
                        std::int64_t tokens);
  // A product over `rows` rows of a sample that are no image (of the batch itself where `in` is).
  GraphTensor product_of_rows(const std::string& name, const GraphTensor& in, std::int64_t rows,
                              std::int64_t inputs, std::int64_t outputs, bool bias);
  // What follows stands in the next block of a pipeline. Never called: blocks are found (graph_layers.h).
  void next_layer() { ++layer_; }

  // Two 3x3 convolutions beside a shortcut (He et al., arXiv 1512.03385, figure 5, left).
  GraphTensor basic_block(const std::string& prefix, const GraphTensor& in, std::int64_t out, int stride);

  // Leaves nothing behind.
  Workload finish(std::string name, std::string source, std::int64_t published_parameters);

 private:
  ImageOperator& image(const GraphTensor& in, const GraphTensor& out);  // of the operator added last
  void window(const GraphTensor& in, const GraphTensor& out, int kernel, int stride, int padding);

  GraphTensor elementwise(const std::string& name, const std::vector<int>& inputs, const GraphTensor& out,
                          double moved);

  std::vector<Operator> operators_;
  int layer_ = 0;
  bool plain_ = true;  // has mathematics
};

}  // namespace orrery::internal
