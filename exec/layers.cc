#include "exec/layers.h"

#include <algorithm>

#include "base/error.h"
#include "exec/ring_attention.h"

namespace orrery::exec {
namespace {

std::size_t bytes_of_floats(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

}  // namespace

Layers::Layers(const Plan& plan, const Program& program, Parameters& parameters, Device& device,
               Values& values, const BatchMemory& batch)
    : Mathematics(
          plan, parameters, device, values, batch,
          static_cast<std::int64_t>(plan.choices.micro_batch) * plan.job->training.seq_len / plan.choices.cp),
      model_(*plan.job->workload.transformer),
      tp_(plan.choices.tp),
      tp_rank_(program.at.tp),
      cp_(plan.choices.cp),
      cp_rank_(program.at.cp),
      sequence_parallel_(plan.choices.sequence_parallel && plan.choices.tp > 1) {}

int Layers::find_back(int index, OperatorKind kind) const {
  while (op(index).kind != kind) --index;
  return index;
}

bool Layers::gated(int index) const {
  return op(index).kind == OperatorKind::activation && model_.gated_ffn;
}

Form Layers::output_form(int index) const {
  switch (op(index).kind) {
    case OperatorKind::norm:
    case OperatorKind::residual:
      return stream_form();
    case OperatorKind::linear:
    case OperatorKind::activation:
      return op(index).split == TensorSplit::replicated ? stream_form() : Form::whole;
    default:
      return Form::whole;
  }
}

bool Layers::stream_is_norm(int residual) const {
  return op(op(residual).inputs.back()).kind == OperatorKind::norm;
}

AttentionSize Layers::attention_size() const {
  return {plan_.choices.micro_batch, plan_.job->training.seq_len / cp_,
          model_.heads / tp_,        model_.kv_heads / tp_,
          model_.head_dim,           !model_.bidirectional};
}

std::vector<Layers::Run> Layers::runs() const {
  const int seq = plan_.job->training.seq_len;
  const int batch = plan_.choices.micro_batch;
  if (cp_ == 1) return {{0, rows_, 0, seq}};
  const ContextPart part = context_part(seq, cp_, cp_rank_);
  std::vector<Run> runs;
  for (int b = 0; b < batch; ++b)
    for (int i = 0; i < 2; ++i)
      runs.push_back({(2LL * b + i) * part.length, part.length, part.first[i], part.length});
  return runs;
}

std::vector<Layers::SegmentRun> Layers::segment_runs() const {
  const int seq = plan_.job->training.seq_len;
  const int first = (seq + 1) / 2;  // rows of segment 0
  std::vector<SegmentRun> result;
  for (const Run& run : runs())
    for (std::int64_t sample = 0; sample < run.rows / run.seq; ++sample) {
      const std::int64_t row = run.row + sample * run.seq;
      const std::int64_t before = std::clamp(first - run.position, 0, run.seq);
      if (model_.token_types == 1) {
        result.push_back({row, run.seq, 0});
        continue;
      }
      if (before > 0) result.push_back({row, before, 0});
      if (before < run.seq) result.push_back({row + before, run.seq - before, 1});
    }
  return result;
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

std::int64_t Layers::columns_of(int index) const {
  switch (op(index).kind) {
    case OperatorKind::linear:
    case OperatorKind::head:
      // An operator of another stage is only known by the residual stream that it hands over.
      return op(index).split == TensorSplit::row ? model_.hidden : linear_of(index).out;
    case OperatorKind::attention:
      return static_cast<std::int64_t>(model_.heads / tp_) * model_.head_dim;
    case OperatorKind::activation:
      return op(index).output_elements / (op(index).split == TensorSplit::replicated ? 1 : tp_);
    default:
      return model_.hidden;
  }
}

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

std::int32_t Layers::vocabulary_first(const HeldTensor& table) const {
  return static_cast<std::int32_t>(table.shape[0] * tp_rank_);
}

std::int32_t Layers::vocabulary_count(const HeldTensor& table) const {
  const std::int64_t left = table.tensor->shape[0] - table.shape[0] * tp_rank_;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 0, table.shape[0]));
}

void Layers::forward(int index, int micro_batch, std::vector<Step>& steps) {
  switch (op(index).kind) {
    case OperatorKind::embedding:
      return embedding_forward(index, micro_batch, steps);
    case OperatorKind::norm:
      return norm_forward(index, micro_batch, steps);
    case OperatorKind::linear:
    case OperatorKind::head:
      return linear_forward(index, micro_batch, steps);
    case OperatorKind::attention:
      return attention_forward(index, micro_batch, steps);
    case OperatorKind::activation:
      return activation_forward(index, micro_batch, steps);
    case OperatorKind::residual:
      return residual_forward(index, micro_batch, steps);
    case OperatorKind::loss_max:
    case OperatorKind::loss_sum:
    case OperatorKind::loss:
      return loss_forward(index, micro_batch, steps);
    default:
      throw InternalError("no forward mathematics for " + op(index).name);
  }
}

void Layers::backward(int index, int micro_batch, bool input, bool weight, std::vector<Step>& steps) {
  switch (op(index).kind) {
    case OperatorKind::linear:
    case OperatorKind::head:
      linear_backward(index, micro_batch, input, weight, steps);
      break;
    case OperatorKind::embedding:
      if (weight) embedding_backward(index, micro_batch, steps);
      break;
    case OperatorKind::norm:
      if (input) norm_backward(index, micro_batch, steps);
      break;
    case OperatorKind::attention:
      if (input) attention_backward(index, micro_batch, steps);
      break;
    case OperatorKind::activation:
      if (input) activation_backward(index, micro_batch, steps);
      break;
    case OperatorKind::residual:
      if (input) residual_backward(index, micro_batch, steps);
      break;
    default:
      break;  // the loss left its gradient in the logits
  }
}

void Layers::embedding_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* table = parameters_.find(index, 0);
  const HeldTensor* positions = model_.learned_positions ? parameters_.find(index, 1) : nullptr;
  const HeldTensor* types =
      model_.token_types > 0 ? parameters_.find(index, model_.learned_positions ? 2 : 1) : nullptr;
  ORRERY_CHECK(table != nullptr, "no token embedding in the buckets");
  const auto out = values_.define(activation(index, micro_batch, Form::whole),
                                  bytes_of_floats(elements(index, Form::whole)));
  const Place weight = weight_of(*table);
  const Place position_weight = weight_or_none(positions);
  const Place type_weight = weight_or_none(types);
  // The tensor ranks' outputs are summed: one of them adds the positions and segments.
  const bool adds_positions = positions != nullptr && tp_rank_ == 0;
  const bool adds_types = types != nullptr && tp_rank_ == 0;
  const std::int64_t skipped = static_cast<std::int64_t>(model_.position_offset) * model_.hidden;
  steps.push_back([=, this] {
    device_.embedding_forward(batch_.tokens + micro_batch * rows_, at(weight), values_.floats(out), rows_,
                              model_.hidden, vocabulary_first(*table), vocabulary_count(*table));
    if (adds_types)
      for (const SegmentRun& run : segment_runs())
        device_.add_bias(values_.floats(out) + run.row * model_.hidden,
                         at(type_weight) + run.segment * model_.hidden, run.rows, model_.hidden,
                         model_.hidden);
    if (!adds_positions) return;
    const float* table_of_positions = at(position_weight) + skipped;
    for (const Run& run : runs())
      device_.positions_forward(table_of_positions + run.position * model_.hidden,
                                values_.floats(out) + run.row * model_.hidden, run.rows, model_.hidden,
                                run.seq);
  });
}

