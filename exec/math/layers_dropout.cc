// Where a transformer drops out, as Hugging Face's classes do: embeddings (behind their norm, where they have
// one), attention's probabilities, and what attention and MLP add to the stream.
#include "exec/math/layers.h"
#include "program/operator_shard.h"

namespace orrery::exec {

Dropout Layers::dropout_of(double rate, int index, int branch, int micro_batch, Form form) const {
  const std::int64_t first = form == Form::shard ? tp_rank_ * rows_of(form) : 0;
  return {batch_.row_keys + micro_batch * rows_ + first, dropout_place(index, branch), rate, 0};
}

// Sums over tensor ranks of an embedding's parts need no other place for it: dropping is linear, and all of
// them draw the same.
double Layers::embedding_dropout(int index) const {
  const Operator& self = op(index);
  if (self.layer >= 0) return 0;
  const bool has_norm = model_.post_norm || model_.embedding_norm;
  return (self.kind == OperatorKind::norm) == has_norm ? model_.dropouts.embedding : 0;
}

double Layers::branch_dropout(int residual, std::size_t branch) const {
  const Operator& from = op(input(residual, branch));
  const bool attention = !from.inputs.empty() && op(from.inputs.front()).kind == OperatorKind::attention;
  return attention ? model_.dropouts.attention_out : model_.dropouts.mlp_out;
}

void Layers::drop_out(double rate, int index, int micro_batch, Form form, Values::Id value,
                      std::vector<Step>& steps) {
  if (rate == 0) return;
  steps.push_back([=, this] {
    device_.dropout(dropout_of(rate, index, 0, micro_batch, form), values_.numbers(value),
                    values_.numbers(value), rows_of(form), model_.hidden);
  });
}

AttentionDropout Layers::attention_dropout(int index, int micro_batch, int position) const {
  if (model_.dropouts.attention == 0) return {};
  AttentionDropout result;
  result.all = dropout_of(model_.dropouts.attention, index, 0, micro_batch, Form::whole);
  result.first_head = tp_rank_ * attention_size().heads;
  result.run = local_seq_len(shard_);
  if (cp_ == 1) return result;
  const ContextPart part = context_part(plan_.job->training.seq_len, cp_, position);
  result.run = part.length;
  result.first[0] = part.first[0];
  result.first[1] = part.first[1];
  return result;
}

}  // namespace orrery::exec
