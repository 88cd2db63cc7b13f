#include "exec/math/image_layers.h"

#include "base/error.h"
#include "workloads/graph_split.h"

namespace orrery::exec {
namespace {

// Of a batch norm: mean, inverse deviation, variance.
constexpr std::int64_t kSavedOfChannel = 3;
// Words of a number that they are not.
constexpr std::int64_t kDouble = sizeof(double) / sizeof(float);

}  // namespace

ImageLayers::ImageLayers(const Plan& plan, const Program& program, Parameters& parameters,
                         RunningStatistics& statistics, Device& device, Values& values,
                         const BatchMemory& batch)
    : Mathematics(plan, parameters, device, values, batch,
                  static_cast<std::int64_t>(shared_rows(shard_of(plan)))),
      shard_(shard_of(plan)),
      ranks_(plan.choices.tp),
      rank_(program.at.tp),
      picture_rows_(rows_),
      readers_(plan.job->workload.operators.size()),
      statistics_(statistics) {
  for (const Operator& reader : plan.job->workload.operators) {
    for (const int input : reader.inputs) ++readers_[static_cast<std::size_t>(input)];
    if (ranks_ > 1 && reader.inputs.empty() && reader.split != TensorSplit::replicated)
      picture_rows_ = static_cast<std::int64_t>(local_rows(reader, shard_));
  }
}

std::int64_t ImageLayers::elements(int index, Form form) const {
  // All rows of own features are as many as own rows of all.
  const std::int64_t rows = form == Form::whole ? static_cast<std::int64_t>(shard_.rows) : rows_;
  return rows * op(index).output_elements;
}

Form ImageLayers::form_written(int index) const {
  if (!is_split(index)) return stream_form();
  return op(index).split == TensorSplit::row ? Form::whole : Form::features;
}

Form ImageLayers::form_sent(int index) const {
  const bool stays =
      form_written(index) == Form::features && !features_return(plan_.job->workload.operators, index);
  return stays ? Form::features : stream_form();
}

Form ImageLayers::form_read(int index) const {
  if (!is_split(index)) return stream_form();
  return op(index).split == TensorSplit::column && can_be_split(op(index)) ? Form::whole : Form::features;
}

// With the features that this rank reads and writes.
ImageOperator ImageLayers::image(int index) const {
  ImageOperator own = *op(index).image;
  const auto split = [&](int of) { return static_cast<std::int64_t>(output_split(op(of), shard_)); };
  if (form_read(index) == Form::features) own.input.channels /= split(input(index));
  if (form_written(index) == Form::features) own.output.channels /= split(index);
  return own;
}

WindowSize ImageLayers::window(int index) const {
  const auto& products = op(index).matmuls;
  return {rows_of(index), products.empty() ? 1 : products.front().groups, image(index)};
}

// Where an operator's first row stands in what it reads.
std::int64_t ImageLayers::input_begin(int index) const {
  const bool own_of_all = !has_input_gradient(index) && rows_of(index) < picture_rows_;
  return own_of_all ? rank_ * rows_ * image(index).input.elements() : 0;
}

Key ImageLayers::input_key(int index, int micro_batch) const {
  return has_input_gradient(index) ? activation(input(index), micro_batch, form_read(index))
                                   : images(micro_batch);
}

Dropout ImageLayers::dropout_of(int index, int micro_batch) const {
  const std::int64_t own = rows_of(index) == rows_ ? rank_ * rows_ : 0;
  const std::int64_t columns = form_written(index) == Form::features ? image(index).output.elements() : 0;
  return {batch_.row_keys + micro_batch * plan_.choices.micro_batch + own, dropout_place(index, 0),
          op(index).image->dropout, static_cast<std::uint32_t>(rank_ * columns)};
}

const HeldTensor* ImageLayers::bias_of(int index) const {
  return op(index).parameters.size() > 1 ? parameters_.find(index, 1) : nullptr;
}

// A sum of parts gets its bias once.
bool ImageLayers::adds_bias(int index) const {
  return bias_of(index) != nullptr &&
         (!is_split(index) || op(index).split == TensorSplit::column || rank_ == 0);
}

void ImageLayers::forward(int index, int micro_batch, std::vector<Step>& steps) {
  if (op(index).image->sequence) return sequence_forward(index, micro_batch, steps);
  switch (op(index).kind) {
    case OperatorKind::conv:
      return convolution_forward(index, micro_batch, steps);
    case OperatorKind::linear:
      return linear_forward(index, micro_batch, steps);
    case OperatorKind::batch_norm:
      return batch_norm_forward(index, micro_batch, steps);
    case OperatorKind::activation:
      return activation_forward(index, micro_batch, steps);
    case OperatorKind::pool:
      return pool_forward(index, micro_batch, steps);
    case OperatorKind::elementwise:
      return addition_forward(index, micro_batch, steps);
    case OperatorKind::loss:
      return loss_forward(index, micro_batch, steps);
    default:
      throw InternalError("no forward mathematics for " + op(index).name);
  }
}

void ImageLayers::backward(int index, int micro_batch, bool input, bool weight, std::vector<Step>& steps) {
  if (op(index).image->sequence) return sequence_backward(index, micro_batch, input, weight, steps);
  switch (op(index).kind) {
    case OperatorKind::conv:
      return convolution_backward(index, micro_batch, input, weight, steps);
    case OperatorKind::linear:
      return linear_backward(index, micro_batch, input, weight, steps);
    case OperatorKind::batch_norm:
      if (input) batch_norm_backward(index, micro_batch, steps);
      return;
    case OperatorKind::activation:
      if (input) activation_backward(index, micro_batch, steps);
      return;
    case OperatorKind::pool:
      if (input) pool_backward(index, micro_batch, steps);
      return;
    case OperatorKind::elementwise:
      if (input) addition_backward(index, micro_batch, steps);
      return;
    default:
      return;  // the loss left its gradient in the scores
  }
}

ImageLayers::InputGradient ImageLayers::input_gradient(int index, int micro_batch) {
  const Key into = gradient(input(index), micro_batch, form_read(index));
  const std::int64_t per_row = image(index).input.elements();
  InputGradient result;
  result.elements = static_cast<std::size_t>(rows_of(index) * per_row);
  if (!values_.has(into)) {
    result.written = values_.define(into, of_rows(index, per_row));
    return result;
  }
  result.sum = values_.change(into);
  result.written = values_.define_unnamed(values_.activations(), of_rows(index, per_row));
  return result;
}

void ImageLayers::add_gradient(const InputGradient& gradient) const {
  if (gradient.sum >= 0)
    device_.add(values_.numbers(gradient.sum), values_.numbers(gradient.written), gradient.elements);
}

void ImageLayers::convolution_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y =
      values_.define(output_key(index, micro_batch), of_rows(index, image(index).output.elements()));
  const Place weight = weight_of(*parameters_.find(index, 0));
  const Place bias = weight_or_none(adds_bias(index) ? bias_of(index) : nullptr);
  steps.push_back([=, this, size = window(index), begin = input_begin(index)] {
    device_.convolution_forward(size, values_.numbers(x) + begin, at(weight), at(bias), values_.numbers(y));
  });
}

