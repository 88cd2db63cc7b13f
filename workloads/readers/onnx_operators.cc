// Nodes of an ONNX model as operators: what they cost.
#include <fmt/format.h>

#include <algorithm>

#include "workloads/readers/onnx_importer.h"

namespace orrery::internal {

const OnnxImporter::Dims& OnnxImporter::shape(const onnx::NodeProto& node, const std::string& value) const {
  const auto at = shapes_.find(value);
  if (at == shapes_.end())
    fail_onnx(file_,
              fmt::format("the shape of '{}' at node '{}' ({}) cannot be inferred", value, node.name(),
                          node.op_type()),
              "expected shapes that follow from the inputs'");
  return at->second;
}

std::int64_t OnnxImporter::elements(const onnx::NodeProto& node, const std::string& value) const {
  return static_cast<std::int64_t>(product_of(shape(node, value)) / static_cast<double>(batch_));
}

const OnnxImporter::Weight* OnnxImporter::weight(const onnx::NodeProto& node, int input) const {
  if (input >= node.input_size()) return nullptr;
  const auto at = weights_.find(node.input(input));
  return at != weights_.end() && at->second.floating ? &at->second : nullptr;
}

int OnnxImporter::producer(const std::string& value) const {
  const auto at = producers_.find(value);
  return at == producers_.end() ? -1 : at->second;
}

void OnnxImporter::take_parameter(Operator* op, const onnx::NodeProto& node, int input) {
  if (weight(node, input) == nullptr) return;
  Weight& w = weights_.at(node.input(input));
  ParameterTensor tensor;
  tensor.name = node.input(input);
  tensor.shape = w.dims;
  if (w.used) tensor.tied_to = tensor.name;
  w.used = true;
  op->parameters.push_back(std::move(tensor));
}

Operator OnnxImporter::start(const onnx::NodeProto& node, OperatorKind kind) const {
  Operator op;
  op.kind = kind;
  op.name = !node.name().empty() ? node.name() : fmt::format("{}_{}", node.op_type(), operators_.size());
  for (const std::string& input : node.input()) {
    const int from = producer(input);
    if (from >= 0 && std::find(op.inputs.begin(), op.inputs.end(), from) == op.inputs.end())
      op.inputs.push_back(from);
  }
  for (const std::string& output : node.output()) {
    const auto type = shapes_types_.find(output);
    if (!output.empty() && (type == shapes_types_.end() || is_float_type(type->second)))
      op.output_elements += elements(node, output);
  }
  return op;
}

void OnnxImporter::finish(const onnx::NodeProto& node, Operator op) {
  for (const MatmulShape& m : op.matmuls)
    if (!(2 * m.rows_per_row * static_cast<double>(m.n) * static_cast<double>(m.k) < 1e18))
      fail_onnx(file_,
                fmt::format("node '{}' ({}) is too large for any machine", node.name(), node.op_type()),
                "expected at most 1e18 FLOPs a sample");
  operators_.push_back(std::move(op));
  for (const std::string& output : node.output())
    if (!output.empty()) producers_[output] = static_cast<int>(operators_.size()) - 1;
}

std::int64_t OnnxImporter::attribute(const onnx::NodeProto& node, std::string_view name,
                                     std::int64_t fallback) const {
  for (const onnx::AttributeProto& a : node.attribute())
    if (a.name() == name) return a.i();
  return fallback;
}

const onnx::AttributeProto* OnnxImporter::find_attribute(const onnx::NodeProto& node, std::string_view name) {
  for (const onnx::AttributeProto& a : node.attribute())
    if (a.name() == name) return &a;
  return nullptr;
}

void OnnxImporter::convert(const onnx::NodeProto& node) {
  const std::string& type = node.op_type();
  static const std::set<std::string> views = {"Identity", "Dropout",   "Reshape", "Flatten",
                                              "Squeeze",  "Unsqueeze", "Cast"};
  if (views.count(type) != 0 && node.input_size() > 0) {
    // The same elements under another shape.
    if (const int from = producer(node.input(0)); from >= 0) producers_[node.output(0)] = from;
    if (real_inputs_.count(node.input(0)) != 0) real_inputs_.insert(node.output(0));
    const auto at = weights_.find(node.input(0));
    if (at != weights_.end()) weights_.emplace(node.output(0), at->second);
    return;
  }
  if (makes_no_activation(node)) return;
  if (type == "Conv" || type == "ConvTranspose") return convolution(node);
  if (type == "Gemm" || type == "MatMul") return matrix_product(node);
  if (type == "Gather" && weight(node, 0) != nullptr) return embedding(node);
  static const std::set<std::string> norms = {"BatchNormalization", "LayerNormalization",
                                              "InstanceNormalization", "GroupNormalization"};
  if (norms.count(type) != 0) return normalisation(node);
  elementwise(node);
}

bool OnnxImporter::makes_no_activation(const onnx::NodeProto& node) const {
  static const std::set<std::string> constants = {"Constant", "ConstantOfShape", "Shape", "Size", "Range"};
  if (constants.count(node.op_type()) != 0) return true;
  if (node.output_size() == 0) return true;
  const auto type = shapes_types_.find(node.output(0));
  if (type != shapes_types_.end() && !is_float_type(type->second)) return true;
  return std::all_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
    if (input.empty()) return true;
    const auto at = weights_.find(input);
    if (at != weights_.end()) return !at->second.floating;
    return producer(input) < 0 && shapes_types_.count(input) != 0 && real_inputs_.count(input) == 0;
  });
}

