#include "exec/math/layers.h"

#include "base/error.h"
#include "exec/math/rotary_angles.h"
#include "program/operator_shard.h"
#include "program/schedule.h"

namespace orrery::exec {

Layers::Layers(const Plan& plan, const Program& program, Parameters& parameters, Device& device,
               Values& values, const BatchMemory& batch)
    : Mathematics(plan, parameters, device, values, batch, static_cast<std::int64_t>(shard_of(plan).rows)),
      shard_(shard_of(plan)),
      model_(*plan.job->workload.transformer),
      angles_(model_.learned_positions ? RotaryAngles{} : rotary_angles(model_, plan.job->training.seq_len)),
      tp_rank_(program.at.tp),
      cp_(plan.choices.cp),
      cp_rank_(program.at.cp),
      sequence_parallel_(plan.choices.sequence_parallel && plan.choices.tp > 1) {}

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

bool Layers::stream_feeds_products(int residual) const {
  return model_.no_input_norms || op(op(residual).inputs.back()).kind == OperatorKind::norm;
}

Values::Id Layers::whole_gradient(int index, int micro_batch, Form form, std::vector<Step>& steps) {
  const Key stream = stream_gradient(index, micro_batch);
  const Key key = gradient(index, micro_batch, form);
  const bool adds = values_.has(stream);
  const double dropped = embedding_dropout(index);
  const auto dy = adds || dropped > 0 ? values_.change(key) : values_.use(key);
  if (adds) {
    const auto share = values_.use(stream);
    values_.forget(stream);
    steps.push_back([=, this, count = static_cast<std::size_t>(elements(index, form))] {
      device_.add(values_.numbers(dy), values_.numbers(share), count);
    });
  }
  drop_out(dropped, index, micro_batch, form, dy, steps);
  return dy;
}

Values::Id Layers::offset_weights(const Place& weight, std::int64_t count, std::vector<Step>& steps) {
  if (!model_.norms_offset) return -1;
  const auto sum = values_.define_unnamed(DType::fp32, count);
  steps.push_back([=, this, size = static_cast<std::size_t>(count)] {
    device_.fill(values_.floats(sum), size, 1);
    device_.add(values_.floats(sum), at(weight), size);
  });
  return sum;
}

AttentionSize Layers::attention_size() const {
  const AttentionShape whole{model_.heads,    model_.kv_heads,       model_.head_dim,
                             model_.head_dim, !model_.bidirectional, /*window=*/0};
  const AttentionShape own = local_attention(whole, shard_);
  AttentionSize size{
      plan_.choices.micro_batch, local_seq_len(shard_), own.heads, own.kv_heads, own.qk_head_dim, own.causal};
  size.scale = static_cast<float>(model_.attention_scale);
  size.softcap = static_cast<float>(model_.attention_softcap);
  return size;
}

std::int64_t Layers::rows_of(Form form) const {
  return form == Form::shard ? static_cast<std::int64_t>(shared_rows(shard_)) : rows_;
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

std::int64_t Layers::columns_of(int index) const {
  switch (op(index).kind) {
    case OperatorKind::linear:
    case OperatorKind::head:
      // An operator of another stage is only known by the residual stream that it hands over.
      return op(index).split == TensorSplit::row ? model_.hidden : linear_of(index).out;
    case OperatorKind::attention:
    case OperatorKind::activation:
      return local_columns(op(index), shard_);
    default:
      return model_.hidden;
  }
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

void Layers::no_input_gradient(int index, int micro_batch, std::vector<Step>& steps) {
  for (const int from : op(index).inputs) {
    const Key key = gradient(from, micro_batch, stream_form());
    if (values_.has(key)) continue;
    const std::int64_t count = elements(from, stream_form());
    const auto zeros = values_.define(key, count);
    steps.push_back([=, this] { device_.fill(values_.numbers(zeros), static_cast<std::size_t>(count), 0); });
  }
}

void Layers::backward(int index, int micro_batch, bool input, bool weight, std::vector<Step>& steps) {
  if (!works_backward(op(index))) {
    if (input) no_input_gradient(index, micro_batch, steps);
    return;
  }
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

void Layers::norm_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* weight = parameters_.own(index, 0);
  const HeldTensor* bias = parameters_.own(index, 1);
  const Form form = stream_form();
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto y = values_.define(activation(index, micro_batch, form), elements(index, form));
  const auto saved = values_.define({TensorKind::saved, index, micro_batch, form}, 2 * rows);
  const Place w = weight_of(*weight);
  const Place b = weight_or_none(bias);
  const auto offset = offset_weights(w, model_.hidden, steps);
  steps.push_back([=, this] {
    float* mean = values_.floats(saved);
    device_.norm_forward(model_.norm, values_.numbers(x), norm_weights(w, offset), at(b), values_.numbers(y),
                         mean, mean + rows, rows, model_.hidden, static_cast<float>(model_.norm_epsilon));
  });
  drop_out(embedding_dropout(index), index, micro_batch, form, y, steps);
}

Layers::Place Layers::gradient_of_norm(const HeldTensor& tensor, int micro_batch, std::vector<Step>& steps) {
  if (!tensor.frozen) return gradient_of(tensor, micro_batch, steps);
  Place unwanted;
  unwanted.elements = tensor.elements;
  unwanted.value = values_.define_unnamed(DType::fp32, tensor.elements);
  unwanted.first = true;
  return unwanted;
}

void Layers::norm_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* weight = parameters_.own(index, 0);
  const HeldTensor* bias = parameters_.own(index, 1);
  const Form form = stream_form();
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto saved = values_.use({TensorKind::saved, index, micro_batch, form});
  const auto dy = whole_gradient(index, micro_batch, form, steps);
  const Key into = gradient(input(index), micro_batch, form);
  // The residual stream's gradient is there already where the norm stands beside it (pre-norm).
  const bool accumulate = values_.has(into);
  const auto dx = accumulate ? values_.change(into) : values_.define(into, elements(index, form));
  values_.forget(gradient(index, micro_batch, form));
  const Place w = weight_of(*weight);
  const Place dw = gradient_of_norm(*weight, micro_batch, steps);
  const Place db = bias == nullptr ? Place{} : gradient_of_norm(*bias, micro_batch, steps);
  const auto offset = offset_weights(w, model_.hidden, steps);
  steps.push_back([=, this] {
    float* mean = values_.floats(saved);
    device_.norm_backward(model_.norm, values_.numbers(dy), values_.numbers(x), norm_weights(w, offset), mean,
                          mean + rows, values_.numbers(dx), accumulate, ready_to_add(dw), ready_to_add(db),
                          rows, model_.hidden);
  });
}

AttentionSize Layers::attention_size_of(int index) const {
  AttentionSize size = attention_size();
  const int window = op(index).attention->window;
  // Which sees everything sees what it does without.
  if (window > 0 && window < plan_.job->training.seq_len) size.window = window;
  return size;
}

void Layers::attention_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto qkv = values_.use(activation(input(index), micro_batch, Form::whole));
  const auto out = values_.define(activation(index, micro_batch, Form::whole), elements(index, Form::whole));
  AttentionSize size = attention_size_of(index);
  const auto saved = values_.define({TensorKind::saved, index, micro_batch, Form::whole}, rows_ * size.heads);
  steps.push_back([=, this]() mutable {
    size.dropout = attention_dropout(index, micro_batch, cp_rank_);
    device_.attention_forward(size, values_.numbers(qkv), values_.numbers(out), values_.floats(saved));
  });
}

void Layers::attention_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto qkv = values_.use(activation(input(index), micro_batch, Form::whole));
  const auto out = values_.use(activation(index, micro_batch, Form::whole));
  const auto saved = values_.use({TensorKind::saved, index, micro_batch, Form::whole});
  const auto dout = values_.use(gradient(index, micro_batch, Form::whole));
  AttentionSize size = attention_size_of(index);
  const auto dqkv =
      values_.define(gradient(input(index), micro_batch, Form::whole), rows_ * size.qkv_columns());
  values_.forget(gradient(index, micro_batch, Form::whole));
  steps.push_back([=, this]() mutable {
    size.dropout = attention_dropout(index, micro_batch, cp_rank_);
    device_.attention_backward(size, values_.numbers(qkv), values_.numbers(out), values_.numbers(dout),
                               values_.floats(saved), values_.numbers(dqkv));
  });
}

