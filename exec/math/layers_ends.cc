// The two ends of a model, where a vocabulary is cut over tensor ranks: tokens in, losses out.
#include <algorithm>

#include "base/error.h"
#include "exec/math/layers.h"

namespace orrery::exec {

int Layers::find_back(int index, OperatorKind kind) const {
  while (op(index).kind != kind) --index;
  return index;
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

std::int32_t Layers::vocabulary_first(const HeldTensor& table) const {
  return static_cast<std::int32_t>(table.shape[0] * tp_rank_);
}

std::int32_t Layers::vocabulary_count(const HeldTensor& table) const {
  const std::int64_t left = table.tensor->shape[0] - table.shape[0] * tp_rank_;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 0, table.shape[0]));
}

void Layers::embedding_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* table = parameters_.own(index, 0);
  const HeldTensor* positions = model_.learned_positions ? parameters_.own(index, 1) : nullptr;
  const HeldTensor* types =
      model_.token_types > 0 ? parameters_.own(index, model_.learned_positions ? 2 : 1) : nullptr;
  ORRERY_CHECK(table != nullptr, "no token embedding in the buckets");
  const auto out = values_.define(activation(index, micro_batch, Form::whole), elements(index, Form::whole));
  const Place weight = weight_of(*table);
  const Place position_weight = weight_or_none(positions);
  const Place type_weight = weight_or_none(types);
  // The tensor ranks' outputs are summed: one of them adds the positions and segments.
  const bool adds_positions = positions != nullptr && tp_rank_ == 0;
  const bool adds_types = types != nullptr && tp_rank_ == 0;
  const std::int64_t skipped = static_cast<std::int64_t>(model_.position_offset) * model_.hidden;
  steps.push_back([=, this] {
    device_.embedding_forward(batch_.tokens + micro_batch * rows_, at(weight), values_.numbers(out), rows_,
                              model_.hidden, vocabulary_first(*table), vocabulary_count(*table));
    if (model_.embedding_scale != 1)
      device_.scale(values_.numbers(out), static_cast<std::size_t>(rows_ * model_.hidden),
                    static_cast<float>(model_.embedding_scale));
    if (adds_types)
      for (const SegmentRun& run : segment_runs())
        device_.add_bias(values_.numbers(out) + run.row * model_.hidden,
                         at(type_weight) + run.segment * model_.hidden, run.rows, model_.hidden,
                         model_.hidden);
    if (!adds_positions) return;
    const float* table_of_positions = at(position_weight) + skipped;
    for (const Run& run : runs())
      device_.positions_forward(table_of_positions + run.position * model_.hidden,
                                values_.numbers(out) + run.row * model_.hidden, run.rows, model_.hidden,
                                run.seq);
  });
  drop_out(embedding_dropout(index), index, micro_batch, Form::whole, out, steps);
}

void Layers::embedding_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* table = parameters_.own(index, 0);
  const HeldTensor* positions = model_.learned_positions ? parameters_.own(index, 1) : nullptr;
  const HeldTensor* types =
      model_.token_types > 0 ? parameters_.own(index, model_.learned_positions ? 2 : 1) : nullptr;
  const auto dout = whole_gradient(index, micro_batch, Form::whole, steps);
  const Place table_gradient = gradient_of(*table, micro_batch, steps);
  const Place position_gradient =
      positions != nullptr ? gradient_of(*positions, micro_batch, steps) : Place{};
  const Place type_gradient = types != nullptr ? gradient_of(*types, micro_batch, steps) : Place{};
  const std::int64_t skipped = static_cast<std::int64_t>(model_.position_offset) * model_.hidden;
  const bool scales = model_.embedding_scale != 1;
  const auto of_tokens =
      scales ? values_.define_unnamed(values_.activations(), elements(index, Form::whole)) : dout;
  steps.push_back([=, this] {
    if (scales) {
      const auto count = static_cast<std::size_t>(rows_ * model_.hidden);
      device_.copy(values_.at(of_tokens), values_.at(dout), values_.bytes(of_tokens));
      device_.scale(values_.numbers(of_tokens), count, static_cast<float>(model_.embedding_scale));
    }
    device_.embedding_backward(batch_.tokens + micro_batch * rows_, values_.numbers(of_tokens),
                               ready_to_add(table_gradient), rows_, model_.hidden, vocabulary_first(*table),
                               vocabulary_count(*table));
    if (types != nullptr) {
      float* gradient_of_types = ready_to_add(type_gradient);
      for (const SegmentRun& run : segment_runs())
        device_.bias_gradient(values_.numbers(dout) + run.row * model_.hidden,
                              gradient_of_types + run.segment * model_.hidden, run.rows, model_.hidden,
                              model_.hidden);
    }
    if (positions == nullptr) return;
    float* gradient_of_positions = ready_to_add(position_gradient) + skipped;
    for (const Run& run : runs())
      device_.positions_backward(values_.numbers(dout) + run.row * model_.hidden,
                                 gradient_of_positions + run.position * model_.hidden, run.rows,
                                 model_.hidden, run.seq);
  });
}

void Layers::loss_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const int head = find_back(index, OperatorKind::head);
  const HeldTensor* table = parameters_.own(head, 0);
  const std::int64_t stride = linear_of(head).stride;
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
      const auto maximum = values_.define(maximum_key(), rows_);
      steps.push_back([=, this] {
        device_.loss_max(values_.numbers(logits), values_.floats(maximum), rows_, columns, stride);
      });
      break;
    }
    case OperatorKind::loss_sum: {
      const auto logits = values_.change(logits_key);
      const auto maximum = values_.use(maximum_key());
      const auto sums = values_.define(sum_key(), 2 * rows_);
      steps.push_back([=, this] {
        device_.loss_sum(values_.numbers(logits), values_.floats(maximum),
                         batch_.targets + micro_batch * rows_, values_.floats(sums), rows_, columns, stride,
                         first);
      });
      break;
    }
    default: {
      const auto logits = values_.change(logits_key);
      const auto maximum = values_.use(maximum_key());
      const auto sums = values_.use(sum_key());
      values_.alias(gradient(head, micro_batch, Form::whole), logits);
      steps.push_back([=, this] {
        device_.loss_gradient(values_.numbers(logits), values_.floats(maximum), values_.floats(sums),
                              batch_.targets + micro_batch * rows_, loss_scale_ * loss_factor_, rows_,
                              columns, stride, first, batch_.loss);
      });
      break;
    }
  }
}

}  // namespace orrery::exec
