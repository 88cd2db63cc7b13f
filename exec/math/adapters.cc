// Low-rank adapters beside the frozen weights of a linear operator (LoRA, arXiv 2106.09685): the output grows
// by scale * x A^T B^T. DoRA (arXiv 2402.09353) scales the sum of both, output by output, to trained
// magnitudes: y = m / |W + scale B A| * (x W^T + scale x A^T B^T), the lengths taken as constants (section
// 4.3), as PEFT does.
#include <cmath>

#include "base/error.h"
#include "exec/math/layers.h"

namespace orrery::exec {
namespace {

constexpr std::int32_t kDirections = 1 << 10;  // Key::block of what DoRA keeps, beside A's outputs
constexpr std::int32_t kFactors = 1 << 11;

Key saved_of(int index, int micro_batch, Form form, std::int32_t block) {
  return {TensorKind::saved, index, micro_batch, form, block};
}

}  // namespace

std::vector<Layers::Adapter> Layers::adapters_of(int index, const Linear& linear) const {
  const Operator& self = op(index);
  std::vector<Adapter> adapters;
  int parameter = 0;
  for (const LowRankAdapter& low : self.adapters) {
    Adapter adapter;
    adapter.rank = low.rank;
    adapter.a = parameters_.find(index, parameter++);
    adapter.b = parameters_.find(index, parameter++);
    if (low.magnitude) adapter.magnitude = parameters_.find(index, parameter++);
    const HeldTensor* weight = parameters_.frozen().find(index, low.weight);
    ORRERY_CHECK(adapter.a != nullptr && adapter.b != nullptr && weight != nullptr,
                 "an adapter without its tensors in " + self.name);
    adapter.in = adapter.a->shape[1];
    adapter.out = adapter.b->shape[0];
    for (const auto& [tensor, column] : linear.columns)
      if (tensor == weight) adapter.column = column;
    for (std::size_t p = 0; p < linear.products.size(); ++p)
      if (linear.products[p].weight == weight) adapter.product = p;
    adapters.push_back(adapter);
  }
  return adapters;
}

void Layers::adapters_forward(int index, int micro_batch, const Linear& linear,
                              const std::vector<Place>& weights, Values::Id x, Values::Id y,
                              std::vector<Step>& steps) {
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const auto scale = static_cast<float>(model_.fine_tuning.scale());
  const DType type = plan_.activation_type();
  const std::vector<Adapter> adapters = adapters_of(index, linear);
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const Adapter& adapter = adapters[i];
    const auto number = static_cast<std::int32_t>(i);
    const auto low = values_.define_as(values_.activations(), saved_of(index, micro_batch, form, number),
                                       rows * adapter.rank);
    const Place a = weight_of(*adapter.a), b = weight_of(*adapter.b);
    steps.push_back([=, this] {
      const Numbers h = values_.numbers(low);
      device_.gemm(false, true, rows, adapter.rank, adapter.in, 1, values_.numbers(x), linear.in, at(a),
                   adapter.in, 0, h, adapter.rank);
      if (bytes_of(type) == 2 && h.type() != type)
        device_.round_to(type, h.floats(), static_cast<std::size_t>(rows * adapter.rank));
      device_.gemm(false, true, rows, adapter.out, adapter.rank, scale, h, adapter.rank, at(b), adapter.rank,
                   1, values_.numbers(y) + adapter.column, linear.stride);
    });
    if (adapter.magnitude == nullptr) continue;
    const Product& product = linear.products[adapter.product];
    const auto directions =
        values_.define(saved_of(index, micro_batch, form, kDirections + number), rows * adapter.out);
    // Of each output the length of its weights, and what scales it.
    const auto factors =
        values_.define(saved_of(index, micro_batch, form, kFactors + number), 2 * adapter.out);
    const auto sum = values_.define_unnamed(DType::fp32, adapter.out * adapter.in);
    const Place weight = weights[adapter.product], magnitude = weight_of(*adapter.magnitude);
    steps.push_back([=, this] {
      float* z = values_.floats(directions);
      float* into = values_.floats(y) + adapter.column;
      device_.copy_matrix(z, adapter.out, into, linear.stride, rows, adapter.out);
      device_.gemm(false, false, adapter.out, adapter.in, adapter.rank, scale, at(b), adapter.rank, at(a),
                   adapter.in, 0, values_.floats(sum), adapter.in);
      float* lengths = values_.floats(factors);
      float* scales = lengths + adapter.out;
      for (std::int64_t o = 0; o < adapter.out; ++o) {
        double square = 0;
        for (std::int64_t k = 0; k < adapter.in; ++k) {
          const float own = at(weight)[product.out_by_in ? o * adapter.in + k : k * adapter.out + o];
          const auto both = static_cast<double>(own + values_.floats(sum)[o * adapter.in + k]);
          square += both * both;
        }
        lengths[o] = static_cast<float>(std::sqrt(square));
        scales[o] = at(magnitude)[o] / lengths[o];
      }
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t o = 0; o < adapter.out; ++o) into[row * linear.stride + o] *= scales[o];
    });
  }
}

