#include "workloads/networks/tower_builder.h"

#include <algorithm>

namespace orrery::internal {

int TowerBuilder::add(OperatorKind kind, const std::string& name, const std::vector<int>& inputs,
                      std::int64_t out, double vector_elements) {
  Operator op;
  op.kind = kind;
  op.name = name;
  for (const int input : inputs)
    if (input >= 0) op.inputs.push_back(input);
  op.output_elements = out;
  op.vector_elements = vector_elements;
  op.layer = layer_;
  operators_.push_back(std::move(op));
  return static_cast<int>(operators_.size()) - 1;
}

void TowerBuilder::parameter(const std::string& name, std::vector<std::int64_t> shape) {
  ParameterTensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  operators_.back().parameters.push_back(std::move(tensor));
}

ImageOperator& TowerBuilder::image(const ImageShape& in, const ImageShape& out) {
  ImageOperator own;
  own.input = in;
  own.output = out;
  return operators_.back().image.emplace(own);
}

ImageOperator& TowerBuilder::sequence(const TokenTensor& in, const TokenTensor& out) {
  ImageOperator& own = image({in.width, in.tokens, 1}, {out.width, out.tokens, 1});
  own.sequence = true;
  return own;
}

TokenTensor TowerBuilder::patches(const std::string& prefix, std::int64_t channels, std::int64_t side,
                                  std::int64_t patch, std::int64_t width, bool bias,
                                  const std::vector<std::string>& others) {
  const std::int64_t across = side / patch, count = across * across, tokens = count + 1;
  const int conv = add(OperatorKind::conv, prefix + "patches", {}, count * width, 0);
  operators_.back().matmuls = {{static_cast<double>(count), width, channels * patch * patch, 1}};
  parameter(prefix + "patches.weight", {width, channels, patch, patch});
  if (bias) parameter(prefix + "patches.bias", {width});
  ImageOperator& window = image({channels, side, side}, {width, across, across});
  window.kernel = window.stride = {static_cast<int>(patch), static_cast<int>(patch)};
  const TokenTensor in{conv, count, width};
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> rows = {
      {prefix + "class_token", {1, 1, width}}, {prefix + "positions.weight", {1, tokens, width}}};
  for (const std::string& name : others) rows.push_back({prefix + name, {width}});
  const TokenTensor out = trained_rows(prefix + "positions", in, tokens, std::move(rows));
  if (others.empty()) image({width, across, across}, {width, tokens, 1}).sequence = true;
  return out;
}

TokenTensor TowerBuilder::lookup(const std::string& name, std::int64_t vocab, std::int64_t width,
                                 std::int64_t tokens, const std::string& tied_to) {
  const std::int64_t out = tokens * width;
  const int op = add(OperatorKind::embedding, name, {}, out, 2.0 * static_cast<double>(out));
  parameter(name + ".weight", {vocab, width});
  operators_.back().parameters.back().tied_to = tied_to;
  return {op, tokens, width};
}

TokenTensor TowerBuilder::project(const std::string& name, const TokenTensor& in, std::int64_t rows,
                                  std::int64_t inputs, std::int64_t outputs, bool bias,
                                  const std::string& tied_to) {
  const int op = add(OperatorKind::linear, name, {in.op}, rows * outputs, 0);
  operators_.back().matmuls = {{static_cast<double>(rows), outputs, inputs, 1}};
  parameter(name + ".weight", {outputs, inputs});
  operators_.back().parameters.back().tied_to = tied_to;
  if (bias) parameter(name + ".bias", {outputs});
  const TokenTensor out{op, rows, outputs};
  if (in.op >= 0 && inputs == in.width && (rows == in.tokens || rows == 1)) sequence(in, out);
  return out;
}

TokenTensor TowerBuilder::trained_rows(
    const std::string& name, const TokenTensor& in, std::int64_t tokens,
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& parameters) {
  const std::int64_t out = tokens * in.width;
  const int op = add(OperatorKind::elementwise, name, {in.op}, out, 2.0 * static_cast<double>(out));
  operators_.back().keeps_input = false;
  for (const auto& [tensor, shape] : parameters) parameter(tensor, shape);
  return {op, tokens, in.width};
}

TokenTensor TowerBuilder::norm(const std::string& name, const TokenTensor& in, bool bias) {
  const int op =
      add(OperatorKind::norm, name, {in.op}, in.elements(), 2.0 * static_cast<double>(in.elements()));
  parameter(name + ".weight", {in.width});
  if (bias) parameter(name + ".bias", {in.width});
  const TokenTensor out{op, in.tokens, in.width};
  if (bias) sequence(in, out).epsilon = norm_epsilon_;
  return out;
}

TokenTensor TowerBuilder::plain_norm(const std::string& name, const TokenTensor& in) {
  const int op =
      add(OperatorKind::norm, name, {in.op}, in.elements(), 2.0 * static_cast<double>(in.elements()));
  return {op, in.tokens, in.width};
}

TokenTensor TowerBuilder::elementwise(const std::string& name, const std::vector<TokenTensor>& of,
                                      const TokenTensor& out) {
  std::vector<int> inputs;
  auto moved = static_cast<double>(out.elements());
  for (const TokenTensor& one : of) {
    inputs.push_back(one.op);
    moved += static_cast<double>(one.elements());
  }
  return {add(OperatorKind::elementwise, name, std::move(inputs), out.elements(), moved), out.tokens,
          out.width};
}

TokenTensor TowerBuilder::activation(const std::string& name, const TokenTensor& in, bool gated) {
  const TokenTensor out{-1, in.tokens, gated ? in.width / 2 : in.width};
  const int op = add(OperatorKind::activation, name, {in.op}, out.elements(),
                     static_cast<double>(in.elements() + out.elements()));
  if (!gated) sequence(in, out).activation = activation_;
  return {op, out.tokens, out.width};
}

TokenTensor TowerBuilder::attention(const std::string& prefix, const TowerBlock& block,
                                    const TokenTensor& queries, const TokenTensor& memory, bool causal) {
  const std::int64_t inner = block.heads * block.head_dim;
  const bool own = queries.op == memory.op;
  std::vector<int> inputs;
  // Products of the same input are one.
  const bool plain = own && !causal && !block.rotary && block.distances == 0 && block.window == 0;
  const auto part = [&](const std::string& name, const TokenTensor& in, std::int64_t parts, bool keys) {
    const int op = add(OperatorKind::linear, prefix + name, {in.op}, parts * in.tokens * inner, 0);
    operators_.back().matmuls = {{static_cast<double>(in.tokens), parts * inner, in.width, 1}};
    const bool biases = block.biases && block.qkv_bias;
    const std::int64_t biased = biases ? parts - (keys && !block.key_bias ? 1 : 0) : 0;
    inputs.push_back(op);
    if (plain && (biased == 0 || biased == parts)) {
      // Tensors of their own, which tensor ranks share by heads.
      for (const char* which : {"query", "key", "value"})
        parameter(prefix + which + ".weight", {inner, in.width});
      if (biased > 0)
        for (const char* which : {"query", "key", "value"}) parameter(prefix + which + ".bias", {inner});
      sequence(in, {op, in.tokens, parts * inner}).heads = static_cast<int>(block.heads);
      return;
    }
    parameter(prefix + name + ".weight", {parts * inner, in.width});
    if (biased > 0) parameter(prefix + name + ".bias", {biased * inner});
  };
  if (own) {
    part("qkv", queries, 3, true);
  } else {
    part("q", queries, 1, false);
    part("kv", memory, 2, true);
  }
  if (block.rotary)
    inputs = {rotary(prefix + "rotary", inputs.front(), 3 * queries.tokens * inner,
                     4.0 * static_cast<double>(queries.tokens * inner))};
  if (block.distances > 0) inputs.push_back(scores_by_distance(prefix, block, inputs.front(), queries));
  // Scores and context: 2 x 2 x queries x keys x inner; the half of it where causal.
  const int core = add(OperatorKind::linear, prefix + "attention", inputs, queries.tokens * inner, 0);
  const auto rows = static_cast<double>(queries.tokens) * (causal ? 0.5 : 1);
  const std::int64_t keys = block.window > 0 ? std::min(block.window, memory.tokens) : memory.tokens;
  operators_.back().matmuls = {{rows, 2 * inner, keys, 1}};
  if (plain)
    sequence({inputs.front(), queries.tokens, 3 * inner}, {core, queries.tokens, inner}).heads =
        static_cast<int>(block.heads);
  return project(prefix + "proj", {core, queries.tokens, inner}, queries.tokens, inner, queries.width,
                 block.biases);
}

int TowerBuilder::scores_by_distance(const std::string& prefix, const TowerBlock& block,
                                     int queries_keys_values, const TokenTensor& queries) {
  const std::int64_t inner = block.heads * block.head_dim, rows = queries.tokens * block.distance_products;
  const int products = add(OperatorKind::linear, prefix + "distances", {queries_keys_values},
                           block.heads * rows * block.distances, 0);
  operators_.back().matmuls = {{static_cast<double>(rows), block.distances, inner, 1}};
  if (block.distance_matrices)
    for (int i = 0; i < block.distance_products; ++i) {
      const std::string name = prefix + (i == 0 ? "pos_proj" : "pos_q_proj");
      parameter(name + ".weight", {inner, queries.width});
      if (i > 0) parameter(name + ".bias", {inner});
    }
  // Chosen by distance, added to the contents', masked and normalised.
  const std::int64_t scores = block.heads * queries.tokens * queries.tokens;
  return add(OperatorKind::elementwise, prefix + "softmax", {products}, scores,
             (2.0 + 2.0 * block.distance_products) * static_cast<double>(scores));
}

int TowerBuilder::rotary(const std::string& name, int queries_keys_values, std::int64_t elements,
                         double moved) {
  const int op = add(OperatorKind::elementwise, name, {queries_keys_values}, elements, moved);
  operators_.back().keeps_input = false;
  return op;
}

TokenTensor TowerBuilder::joined(const std::string& name, const TokenTensor& a, const TokenTensor& b) {
  const std::int64_t tokens = a.tokens + b.tokens;
  const int op = add(OperatorKind::elementwise, name, {a.op, b.op}, tokens * a.width,
                     2.0 * static_cast<double>(tokens * a.width));
  operators_.back().keeps_input = false;
  return {op, tokens, a.width};
}

TokenTensor TowerBuilder::residual(const std::string& name, const TokenTensor& stream, TokenTensor branch,
                                   const TowerBlock& block) {
  if (block.layer_scale) {
    branch.op = add(OperatorKind::elementwise, name + "_scale", {branch.op}, branch.elements(),
                    2.0 * static_cast<double>(branch.elements()));
    parameter(name + "_scale.weight", {branch.width});
  }
  const int op = add(OperatorKind::elementwise, name, {branch.op, stream.op}, stream.elements(),
                     3.0 * static_cast<double>(stream.elements()));
  operators_.back().keeps_input = false;
  const TokenTensor out{op, stream.tokens, stream.width};
  sequence(out, out);
  return out;
}

TokenTensor TowerBuilder::block(const std::string& prefix, const TowerBlock& block, const TokenTensor& in,
                                bool causal, const TokenTensor* memory) {
  TokenTensor stream = in;
  int number = 0;
  const auto branch = [&](auto compute) {
    const std::string name = prefix + "norm" + std::to_string(++number);
    const TokenTensor input = block.post_norm ? stream : norm(name, stream, !block.rms_norm);
    stream = residual(prefix + "residual" + std::to_string(number), stream, compute(input), block);
    if (block.post_norm) stream = norm(name, stream, !block.rms_norm);
  };
  branch([&](const TokenTensor& input) { return attention(prefix, block, input, input, causal); });
  if (memory != nullptr)
    branch(
        [&](const TokenTensor& input) { return attention(prefix + "cross.", block, input, *memory, false); });
  branch([&](const TokenTensor& input) {
    const TokenTensor up = project(prefix + "mlp_up", input, input.tokens, input.width,
                                   block.gated ? 2 * block.ffn : block.ffn, block.biases);
    return project(prefix + "mlp_down", activation(prefix + "activation", up, block.gated), input.tokens,
                   block.ffn, input.width, block.biases);
  });
  return stream;
}

void TowerBuilder::loss(const std::vector<TokenTensor>& of) {
  std::vector<int> inputs;
  double elements = 0;
  for (const TokenTensor& one : of) {
    inputs.push_back(one.op);
    elements += static_cast<double>(one.elements());
  }
  add(OperatorKind::loss, "loss", std::move(inputs), 1, 2 * elements);
  if (of.size() == 1 && of.front().tokens == 1) image({of.front().width, 1, 1}, {1, 1, 1});
}

void TowerBuilder::finish(Workload* workload) {
  workload->layers = layer_ + 1;
  workload->operators = std::exchange(operators_, {});
  const bool known = std::all_of(workload->operators.begin(), workload->operators.end(),
                                 [](const Operator& op) { return op.image.has_value(); });
  if (!known)
    for (Operator& op : workload->operators) op.image.reset();
  layer_ = 0;
}

}  // namespace orrery::internal
