// Norms of queries and keys (QK norm: Henry et al., arXiv 2010.04245), each head's (Qwen3) or all heads' at
// once (OLMo 2), between the product that makes them and their rotation; and heads whose parts are
// interleaved in that product (GPT-NeoX).
#include "exec/math/layers.h"

namespace orrery::exec {
namespace {

// Beside what else is saved of the same product.
constexpr std::int32_t kHeadsBeforeNorm = kStreamShare + 1;
constexpr std::int32_t kHeadsStatistics = kStreamShare + 2;

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
  const std::int64_t width = static_cast<std::int64_t>(size.heads) * size.head_dim;
  const std::int64_t key_width = static_cast<std::int64_t>(size.kv_heads) * size.head_dim;
  const bool whole = model_.qk_norm_whole;
  norms[0] = {norms[0].weight, whole ? 1 : size.heads, whole ? width : size.head_dim, 0};
  norms[1] = {norms[1].weight, whole ? 1 : size.kv_heads, whole ? key_width : size.head_dim, width};
  return norms;
}

void Layers::query_key_norms_forward(int index, int micro_batch, Values::Id qkv, std::vector<Step>& steps) {
  if (!feeds_normalised_heads(index)) return;
  const AttentionSize size = attention_size();
  const std::array<HeadNorm, 2> norms = head_norms(index);
  const std::int64_t elements = rows_ * (size.heads + size.kv_heads) * size.head_dim;
  const std::int64_t all = rows_ * (norms[0].groups + norms[1].groups);
  const auto before =
      values_.define_as(values_.activations(),
                        {TensorKind::saved, index, micro_batch, Form::whole, kHeadsBeforeNorm}, elements);
  // A mean and an inverse of each group.
  const auto saved =
      values_.define({TensorKind::saved, index, micro_batch, Form::whole, kHeadsStatistics}, 2 * all);
  const auto after = values_.define_unnamed(values_.activations(), rows_ * size.heads * size.head_dim);
  std::int64_t first = 0, first_group = 0;
  for (const HeadNorm& norm : norms) {
    const Place weight = weight_of(*norm.weight);
    const auto offset = offset_weights(weight, norm.dim, steps);
    steps.push_back([=, this] {
      const Numbers raw = values_.numbers(before) + first;
      float* mean = values_.floats(saved) + first_group;
      const Numbers heads = values_.numbers(qkv) + norm.column;
      const std::int64_t width = norm.groups * norm.dim;
      device_.copy_matrix(raw, width, heads, size.qkv_columns(), rows_, width);
      device_.norm_forward(model_.norm, raw, norm_weights(weight, offset), nullptr, values_.numbers(after),
                           mean, mean + all, rows_ * norm.groups, norm.dim,
                           static_cast<float>(model_.norm_epsilon));
      device_.copy_matrix(heads, size.qkv_columns(), values_.numbers(after), width, rows_, width);
    });
    first += rows_ * norm.groups * norm.dim;
    first_group += rows_ * norm.groups;
  }
}

void Layers::query_key_norms_backward(int index, int micro_batch, Values::Id dqkv, std::vector<Step>& steps) {
  const AttentionSize size = attention_size();
  const std::array<HeadNorm, 2> norms = head_norms(index);
  const std::int64_t all = rows_ * (norms[0].groups + norms[1].groups);
  const auto before = values_.use({TensorKind::saved, index, micro_batch, Form::whole, kHeadsBeforeNorm});
  const auto saved = values_.use({TensorKind::saved, index, micro_batch, Form::whole, kHeadsStatistics});
  const auto dy = values_.define_unnamed(values_.activations(), rows_ * size.heads * size.head_dim);
  const auto dx = values_.define_unnamed(values_.activations(), rows_ * size.heads * size.head_dim);
  std::int64_t first = 0, first_group = 0;
  for (const HeadNorm& norm : norms) {
    const Place weight = weight_of(*norm.weight);
    const auto offset = offset_weights(weight, norm.dim, steps);
    const Place into = gradient_of_norm(*norm.weight, micro_batch, steps);
    steps.push_back([=, this] {
      const ConstNumbers raw = values_.numbers(before) + first;
      const float* mean = values_.floats(saved) + first_group;
      const Numbers heads = values_.numbers(dqkv) + norm.column;
      const std::int64_t width = norm.groups * norm.dim;
      device_.copy_matrix(values_.numbers(dy), width, heads, size.qkv_columns(), rows_, width);
      device_.norm_backward(model_.norm, values_.numbers(dy), raw, norm_weights(weight, offset), mean,
                            mean + all, values_.numbers(dx), false, ready_to_add(into), nullptr,
                            rows_ * norm.groups, norm.dim);
      device_.copy_matrix(heads, size.qkv_columns(), values_.numbers(dx), width, rows_, width);
    });
    first += rows_ * norm.groups * norm.dim;
    first_group += rows_ * norm.groups;
  }
}

void Layers::regroup_heads(Numbers interleaved, Numbers grouped, bool back) const {
  const AttentionSize size = attention_size();
  const std::int64_t dim = size.head_dim;
  const std::int64_t stride = size.qkv_columns();
  for (std::int64_t head = 0; head < size.heads; ++head)
    for (std::int64_t part = 0; part < 3; ++part) {
      const Numbers a = interleaved + (3 * head + part) * dim;
      const Numbers b = grouped + (part * size.heads + head) * dim;
      device_.copy_matrix(back ? a : b, stride, back ? b : a, stride, rows_, dim);
    }
}

}  // namespace orrery::exec
