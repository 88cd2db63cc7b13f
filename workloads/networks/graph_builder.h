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
  GraphTensor relu(const std::string& name, GraphTensor in);
  GraphTensor max_pool(const std::string& name, const GraphTensor& in, int kernel, int stride,
                       std::optional<int> padding = {});
  GraphTensor average_pool(const std::string& name, const GraphTensor& in);  // of all pixels
  GraphTensor addition(const std::string& name, GraphTensor a, const GraphTensor& b);
  GraphTensor linear(const std::string& name, const GraphTensor& in, std::int64_t out);
  GraphTensor embedding(const std::string& name, std::int64_t rows, std::int64_t width);
  void loss(const GraphTensor& in);

  // Two 3x3 convolutions beside a shortcut (He et al., arXiv 1512.03385, figure 5, left).
  GraphTensor basic_block(const std::string& prefix, const GraphTensor& in, std::int64_t out, int stride);

  // Leaves nothing behind.
  Workload finish(std::string name, std::string source, std::int64_t published_parameters);

 private:
  ImageOperator& image(const GraphTensor& in, const GraphTensor& out);  // of the operator added last
  void window(const GraphTensor& in, const GraphTensor& out, int kernel, int stride, int padding);

  std::vector<Operator> operators_;
};

}  // namespace orrery::internal
