// Sequences of patches (ImageOperator::sequence): what makes tokens of an image, norms, products and
// attention of tokens. Activations and additions are those of images.
#include "base/error.h"
#include "exec/math/image_layers.h"

namespace orrery::exec {

void ImageLayers::sequence_forward(int index, int micro_batch, std::vector<Step>& steps) {
  switch (op(index).kind) {
    case OperatorKind::linear:
      if (op(index).parameters.empty()) return attention_forward(index, micro_batch, steps);
      return token_linear_forward(index, micro_batch, steps);
    case OperatorKind::norm:
      return norm_forward(index, micro_batch, steps);
    case OperatorKind::activation:
      return activation_forward(index, micro_batch, steps);
    case OperatorKind::elementwise:
      if (op(index).inputs.size() == 1) return tokens_forward(index, micro_batch, steps);
      return addition_forward(index, micro_batch, steps);
    default:
      throw InternalError("no forward mathematics of tokens for " + op(index).name);
  }
}

void ImageLayers::sequence_backward(int index, int micro_batch, bool input, bool weight,
                                    std::vector<Step>& steps) {
  if (op(index).kind == OperatorKind::linear && !op(index).parameters.empty())
    return token_linear_backward(index, micro_batch, input, weight, steps);
  if (!input) return;  // norms and positions do both at once
  switch (op(index).kind) {
    case OperatorKind::linear:
      return attention_backward(index, micro_batch, steps);
    case OperatorKind::norm:
      return norm_backward(index, micro_batch, steps);
    case OperatorKind::activation:
      return activation_backward(index, micro_batch, steps);
    case OperatorKind::elementwise:
      if (op(index).inputs.size() == 1) return tokens_backward(index, micro_batch, steps);
      return addition_backward(index, micro_batch, steps);
    default:
      throw InternalError("no backward mathematics of tokens for " + op(index).name);
  }
}

std::vector<ImageLayers::TokenProduct> ImageLayers::token_products(int index) const {
  std::vector<TokenProduct> products;
  std::int64_t column = 0;
  const HeldTensor* before = nullptr;
  for (int p = 0;; ++p) {
    const HeldTensor* held = parameters_.own(index, p);
    if (held == nullptr || held->tensor->shape.size() < 2) break;
    const std::int64_t out = held->shape[0];
    const bool follows = before != nullptr && before->bucket == held->bucket &&
                         before->offset + before->elements == held->offset;
    if (follows)
      products.back().out += out;
    else
      products.push_back({held, out, column});
    column += out;
    before = held;
  }
  return products;
}

std::vector<std::pair<const HeldTensor*, std::int64_t>> ImageLayers::token_biases(int index) const {
  std::vector<std::pair<const HeldTensor*, std::int64_t>> biases;
  std::int64_t column = 0;
  for (int p = 0;; ++p) {
    const HeldTensor* held = parameters_.own(index, p);
    if (held == nullptr) return biases;
    if (held->tensor->shape.size() > 1) continue;
    biases.emplace_back(held, column);
    column += held->elements;
  }
}

// Of one token a sample, or of all.
ImageLayers::TokenRows ImageLayers::token_rows(int index) const {
  const ImageOperator size = image(index);
  const std::int64_t tokens = size.output.height;
  TokenRows rows;
  rows.rows = rows_of(index) * tokens;
  rows.in = size.input.channels;
  rows.out = size.output.channels;
  rows.stride = size.input.height / tokens * rows.in;
  rows.elements = rows_of(index) * size.input.elements();
  return rows;
}

void ImageLayers::token_linear_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const TokenRows size = token_rows(index);
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y =
      values_.define(output_key(index, micro_batch), of_rows(index, image(index).output.elements()));
  for (const TokenProduct& product : token_products(index)) {
    const Place weight = weight_of(*product.weight);
    steps.push_back([=, this] {
      device_.linear(true, size.rows, product.out, size.in, values_.numbers(x), size.stride, at(weight),
                     nullptr, values_.numbers(y) + product.column, size.out);
    });
  }
  // A sum of parts gets its biases once.
  if (is_split(index) && op(index).split == TensorSplit::row && rank_ != 0) return;
  for (const auto& [held, column] : token_biases(index)) {
    const Place bias = weight_of(*held);
    steps.push_back([=, this, first = column] {
      device_.add_bias(values_.numbers(y) + first, at(bias), size.rows, bias.elements, size.out);
    });
  }
}