void ImageLayers::convolution_backward(int index, int micro_batch, bool want_input, bool want_weight,
                                       std::vector<Step>& steps) {
  const auto dy = values_.use(output_gradient(index, micro_batch));
  const WindowSize size = window(index);
  if (want_weight) {
    const auto x = values_.use(input_key(index, micro_batch));
    const Place dweight = gradient_of(*parameters_.find(index, 0), micro_batch, steps);
    const HeldTensor* bias = bias_of(index);
    const Place dbias = bias != nullptr ? gradient_of(*bias, micro_batch, steps) : Place{};
    // A bias that is not split with its weight is in another bucket, whose sums may begin elsewhere.
    const bool sets = dweight.first && (bias == nullptr || dbias.first);
    steps.push_back([=, this, adds = adds_bias(index), begin = input_begin(index)] {
      float* of_weight = sets ? at(dweight) : ready_to_add(dweight);
      float* of_bias = bias == nullptr ? nullptr : sets && adds ? at(dbias) : ready_to_add(dbias);
      device_.convolution_backward_weight(size, values_.numbers(x) + begin, values_.numbers(dy), of_weight,
                                          adds ? of_bias : nullptr, !sets);
    });
  }
  if (!want_input || !has_input_gradient(index)) return;
  const InputGradient dx = input_gradient(index, micro_batch);
  const Place weight = weight_of(*parameters_.find(index, 0));
  steps.push_back([=, this] {
    device_.convolution_backward_input(size, values_.numbers(dy), at(weight), values_.numbers(dx.written));
    add_gradient(dx);
  });
}

