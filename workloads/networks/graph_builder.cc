#include "workloads/networks/graph_builder.h"

#include <utility>

#include "workloads/graph_layers.h"
#include "workloads/image_operator.h"

namespace orrery::internal {

int GraphBuilder::add(OperatorKind kind, std::string name, const std::vector<int>& inputs, std::int64_t out,
                      double vector_elements) {
  Operator op;
  op.kind = kind;
  op.name = std::move(name);
  for (const int input : inputs)
    if (input >= 0) op.inputs.push_back(input);
  op.output_elements = out;
  op.vector_elements = vector_elements;
  op.layer = layer_;
  operators_.push_back(std::move(op));
  return static_cast<int>(operators_.size()) - 1;
}

void GraphBuilder::parameter(std::string name, std::vector<std::int64_t> shape) {
  ParameterTensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  operators_.back().parameters.push_back(std::move(tensor));
}

void GraphBuilder::product(const MatmulShape& shape) {
  operators_.back().matmuls = {shape};
}

ImageOperator& GraphBuilder::image(const GraphTensor& in, const GraphTensor& out) {
  ImageOperator image;
  image.input = {in.channels, in.size, in.size};
  image.output = {out.channels, out.size, out.size};
  return operators_.back().image.emplace(image);
}

void GraphBuilder::window(const GraphTensor& in, const GraphTensor& out, int kernel, int stride,
                          int padding) {
  ImageOperator& of = image(in, out);
  of.kernel = {kernel, kernel};
  of.stride = {stride, stride};
  of.padding = {padding, padding};
}

GraphTensor GraphBuilder::conv(const std::string& name, const GraphTensor& in, std::int64_t out, int kernel,
                               int stride, bool bias, std::optional<int> padding) {
  const int around = padding.value_or((kernel - 1) / 2);
  const std::int64_t side = window_outputs(in.size, kernel, stride, around, around, 1);
  const GraphTensor result{add(OperatorKind::conv, name, {in.op}, out * side * side, 0), out, side};
  const std::int64_t k = in.channels * kernel * kernel;
  product({static_cast<double>(side * side), out, k, 1});
  parameter(name + ".weight", {out, in.channels, kernel, kernel});
  if (bias) parameter(name + ".bias", {out});
  window(in, result, kernel, stride, around);
  return result;
}

GraphTensor GraphBuilder::batch_norm(const std::string& name, GraphTensor in) {
  const GraphTensor before = in;
  in.op =
      add(OperatorKind::batch_norm, name, {in.op}, in.elements(), 3.0 * static_cast<double>(in.elements()));
  parameter(name + ".weight", {in.channels});
  parameter(name + ".bias", {in.channels});
  image(before, in);
  return in;
}

// In place: the backward reads the output, which the next operator keeps.
GraphTensor GraphBuilder::relu(const std::string& name, GraphTensor in) {
  const GraphTensor before = in;
  in.op =
      add(OperatorKind::activation, name, {in.op}, in.elements(), 2.0 * static_cast<double>(in.elements()));
  operators_.back().keeps_input = false;
  image(before, in);
  return in;
}

GraphTensor GraphBuilder::max_pool(const std::string& name, const GraphTensor& in, int kernel, int stride,
                                   std::optional<int> padding) {
  const int around = padding.value_or((kernel - 1) / 2);
  GraphTensor out{-1, in.channels, window_outputs(in.size, kernel, stride, around, around, 1)};
  out.op = add(OperatorKind::pool, name, {in.op}, out.elements(),
               static_cast<double>(in.elements() + out.elements()));
  operators_.back().saved_elements = out.elements();  // where the maxima were
  window(in, out, kernel, stride, around);
  return out;
}

GraphTensor GraphBuilder::average_pool(const std::string& name, const GraphTensor& in) {
  GraphTensor out{-1, in.channels, 1};
  out.op = add(OperatorKind::pool, name, {in.op}, out.elements(),
               static_cast<double>(in.elements() + out.elements()));
  operators_.back().keeps_input = false;
  ImageOperator& window = image(in, out);
  const int side = static_cast<int>(in.size);
  window.kernel = {side, side};
  window.stride = {side, side};
  window.average = true;
  return out;
}

GraphTensor GraphBuilder::addition(const std::string& name, GraphTensor a, const GraphTensor& b) {
  const GraphTensor before = a;
  a.op = add(OperatorKind::elementwise, name, {a.op, b.op}, a.elements(),
             3.0 * static_cast<double>(a.elements()));
  operators_.back().keeps_input = false;
  image(before, a);
  return a;
}

GraphTensor GraphBuilder::linear(const std::string& name, const GraphTensor& in, std::int64_t out) {
  const GraphTensor result{add(OperatorKind::linear, name, {in.op}, out, 0), out, 1};
  product({1, out, in.elements(), 1});
  parameter(name + ".weight", {out, in.elements()});
  parameter(name + ".bias", {out});
  image(in, result);
  return result;
}

GraphTensor GraphBuilder::embedding(const std::string& name, std::int64_t rows, std::int64_t width) {
  const GraphTensor result{add(OperatorKind::embedding, name, {}, width, 2.0 * static_cast<double>(width)),
                           width, 1};
  parameter(name + ".weight", {rows, width});
  return result;
}

void GraphBuilder::sparse_gradient() {
  operators_.back().sparse.emplace();
}

void GraphBuilder::loss(const GraphTensor& in) {
  add(OperatorKind::loss, "loss", {in.op}, 1, 2.0 * static_cast<double>(in.elements()));
  image(in, {-1, 1, 1});
}

GraphTensor GraphBuilder::basic_block(const std::string& prefix, const GraphTensor& in, std::int64_t out,
                                      int stride) {
  GraphTensor x =
      relu(prefix + "relu1", batch_norm(prefix + "bn1", conv(prefix + "conv1", in, out, 3, stride, false)));
  x = batch_norm(prefix + "bn2", conv(prefix + "conv2", x, out, 3, 1, false));
  GraphTensor shortcut = in;
  if (stride != 1 || in.channels != out)
    shortcut = batch_norm(prefix + "downsample.1", conv(prefix + "downsample.0", in, out, 1, stride, false));
  return relu(prefix + "relu2", addition(prefix + "add", x, shortcut));
}

Workload GraphBuilder::finish(std::string name, std::string source, std::int64_t published_parameters) {
  Workload workload;
  workload.name = std::move(name);
  workload.source = std::move(source);
  workload.published_parameters = published_parameters;
  workload.layers = layer_ > 0 ? layer_ + 1 : assign_layers(&operators_);
  if (!plain_)
    for (Operator& op : operators_) op.image.reset();
  layer_ = 0;
  plain_ = true;
  workload.operators = std::exchange(operators_, {});
  return workload;
}

}  // namespace orrery::internal
