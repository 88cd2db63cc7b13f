// The one file that knows onnx's library: its schema, checker and shape inference.
#include "workloads/readers/onnx.h"

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>
#undef fail_check  // a macro of onnx's checker, a function of ours

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "workloads/graph_layers.h"
#include "workloads/image_operator.h"
#include "workloads/readers/onnx_scan.h"

namespace orrery {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr int kMaxNesting = 64;              // of protobuf messages; a subgraph takes three
constexpr double kMaxElements = 1e15;        // of one tensor
constexpr std::int64_t kKeptElements = 256;  // larger constants are weights, whose values nobody needs here

[[noreturn]] void fail(std::string_view file, std::string_view what, std::string_view expected) {
  throw UserError(file, 0, what, expected);
}

// onnx's messages span lines; the first says it.
std::string first_line(const char* what) {
  std::string text(what);
  text = text.substr(0, text.find('\n'));
  return text.size() > 200 ? text.substr(0, 200) + "..." : text;
}

bool is_float(int type) {
  switch (type) {
    case onnx::TensorProto::FLOAT:
    case onnx::TensorProto::FLOAT16:
    case onnx::TensorProto::BFLOAT16:
    case onnx::TensorProto::DOUBLE:
      return true;
    default:
      return false;
  }
}

double product(const Dims& dims, std::size_t begin = 0) {
  double all = 1;
  for (std::size_t d = begin; d < dims.size(); ++d) all *= static_cast<double>(dims[d]);
  return all;
}

struct Weight {
  Dims dims;
  bool floating = false;
  bool used = false;
};

class Importer {
 public:
  Importer(onnx::ModelProto model, std::string_view file) : model_(std::move(model)), file_(file) {}

  Workload run() {
    check_header();
    take_weights();
    bind_inputs();
    infer_shapes();
    collect_shapes();
    for (const onnx::NodeProto& node : model_.graph().node()) convert(node);
    add_loss();
    forget_impossible_images();
    Workload workload;
    workload.source =
        fmt::format("ONNX model {} ({} {})", file_, model_.producer_name(), model_.producer_version());
    workload.name = name();
    workload.layers = assign_layers(&operators_);
    workload.operators = std::move(operators_);
    if (workload.parameters() == 0) fail(file_, "has no parameters", "expected a model to train");
    return workload;
  }

 private:
  // ---- Before onnx's library sees the model ----

  void check_header() const {
    const onnx::GraphProto& graph = model_.graph();
    if (!model_.has_ir_version() || !model_.has_graph() || graph.node_size() == 0)
      fail(file_, "holds no ONNX graph", "expected an ONNX model with nodes");
    if (model_.functions_size() > 0)
      fail(file_, "defines functions of its own",
           "expected operators of ONNX (export with functions inlined)");
    for (const onnx::NodeProto& node : graph.node())
      for (const onnx::AttributeProto& attribute : node.attribute())
        if (attribute.has_g() || attribute.graphs_size() > 0)
          fail(file_, fmt::format("node '{}' is control flow ({})", node.name(), node.op_type()),
               "expected a graph without If, Loop and Scan (export with them unrolled)");
    if (graph.sparse_initializer_size() > 0) fail(file_, "has sparse weights", "expected dense ones");
  }