void Layers::activation_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const auto x = values_.use(activation(input(index), micro_batch, form));
  const auto y = values_.define(activation(index, micro_batch, form), elements(index, form));
  const std::int64_t columns = columns_of(index);
  const bool gate = gated(index);
  steps.push_back([=, this] {
    device_.activation_forward(model_.activation, gate, values_.numbers(x), values_.numbers(y), rows,
                               columns);
  });
}

void Layers::activation_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = output_form(index);
  const std::int64_t rows = rows_of(form);
  const std::int64_t columns = columns_of(index);
  const bool gate = gated(index);
  // ReLU: where the output is positive the input was, and the input need not be kept.
  const bool by_output = !gate && model_.activation == Activation::relu;
  const auto x = values_.use(activation(by_output ? index : input(index), micro_batch, form));
  const auto dy = values_.use(gradient(index, micro_batch, form));
  const auto dx = values_.define(gradient(input(index), micro_batch, form), rows * columns * (gate ? 2 : 1));
  values_.forget(gradient(index, micro_batch, form));
  steps.push_back([=, this] {
    device_.activation_backward(model_.activation, gate, values_.numbers(x), values_.numbers(dy),
                                values_.numbers(dx), rows, columns);
  });
}

// The branches' biases wait for it where the products before them are sums over tensor ranks.
const HeldTensor* Layers::bias_of_branch(int residual, std::size_t branch) const {
  if (op(input(residual, branch)).kind == OperatorKind::norm) return nullptr;
  const Linear linear = linear_of(input(residual, branch));
  return linear.biases.empty() ? nullptr : linear.biases.front().first;
}