void ImageLayers::token_linear_backward(int index, int micro_batch, bool want_input, bool want_weight,
                                        std::vector<Step>& steps) {
  const TokenRows size = token_rows(index);
  const auto dy = values_.use(output_gradient(index, micro_batch));
  const std::vector<TokenProduct> products = token_products(index);
  if (want_weight) {
    const auto x = values_.use(input_key(index, micro_batch));
    for (const TokenProduct& product : products) {
      const Place of = gradient_of(*product.weight, micro_batch, steps);
      steps.push_back([=, this] {
        device_.gemm(true, false, product.out, size.in, size.rows, 1, values_.numbers(dy) + product.column,
                     size.out, values_.numbers(x), size.stride, of.first ? 0.0F : 1.0F, at(of), size.in);
      });
    }
    const bool adds = !is_split(index) || op(index).split == TensorSplit::column || rank_ == 0;
    for (const auto& [held, column] : token_biases(index)) {
      const Place of = gradient_of(*held, micro_batch, steps);
      steps.push_back([=, this, first = column] {
        float* into = ready_to_add(of);
        if (adds) device_.bias_gradient(values_.numbers(dy) + first, into, size.rows, of.elements, size.out);
      });
    }
  }
  if (!want_input || !has_input_gradient(index)) return;
  const InputGradient dx = input_gradient(index, micro_batch);
  std::vector<Place> weights;
  weights.reserve(products.size());
  for (const TokenProduct& product : products) weights.push_back(weight_of(*product.weight));
  steps.push_back([=, this] {
    const Numbers into = values_.numbers(dx.written);
    // Tokens that nobody read.
    if (size.stride != size.in) device_.fill(into, static_cast<std::size_t>(size.elements), 0);
    for (std::size_t i = 0; i < products.size(); ++i)
      device_.gemm(false, false, size.rows, size.in, products[i].out, 1,
                   values_.numbers(dy) + products[i].column, size.out, at(weights[i]), size.in,
                   i == 0 ? 0.0F : 1.0F, into, size.stride);
    add_gradient(dx);
  });
}

AttentionSize ImageLayers::attention_size(int index) const {
  const ImageOperator own = image(index);
  AttentionSize size;
  size.batch = static_cast<int>(rows_of(index));
  size.seq = static_cast<int>(own.output.height);
  size.head_dim = static_cast<int>(op(index).image->output.channels) / own.heads;
  size.heads = static_cast<int>(own.output.channels) / size.head_dim;
  size.kv_heads = size.heads;
  size.causal = false;
  return size;
}

void ImageLayers::attention_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const AttentionSize size = attention_size(index);
  const auto qkv = values_.use(input_key(index, micro_batch));
  const auto out =
      values_.define(output_key(index, micro_batch), of_rows(index, image(index).output.elements()));
  const auto sums = values_.define({TensorKind::saved, index, micro_batch, Form::whole},
                                   of_rows(index, static_cast<std::int64_t>(size.heads) * size.seq));
  steps.push_back([=, this] {
    device_.attention_forward(size, values_.numbers(qkv), values_.numbers(out), values_.floats(sums));
  });
}

void ImageLayers::attention_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const AttentionSize size = attention_size(index);
  const auto qkv = values_.use(input_key(index, micro_batch));
  const auto out = values_.use(output_key(index, micro_batch));
  const auto sums = values_.use({TensorKind::saved, index, micro_batch, Form::whole});
  const auto dout = values_.use(output_gradient(index, micro_batch));
  values_.forget(output_gradient(index, micro_batch));
  const InputGradient dqkv = input_gradient(index, micro_batch);
  steps.push_back([=, this] {
    device_.attention_backward(size, values_.numbers(qkv), values_.numbers(out), values_.numbers(dout),
                               values_.floats(sums), values_.numbers(dqkv.written));
    add_gradient(dqkv);
  });
}