  // Weights' values have done their part: as inputs of a known shape they need not be copied by the checker.
  void take_weights() {
    onnx::GraphProto* graph = model_.mutable_graph();
    std::set<std::string> inputs;
    for (const onnx::ValueInfoProto& input : graph->input()) inputs.insert(input.name());
    google::protobuf::RepeatedPtrField<onnx::TensorProto> kept;
    for (onnx::TensorProto& tensor : *graph->mutable_initializer()) {
      Weight weight;
      weight.floating = is_float(tensor.data_type());
      for (const std::int64_t size : tensor.dims()) {
        if (size < 0)
          fail(file_, fmt::format("weight '{}' has dimension {}", tensor.name(), size), "expected 0 and up");
        weight.dims.push_back(size);
      }
      const double elements = product(weight.dims);
      if (!(elements <= kMaxElements))
        fail(file_, fmt::format("weight '{}' has {:.3g} elements", tensor.name(), elements),
             fmt::format("expected at most {:.0g}", kMaxElements));
      const bool external = tensor.data_location() == onnx::TensorProto::EXTERNAL;
      if (external || elements > static_cast<double>(kKeptElements)) {
        if (inputs.insert(tensor.name()).second) {
          onnx::ValueInfoProto* input = graph->add_input();
          input->set_name(tensor.name());
          auto* type = input->mutable_type()->mutable_tensor_type();
          type->set_elem_type(tensor.data_type());
          type->mutable_shape();
          for (const std::int64_t size : weight.dims) type->mutable_shape()->add_dim()->set_dim_value(size);
        }
      } else {
        kept.Add()->Swap(&tensor);
        weights_.emplace(kept.rbegin()->name(), std::move(weight));
        continue;
      }
      weights_.emplace(tensor.name(), std::move(weight));
    }
    graph->mutable_initializer()->Swap(&kept);
  }

  // The leading dimension of the first real input is the batch; a symbol there becomes one sample.
  void bind_inputs() {
    std::string symbol;
    bool first = true;
    for (onnx::ValueInfoProto& input : *model_.mutable_graph()->mutable_input()) {
      if (weights_.count(input.name()) != 0) continue;
      if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
        fail(file_, fmt::format("input '{}' has no shape", input.name()), "expected tensors of known shape");
      auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
      double elements = 1;
      for (int d = 0; d < shape->dim_size(); ++d) {
        auto* dim = shape->mutable_dim(d);
        const std::string named = dim->dim_param();
        if (d == 0 && first) {
          symbol = named;
          batch_ = dim->has_dim_value() ? dim->dim_value() : 1;
        }
        if (!dim->has_dim_value()) {
          const bool batch = d == 0 || (!symbol.empty() && named == symbol);
          if (!batch)
            fail(file_,
                 fmt::format("input '{}' has no fixed size in dimension {} ({})", input.name(), d, named),
                 "expected fixed sizes behind the batch (export with example inputs)");
          dim->set_dim_value(batch_);
        }
        if (dim->dim_value() < 1)
          fail(file_, fmt::format("input '{}' has dimension {}", input.name(), dim->dim_value()),
               "expected 1 and up");
        elements *= static_cast<double>(dim->dim_value());
      }
      if (!(elements <= kMaxElements))
        fail(file_, fmt::format("input '{}' has {:.3g} elements", input.name(), elements),
             fmt::format("expected at most {:.0g}", kMaxElements));
      real_inputs_.insert(input.name());
      first = false;
    }
    if (first) fail(file_, "has no input", "expected a model that reads something");
    // Sizes that an exporter wrote for its symbolic batch would contradict the bound one.
    model_.mutable_graph()->clear_value_info();
    for (onnx::ValueInfoProto& output : *model_.mutable_graph()->mutable_output())
      if (output.type().has_tensor_type()) output.mutable_type()->mutable_tensor_type()->clear_shape();
  }

  void infer_shapes() {
    try {
      onnx::ModelProto checked = model_;
      // The checker wants a shape, known or not, on what the graph puts out.
      for (onnx::ValueInfoProto& output : *checked.mutable_graph()->mutable_output())
        if (output.type().has_tensor_type()) output.mutable_type()->mutable_tensor_type()->mutable_shape();
      onnx::checker::check_model(checked);
      onnx::shape_inference::InferShapes(model_, onnx::OpSchemaRegistry::Instance(),
                                         onnx::ShapeInferenceOptions(false, 0, true));
    } catch (const std::exception& error) {
      fail(file_, fmt::format("is not a valid ONNX model: {}", first_line(error.what())),
           "expected what onnx's checker accepts");
    }
  }

  void collect_shape(const onnx::ValueInfoProto& value) {
    if (!value.type().has_tensor_type()) return;
    const auto& tensor = value.type().tensor_type();
    shapes_types_[value.name()] = tensor.elem_type();
    if (!tensor.has_shape()) return;
    Dims dims;
    for (const auto& dim : tensor.shape().dim()) {
      if (!dim.has_dim_value() || dim.dim_value() < 0) return;
      dims.push_back(dim.dim_value());
    }
    if (!(product(dims) <= kMaxElements))
      fail(file_, fmt::format("tensor '{}' has {:.3g} elements", value.name(), product(dims)),
           fmt::format("expected at most {:.0g}", kMaxElements));
    shapes_[value.name()] = std::move(dims);
  }