void OnnxImporter::convolution(const onnx::NodeProto& node) {
  const Weight* w = weight(node, 1);
  if (w == nullptr || w->dims.size() < 3)
    fail_onnx(file_, fmt::format("node '{}' ({}) has no weight", node.name(), node.op_type()),
              "expected a convolution with a constant weight");
  Operator op = start(node, OperatorKind::conv);
  const std::int64_t groups = std::max<std::int64_t>(1, attribute(node, "group", 1));
  const bool transposed = node.op_type() == "ConvTranspose";
  const double window = product_of(w->dims, 2);
  const Dims& pixels = shape(node, transposed ? node.input(0) : node.output(0));
  MatmulShape m;
  m.rows_per_row = product_of(pixels, 2);
  m.groups = groups;
  m.n =
      transposed ? static_cast<std::int64_t>(static_cast<double>(w->dims[1]) * window) * groups : w->dims[0];
  m.k = transposed ? std::max<std::int64_t>(1, w->dims[0] / groups)
                   : static_cast<std::int64_t>(static_cast<double>(w->dims[1]) * window);
  op.matmuls = {m};
  if (!transposed) op.image = windowed(node);
  if (op.image) op.image->kernel = {static_cast<int>(w->dims[2]), static_cast<int>(w->dims[3])};
  take_parameter(&op, node, 1);
  take_parameter(&op, node, 2);
  finish(node, std::move(op));
}

void OnnxImporter::matrix_product(const onnx::NodeProto& node) {
  Operator op = start(node, OperatorKind::linear);
  const Dims& a = shape(node, node.input(0));
  const Dims& b = shape(node, node.input(1));
  const Dims& out = shape(node, node.output(0));
  if (a.empty() || b.empty())
    fail_onnx(file_, fmt::format("node '{}' multiplies a scalar", node.name()), "expected matrices");
  MatmulShape m;
  const bool gemm = node.op_type() == "Gemm";
  m.k = gemm && attribute(node, "transA", 0) != 0 ? a.front() : a.back();
  const double work = product_of(out);  // times k: all products
  if (weight(node, 0) != nullptr || weight(node, 1) != nullptr || out.size() < 3) {
    m.n = std::max<std::int64_t>(1, out.empty() ? 1 : out.back());
    m.rows_per_row = work / static_cast<double>(m.n) / static_cast<double>(batch_);
  } else {
    // Two activations: one product for each of the leading dimensions.
    m.rows_per_row = static_cast<double>(out[out.size() - 2]);
    const double count =
        work / m.rows_per_row / static_cast<double>(out.back()) / static_cast<double>(batch_);
    m.groups = std::max<std::int64_t>(1, static_cast<std::int64_t>(count));
    m.n = out.back() * m.groups;
  }
  if (m.k > 0 && m.n > 0 && m.rows_per_row > 0) op.matmuls = {m};
  op.image = multiplied(node);
  for (int i = 0; i < node.input_size(); ++i) take_parameter(&op, node, i);
  finish(node, std::move(op));
}

void OnnxImporter::embedding(const onnx::NodeProto& node) {
  Operator op = start(node, OperatorKind::embedding);
  op.vector_elements = 2.0 * static_cast<double>(op.output_elements);
  take_parameter(&op, node, 0);
  finish(node, std::move(op));
}