void ImageLayers::norm_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const ImageOperator size = image(index);
  const std::int64_t rows = rows_of(index) * size.output.height;
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y = values_.define(output_key(index, micro_batch), of_rows(index, size.output.elements()));
  const auto saved = values_.define({TensorKind::saved, index, micro_batch, Form::whole}, 2 * rows);
  const Place weight = weight_of(*parameters_.find(index, 0));
  const Place bias = weight_of(*parameters_.find(index, 1));
  steps.push_back([=, this] {
    float* mean = values_.floats(saved);
    device_.norm_forward(NormKind::layer_norm, values_.numbers(x), at(weight), at(bias), values_.numbers(y),
                         mean, mean + rows, rows, size.output.channels, static_cast<float>(size.epsilon));
  });
}

void ImageLayers::norm_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const ImageOperator size = image(index);
  const std::int64_t rows = rows_of(index) * size.output.height;
  const auto dy = values_.use(output_gradient(index, micro_batch));
  values_.forget(output_gradient(index, micro_batch));
  const auto x = values_.use(input_key(index, micro_batch));
  const auto saved = values_.use({TensorKind::saved, index, micro_batch, Form::whole});
  const InputGradient dx = input_gradient(index, micro_batch);
  const Place weight = weight_of(*parameters_.find(index, 0));
  const Place dweight = gradient_of(*parameters_.find(index, 0), micro_batch, steps);
  const Place dbias = gradient_of(*parameters_.find(index, 1), micro_batch, steps);
  steps.push_back([=, this] {
    const float* mean = values_.floats(saved);
    device_.norm_backward(NormKind::layer_norm, values_.numbers(dy), values_.numbers(x), at(weight), mean,
                          mean + rows, values_.numbers(dx.written), false, ready_to_add(dweight),
                          ready_to_add(dbias), rows, size.output.channels);
    add_gradient(dx);
  });
}

// An image's pixels as tokens, behind the class token where there is one, and their positions.
void ImageLayers::tokens_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const ImageOperator size = image(index);
  const std::int64_t width = size.output.channels, tokens = size.output.height, samples = rows_of(index);
  const std::int64_t pixels = size.input.height * size.input.width;
  const bool classes = tokens > pixels;
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y = values_.define(output_key(index, micro_batch), of_rows(index, size.output.elements()));
  const Place token = classes ? weight_of(*parameters_.find(index, 0)) : Place{};
  const Place positions = weight_of(*parameters_.find(index, classes ? 1 : 0));
  steps.push_back([=, this] {
    const Numbers out = values_.numbers(y);
    if (classes) {
      device_.fill(out, static_cast<std::size_t>(samples * tokens * width), 0);
      device_.add_bias(out, at(token), samples, width, tokens * width);
    }
    device_.transpose(values_.numbers(x), width * pixels, out + (tokens - pixels) * width, tokens * width,
                      samples, width, pixels);
    device_.positions_forward(at(positions), out, samples * tokens, width, static_cast<int>(tokens));
  });
}

void ImageLayers::tokens_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const ImageOperator size = image(index);
  const std::int64_t width = size.output.channels, tokens = size.output.height, samples = rows_of(index);
  const std::int64_t pixels = size.input.height * size.input.width;
  const bool classes = tokens > pixels;
  const auto dy = values_.use(output_gradient(index, micro_batch));
  values_.forget(output_gradient(index, micro_batch));
  const InputGradient dx = input_gradient(index, micro_batch);
  const Place token = classes ? gradient_of(*parameters_.find(index, 0), micro_batch, steps) : Place{};
  const Place positions = gradient_of(*parameters_.find(index, classes ? 1 : 0), micro_batch, steps);
  steps.push_back([=, this] {
    const ConstNumbers of = values_.numbers(dy);
    if (classes) device_.bias_gradient(of, ready_to_add(token), samples, width, tokens * width);
    device_.positions_backward(of, ready_to_add(positions), samples * tokens, width,
                               static_cast<int>(tokens));
    device_.transpose(of + (tokens - pixels) * width, tokens * width, values_.numbers(dx.written),
                      width * pixels, samples, pixels, width);
    add_gradient(dx);
  });
}

}  // namespace orrery::exec
