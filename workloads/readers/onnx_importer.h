// An ONNX model on its way to a Workload: checked by onnx's library, its shapes inferred, then node by node.
#pragma once

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/onnx_pb.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

[[noreturn]] void fail_onnx(std::string_view file, std::string_view what, std::string_view expected);
bool is_float_type(int type);  // of onnx::TensorProto
// Of the sizes from dimension `begin` on.
double product_of(const std::vector<std::int64_t>& dims, std::size_t begin = 0);

class OnnxImporter {
 public:
  OnnxImporter(onnx::ModelProto model, std::string_view file) : model_(std::move(model)), file_(file) {}
  Workload run();

 private:
  using Dims = std::vector<std::int64_t>;
  struct Weight {
    Dims dims;
    bool floating = false;
    bool used = false;
  };
  // Larger constants are weights, whose values nobody needs.
  static constexpr std::int64_t kKeptElements = 256;

  // ---- Before onnx's library sees the model ----
  void check_header() const;
  void check_divisors(const onnx::NodeProto& node, const onnx::AttributeProto& attribute) const;
  // Weights' values have done their part: as inputs of a known shape they need not be copied by the checker.
  void take_weights();
  // The leading dimension of the first real input is the batch; a symbol there becomes one sample.
  void bind_inputs();
  void infer_shapes();
  void collect_shape(const onnx::ValueInfoProto& value);
  void collect_shapes();

  // ---- Conversion ----
  const Dims& shape(const onnx::NodeProto& node, const std::string& value) const;
  // Per sample.
  std::int64_t elements(const onnx::NodeProto& node, const std::string& value) const;
  const Weight* weight(const onnx::NodeProto& node, int input) const;
  int producer(const std::string& value) const;
  void take_parameter(Operator* op, const onnx::NodeProto& node, int input);
  Operator start(const onnx::NodeProto& node, OperatorKind kind) const;
  void finish(const onnx::NodeProto& node, Operator op);
  std::int64_t attribute(const onnx::NodeProto& node, std::string_view name, std::int64_t fallback) const;

  // ---- What an operator computes on images, where this is known ----
  std::optional<ImageShape> image_of(const std::string& value) const;
  std::optional<ImageOperator> image_operator(const onnx::NodeProto& node) const;
  static const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, std::string_view name);
  // False where the attribute is there and is no pair of sensible sizes.
  static bool read_pair(const onnx::NodeProto& node, std::string_view name, std::array<int, 2>* pair);
  // The window of a convolution or pool; what it reaches at the end follows from the output's shape.
  std::optional<ImageOperator> windowed(const onnx::NodeProto& node) const;
  std::optional<ImageOperator> pooled(const onnx::NodeProto& node) const;
  std::optional<ImageOperator> multiplied(const onnx::NodeProto& node) const;
  std::optional<ImageOperator> element_by_element(const onnx::NodeProto& node) const;
  void forget_impossible_images();

  // ---- Nodes ----
  void convert(const onnx::NodeProto& node);
  // Shapes, indices, masks and constants: nothing of cost, nothing to train.
  bool makes_no_activation(const onnx::NodeProto& node) const;
  void convolution(const onnx::NodeProto& node);
  void matrix_product(const onnx::NodeProto& node);
  void embedding(const onnx::NodeProto& node);
  void normalisation(const onnx::NodeProto& node);
  void elementwise(const onnx::NodeProto& node);
  // Exported models end in their scores: training adds a loss on what they put out.
  void add_loss();
  std::string name() const;

  onnx::ModelProto model_;
  std::string_view file_;
  std::int64_t batch_ = 1;
  std::map<std::string, Weight> weights_;
  std::set<std::string> real_inputs_;  // what is read, not weights
  std::map<std::string, Dims> shapes_;
  std::map<std::string, int> shapes_types_;  // element type of each tensor
  std::map<std::string, int> producers_;     // operator that makes a tensor
  std::vector<Operator> operators_;
};

}  // namespace orrery::internal