void Layers::embedding_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* table = parameters_.find(index, 0);
  const HeldTensor* positions = model_.learned_positions ? parameters_.find(index, 1) : nullptr;
  const HeldTensor* types =
      model_.token_types > 0 ? parameters_.find(index, model_.learned_positions ? 2 : 1) : nullptr;
  const auto dout = values_.use(gradient(index, micro_batch, Form::whole));
  const Place table_gradient = gradient_of(*table, micro_batch, steps);
  const Place position_gradient =
      positions != nullptr ? gradient_of(*positions, micro_batch, steps) : Place{};
  const Place type_gradient = types != nullptr ? gradient_of(*types, micro_batch, steps) : Place{};
  const std::int64_t skipped = static_cast<std::int64_t>(model_.position_offset) * model_.hidden;
  steps.push_back([=, this] {
    device_.embedding_backward(batch_.tokens + micro_batch * rows_, values_.floats(dout),
                               ready_to_add(table_gradient), rows_, model_.hidden, vocabulary_first(*table),
                               vocabulary_count(*table));
    if (types != nullptr) {
      float* gradient_of_types = ready_to_add(type_gradient);
      for (const SegmentRun& run : segment_runs())
        device_.bias_gradient(values_.floats(dout) + run.row * model_.hidden,
                              gradient_of_types + run.segment * model_.hidden, run.rows, model_.hidden,
                              model_.hidden);
    }
    if (positions == nullptr) return;
    float* gradient_of_positions = ready_to_add(position_gradient) + skipped;
    for (const Run& run : runs())
      device_.positions_backward(values_.floats(dout) + run.row * model_.hidden,
                                 gradient_of_positions + run.position * model_.hidden, run.rows,
                                 model_.hidden, run.seq);
  });
}

