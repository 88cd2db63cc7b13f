// Linear operators: the products of their weights, and the rotation of queries and keys that follows them.
#include "base/error.h"
#include "exec/math/layers.h"
#include "program/executable/executable.h"

namespace orrery::exec {

// A vocabulary may have any size. Where logits have two bytes each, their rows begin where tensor cores can
// read them as they lie, at multiples of 16 bytes.
std::int64_t Layers::row_stride(const Operator& self, std::int64_t columns) const {
  constexpr std::int64_t kEven = 8;
  const bool even = self.kind == OperatorKind::head && bytes_of(values_.activations()) == 2;
  return even ? (columns + kEven - 1) / kEven * kEven : columns;
}

Layers::Linear Layers::linear_of(int index) const {
  const Operator& self = op(index);
  const FrozenWeights& frozen = parameters_.frozen();
  // Of magnitudes each product is scaled by itself.
  const bool alone = !self.adapters.empty() && self.adapters.front().magnitude;
  Linear linear;
  std::int64_t column = 0;
  std::vector<const HeldTensor*> biases;
  for (int p = 0;; ++p) {
    const HeldTensor* held = parameters_.own(index, p);
    if (held == nullptr) break;
    if (normalises_heads(index, *held)) continue;
    if (held->shape.size() != 2) {
      biases.push_back(held);
      continue;
    }
    Product product;
    product.weight = held;
    product.tensors = {held};
    product.out_by_in = is_out_by_in(self, *held->tensor);
    product.out = held->shape[product.out_by_in ? 0 : 1];
    product.in = held->shape[product.out_by_in ? 1 : 0];
    product.column = column;
    linear.columns.emplace_back(held, column);
    column += product.out;
    linear.in = product.in;
    // Rows of the next tensor that follow this one's in memory extend the product.
    if (!linear.products.empty() && product.out_by_in && !alone && !frozen.quantised(*held)) {
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
  ORRERY_CHECK(biases.size() <= linear.columns.size(), "more biases than weights in " + self.name);
  linear.out = column;
  linear.stride = row_stride(self, column);
  for (std::size_t i = 0; i < biases.size(); ++i)
    linear.biases.emplace_back(biases[i], linear.columns[i].second);
  return linear;
}

std::vector<Layers::Place> Layers::product_weights(const Linear& linear, std::vector<Step>& steps) {
  std::vector<Place> places;
  for (const Product& product : linear.products) {
    const HeldTensor* weight = product.weight;
    if (!parameters_.frozen().quantised(*weight)) {
      places.push_back(weight_of(*weight));
      continue;
    }
    Place place;
    place.elements = weight->elements;
    place.value = values_.define_unnamed(DType::fp32, weight->elements);
    places.push_back(place);
    steps.push_back([=, this] { parameters_.frozen().dequantise(*weight, at(place)); });
  }
  return places;
}

void Layers::rotate(Numbers qkv, bool inverse) const {
  AttentionSize size = attention_size();
  if (cp_ == 1) {
    device_.rotary(size, qkv, angles_, inverse);
    return;
  }
  size.batch = 1;
  for (const Run& run : runs()) {
    size.seq = run.seq;
    size.first_position = run.position;
    device_.rotary(size, qkv + run.row * size.qkv_columns(), angles_, inverse);
  }
}

void Layers::linear_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const Operator& self = op(index);
  const Linear linear = linear_of(index);
  const bool rotates = !model_.learned_positions && op(index + 1).kind == OperatorKind::attention;
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto y = values_.define(activation(index, micro_batch, form), rows * linear.stride);
  const bool regroups = interleaves_heads(self);
  const auto made = regroups ? values_.define_unnamed(values_.activations(), rows * linear.stride) : y;
  const std::vector<Place> weights = product_weights(linear, steps);
  std::vector<Place> biases;
  // A row-split product is a partial sum: the residual operator adds its bias after the reduction.
  if (self.split != TensorSplit::row)
    for (const auto& [bias, column] : linear.biases) biases.push_back(weight_of(*bias));
  const bool scaled = !self.adapters.empty() && self.adapters.front().magnitude;  // before biases are added
  steps.push_back([=, this] {
    for (std::size_t i = 0; i < linear.products.size(); ++i) {
      const Product& p = linear.products[i];
      // In the order of the products.
      const float* bias = i < biases.size() && !scaled ? at(biases[i]) : nullptr;
      device_.linear(p.out_by_in, rows, p.out, p.in, values_.numbers(x), linear.in, at(weights[i]), bias,
                     values_.numbers(made) + p.column, linear.stride);
    }
    if (regroups) regroup_heads(values_.numbers(made), values_.numbers(y), false);
  });
  adapters_forward(index, micro_batch, linear, weights, x, y, steps);
  if (scaled)
    steps.push_back([=, this] {
      for (std::size_t i = 0; i < biases.size(); ++i)
        device_.add_bias(values_.numbers(y) + linear.biases[i].second, at(biases[i]), rows,
                         biases[i].elements, linear.stride);
    });
  query_key_norms_forward(index, micro_batch, y, steps);
  if (rotates) steps.push_back([=, this] { rotate(values_.numbers(y), false); });
  if (self.kind == OperatorKind::head && model_.final_softcap > 0) {
    const auto slopes = values_.define_as(
        values_.activations(), {TensorKind::saved, index, micro_batch, form}, rows * linear.stride);
    steps.push_back([=, this, count = static_cast<std::size_t>(rows * linear.stride)] {
      device_.softcap(static_cast<float>(model_.final_softcap), values_.numbers(y), values_.numbers(slopes),
                      count);
    });
  }
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
  const bool norms = want_input && feeds_normalised_heads(index);
  const bool caps = want_input && self.kind == OperatorKind::head && model_.final_softcap > 0;
  auto dy = rotates || norms || caps ? values_.change(out) : values_.use(out);
  if (caps) {
    const auto slopes = values_.use({TensorKind::saved, index, micro_batch, form});
    steps.push_back([=, this, count = static_cast<std::size_t>(rows * linear.stride)] {
      device_.multiply(values_.numbers(dy), values_.numbers(slopes), count);
    });
  }
  if (rotates) steps.push_back([=, this] { rotate(values_.numbers(dy), true); });
  if (norms) query_key_norms_backward(index, micro_batch, dy, steps);
  if (interleaves_heads(self)) {
    const auto made = values_.define_unnamed(values_.activations(), rows * linear.stride);
    steps.push_back([=, this] { regroup_heads(values_.numbers(made), values_.numbers(dy), /*back=*/true); });
    dy = made;
  }
  const std::vector<OutputGradient> outputs =
      before_magnitudes(index, micro_batch, linear, want_weight, dy, steps);
  const bool trains_weights = want_weight && !linear.products.front().weight->frozen;
  if (trains_weights) {
    const auto x = values_.use(activation(input(index), micro_batch, form));
    std::vector<Place> gradients;
    for (const Product& p : linear.products) {
      gradients.push_back(gradient_of(*p.tensors.front(), micro_batch, steps));
      for (std::size_t i = 1; i < p.tensors.size(); ++i) {
        const bool first = gradient_of(*p.tensors[i], micro_batch, steps).first;
        ORRERY_CHECK(first == gradients.back().first, "tensors of one product have different histories");
      }
    }
    steps.push_back([=, this] {
      for (std::size_t i = 0; i < linear.products.size(); ++i) {
        const Product& p = linear.products[i];
        const ConstNumbers g = values_.numbers(dy) + p.column;
        const float beta = gradients[i].first ? 0.0F : 1.0F;
        if (p.out_by_in)
          device_.gemm(true, false, p.out, p.in, rows, 1, g, linear.stride, values_.numbers(x), linear.in,
                       beta, at(gradients[i]), p.in);
        else
          device_.gemm(true, false, p.in, p.out, rows, 1, values_.numbers(x), linear.in, g, linear.stride,
                       beta, at(gradients[i]), p.out);
      }
    });
  }
  // A head's bias may be trained where its weight, tied to the embedding, is not.
  for (std::size_t i = 0; want_weight && self.split != TensorSplit::row && i < linear.biases.size(); ++i) {
    const auto& [bias, column] = linear.biases[i];
    if (bias->frozen) continue;
    const Place into = gradient_of(*bias, micro_batch, steps);
    steps.push_back([=, this, first = column] {
      device_.bias_gradient(values_.numbers(dy) + first, ready_to_add(into), rows, into.elements,
                            linear.stride);
    });
  }
  Values::Id dx = -1;
  if (want_input && !self.passes_gradient) {
    no_input_gradient(index, micro_batch, steps);
  } else if (want_input) {
    dx = values_.define(gradient(input(index), micro_batch, form), rows * linear.in);
    const std::vector<Place> weights = product_weights(linear, steps);
    steps.push_back([=, this] {
      for (std::size_t i = 0; i < linear.products.size(); ++i) {
        const Product& p = linear.products[i];
        device_.gemm(false, !p.out_by_in, rows, p.in, p.out, 1,
                     values_.numbers(outputs[i].value) + outputs[i].column, outputs[i].stride, at(weights[i]),
                     p.out_by_in ? p.in : p.out, i == 0 ? 0.0F : 1.0F, values_.numbers(dx), linear.in);
      }
    });
  }
  if (!self.adapters.empty())
    adapters_backward(index, micro_batch, linear, outputs, want_weight, dy, dx, steps);
}

}  // namespace orrery::exec