  void collect_shapes() {
    for (const auto& value : model_.graph().input()) collect_shape(value);
    for (const auto& value : model_.graph().value_info()) collect_shape(value);
    for (const auto& value : model_.graph().output()) collect_shape(value);
    for (const auto& [name, weight] : weights_) shapes_[name] = weight.dims;
  }

  // ---- Conversion ----

  const Dims& shape(const onnx::NodeProto& node, const std::string& value) const {
    const auto at = shapes_.find(value);
    if (at == shapes_.end())
      fail(file_,
           fmt::format("the shape of '{}' at node '{}' ({}) cannot be inferred", value, node.name(),
                       node.op_type()),
           "expected shapes that follow from the inputs'");
    return at->second;
  }

  // Per sample.
  std::int64_t elements(const onnx::NodeProto& node, const std::string& value) const {
    return static_cast<std::int64_t>(product(shape(node, value)) / static_cast<double>(batch_));
  }

  const Weight* weight(const onnx::NodeProto& node, int input) const {
    if (input >= node.input_size()) return nullptr;
    const auto at = weights_.find(node.input(input));
    return at != weights_.end() && at->second.floating ? &at->second : nullptr;
  }

  int producer(const std::string& value) const {
    const auto at = producers_.find(value);
    return at == producers_.end() ? -1 : at->second;
  }

  void take_parameter(Operator* op, const onnx::NodeProto& node, int input) {
    if (weight(node, input) == nullptr) return;
    Weight& w = weights_.at(node.input(input));
    ParameterTensor tensor;
    tensor.name = node.input(input);
    tensor.shape = w.dims;
    if (w.used) tensor.tied_to = tensor.name;
    w.used = true;
    op->parameters.push_back(std::move(tensor));
  }

  Operator start(const onnx::NodeProto& node, OperatorKind kind) const {
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
      if (!output.empty() && (type == shapes_types_.end() || is_float(type->second)))
        op.output_elements += elements(node, output);
    }
    return op;
  }

  void finish(const onnx::NodeProto& node, Operator op) {
    for (const MatmulShape& m : op.matmuls)
      if (!(2 * m.rows_per_row * static_cast<double>(m.n) * static_cast<double>(m.k) < 1e18))
        fail(file_, fmt::format("node '{}' ({}) is too large for any machine", node.name(), node.op_type()),
             "expected at most 1e18 FLOPs a sample");
    operators_.push_back(std::move(op));
    for (const std::string& output : node.output())
      if (!output.empty()) producers_[output] = static_cast<int>(operators_.size()) - 1;
  }

  std::int64_t attribute(const onnx::NodeProto& node, std::string_view name, std::int64_t fallback) const {
    for (const onnx::AttributeProto& a : node.attribute())
      if (a.name() == name) return a.i();
    return fallback;
  }

  // ---- What an operator computes on images, where this is known ----

  std::optional<ImageShape> image_of(const std::string& value) const {
    const auto at = shapes_.find(value);
    if (at == shapes_.end() || at->second.empty() || at->second.front() != batch_) return {};
    const Dims& dims = at->second;
    if (dims.size() == 2) return ImageShape{dims[1], 1, 1};
    if (dims.size() == 4) return ImageShape{dims[1], dims[2], dims[3]};
    return {};
  }

  std::optional<ImageOperator> image_operator(const onnx::NodeProto& node) const {
    const auto in = image_of(node.input(0));
    const auto out = image_of(node.output(0));
    const bool known = producer(node.input(0)) >= 0 || real_inputs_.count(node.input(0)) != 0;
    if (!in || !out || !known) return {};
    ImageOperator image;
    image.input = *in;
    image.output = *out;
    return image;
  }

