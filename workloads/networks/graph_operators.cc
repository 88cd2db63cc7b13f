// Operators that are planned, not executed: of newer networks on images.
#include "workloads/graph_layers.h"
#include "workloads/image_operator.h"
#include "workloads/networks/graph_builder.h"

namespace orrery::internal {

GraphTensor GraphBuilder::elementwise(const std::string& name, const std::vector<int>& inputs,
                                      const GraphTensor& out, double moved) {
  plain_ = false;
  return {add(OperatorKind::elementwise, name, inputs, out.elements(), moved), out.channels, out.size};
}

GraphTensor GraphBuilder::grouped_conv(const std::string& name, const GraphTensor& in, std::int64_t out,
                                       int kernel, int stride, std::int64_t groups, bool bias,
                                       std::optional<int> padding) {
  plain_ = false;
  const int around = padding.value_or((kernel - 1) / 2);
  const std::int64_t side = window_outputs(in.size, kernel, stride, around, around, 1);
  const GraphTensor result{add(OperatorKind::conv, name, {in.op}, out * side * side, 0), out, side};
  const std::int64_t channels = in.channels / groups;
  product({static_cast<double>(side * side), out, channels * kernel * kernel, groups});
  parameter(name + ".weight", {out, channels, kernel, kernel});
  if (bias) parameter(name + ".bias", {out});
  return result;
}

GraphTensor GraphBuilder::product_of_rows(const std::string& name, const GraphTensor& in, std::int64_t rows,
                                          std::int64_t inputs, std::int64_t outputs, bool bias) {
  plain_ = false;
  const GraphTensor result{add(OperatorKind::linear, name, {in.op}, rows * outputs, 0), outputs, 1};
  product({static_cast<double>(rows), outputs, inputs, 1});
  parameter(name + ".weight", {outputs, inputs});
  if (bias) parameter(name + ".bias", {outputs});
  return result;
}

GraphTensor GraphBuilder::pointwise(const std::string& name, const GraphTensor& in, std::int64_t out,
                                    bool bias) {
  GraphTensor result = product_of_rows(name, in, in.size * in.size, in.channels, out, bias);
  result.size = in.size;
  return result;
}

GraphTensor GraphBuilder::norm(const std::string& name, GraphTensor in) {
  plain_ = false;
  in.op = add(OperatorKind::norm, name, {in.op}, in.elements(), 2.0 * static_cast<double>(in.elements()));
  parameter(name + ".weight", {in.channels});
  parameter(name + ".bias", {in.channels});
  return in;
}

GraphTensor GraphBuilder::smooth(const std::string& name, GraphTensor in) {
  plain_ = false;
  in.op =
      add(OperatorKind::activation, name, {in.op}, in.elements(), 2.0 * static_cast<double>(in.elements()));
  return in;
}

GraphTensor GraphBuilder::gated(const std::string& name, GraphTensor in) {
  plain_ = false;
  const auto read = static_cast<double>(in.elements());
  in.channels /= 2;
  in.op = add(OperatorKind::activation, name, {in.op}, in.elements(), 1.5 * read);
  return in;
}

GraphTensor GraphBuilder::scaled(const std::string& name, GraphTensor in, const GraphTensor& by) {
  return elementwise(name, {in.op, by.op}, in, 2.0 * static_cast<double>(in.elements()));
}

GraphTensor GraphBuilder::trained_scale(const std::string& name, GraphTensor in) {
  in = elementwise(name, {in.op}, in, 2.0 * static_cast<double>(in.elements()));
  parameter(name + ".weight", {in.channels});
  return in;
}

// The norm of each channel over all pixels (one pass), then scale, shift and addition (two).
GraphTensor GraphBuilder::response_norm(const std::string& name, GraphTensor in) {
  in = elementwise(name, {in.op}, in, 3.0 * static_cast<double>(in.elements()));
  parameter(name + ".weight", {in.channels});
  parameter(name + ".bias", {in.channels});
  return in;
}

GraphTensor GraphBuilder::upsampled(const std::string& name, GraphTensor in) {
  const auto read = static_cast<double>(in.elements());
  in.size *= 2;
  in = elementwise(name, {in.op}, in, read + static_cast<double>(in.elements()));
  operators_.back().keeps_input = false;
  return in;
}

GraphTensor GraphBuilder::joined(const std::string& name, GraphTensor a, const GraphTensor& b) {
  a.channels += b.channels;
  a = elementwise(name, {a.op, b.op}, a, 2.0 * static_cast<double>(a.elements()));
  operators_.back().keeps_input = false;
  return a;
}

GraphTensor GraphBuilder::attention(const std::string& name, const GraphTensor& queries,
                                    const GraphTensor& keys_values, std::int64_t tokens) {
  plain_ = false;
  std::vector<int> inputs = {queries.op};
  if (keys_values.op != queries.op) inputs.push_back(keys_values.op);
  const std::int64_t rows = queries.size * queries.size;
  const GraphTensor result{add(OperatorKind::linear, name, inputs, rows * queries.channels, 0),
                           queries.channels, queries.size};
  // Scores and context: 2 x 2 x queries x keys x channels.
  product({static_cast<double>(rows), 2 * queries.channels, tokens, 1});
  return result;
}

}  // namespace orrery::internal