void ImageLayers::linear_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const std::int64_t rows = rows_of(index);
  const std::int64_t in = image(index).input.elements();
  const std::int64_t out = image(index).output.elements();
  const bool in_out = image(index).weight_in_out;
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y = values_.define(output_key(index, micro_batch), of_rows(index, out));
  const Place weight = weight_of(*parameters_.find(index, 0));
  const Place bias = weight_or_none(adds_bias(index) ? bias_of(index) : nullptr);
  steps.push_back([=, this, begin = input_begin(index)] {
    device_.linear(!in_out, rows, out, in, values_.numbers(x) + begin, in, at(weight), at(bias),
                   values_.numbers(y), out);
  });
}

void ImageLayers::linear_backward(int index, int micro_batch, bool want_input, bool want_weight,
                                  std::vector<Step>& steps) {
  const std::int64_t rows = rows_of(index);
  const std::int64_t in = image(index).input.elements();
  const std::int64_t out = image(index).output.elements();
  const bool in_out = image(index).weight_in_out;
  const auto dy = values_.use(output_gradient(index, micro_batch));
  if (want_weight) {
    const auto x = values_.use(input_key(index, micro_batch));
    const Place dweight = gradient_of(*parameters_.find(index, 0), micro_batch, steps);
    const HeldTensor* bias = bias_of(index);
    const Place dbias = bias != nullptr ? gradient_of(*bias, micro_batch, steps) : Place{};
    steps.push_back([=, this, adds = adds_bias(index), begin = input_begin(index)] {
      const ConstNumbers input = values_.numbers(x) + begin;
      const ConstNumbers left = in_out ? input : ConstNumbers(values_.numbers(dy));
      const ConstNumbers right = in_out ? ConstNumbers(values_.numbers(dy)) : input;
      const std::int64_t m = in_out ? in : out;
      const std::int64_t n = in_out ? out : in;
      device_.gemm(true, false, m, n, rows, 1, left, m, right, n, dweight.first ? 0.0F : 1.0F, at(dweight),
                   n);
      float* of_bias = bias != nullptr ? ready_to_add(dbias) : nullptr;
      if (adds) device_.bias_gradient(values_.numbers(dy), of_bias, rows, out, out);
    });
  }
  if (!want_input || !has_input_gradient(index)) return;
  const InputGradient dx = input_gradient(index, micro_batch);
  const Place weight = weight_of(*parameters_.find(index, 0));
  steps.push_back([=, this] {
    device_.gemm(false, in_out, rows, in, out, 1, values_.numbers(dy), out, at(weight), in_out ? out : in, 0,
                 values_.numbers(dx.written), in);
    add_gradient(dx);
  });
}

// By the statistics of each rank's samples apart, whoever computes them: what a network learns does not
// depend on which of its norms are split.
void ImageLayers::batch_norm_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const std::int64_t ranks = rows_of(index) / rows_;
  const ImageShape shape = image(index).input;
  const std::int64_t channels = shape.channels;
  const std::int64_t pixels = shape.height * shape.width;
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y = values_.define(output_key(index, micro_batch), of_rows(index, shape.elements()));
  const auto saved = values_.define({TensorKind::saved, index, micro_batch, Form::whole},
                                    ranks * kSavedOfChannel * channels);
  const Place weight = weight_of(*parameters_.find(index, 0));
  const Place bias = weight_of(*parameters_.find(index, 1));
  const bool counts = counted_.emplace(index, micro_batch).second;
  steps.push_back([=, this, epsilon = static_cast<float>(image(index).epsilon)] {
    for (std::int64_t r = 0; r < ranks; ++r) {
      float* mean = values_.floats(saved) + r * kSavedOfChannel * channels;
      const std::int64_t first = r * rows_ * shape.elements();
      device_.batch_norm_forward(values_.numbers(x) + first, at(weight), at(bias), values_.numbers(y) + first,
                                 mean, mean + channels, mean + 2 * channels, rows_, channels, pixels,
                                 epsilon);
    }
    const float* mean = values_.floats(saved);
    if (counts) statistics_.update(index, mean, mean + 2 * channels, rows_ * pixels);
  });
}