void Layers::residual_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = stream_form();
  const std::size_t branches = op(index).inputs.size() - 1;
  auto stream = values_.use(activation(input(index, branches), micro_batch, form));
  const auto out = values_.define(activation(index, micro_batch, form), elements(index, form));
  for (std::size_t i = 0; i < branches; ++i) {
    const auto branch = values_.use(activation(input(index, i), micro_batch, form));
    const Place b = weight_or_none(bias_of_branch(index, i));
    const double rate = branch_dropout(index, i);
    steps.push_back([=, this] {
      if (rate > 0) {
        device_.dropout_residual(dropout_of(rate, index, static_cast<int>(i), micro_batch, form),
                                 values_.numbers(branch), at(b), values_.numbers(stream),
                                 values_.numbers(out), rows_of(form), model_.hidden);
        return;
      }
      device_.residual_forward(values_.numbers(branch), at(b), values_.numbers(stream), values_.numbers(out),
                               rows_of(form), model_.hidden);
    });
    stream = out;
  }
}

void Layers::residual_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const Form form = stream_form();
  const std::size_t branches = op(index).inputs.size() - 1;
  const auto dout = whole_gradient(index, micro_batch, form, steps);
  values_.forget(gradient(index, micro_batch, form));
  // The same gradient goes all ways: one memory, several names. The norm adds to the stream's after the
  // branches have been run through; where weights are run through later still, or there are several, these
  // keep their own.
  const int stream = input(index, branches);
  values_.alias(stream_feeds_products(index) ? stream_gradient(stream, micro_batch)
                                             : gradient(stream, micro_batch, form),
                dout);
  for (std::size_t i = 0; i < branches; ++i) {
    const Key branch = gradient(input(index, i), micro_batch, form);
    auto added = dout;  // the gradient of what the branch added
    if (const double rate = branch_dropout(index, i); rate > 0) {
      added = values_.define(branch, elements(index, form));
      steps.push_back([=, this] {
        device_.dropout(dropout_of(rate, index, static_cast<int>(i), micro_batch, form),
                        values_.numbers(dout), values_.numbers(added), rows_of(form), model_.hidden);
      });
    } else if (splits_backward(plan_.choices.schedule) || branches > 1) {
      const auto copy = values_.define(branch, elements(index, form));
      steps.push_back([=, this] { device_.copy(values_.at(copy), values_.at(dout), values_.bytes(copy)); });
    } else {
      values_.alias(branch, dout);
    }
    const HeldTensor* bias = bias_of_branch(index, i);
    if (bias == nullptr || bias->frozen) continue;
    const Place db = gradient_of(*bias, micro_batch, steps);
    steps.push_back([=, this] {
      device_.bias_gradient(values_.numbers(added), ready_to_add(db), rows_of(form), model_.hidden,
                            model_.hidden);
    });
  }
}

}  // namespace orrery::exec
