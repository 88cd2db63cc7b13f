// Linear operators: the products of their weights, and the rotation of queries and keys that follows them.
#include "base/error.h"
#include "exec/math/layers.h"

namespace orrery::exec {

Layers::Linear Layers::linear_of(int index) const {
  const Operator& self = op(index);
  Linear linear;
  std::vector<std::int64_t> columns;  // of each weight tensor
  std::int64_t column = 0;
  for (std::size_t p = 0; p < self.parameters.size(); ++p) {
    const HeldTensor* held = parameters_.find(index, static_cast<int>(p));
    ORRERY_CHECK(held != nullptr, "the Program's buckets lack " + self.parameters[p].name);
    if (held->shape.size() != 2) continue;
    const int output_dim =
        self.split == TensorSplit::row ? 1 - held->tensor->split_dim : held->tensor->split_dim;
    Product product;
    product.weight = held;
    product.tensors = {held};
    product.out_by_in = self.kind == OperatorKind::head || output_dim <= 0;  // -1: not split
    product.out = held->shape[product.out_by_in ? 0 : 1];
    product.in = held->shape[product.out_by_in ? 1 : 0];
    product.column = column;
    columns.push_back(column);
    column += product.out;
    linear.in = product.in;
    // Rows of the next tensor that follow this one's in memory extend the product.
    if (!linear.products.empty() && product.out_by_in) {
      Product& last = linear.products.back();
      const HeldTensor* before = last.tensors.back();
      if (last.out_by_in && before->bucket == held->bucket &&
          before->offset + before->elements == held->offset) {
        last.out += product.out;
        last.tensors.push_back(held);
        continue;
      }
    }
    linear.products.push_back(std::move(product));
  }
  linear.out = column;
  std::size_t bias = 0;
  for (std::size_t p = 0; p < self.parameters.size(); ++p) {
    const HeldTensor* held = parameters_.find(index, static_cast<int>(p));
    if (held->shape.size() != 1) continue;
    ORRERY_CHECK(bias < columns.size(), "more biases than weights in " + self.name);
    linear.biases.emplace_back(held, columns[bias++]);
  }
  return linear;
}

void Layers::rotate(float* qkv, bool inverse) const {
  const int rotary_dim = model_.rotary_fraction > 0
                             ? static_cast<int>(model_.head_dim * model_.rotary_fraction) / 2 * 2
                             : model_.head_dim;
  AttentionSize size = attention_size();
  if (cp_ == 1) {
    device_.rotary(size, qkv, rotary_dim, static_cast<float>(model_.rope_theta), inverse);
    return;
  }
  size.batch = 1;
  for (const Run& run : runs()) {
    size.seq = run.seq;
    size.first_position = run.position;
    device_.rotary(size, qkv + run.row * size.qkv_columns(), rotary_dim,
                   static_cast<float>(model_.rope_theta), inverse);
  }
}

void Layers::linear_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const Operator& self = op(index);
  const Linear linear = linear_of(index);
  const bool rotates = !model_.learned_positions && op(index + 1).kind == OperatorKind::attention;
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto y = values_.define(activation(index, micro_batch, form), bytes_of_floats(rows * linear.out));
  std::vector<Place> weights;
  for (const Product& p : linear.products) weights.push_back(weight_of(*p.weight));
  std::vector<Place> biases;
  // A row-split product is a partial sum: the residual operator adds its bias after the reduction.
  if (self.split != TensorSplit::row)
    for (const auto& [bias, column] : linear.biases) biases.push_back(weight_of(*bias));
  steps.push_back([=, this] {
    for (std::size_t i = 0; i < linear.products.size(); ++i) {
      const Product& p = linear.products[i];
      const float* bias = i < biases.size() ? at(biases[i]) : nullptr;  // in the order of the products
      device_.linear(p.out_by_in, rows, p.out, p.in, values_.floats(x), linear.in, at(weights[i]), bias,
                     values_.floats(y) + p.column, linear.out);
    }
    if (rotates) rotate(values_.floats(y), false);
  });
}

void Layers::linear_backward(int index, int micro_batch, bool want_input, bool want_weight,
                             std::vector<Step>& steps) {
  const Operator& self = op(index);
  const Linear linear = linear_of(index);
  const bool rotates =
      want_input && !model_.learned_positions && op(index + 1).kind == OperatorKind::attention;
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const Key out = gradient(index, micro_batch, form);
  const auto dy = rotates ? values_.change(out) : values_.use(out);
  if (rotates) steps.push_back([=, this] { rotate(values_.floats(dy), true); });
  if (want_weight) {
    const auto x = values_.use(activation(input(index), micro_batch, form));
    std::vector<Place> gradients;
    for (const Product& p : linear.products) {
      gradients.push_back(gradient_of(*p.tensors.front(), micro_batch, steps));
      for (std::size_t i = 1; i < p.tensors.size(); ++i) {
        const bool first = gradient_of(*p.tensors[i], micro_batch, steps).first;
        ORRERY_CHECK(first == gradients.back().first, "tensors of one product have unlike histories");
      }
    }
    std::vector<Place> biases;
    if (self.split != TensorSplit::row)
      for (const auto& [bias, column] : linear.biases)
        biases.push_back(gradient_of(*bias, micro_batch, steps));
    steps.push_back([=, this] {
      for (std::size_t i = 0; i < linear.products.size(); ++i) {
        const Product& p = linear.products[i];
        const float* g = values_.floats(dy) + p.column;
        const float beta = gradients[i].first ? 0.0F : 1.0F;
        if (p.out_by_in)
          device_.gemm(true, false, p.out, p.in, rows, 1, g, linear.out, values_.floats(x), linear.in, beta,
                       at(gradients[i]), p.in);
        else
          device_.gemm(true, false, p.in, p.out, rows, 1, values_.floats(x), linear.in, g, linear.out, beta,
                       at(gradients[i]), p.out);
      }
      for (std::size_t i = 0; i < biases.size(); ++i)
        device_.bias_gradient(values_.floats(dy) + linear.biases[i].second, ready_to_add(biases[i]), rows,
                              biases[i].elements, linear.out);
    });
  }
  if (want_input) {
    const Key into = gradient(input(index), micro_batch, form);
    const auto dx = values_.define(into, bytes_of_floats(rows * linear.in));
    std::vector<Place> weights;
    for (const Product& p : linear.products) weights.push_back(weight_of(*p.weight));
    steps.push_back([=, this] {
      for (std::size_t i = 0; i < linear.products.size(); ++i) {
        const Product& p = linear.products[i];
        device_.gemm(false, !p.out_by_in, rows, p.in, p.out, 1, values_.floats(dy) + p.column, linear.out,
                     at(weights[i]), p.out_by_in ? p.in : p.out, i == 0 ? 0.0F : 1.0F, values_.floats(dx),
                     linear.in);
      }
    });
  }
}

}  // namespace orrery::exec