void Layers::norm_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* weight = parameters_.find(index, 0);
  const HeldTensor* bias = op(index).parameters.size() > 1 ? parameters_.find(index, 1) : nullptr;
  const Form form = stream_form();
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto y = values_.define(activation(index, micro_batch, form), bytes_of_floats(elements(index, form)));
  const auto saved = values_.define({TensorKind::saved, index, micro_batch, form}, bytes_of_floats(2 * rows));
  const Place w = weight_of(*weight);
  const Place b = weight_or_none(bias);
  steps.push_back([=, this] {
    float* mean = values_.floats(saved);
    device_.norm_forward(model_.norm, values_.floats(x), at(w), at(b), values_.floats(y), mean, mean + rows,
                         rows, model_.hidden, static_cast<float>(model_.norm_epsilon));
  });
}

void Layers::norm_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* weight = parameters_.find(index, 0);
  const HeldTensor* bias = op(index).parameters.size() > 1 ? parameters_.find(index, 1) : nullptr;
  const Form form = stream_form();
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto saved = values_.use({TensorKind::saved, index, micro_batch, form});
  const Key stream = stream_gradient(index, micro_batch);
  const bool adds_stream = values_.has(stream);
  const Key dy_key = gradient(index, micro_batch, form);
  const auto dy = adds_stream ? values_.change(dy_key) : values_.use(dy_key);
  if (adds_stream) {
    const auto share = values_.use(stream);
    values_.forget(stream);
    steps.push_back([=, this, count = static_cast<std::size_t>(elements(index, form))] {
      device_.add(values_.floats(dy), values_.floats(share), count);
    });
  }
  const Key into = gradient(input(index), micro_batch, form);
  // The residual stream's gradient is there already where the norm stands beside it (pre-norm).
  const bool accumulate = values_.has(into);
  const auto dx =
      accumulate ? values_.change(into) : values_.define(into, bytes_of_floats(elements(index, form)));
  values_.forget(gradient(index, micro_batch, form));
  const Place w = weight_of(*weight);
  const Place dw = gradient_of(*weight, micro_batch, steps);
  const Place db = bias != nullptr ? gradient_of(*bias, micro_batch, steps) : Place{};
  steps.push_back([=, this] {
    float* mean = values_.floats(saved);
    device_.norm_backward(model_.norm, values_.floats(dy), values_.floats(x), at(w), mean, mean + rows,
                          values_.floats(dx), accumulate, ready_to_add(dw), ready_to_add(db), rows,
                          model_.hidden);
  });
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

void Layers::attention_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto qkv = values_.use(activation(input(index), micro_batch, Form::whole));
  const auto out = values_.define(activation(index, micro_batch, Form::whole),
                                  bytes_of_floats(elements(index, Form::whole)));
  const AttentionSize size = attention_size();
  const auto saved = values_.define({TensorKind::saved, index, micro_batch, Form::whole},
                                    bytes_of_floats(rows_ * size.heads));
  steps.push_back([=, this] {
    device_.attention_forward(size, values_.floats(qkv), values_.floats(out), values_.floats(saved));
  });
}

void Layers::attention_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto qkv = values_.use(activation(input(index), micro_batch, Form::whole));
  const auto out = values_.use(activation(index, micro_batch, Form::whole));
  const auto saved = values_.use({TensorKind::saved, index, micro_batch, Form::whole});
  const auto dout = values_.use(gradient(index, micro_batch, Form::whole));
  const AttentionSize size = attention_size();
  const auto dqkv = values_.define(gradient(input(index), micro_batch, Form::whole),
                                   bytes_of_floats(rows_ * size.qkv_columns()));
  values_.forget(gradient(index, micro_batch, Form::whole));
  steps.push_back([=, this] {
    device_.attention_backward(size, values_.floats(qkv), values_.floats(out), values_.floats(dout),
                               values_.floats(saved), values_.floats(dqkv));
  });
}

void Layers::activation_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto y = values_.define(activation(index, micro_batch, form), bytes_of_floats(elements(index, form)));
  const std::int64_t columns = columns_of(index);
  const bool gate = gated(index);
  steps.push_back([=, this] {
    device_.activation_forward(model_.activation, gate, values_.floats(x), values_.floats(y), rows, columns);
  });
}

void Layers::activation_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const std::int64_t columns = columns_of(index);
  const bool gate = gated(index);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto dy = values_.use(gradient(index, micro_batch, form));
  const auto dx = values_.define(gradient(input(index), micro_batch, form),
                                 bytes_of_floats(rows * columns * (gate ? 2 : 1)));
  values_.forget(gradient(index, micro_batch, form));
  steps.push_back([=, this] {
    device_.activation_backward(model_.activation, gate, values_.floats(x), values_.floats(dy),
                                values_.floats(dx), rows, columns);
  });
}