  static const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, std::string_view name) {
    for (const onnx::AttributeProto& a : node.attribute())
      if (a.name() == name) return &a;
    return nullptr;
  }

  // False where the attribute is there and is no pair of sensible sizes.
  static bool read_pair(const onnx::NodeProto& node, std::string_view name, std::array<int, 2>* pair) {
    const onnx::AttributeProto* a = find_attribute(node, name);
    if (a == nullptr) return true;
    if (a->ints_size() < 2) return false;
    for (int d = 0; d < 2; ++d) {
      if (a->ints(d) < 0 || a->ints(d) > (1 << 20)) return false;
      (*pair)[static_cast<std::size_t>(d)] = static_cast<int>(a->ints(d));
    }
    return true;
  }

  // The window of a convolution or pool; what it reaches at the end follows from the output's shape.
  std::optional<ImageOperator> windowed(const onnx::NodeProto& node) const {
    auto image = image_operator(node);
    if (!image || shape(node, node.input(0)).size() != 4) return {};
    const onnx::AttributeProto* automatic = find_attribute(node, "auto_pad");
    if (automatic != nullptr && automatic->s() != "NOTSET") return {};
    const bool read =
        read_pair(node, "kernel_shape", &image->kernel) && read_pair(node, "strides", &image->stride) &&
        read_pair(node, "pads", &image->padding) && read_pair(node, "dilations", &image->dilation);
    return read ? image : std::nullopt;
  }

  std::optional<ImageOperator> pooled(const onnx::NodeProto& node) const {
    const std::string& type = node.op_type();
    if (type == "GlobalAveragePool") {
      auto image = image_operator(node);
      if (!image) return {};
      image->kernel = {static_cast<int>(image->input.height), static_cast<int>(image->input.width)};
      image->stride = image->kernel;
      image->average = true;
      return image;
    }
    if (type != "MaxPool" && type != "AveragePool") return {};
    auto image = windowed(node);
    if (!image) return {};
    image->average = type == "AveragePool";
    const bool padded = image->padding[0] > 0 || image->padding[1] > 0;
    if (image->average && padded && attribute(node, "count_include_pad", 0) != 0) return {};
    return image;
  }

  std::optional<ImageOperator> multiplied(const onnx::NodeProto& node) const {
    auto image = image_operator(node);
    if (!image || weight(node, 0) != nullptr || weight(node, 1) == nullptr) return {};
    if (shape(node, node.output(0)).size() != 2) return {};
    if (node.op_type() == "MatMul") {
      image->weight_in_out = true;
      return image;
    }
    for (const char* factor : {"alpha", "beta"})
      if (const auto* a = find_attribute(node, factor); a != nullptr && a->f() != 1) return {};
    if (attribute(node, "transA", 0) != 0) return {};
    image->weight_in_out = attribute(node, "transB", 0) == 0;
    return image;
  }

  std::optional<ImageOperator> element_by_element(const onnx::NodeProto& node) const {
    if (node.op_type() == "Relu") return image_operator(node);
    if (node.op_type() != "Add" || node.input_size() != 2) return {};
    if (producer(node.input(0)) < 0 || producer(node.input(1)) < 0) return {};
    const auto other = image_of(node.input(1));
    auto image = image_operator(node);
    return image && other && *other == image->input ? image : std::nullopt;  // no broadcast
  }

  void forget_impossible_images() {
    for (std::size_t i = 0; i < operators_.size(); ++i)
      if (operators_[i].image && !fault_of_image(operators_, static_cast<int>(i)).empty())
        operators_[i].image.reset();
  }

  void convert(const onnx::NodeProto& node) {
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

  // Shapes, indices, masks and constants: nothing of cost, nothing to train.
  bool makes_no_activation(const onnx::NodeProto& node) const {
    static const std::set<std::string> constants = {"Constant", "ConstantOfShape", "Shape", "Size", "Range"};
    if (constants.count(node.op_type()) != 0) return true;
    if (node.output_size() == 0) return true;
    const auto type = shapes_types_.find(node.output(0));
    if (type != shapes_types_.end() && !is_float(type->second)) return true;
    return std::all_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
      if (input.empty()) return true;
      const auto at = weights_.find(input);
      if (at != weights_.end()) return !at->second.floating;
      return producer(input) < 0 && shapes_types_.count(input) != 0 && real_inputs_.count(input) == 0;
    });
  }

  void convolution(const onnx::NodeProto& node) {
    const Weight* w = weight(node, 1);
    if (w == nullptr || w->dims.size() < 3)
      fail(file_, fmt::format("node '{}' ({}) has no weight", node.name(), node.op_type()),
           "expected a convolution with a constant weight");
    Operator op = start(node, OperatorKind::conv);
    const std::int64_t groups = std::max<std::int64_t>(1, attribute(node, "group", 1));
    const bool transposed = node.op_type() == "ConvTranspose";
    const double window = product(w->dims, 2);
    const Dims& pixels = shape(node, transposed ? node.input(0) : node.output(0));
    MatmulShape m;
    m.rows_per_row = product(pixels, 2);
    m.groups = groups;
    m.n = transposed ? static_cast<std::int64_t>(static_cast<double>(w->dims[1]) * window) * groups
                     : w->dims[0];
    m.k = transposed ? std::max<std::int64_t>(1, w->dims[0] / groups)
                     : static_cast<std::int64_t>(static_cast<double>(w->dims[1]) * window);
    op.matmuls = {m};
    if (!transposed) op.image = windowed(node);
    if (op.image) op.image->kernel = {static_cast<int>(w->dims[2]), static_cast<int>(w->dims[3])};
    take_parameter(&op, node, 1);
    take_parameter(&op, node, 2);
    finish(node, std::move(op));
  }

  void matrix_product(const onnx::NodeProto& node) {
    Operator op = start(node, OperatorKind::linear);
    const Dims& a = shape(node, node.input(0));
    const Dims& b = shape(node, node.input(1));
    const Dims& out = shape(node, node.output(0));
    if (a.empty() || b.empty())
      fail(file_, fmt::format("node '{}' multiplies a scalar", node.name()), "expected matrices");
    MatmulShape m;
    const bool gemm = node.op_type() == "Gemm";
    m.k = gemm && attribute(node, "transA", 0) != 0 ? a.front() : a.back();
    const double work = product(out);  // times k: all products
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

  void embedding(const onnx::NodeProto& node) {
    Operator op = start(node, OperatorKind::embedding);
    op.vector_elements = 2.0 * static_cast<double>(op.output_elements);
    take_parameter(&op, node, 0);
    finish(node, std::move(op));
  }

  void normalisation(const onnx::NodeProto& node) {
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

  void elementwise(const onnx::NodeProto& node) {
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
          if (product(w->dims) > 1) take_parameter(&op, node, i);
        } else if (product(w->dims) > static_cast<double>(kKeptElements)) {
          fail(file_, fmt::format("node '{}' ({}) has a weight and no cost model", node.name(), type),
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

  // Exported models end in their scores: training adds a loss on what they put out.
  void add_loss() {
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
      fail(file_, "puts out nothing that depends on a weight or an input", "expected a model to train");
    if (loss.inputs.size() == 1) {
      loss.image.emplace();
      loss.image->input = {operators_[loss.inputs.front()].output_elements, 1, 1};
      loss.image->output = {1, 1, 1};
    }
    operators_.push_back(std::move(loss));
  }

  std::string name() const {
    const auto slash = file_.find_last_of('/');
    std::string base(slash == std::string_view::npos ? file_ : file_.substr(slash + 1));
    if (base.size() > 5 && base.substr(base.size() - 5) == ".onnx") base.resize(base.size() - 5);
    return base.empty() ? "onnx" : base;
  }

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

}  // namespace

Workload workload_from_onnx(std::string_view bytes, std::string_view file) {
  if (bytes.size() > kMaxOnnxBytes)
    fail(file, fmt::format("has {} bytes", bytes.size()), fmt::format("expected at most {}", kMaxOnnxBytes));
  internal::scan_onnx(bytes, file);
  onnx::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(kMaxNesting);
  if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    fail(file, "is not an ONNX model, or truncated", "expected an ONNX model");
  return Importer(std::move(model), file).run();
}

}  // namespace orrery