void ImageLayers::batch_norm_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const std::int64_t ranks = rows_of(index) / rows_;
  const ImageShape shape = image(index).input;
  const std::int64_t channels = shape.channels;
  const std::int64_t pixels = shape.height * shape.width;
  const auto dy = values_.use(output_gradient(index, micro_batch));
  values_.forget(output_gradient(index, micro_batch));
  const auto x = values_.use(input_key(index, micro_batch));
  const auto saved = values_.use({TensorKind::saved, index, micro_batch, Form::whole});
  ORRERY_CHECK(has_input_gradient(index), "a batch norm of the images themselves");
  const InputGradient dx = input_gradient(index, micro_batch);
  const Place weight = weight_of(*parameters_.find(index, 0));
  const Place dweight = gradient_of(*parameters_.find(index, 0), micro_batch, steps);
  const Place dbias = gradient_of(*parameters_.find(index, 1), micro_batch, steps);
  steps.push_back([=, this] {
    float* of_weight = ready_to_add(dweight);
    float* of_bias = ready_to_add(dbias);
    for (std::int64_t r = 0; r < ranks; ++r) {
      const float* mean = values_.floats(saved) + r * kSavedOfChannel * channels;
      const std::int64_t first = r * rows_ * shape.elements();
      device_.batch_norm_backward(values_.numbers(dy) + first, values_.numbers(x) + first, at(weight), mean,
                                  mean + channels, values_.numbers(dx.written) + first, of_weight, of_bias,
                                  rows_, channels, pixels);
    }
    add_gradient(dx);
  });
}

void ImageLayers::activation_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const std::int64_t rows = rows_of(index);
  const std::int64_t columns = image(index).output.elements();
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y = values_.define(output_key(index, micro_batch), of_rows(index, columns));
  steps.push_back([=, this] {
    device_.activation_forward(op(index).image->activation, false, values_.numbers(x), values_.numbers(y),
                               rows, columns);
    if (op(index).image->dropout > 0)
      device_.dropout(dropout_of(index, micro_batch), values_.numbers(y), values_.numbers(y), rows, columns);
  });
}

// ReLU: where the output is positive the input was, and the input need not be kept. (What is dropped out has
// no gradient either way.)
void ImageLayers::activation_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const std::int64_t rows = rows_of(index);
  const std::int64_t columns = image(index).output.elements();
  const Activation kind = op(index).image->activation;
  const auto of =
      values_.use(kind == Activation::relu ? output_key(index, micro_batch) : input_key(index, micro_batch));
  const auto dy = values_.use(output_gradient(index, micro_batch));
  values_.forget(output_gradient(index, micro_batch));
  if (!has_input_gradient(index)) return;
  const InputGradient dx = input_gradient(index, micro_batch);
  steps.push_back([=, this] {
    device_.activation_backward(kind, false, values_.numbers(of), values_.numbers(dy),
                                values_.numbers(dx.written), rows, columns);
    if (op(index).image->dropout > 0)
      device_.dropout(dropout_of(index, micro_batch), values_.numbers(dx.written),
                      values_.numbers(dx.written), rows, columns);
    add_gradient(dx);
  });
}

void ImageLayers::pool_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto x = values_.use(input_key(index, micro_batch));
  const auto y =
      values_.define(output_key(index, micro_batch), of_rows(index, image(index).output.elements()));
  const bool average = image(index).average;
  const auto places =
      average ? Values::Id{-1}
              : values_.define_as(DType::int32, {TensorKind::saved, index, micro_batch, Form::whole},
                                  of_rows(index, image(index).output.elements()));
  steps.push_back([=, this, size = window(index)] {
    device_.pool_forward(size, values_.numbers(x), values_.numbers(y),
                         average ? nullptr : static_cast<std::int32_t*>(values_.at(places)));
    if (op(index).image->dropout > 0)
      device_.dropout(dropout_of(index, micro_batch), values_.numbers(y), values_.numbers(y), size.batch,
                      size.image.output.elements());
  });
}