// The branches' biases wait for it where the products before them are sums over tensor ranks.
const HeldTensor* Layers::bias_of_branch(int residual, std::size_t branch) const {
  const Linear linear = linear_of(input(residual, branch));
  return linear.biases.empty() ? nullptr : linear.biases.front().first;
}

void Layers::residual_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = stream_form();
  const std::size_t branches = op(index).inputs.size() - 1;
  auto stream = values_.use(activation(input(index, branches), micro_batch, form));
  const auto out =
      values_.define(activation(index, micro_batch, form), bytes_of_floats(elements(index, form)));
  for (std::size_t i = 0; i < branches; ++i) {
    const auto branch = values_.use(activation(input(index, i), micro_batch, form));
    const Place b = weight_or_none(bias_of_branch(index, i));
    steps.push_back([=, this] {
      device_.residual_forward(values_.floats(branch), at(b), values_.floats(stream), values_.floats(out),
                               rows_of(form), model_.hidden);
    });
    stream = out;
  }
}

void Layers::residual_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = stream_form();
  const std::size_t branches = op(index).inputs.size() - 1;
  const auto dout = values_.use(gradient(index, micro_batch, form));
  values_.forget(gradient(index, micro_batch, form));
  // The same gradient goes all ways: one memory, several names. The norm adds to the stream's after the
  // branches have been run through; where weights are run through later still, these keep their own.
  const int stream = input(index, branches);
  values_.alias(
      stream_is_norm(index) ? stream_gradient(stream, micro_batch) : gradient(stream, micro_batch, form),
      dout);
  for (std::size_t i = 0; i < branches; ++i) {
    const Key branch = gradient(input(index, i), micro_batch, form);
    if (plan_.choices.schedule == Schedule::zero_bubble) {
      const std::size_t bytes = bytes_of_floats(elements(index, form));
      const auto copy = values_.define(branch, bytes);
      steps.push_back([=, this] { device_.copy(values_.at(copy), values_.at(dout), bytes); });
    } else {
      values_.alias(branch, dout);
    }
    const HeldTensor* bias = bias_of_branch(index, i);
    if (bias == nullptr) continue;
    const Place db = gradient_of(*bias, micro_batch, steps);
    steps.push_back([=, this] {
      device_.bias_gradient(values_.floats(dout), ready_to_add(db), rows_of(form), model_.hidden,
                            model_.hidden);
    });
  }
}

void Layers::loss_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const int head = find_back(index, OperatorKind::head);
  const HeldTensor* table = parameters_.find(head, 0);
  const std::int64_t stride = table->shape[0];
  const std::int32_t columns = vocabulary_count(*table);
  const std::int32_t first = vocabulary_first(*table);
  const Key logits_key = activation(head, micro_batch, Form::whole);
  const auto maximum_key = [&] {
    return Key{TensorKind::loss_max, find_back(index, OperatorKind::loss_max), micro_batch, Form::whole};
  };
  const auto sum_key = [&] {
    return Key{TensorKind::loss_sum, find_back(index, OperatorKind::loss_sum), micro_batch, Form::whole};
  };
  switch (op(index).kind) {
    case OperatorKind::loss_max: {
      const auto logits = values_.use(logits_key);
      const auto maximum = values_.define(maximum_key(), bytes_of_floats(rows_));
      steps.push_back([=, this] {
        device_.loss_max(values_.floats(logits), values_.floats(maximum), rows_, columns, stride);
      });
      break;
    }
    case OperatorKind::loss_sum: {
      const auto logits = values_.change(logits_key);
      const auto maximum = values_.use(maximum_key());
      const auto sums = values_.define(sum_key(), bytes_of_floats(2 * rows_));
      steps.push_back([=, this] {
        device_.loss_sum(values_.floats(logits), values_.floats(maximum),
                         batch_.targets + micro_batch * rows_, values_.floats(sums), rows_, columns, stride,
                         first);
      });
      break;
    }
    default: {
      const auto logits = values_.change(logits_key);
      const auto sums = values_.use(sum_key());
      values_.alias(gradient(head, micro_batch, Form::whole), logits);
      steps.push_back([=, this] {
        device_.loss_gradient(values_.floats(logits), values_.floats(sums),
                              batch_.targets + micro_batch * rows_, loss_scale_ * loss_factor_, rows_,
                              columns, stride, first, batch_.loss);
      });
      break;
    }
  }
}

}  // namespace orrery::exec