// DoRA: of each product the gradient of what is scaled; the outputs' own where there is nothing to scale.
std::vector<Layers::OutputGradient> Layers::before_magnitudes(int index, int micro_batch,
                                                              const Linear& linear, bool want_weight,
                                                              Values::Id dy, std::vector<Step>& steps) {
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  std::vector<OutputGradient> gradients;
  for (const Product& product : linear.products) gradients.push_back({dy, product.column, linear.stride});
  const std::vector<Adapter> adapters = adapters_of(index, linear);
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const Adapter& adapter = adapters[i];
    if (adapter.magnitude == nullptr) continue;
    const auto number = static_cast<std::int32_t>(i);
    const auto scaled = values_.define_unnamed(DType::fp32, rows * adapter.out);
    const auto directions = values_.use(saved_of(index, micro_batch, form, kDirections + number));
    const auto factors = values_.use(saved_of(index, micro_batch, form, kFactors + number));
    const Place into = want_weight ? gradient_of(*adapter.magnitude, micro_batch, steps) : Place{};
    gradients[adapter.product] = {scaled, 0, adapter.out};
    steps.push_back([=, this] {
      const float* g = values_.floats(dy) + adapter.column;
      const float* z = values_.floats(directions);
      const float* lengths = values_.floats(factors);
      const float* scales = lengths + adapter.out;
      float* sums = want_weight ? ready_to_add(into) : nullptr;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t o = 0; o < adapter.out; ++o) {
          const float gradient = g[row * linear.stride + o];
          values_.floats(scaled)[row * adapter.out + o] = gradient * scales[o];
          if (sums != nullptr) sums[o] += gradient * z[row * adapter.out + o] / lengths[o];
        }
    });
  }
  return gradients;
}

void Layers::adapters_backward(int index, int micro_batch, const Linear& linear,
                               const std::vector<OutputGradient>& outputs, bool want_weight, Values::Id dy,
                               Values::Id dx, std::vector<Step>& steps) {
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const auto scale = static_cast<float>(model_.fine_tuning.scale());
  const std::vector<Adapter> adapters = adapters_of(index, linear);
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const Adapter& adapter = adapters[i];
    const OutputGradient from = adapter.magnitude != nullptr
                                    ? outputs[adapter.product]
                                    : OutputGradient{dy, adapter.column, linear.stride};
    const auto dh = values_.define_unnamed(values_.activations(), rows * adapter.rank);
    const Place a = weight_of(*adapter.a), b = weight_of(*adapter.b);
    steps.push_back([=, this] {
      device_.gemm(false, false, rows, adapter.rank, adapter.out, scale,
                   values_.numbers(from.value) + from.column, from.stride, at(b), adapter.rank, 0,
                   values_.numbers(dh), adapter.rank);
    });
    if (want_weight) {
      const auto x = values_.use(activation(input(index), micro_batch, form));
      const auto h = values_.use(saved_of(index, micro_batch, form, static_cast<std::int32_t>(i)));
      const Place da = gradient_of(*adapter.a, micro_batch, steps);
      const Place db = gradient_of(*adapter.b, micro_batch, steps);
      steps.push_back([=, this] {
        device_.gemm(true, false, adapter.rank, adapter.in, rows, 1, values_.numbers(dh), adapter.rank,
                     values_.numbers(x), linear.in, da.first ? 0.0F : 1.0F, at(da), adapter.in);
        device_.gemm(true, false, adapter.out, adapter.rank, rows, scale,
                     values_.numbers(from.value) + from.column, from.stride, values_.numbers(h), adapter.rank,
                     db.first ? 0.0F : 1.0F, at(db), adapter.rank);
      });
    }
    if (dx >= 0)
      steps.push_back([=, this] {
        device_.gemm(false, false, rows, adapter.in, adapter.rank, 1, values_.numbers(dh), adapter.rank,
                     at(a), adapter.in, 1, values_.numbers(dx), linear.in);
      });
  }
}

}  // namespace orrery::exec