void ImageLayers::pool_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto dy = values_.use(output_gradient(index, micro_batch));
  values_.forget(output_gradient(index, micro_batch));
  if (!has_input_gradient(index)) return;
  const bool average = image(index).average;
  const auto places =
      average ? Values::Id{-1} : values_.use({TensorKind::saved, index, micro_batch, Form::whole});
  const InputGradient dx = input_gradient(index, micro_batch);
  const std::int64_t columns = image(index).output.elements();
  const bool drops = op(index).image->dropout > 0;
  const auto kept = drops ? values_.define_unnamed(values_.activations(), of_rows(index, columns)) : dy;
  steps.push_back([=, this, size = window(index)] {
    if (drops)
      device_.dropout(dropout_of(index, micro_batch), values_.numbers(dy), values_.numbers(kept), size.batch,
                      columns);
    device_.pool_backward(size, values_.numbers(kept),
                          average ? nullptr : static_cast<const std::int32_t*>(values_.at(places)),
                          values_.numbers(dx.written));
    add_gradient(dx);
  });
}

void ImageLayers::addition_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const std::int64_t rows = rows_of(index);
  const std::int64_t columns = image(index).output.elements();
  const auto a = values_.use(activation(input(index, 0), micro_batch, form_read(index)));
  const auto b = values_.use(activation(input(index, 1), micro_batch, form_read(index)));
  const auto y = values_.define(output_key(index, micro_batch), of_rows(index, columns));
  steps.push_back([=, this] {
    device_.residual_forward(values_.numbers(a), nullptr, values_.numbers(b), values_.numbers(y), rows,
                             columns);
  });
}

// The same gradient goes both ways: one memory with several names, but a copy for who has other readers,
// whose gradients are added to it.
void ImageLayers::addition_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const std::size_t count = static_cast<std::size_t>(elements(index, form_written(index)));
  const auto dy = values_.use(output_gradient(index, micro_batch));
  values_.forget(output_gradient(index, micro_batch));
  for (const int reader : op(index).inputs) {
    const Key into = gradient(reader, micro_batch, form_read(index));
    if (readers_[static_cast<std::size_t>(reader)] == 1) {
      values_.alias(into, dy);
    } else if (values_.has(into)) {
      const auto sum = values_.change(into);
      steps.push_back([=, this] { device_.add(values_.numbers(sum), values_.numbers(dy), count); });
    } else {
      const auto copy = values_.define(into, elements(index, form_written(index)));
      steps.push_back([=, this] { device_.copy(values_.at(copy), values_.at(dy), values_.bytes(copy)); });
    }
  }
}

void ImageLayers::loss_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const int scores_of = input(index);
  const std::int64_t classes = image(index).input.elements();
  const auto scores = values_.change(activation(scores_of, micro_batch, form_read(index)));
  values_.alias(gradient(scores_of, micro_batch, form_read(index)), scores);
  const auto statistics =
      values_.define({TensorKind::saved, index, micro_batch, Form::whole}, kDouble + of_rows(index, 3));
  // Recomputed with its layer, it makes the gradient again and is not counted again.
  const bool counts = counted_.emplace(index, micro_batch).second;
  steps.push_back([=, this] {
    auto* uncounted = static_cast<double*>(values_.at(statistics));
    device_.fill(values_.floats(statistics), kDouble, 0);
    float* maximum = values_.floats(statistics) + kDouble;
    float* sums = maximum + rows_;
    const std::int32_t* targets = batch_.targets + micro_batch * rows_;
    const Numbers data = values_.numbers(scores);
    device_.loss_max(data, maximum, rows_, classes, classes);
    device_.loss_sum(data, maximum, targets, sums, rows_, classes, classes, 0);
    device_.loss_gradient(data, maximum, sums, targets, loss_scale_ * loss_factor_, rows_, classes, classes,
                          0, counts ? batch_.loss : uncounted);
  });
}

}  // namespace orrery::exec
