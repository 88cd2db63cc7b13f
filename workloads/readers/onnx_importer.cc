// From the file's model to one whose shapes are known, and round its conversion.
#include "workloads/readers/onnx_importer.h"

#include <fmt/format.h>
#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>
#undef fail_check  // a macro of onnx's checker, a function of ours

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "workloads/graph_layers.h"

namespace orrery::internal {
namespace {

constexpr double kMaxElements = 1e15;  // of one tensor

// onnx's messages span lines; the first says it.
std::string first_line(const char* what) {
  std::string text(what);
  text = text.substr(0, text.find('\n'));
  return text.size() > 200 ? text.substr(0, 200) + "..." : text;
}

}  // namespace

void fail_onnx(std::string_view file, std::string_view what, std::string_view expected) {
  throw UserError(file, 0, what, expected);
}

bool is_float_type(int type) {
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

double product_of(const std::vector<std::int64_t>& dims, std::size_t begin) {
  double all = 1;
  for (std::size_t d = begin; d < dims.size(); ++d) all *= static_cast<double>(dims[d]);
  return all;
}

Workload OnnxImporter::run() {
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
  if (workload.parameters() == 0) fail_onnx(file_, "has no parameters", "expected a model to train");
  return workload;
}

void OnnxImporter::check_header() const {
  const onnx::GraphProto& graph = model_.graph();
  if (!model_.has_ir_version() || !model_.has_graph() || graph.node_size() == 0)
    fail_onnx(file_, "holds no ONNX graph", "expected an ONNX model with nodes");
  if (model_.functions_size() > 0)
    fail_onnx(file_, "defines functions of its own",
              "expected operators of ONNX (export with functions inlined)");
  for (const onnx::NodeProto& node : graph.node())
    for (const onnx::AttributeProto& attribute : node.attribute())
      if (attribute.has_g() || attribute.graphs_size() > 0)
        fail_onnx(file_, fmt::format("node '{}' is control flow ({})", node.name(), node.op_type()),
                  "expected a graph without If, Loop and Scan (export with them unrolled)");
  if (graph.sparse_initializer_size() > 0) fail_onnx(file_, "has sparse weights", "expected dense ones");
  for (const onnx::NodeProto& node : graph.node())
    for (const onnx::AttributeProto& attribute : node.attribute()) check_divisors(node, attribute);
}

// onnx's shape inference divides by these without a look at them, and the process with them.
void OnnxImporter::check_divisors(const onnx::NodeProto& node, const onnx::AttributeProto& attribute) const {
  constexpr std::array<std::string_view, 5> kDivisors = {"strides", "dilations", "kernel_shape", "group",
                                                         "blocksize"};
  if (std::find(kDivisors.begin(), kDivisors.end(), attribute.name()) == kDivisors.end()) return;
  const auto check = [&](std::int64_t value) {
    if (value < 1 || value > std::numeric_limits<std::int32_t>::max())
      fail_onnx(
          file_,
          fmt::format("node '{}' ({}) has `{}` {}", node.name(), node.op_type(), attribute.name(), value),
          "expected whole numbers from 1 on");
  };
  for (const std::int64_t value : attribute.ints()) check(value);
  if (attribute.has_i()) check(attribute.i());
}

void OnnxImporter::take_weights() {
  onnx::GraphProto* graph = model_.mutable_graph();
  std::set<std::string> inputs;
  for (const onnx::ValueInfoProto& input : graph->input()) inputs.insert(input.name());
  google::protobuf::RepeatedPtrField<onnx::TensorProto> kept;
  for (onnx::TensorProto& tensor : *graph->mutable_initializer()) {
    Weight weight;
    weight.floating = is_float_type(tensor.data_type());
    for (const std::int64_t size : tensor.dims()) {
      if (size < 0)
        fail_onnx(file_, fmt::format("weight '{}' has dimension {}", tensor.name(), size),
                  "expected 0 and up");
      weight.dims.push_back(size);
    }
    const double elements = product_of(weight.dims);
    if (!(elements <= kMaxElements))
      fail_onnx(file_, fmt::format("weight '{}' has {:.3g} elements", tensor.name(), elements),
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

void OnnxImporter::bind_inputs() {
  std::string symbol;
  bool first = true;
  for (onnx::ValueInfoProto& input : *model_.mutable_graph()->mutable_input()) {
    if (weights_.count(input.name()) != 0) continue;
    if (!input.type().has_tensor_type() || !input.type().tensor_type().has_shape())
      fail_onnx(file_, fmt::format("input '{}' has no shape", input.name()),
                "expected tensors of known shape");
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
          fail_onnx(file_,
                    fmt::format("input '{}' has no fixed size in dimension {} ({})", input.name(), d, named),
                    "expected fixed sizes behind the batch (export with example inputs)");
        dim->set_dim_value(batch_);
      }
      if (dim->dim_value() < 1)
        fail_onnx(file_, fmt::format("input '{}' has dimension {}", input.name(), dim->dim_value()),
                  "expected 1 and up");
      elements *= static_cast<double>(dim->dim_value());
    }
    if (!(elements <= kMaxElements))
      fail_onnx(file_, fmt::format("input '{}' has {:.3g} elements", input.name(), elements),
                fmt::format("expected at most {:.0g}", kMaxElements));
    real_inputs_.insert(input.name());
    first = false;
  }
  if (first) fail_onnx(file_, "has no input", "expected a model that reads something");
  // Sizes that an exporter wrote for its symbolic batch would contradict the bound one.
  model_.mutable_graph()->clear_value_info();
  for (onnx::ValueInfoProto& output : *model_.mutable_graph()->mutable_output())
    if (output.type().has_tensor_type()) output.mutable_type()->mutable_tensor_type()->clear_shape();
}

void OnnxImporter::infer_shapes() {
  try {
    onnx::ModelProto checked = model_;
    // The checker wants a shape, known or not, on what the graph puts out.
    for (onnx::ValueInfoProto& output : *checked.mutable_graph()->mutable_output())
      if (output.type().has_tensor_type()) output.mutable_type()->mutable_tensor_type()->mutable_shape();
    onnx::checker::check_model(checked);
    onnx::shape_inference::InferShapes(model_, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(false, 0, true));
  } catch (const std::exception& error) {
    fail_onnx(file_, fmt::format("is not a valid ONNX model: {}", first_line(error.what())),
              "expected what onnx's checker accepts");
  }
}

void OnnxImporter::collect_shape(const onnx::ValueInfoProto& value) {
  if (!value.type().has_tensor_type()) return;
  const auto& tensor = value.type().tensor_type();
  shapes_types_[value.name()] = tensor.elem_type();
  if (!tensor.has_shape()) return;
  Dims dims;
  for (const auto& dim : tensor.shape().dim()) {
    if (!dim.has_dim_value() || dim.dim_value() < 0) return;
    dims.push_back(dim.dim_value());
  }
  if (!(product_of(dims) <= kMaxElements))
    fail_onnx(file_, fmt::format("tensor '{}' has {:.3g} elements", value.name(), product_of(dims)),
              fmt::format("expected at most {:.0g}", kMaxElements));
  shapes_[value.name()] = std::move(dims);
}

void OnnxImporter::collect_shapes() {
  for (const auto& value : model_.graph().input()) collect_shape(value);
  for (const auto& value : model_.graph().value_info()) collect_shape(value);
  for (const auto& value : model_.graph().output()) collect_shape(value);
  for (const auto& [name, weight] : weights_) shapes_[name] = weight.dims;
}

std::string OnnxImporter::name() const {
  const auto slash = file_.find_last_of('/');
  std::string base(slash == std::string_view::npos ? file_ : file_.substr(slash + 1));
  if (base.size() > 5 && base.substr(base.size() - 5) == ".onnx") base.resize(base.size() - 5);
  return base.empty() ? "onnx" : base;
}

}  // namespace orrery::internal