void OnnxImporter::normalisation(const onnx::NodeProto& node) {
  const bool batch = node.op_type() == "BatchNormalization";
  Operator op = start(node, batch ? OperatorKind::batch_norm : OperatorKind::norm);
  op.output_elements = elements(node, node.output(0));
  // Statistics over the batch need a pass of their own.
  op.vector_elements = (batch ? 3.0 : 2.0) * static_cast<double>(op.output_elements);
  take_parameter(&op, node, 1);
  if (batch) op.image = image_operator(node);
  if (const auto* epsilon = find_attribute(node, "epsilon"); op.image && epsilon != nullptr)
    op.image->epsilon = static_cast<double>(epsilon->f());
  take_parameter(&op, node, 2);  // running statistics (3, 4) are not trained
  finish(node, std::move(op));
}

void OnnxImporter::elementwise(const onnx::NodeProto& node) {
  const std::string& type = node.op_type();
  static const std::set<std::string> activations = {
      "Relu", "LeakyRelu", "PRelu", "Sigmoid",  "HardSigmoid", "Tanh", "Clip", "HardSwish",
      "Elu",  "Selu",      "Celu",  "Softplus", "Softsign",    "Erf",  "Mish", "ThresholdedRelu",
      "Gelu"};
  static const std::set<std::string> pools = {
      "MaxPool",    "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool",
      "ReduceMean", "ReduceSum",   "ReduceMax",         "ReduceMin",     "ReduceL2"};
  // Backward passes that read their output, or nothing, but not their input.
  static const std::set<std::string> needs_no_input = {
      "Relu",       "Sigmoid",   "Tanh",   "Clip",    "Add",        "Sub",
      "Sum",        "Concat",    "Split",  "Slice",   "Transpose",  "Pad",
      "Expand",     "Tile",      "Gather", "Softmax", "LogSoftmax", "GlobalAveragePool",
      "ReduceMean", "ReduceSum", "Neg"};
  // Element by element, a constant among the inputs is a bias or a scale that is trained.
  static const std::set<std::string> trainable = {"Add", "Sub", "Mul", "Div", "PRelu", "Sum"};
  const bool softmax = type == "Softmax" || type == "LogSoftmax";
  const bool pool = pools.count(type) != 0;
  Operator op = start(node, activations.count(type) != 0 ? OperatorKind::activation
                            : pool                       ? OperatorKind::pool
                                                         : OperatorKind::elementwise);
  op.keeps_input = needs_no_input.count(type) == 0;
  if (softmax || type == "MaxPool")
    op.saved_elements = op.output_elements;  // itself; the places of the maxima
  double read = 0;
  for (int i = 0; i < node.input_size(); ++i) {
    const std::string& input = node.input(i);
    if (const Weight* w = weight(node, i)) {
      if (trainable.count(type) != 0) {
        if (product_of(w->dims) > 1) take_parameter(&op, node, i);
      } else if (product_of(w->dims) > static_cast<double>(kKeptElements)) {
        fail_onnx(file_, fmt::format("node '{}' ({}) has a weight and no cost model", node.name(), type),
                  "expected convolutions, matrix products, norms and embeddings");
      }
    } else if (producer(input) >= 0 && shapes_.count(input) != 0) {
      read += static_cast<double>(elements(node, input));
    }
  }
  op.vector_elements = read + static_cast<double>(op.output_elements);
  op.image = pool ? pooled(node) : element_by_element(node);
  finish(node, std::move(op));
}

void OnnxImporter::add_loss() {
  Operator loss;
  loss.kind = OperatorKind::loss;
  loss.name = "loss";
  loss.output_elements = 1;
  for (const auto& output : model_.graph().output()) {
    const int from = producer(output.name());
    if (from < 0 || std::find(loss.inputs.begin(), loss.inputs.end(), from) != loss.inputs.end()) continue;
    loss.inputs.push_back(from);
    loss.vector_elements += 2.0 * static_cast<double>(operators_[from].output_elements);
  }
  if (loss.inputs.empty())
    fail_onnx(file_, "puts out nothing that depends on a weight or an input", "expected a model to train");
  if (loss.inputs.size() == 1) {
    loss.image.emplace();
    loss.image->input = {operators_[loss.inputs.front()].output_elements, 1, 1};
    loss.image->output = {1, 1, 1};
  }
  operators_.push_back(std::move(loss));
}

}  // namespace orrery::internal
