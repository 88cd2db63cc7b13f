// Norms of each head's queries and keys (QK norm: Henry et al., arXiv 2010.04245; Qwen3), between the product
// that makes them and their rotation.
#include "exec/math/layers.h"

namespace orrery::exec {
namespace {

// Beside what else is saved of the same product.
constexpr std::int32_t kHeadsBeforeNorm = kStreamShare + 1;

}  // namespace

bool Layers::feeds_normalised_heads(int index) const {
  return model_.qk_norm && op(index).kind == OperatorKind::linear &&
         op(index + 1).kind == OperatorKind::attention;
}

bool Layers::normalises_heads(int index, const HeldTensor& tensor) const {
  return feeds_normalised_heads(index) && tensor.shape.size() == 1 &&
         tensor.name().find("_norm.") != std::string::npos;
}

std::array<Layers::HeadNorm, 2> Layers::head_norms(int index) const {
  const AttentionSize size = attention_size();
  std::array<HeadNorm, 2> norms;
  std::size_t found = 0;
  for (int p = 0; const HeldTensor* held = parameters_.own(index, p); ++p)
    if (normalises_heads(index, *held)) norms.at(found++).weight = held;  // of queries, then of keys
  norms[0].heads = size.heads;
  norms[1].heads = size.kv_heads;
  norms[1].column = static_cast<std::int64_t>(size.heads) * size.head_dim;
  return norms;
}

void Layers::query_key_norms_forward(int index, int micro_batch, Values::Id qkv, std::vector<Step>& steps) {
  if (!feeds_normalised_heads(index)) return;
  const AttentionSize size = attention_size();
  const std::int64_t all = rows_ * (size.heads + size.kv_heads);
  const std::int64_t dim = size.head_dim;
  const auto before = values_.define({TensorKind::saved, index, micro_batch, Form::whole, kHeadsBeforeNorm},
                                     bytes_of_floats(all * (dim + 2)));
  const auto after = values_.define_unnamed(bytes_of_floats(rows_ * size.heads * dim));
  std::int64_t first = 0;
  for (const HeadNorm& norm : head_norms(index)) {
    const Place weight = weight_of(*norm.weight);
    steps.push_back([=, this] {
      float* raw = values_.floats(before) + first * dim;
      float* mean = values_.floats(before) + all * dim + first;
      float* heads = values_.floats(qkv) + norm.column;
      const std::int64_t width = norm.heads * dim;
      device_.copy_matrix(raw, width, heads, size.qkv_columns(), rows_, width);
      device_.norm_forward(model_.norm, raw, at(weight), nullptr, values_.floats(after), mean, mean + all,
                           rows_ * norm.heads, dim, static_cast<float>(model_.norm_epsilon));
      device_.copy_matrix(heads, size.qkv_columns(), values_.floats(after), width, rows_, width);
    });
    first += rows_ * norm.heads;
  }
}

void Layers::query_key_norms_backward(int index, int micro_batch, Values::Id dqkv, std::vector<Step>& steps) {
  const AttentionSize size = attention_size();
  const std::int64_t all = rows_ * (size.heads + size.kv_heads);
  const std::int64_t dim = size.head_dim;
  const auto before = values_.use({TensorKind::saved, index, micro_batch, Form::whole, kHeadsBeforeNorm});
  const auto dy = values_.define_unnamed(bytes_of_floats(rows_ * size.heads * dim));
  const auto dx = values_.define_unnamed(bytes_of_floats(rows_ * size.heads * dim));
  std::int64_t first = 0;
  for (const HeadNorm& norm : head_norms(index)) {
    const Place weight = weight_of(*norm.weight);
    const Place into = gradient_of_norm(*norm.weight, micro_batch, steps);
    steps.push_back([=, this] {
      const float* raw = values_.floats(before) + first * dim;
      const float* mean = values_.floats(before) + all * dim + first;
      float* heads = values_.floats(dqkv) + norm.column;
      const std::int64_t width = norm.heads * dim;
      device_.copy_matrix(values_.floats(dy), width, heads, size.qkv_columns(), rows_, width);
      device_.norm_backward(model_.norm, values_.floats(dy), raw, at(weight), mean, mean + all,
                            values_.floats(dx), false, ready_to_add(into), nullptr, rows_ * norm.heads, dim);
      device_.copy_matrix(heads, size.qkv_columns(), values_.floats(dx), width, rows_, width);
    });
    first += rows_ * norm.heads;
  }
}

}  // namespace orrery::exec
